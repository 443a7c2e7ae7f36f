package asyncstate

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A waiter is an object that wants to begin an operation.
type waiter struct {
	uid types.UID
	key client.ObjectKey
}

// acquire a slot for an operation of an object, or a place in the line.
func (t *Tracker) acquire(o client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, ok := t.slots[o.GetUID()]; ok {
		return true
	}

	// What is announced now could not be begun any more.
	if t.stopped {
		return false
	}

	if len(t.slots) < t.most {
		t.slots[o.GetUID()] = struct{}{}
		delete(t.inLine, o.GetUID())

		return true
	}

	if _, ok := t.inLine[o.GetUID()]; !ok {
		t.inLine[o.GetUID()] = struct{}{}
		t.line = append(t.line, waiter{uid: o.GetUID(), key: client.ObjectKeyFromObject(o)})
	}

	return false
}

// release an object's slot, and let the next in line have its turn. One that
// doesn't take it, since it is gone for example, costs the others no more than the
// time until they ask again by themselves.
func (t *Tracker) release(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, ok := t.slots[uid]; !ok {
		return
	}

	delete(t.slots, uid)

	for len(t.line) > 0 {
		next := t.line[0]
		t.line = t.line[1:]

		if _, ok := t.inLine[next.uid]; ok {
			delete(t.inLine, next.uid)
			t.add(next.key)

			return
		}
	}
}
