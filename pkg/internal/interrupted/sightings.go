package interrupted

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// keepSighting is how long an object is remembered that is not looked at.
const keepSighting = 24 * time.Hour

// Sightings remembers when this process first saw interrupted creates, since the
// clocks of the processes that began them may be wrong. The zero value is ready to
// use. It is safe for concurrent use.
type Sightings struct {
	mu sync.Mutex
	of map[types.UID]*sighting
}

type sighting struct {
	create string
	first  time.Time
	expiry *time.Timer
}

// First returns when this process first saw that create of the object, which is now
// if it has not seen it. A create is told from others of the object by its text. What
// is not seen for a day is forgotten.
func (s *Sightings) First(uid types.UID, create string, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()

	if had, ok := s.of[uid]; ok && had.create == create {
		had.expiry.Reset(keepSighting)
		return had.first
	}
	s.forget(uid)
	if s.of == nil {
		s.of = map[types.UID]*sighting{}
	}
	n := &sighting{create: create, first: now}
	n.expiry = time.AfterFunc(keepSighting, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.of[uid] == n {
			s.forget(uid)
		}
	})
	s.of[uid] = n
	return now
}

// Forget the interrupted create of an object.
func (s *Sightings) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(uid)
}

// Len returns of how many objects an interrupted create is remembered.
func (s *Sightings) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of)
}

// forget needs the lock.
func (s *Sightings) forget(uid types.UID) {
	if had, ok := s.of[uid]; ok {
		had.expiry.Stop()
		delete(s.of, uid)
	}
	if len(s.of) == 0 {
		s.of = nil // A map never shrinks.
	}
}
