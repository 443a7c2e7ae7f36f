package seam

// A Slot holds one value of a patch during a reconcile. Only its owner can read the
// value. The zero Slot is ready to use; its address is its identity, so it must not be
// copied.
type Slot[T any] struct{ _ byte }

type slot struct{ key, value any }

// In returns the session's value, which is the zero value at first. Without a session
// it is a value that nothing else sees.
func (k *Slot[T]) In(s *Session) *T {
	if s == nil {
		return new(T)
	}
	if v := k.Find(s); v != nil {
		return v
	}
	if s.slots == nil {
		s.slots = s.firstSlots[:0]
	}
	v := new(T)
	s.slots = append(s.slots, slot{key: k, value: v})
	return v
}

// Find returns the session's value, or nil if In was not called in it.
func (k *Slot[T]) Find(s *Session) *T {
	if s == nil {
		return nil
	}
	for _, e := range s.slots {
		if e.key == k {
			v, _ := e.value.(*T)
			return v
		}
	}
	return nil
}
