package reconciler

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forgotten is how many of the objects that went last are known, so that one
// which a cache still has is not taken for another.
const forgotten = 64

// memory is what is remembered of objects that are being deleted, from the first
// reconcile that sees it to the one that sees them gone. Nothing in it is needed
// after a restart. It is safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*remembered
	last    []types.UID
}

// remembered is what is known of one object that is being deleted.
type remembered struct {
	uid   types.UID
	since time.Time

	// dependents is the largest number that it was seen to have: a lister may
	// not know of those that are gone. waiting is whether some are left.
	dependents int
	waiting    bool

	// look is the last one at its dependents.
	look look

	// said is the report that each stage of a reconcile wrote last, and replaced how often
	// in a row one was restored that another writer had replaced, lastly at restored.
	written  [3]string
	restored time.Time
	replaced int

	// told is how far the news is that the deadline has passed.
	deadline notification

	// orphaning are the finalizers that may have been removed: the API server's
	// answer was lost.
	orphaning *orphaned

	// keptOwned is whether the garbage collector was asked to keep what the object
	// owns, and refused is what to say if the API server refuses to orphan it.
	keptOwned bool
	refused   string
}

// orphan is an object that is orphaned, and the finalizers that it loses.
type orphaned struct {
	object     client.Object
	finalizers []string
}

// told is how far a piece of news is that is to be told once.
type notification int

const (
	notNotified notification = iota
	maybeNotified
	notified
)

// remember an object. It is false if the object is known to be gone.
func (m *memory) remember(o client.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.last, o.GetUID()) {
		return false
	}
	k := client.ObjectKeyFromObject(o)
	if m.objects[k] == nil {
		m.objects[k] = &remembered{uid: o.GetUID(), since: o.GetDeletionTimestamp().Time}
	}
	return true
}

// update what is remembered of an object, if it is.
func (m *memory) update(o client.Object, fn func(r *remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.objects[client.ObjectKeyFromObject(o)]; r != nil && r.uid == o.GetUID() {
		fn(r)
	}
}

// get what is remembered of an object, if anything is.
func (m *memory) get(o client.Object) (out remembered, ok bool) {
	m.update(o, func(r *remembered) { out, ok = *r, true })
	return out, ok
}

// forget the object of that name, unless it has the supplied UID.
func (m *memory) forget(k client.ObjectKey, unless types.UID) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.objects[k]
	if r == nil || unless != "" && r.uid == unless {
		return remembered{}, false
	}
	delete(m.objects, k)
	if r.uid != "" {
		m.last = append(m.last[max(0, len(m.last)-forgotten+1):], r.uid)
	}
	return *r, true
}
