package reconciler

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forgotten is the number of UIDs that are kept of objects that no longer exist. A stale
// cache may still return such an object.
const forgotten = 64

// A memory has an entry for each object that is being deleted, until a reconcile finds that
// the object no longer exists. A restart may lose it. It is safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*remembered
	last    []types.UID
}

// remembered is the entry of one object.
type remembered struct {
	uid   types.UID
	since time.Time

	// dependents is the largest number of dependents that a lister returned: it may leave
	// out those that no longer exist. waiting reports whether some still exist.
	dependents int
	waiting    bool

	// look is the last one at its dependents.
	look look

	// written is the last report of each stage of a reconcile, and replaced how often
	// in a row one was restored that another writer had replaced, lastly at restored.
	written  [3]string
	restored time.Time
	replaced int

	// deadline is the progress of the event that the deadline has passed.
	deadline notification

	// orphaning has the finalizers of a request whose answer was lost.
	orphaning *orphaned

	// keptOwned reports whether the object was deleted with the propagation policy Orphan.
	// refused is the message of a refused request to orphan the object.
	keptOwned bool
	refused   string
}

// orphaned is an object that is orphaned, and the finalizers that it loses.
type orphaned struct {
	object     client.Object
	finalizers []string
}

// A notification is the progress of an event that is sent once.
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

// update the entry of an object, if there is one.
func (m *memory) update(o client.Object, fn func(r *remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.objects[client.ObjectKeyFromObject(o)]; r != nil && r.uid == o.GetUID() {
		fn(r)
	}
}

// get returns the entry of an object, if there is one.
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
