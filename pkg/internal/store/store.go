// Package store keeps values about objects between reconciles, in memory.
package store

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// idleTime is how long the store keeps an object that no reconcile looks at. An object
// that is deleted while the process does not watch it is dropped by this limit.
const idleTime = 24 * time.Hour

// A Store holds values about objects, in memory only. Nothing in it may be needed to
// stay correct after a restart.
//
// There is one rule for forgetting: the store drops all values of an object when the
// object no longer exists (Forget), when a reconcile reads another one with its name (Claim),
// or one that was created later has values, and after one to two days in which no value was
// read or written. The zero value is ready to use. A Store is safe for concurrent use.
type Store struct {
	mu sync.Mutex

	// Objects move from idle to active when they are used. Once an idleTime, active
	// becomes idle and the objects of idle are dropped.
	active, idle map[client.ObjectKey]*object
	swapped      time.Time
}

type object struct {
	uid     types.UID
	created time.Time
	values  []value
}

type value struct{ key, value any }

// Forget drops all values of the object with this name.
func (s *Store) Forget(name client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, name)
	delete(s.idle, name)
}

// Claim drops the values of another object with the name of o, which a reconcile has read: it no
// longer exists. The clocks of API servers differ, so it may seem to be the later one.
func (s *Store) Claim(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	for _, objects := range []map[client.ObjectKey]*object{s.active, s.idle} {
		if had, ok := objects[name]; ok && had.uid != o.GetUID() {
			delete(objects, name)
		}
	}
}

// ForgetObject drops all values of an object. Those of another one with its name stay.
func (s *Store) ForgetObject(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	if s.find(name, o.GetUID()) != nil {
		delete(s.active, name)
	}
}

// UID returns the UID of the object whose values are stored under this name, and false if
// there is none. It may no longer exist.
func (s *Store) UID(name client.ObjectKey) (types.UID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, objects := range []map[client.ObjectKey]*object{s.active, s.idle} {
		if o, ok := objects[name]; ok {
			return o.uid, true
		}
	}
	return "", false
}

// Len returns the number of objects in the store.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active) + len(s.idle)
}

// find returns the values of an object, or nil if there are none. It needs the lock.
func (s *Store) find(name client.ObjectKey, uid types.UID) *object {
	if now := time.Now(); now.Sub(s.swapped) >= idleTime {
		if now.Sub(s.swapped) >= 2*idleTime {
			s.active = nil
		}
		s.active, s.idle, s.swapped = nil, s.active, now
	}

	o, ok := s.active[name]
	if !ok {
		if o, ok = s.idle[name]; !ok {
			return nil
		}
		delete(s.idle, name)
		s.put(name, o)
	}
	if o.uid != uid {
		return nil
	}
	return o
}

func (s *Store) put(name client.ObjectKey, o *object) {
	if s.active == nil {
		s.active = map[client.ObjectKey]*object{}
	}
	s.active[name] = o
}

// A Key identifies one value of each object. Its address is its identity, so it must not
// be copied. The zero value is ready to use.
type Key[T any] struct{ _ byte }

// Get returns the value of an object, or the zero value. The caller must not change what
// the value points to.
func (k *Key[T]) Get(s *Store, o client.Object) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := k.of(s.find(client.ObjectKeyFromObject(o), o.GetUID())); v != nil {
		return *v
	}
	var zero T
	return zero
}

// Update changes the value of an object, and returns it. Nothing is kept for an object whose
// name one that was created later has. The store is locked while fn runs: fn must not use it.
func (k *Key[T]) Update(s *Store, o client.Object, fn func(v *T)) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	known := s.find(name, o.GetUID())
	if known == nil {
		known = &object{uid: o.GetUID(), created: o.GetCreationTimestamp().Time}
		if had := s.active[name]; had == nil || !known.created.Before(had.created) {
			s.put(name, known)
		}
	}
	v := k.of(known)
	if v == nil {
		v = new(T)
		known.values = append(known.values, value{key: k, value: v})
	}
	fn(v)
	return *v
}

// Delete drops the value of an object.
func (k *Key[T]) Delete(s *Store, o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	known := s.find(name, o.GetUID())
	if known == nil {
		return
	}
	for i, v := range known.values {
		if v.key == k {
			known.values = append(known.values[:i:i], known.values[i+1:]...)
			break
		}
	}
	if len(known.values) == 0 {
		delete(s.active, name)
	}
}

// of returns the value of this key, or nil if o is nil or has none.
func (k *Key[T]) of(o *object) *T {
	if o == nil {
		return nil
	}
	for _, v := range o.values {
		if v.key == k {
			t, _ := v.value.(*T)
			return t
		}
	}
	return nil
}
