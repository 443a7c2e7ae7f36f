package asyncstate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turn is how long an object whose turn it is has to begin. It needs only be
// reconciled once in that time; one that is gone never is.
const turn = 30 * time.Second

// A waiter is an object that wants to begin an operation.
type waiter struct {
	uid types.UID
	key client.ObjectKey
}

// A slot belongs to an object that runs an operation, or that has its turn to begin
// one until the timer fires.
type slot struct {
	turn *time.Timer
}

// acquire a slot for an operation of an object, or a place in the line. Who is in
// the line is not overtaken by who isn't.
func (t *Tracker) acquire(o client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	uid := o.GetUID()

	s, ours := t.slots[uid]
	if ours && s.turn == nil {
		return true
	}

	// What is announced now could not be begun any more.
	if t.stopped {
		return false
	}

	if ours || len(t.slots) < t.most {
		if ours {
			s.turn.Stop()
		}

		t.slots[uid] = &slot{}
		t.leaveLine(uid)

		return true
	}

	if _, ok := t.inLine[uid]; !ok {
		t.inLine[uid] = struct{}{}
		t.line = append(t.line, waiter{uid: uid, key: client.ObjectKeyFromObject(o)})
	}

	return false
}

// release an object's slot, and let the next in line have its turn.
func (t *Tracker) release(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if s, ok := t.slots[uid]; !ok || s.turn != nil {
		return
	}

	delete(t.slots, uid)

	for len(t.slots) < t.most {
		next, ok := t.nextInLine()
		if !ok {
			return
		}

		t.slots[next.uid] = t.turnOf(next.uid)
		t.add(next.key)
	}
}

// turnOf an object, which ends if it doesn't begin. Its slot is then anybody's who
// comes first: if objects take longer than that to be reconciled, turns get
// nowhere.
func (t *Tracker) turnOf(uid types.UID) *slot {
	s := &slot{}

	s.turn = time.AfterFunc(turn, func() {
		t.mu.Lock()
		defer t.mu.Unlock()

		if t.slots[uid] != s {
			return
		}

		delete(t.slots, uid)

		if next, ok := t.nextInLine(); ok {
			t.add(next.key)
		}
	})

	return s
}

// nextInLine takes the first object out of the line. It needs the lock.
func (t *Tracker) nextInLine() (waiter, bool) {
	for len(t.line) > 0 {
		w := t.line[0]
		t.line = t.line[1:]

		if _, ok := t.inLine[w.uid]; ok {
			t.leaveLine(w.uid)
			return w, true
		}
	}

	return waiter{}, false
}

// leaveLine needs the lock. Neither maps nor slices shrink by themselves.
func (t *Tracker) leaveLine(uid types.UID) {
	if delete(t.inLine, uid); len(t.inLine) == 0 && t.line != nil {
		t.line, t.inLine = nil, map[types.UID]struct{}{}
	}
}
