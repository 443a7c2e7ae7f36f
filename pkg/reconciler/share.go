package reconciler

import (
	"sync"
	"time"
)

const (
	// lookTimeout bounds the time that one reconcile reads dependents.
	lookTimeout = 5 * time.Second

	// glanceTimeout bounds it while the share of the workers is used up. A cache answers
	// for hundreds of dependents in that time.
	glanceTimeout = 50 * time.Millisecond

	// shareOfWorkers divides the time that passes: so much of it is for reading
	// dependents.
	shareOfWorkers = 2
)

// A share is the time of the workers that may be used to read dependents: half of one
// worker's. Objects whose dependents are read quickly always get a glance, so that an object
// whose dependents are slow holds up no other. The zero share is ready to use, and safe for
// concurrent use.
type share struct {
	mu   sync.Mutex
	used time.Duration
	at   time.Time
}

// grant returns how long a look may take now. Zero means that there is none, and that the
// outcome of the last one is reported.
func (s *share) grant(slow bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = max(0, s.used-now.Sub(s.at)/shareOfWorkers)
	s.at = now

	switch {
	case s.used < lookTimeout:
		return lookTimeout
	case slow:
		return 0
	default:
		return glanceTimeout
	}
}

// spend notes how long a look took that ended now.
func (s *share) spend(d time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += d
	s.at = now
}
