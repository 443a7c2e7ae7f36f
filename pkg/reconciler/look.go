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

// A look is the outcome of reading the dependents of one object, for the next one.
type look struct {
	// on is the state of the dependents when all of them had been read, and complete
	// whether they were.
	on       dependents
	complete bool

	// slow is whether it took longer than glanceTimeout. read then has the dependents
	// that were read, which are nil if they don't exist, and next the place in the list
	// at which the next look begins.
	slow bool
	read map[Dependent]*blocker
	next int
}

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
func (s *share) grant(last look, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = max(0, s.used-now.Sub(s.at)/shareOfWorkers)
	s.at = now

	switch {
	case s.used < lookTimeout:
		return lookTimeout
	case last.slow:
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
