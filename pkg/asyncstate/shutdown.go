package asyncstate

import (
	"context"
	"sync"
	"time"
)

// A shutdown waits for the work of a tracker, in three stages. It is safe for concurrent use.
type shutdown struct {
	// Each stage is a context that is done as soon as the stage begins.
	//nolint:containedctx // They are the tracker's own lifetime.
	stopping   context.Context // No operation begins. Results are stored without long waits.
	cancelling context.Context // Operations that still run are cancelled.
	abandoning context.Context // Results that are not stored are left to the next process.
	begin      [3]context.CancelFunc

	mu      sync.Mutex
	started bool
	running int
	idle    chan struct{} // closed when running gets to 0 after the shutdown has begun
}

func newShutdown() *shutdown {
	s := &shutdown{idle: make(chan struct{})}
	for i, stage := range []*context.Context{&s.stopping, &s.cancelling, &s.abandoning} {
		*stage, s.begin[i] = context.WithCancel(context.Background())
	}
	return s
}

// run the shutdown. Operations are cancelled after timeout, and abandoned after another
// timeout. It returns how many were abandoned.
func (s *shutdown) run(timeout time.Duration) int {
	s.mu.Lock()
	s.started = true
	s.closeIfIdle()
	s.mu.Unlock()
	s.begin[0]()

	// The stages also begin if nothing is left to wait for: an abandoned operation may still end.
	for _, begin := range s.begin[1:] {
		s.awaitIdle(timeout)
		begin()
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// awaitIdle waits until all work has ended, for d at most.
func (s *shutdown) awaitIdle(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.idle:
	case <-timer.C:
	}
}

// closeIfIdle needs the lock.
func (s *shutdown) closeIfIdle() {
	if !s.started || s.running > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// enter begins work that the shutdown waits for. It reports whether work may still begin.
func (s *shutdown) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return false
	}
	s.running++
	return true
}

// leave ends work that entered.
func (s *shutdown) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.closeIfIdle()
}

// pause for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
