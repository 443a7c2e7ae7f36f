package seam

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Memory is what the seams know about objects between reconciles. Nothing in
// it is needed for correctness after a restart: it says how fresh a cached read
// must be, and what could not be stored yet.
//
// There is an entry for an object that was written through the seams, until
// it is read as not found or under another UID. Memory is safe for concurrent
// use.
type Memory struct {
	mu      sync.Mutex
	entries map[client.ObjectKey]entry
}

type entry struct {
	uid types.UID

	// version is the newest resourceVersion that one of our writes led to.
	version string

	// doubt is the resourceVersion that the object had before a status write of
	// ours whose outcome is not known. A read that is not newer may lack it.
	doubt string

	// pending are annotations that could not be stored.
	pending Changes

	// failures counts the reconciles in a row that could not store the
	// deletion status.
	failures int
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{entries: make(map[client.ObjectKey]entry)}
}

// Len returns the number of objects that are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

func (m *Memory) get(o client.Object) entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[client.ObjectKeyFromObject(o)]
	if !ok || e.uid != o.GetUID() {
		return entry{uid: o.GetUID()}
	}
	return e
}

func (m *Memory) update(o client.Object, fn func(e *entry)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := client.ObjectKeyFromObject(o)
	e := m.entries[k]
	if e.uid != o.GetUID() {
		e = entry{uid: o.GetUID()}
	}
	fn(&e)
	m.entries[k] = e
}

func (m *Memory) forget(k client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, k)
}

// fresh reports whether a read of resource version v is known to have all that
// was written through the seams.
func (e entry) fresh(v string) bool {
	return (e.version == "" || asFreshAs(v, e.version)) && (e.doubt == "" || OlderThan(e.doubt, v))
}

// wrote remembers that the API server answered a write of ours with o.
func (m *Memory) wrote(o client.Object) {
	m.update(o, func(e *entry) {
		if !OlderThan(o.GetResourceVersion(), e.version) {
			e.version, e.doubt = o.GetResourceVersion(), ""
		}
	})
}

// stored remembers that the API server has accepted o's annotations: those of the
// pending ones that are among them need no storing.
func (m *Memory) stored(o client.Object) {
	if len(m.get(o).pending) == 0 {
		return
	}
	m.update(o, func(e *entry) {
		e.pending = slices.DeleteFunc(slices.Clone(e.pending), func(c Change) bool {
			v, ok := o.GetAnnotations()[c.Key]
			return ok && v == c.Value
		})
	})
}

// doubted remembers that it is unknown whether the API server did a status write
// of ours to an object that had o's resource version.
func (m *Memory) doubted(o client.Object) {
	m.update(o, func(e *entry) {
		if !OlderThan(o.GetResourceVersion(), e.doubt) {
			e.doubt = o.GetResourceVersion()
		}
	})
}

// failed counts a reconcile that could not store the deletion status of o, and
// returns how many there were in a row.
func (m *Memory) failed(o client.Object) int {
	n := 0
	m.update(o, func(e *entry) {
		e.failures++
		n = e.failures
	})
	return n
}

// succeeded ends the count that failed began.
func (m *Memory) succeeded(o client.Object) {
	if m.get(o).failures > 0 {
		m.update(o, func(e *entry) { e.failures = 0 })
	}
}
