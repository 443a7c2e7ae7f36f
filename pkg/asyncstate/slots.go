package asyncstate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turn is how long an object whose turn it is has to begin. It needs only be
// reconciled once in that time; one that no longer exists never is.
const turn = 30 * time.Second

// slots bound how many operations run at the same time. There are those of objects
// that are being deleted, and those of all others, so that creates that hang hold up
// no deletion. All fields and methods need the tracker's lock.
type slots struct {
	most   int
	of     map[types.UID]*slot
	line   []waiter
	inLine map[types.UID]struct{} // those of the line that still wait
}

// A waiter is an object that wants to begin an operation.
type waiter struct {
	uid types.UID
	key client.ObjectKey
}

// A slot belongs to an object that runs an operation, or that has its turn to begin one.
type slot struct {
	turn bool
}

func newSlots(most int) *slots {
	return &slots{most: most, of: map[types.UID]*slot{}, inLine: map[types.UID]struct{}{}}
}

// slotsFor returns the slots that an object's operations need.
func (t *Tracker) slotsFor(o client.Object) *slots {
	if o.GetDeletionTimestamp() != nil {
		return t.deleting
	}
	return t.working
}

// acquire a slot for an operation of an object, or a place in the line. An object
// that is not in the line does not overtake one that is.
func (t *Tracker) acquire(ss *slots, o client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	uid := o.GetUID()
	s, ours := ss.of[uid]
	if ours && !s.turn {
		return true
	}

	// An operation that is announced now could no longer be started.
	if t.stopped {
		return false
	}
	if ours || len(ss.of) < ss.most {
		ss.of[uid] = &slot{}
		ss.leaveLine(uid)
		return true
	}

	if _, ok := ss.inLine[uid]; !ok {
		ss.inLine[uid] = struct{}{}
		ss.line = append(ss.line, waiter{uid: uid, key: client.ObjectKeyFromObject(o)})
	}
	return false
}

// release an object's slot: the next in line has its turn.
func (t *Tracker) release(ss *slots, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(ss.of, uid)

	for len(ss.of) < ss.most {
		next, ok := ss.next()
		if !ok {
			return
		}
		ss.of[next.uid] = t.turnOf(ss, next.uid)
		t.add(next.key)
	}
}

// turnOf an object, which is over if the object does not begin. Its slot is then free
// for whichever object comes first: if objects take longer than that to be
// reconciled, turns get nowhere.
func (t *Tracker) turnOf(ss *slots, uid types.UID) *slot {
	s := &slot{turn: true}

	time.AfterFunc(turn, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if ss.of[uid] == s {
			delete(ss.of, uid)
			t.wake(ss)
		}
	})
	return s
}

// wake one object after the other until the slot that is free is taken. It needs the
// lock.
func (t *Tracker) wake(ss *slots) {
	next, ok := ss.next()
	if !ok {
		return
	}
	t.add(next.key)
	time.AfterFunc(turn, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(ss.of) < ss.most {
			t.wake(ss)
		}
	})
}

// next takes the first object out of the line.
func (ss *slots) next() (waiter, bool) {
	for len(ss.line) > 0 {
		w := ss.line[0]
		ss.line = ss.line[1:]
		if _, ok := ss.inLine[w.uid]; ok {
			ss.leaveLine(w.uid)
			return w, true
		}
	}
	return waiter{}, false
}

// leaveLine takes an object out of the line. Neither maps nor slices shrink by
// themselves.
func (ss *slots) leaveLine(uid types.UID) {
	if delete(ss.inLine, uid); len(ss.inLine) == 0 && ss.line != nil {
		ss.line, ss.inLine = nil, map[types.UID]struct{}{}
	}
}
