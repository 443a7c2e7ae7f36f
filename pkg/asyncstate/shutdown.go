package asyncstate

import (
	"context"
	"sync"
	"time"
)

// A stage of a shutdown is a context that is done as soon as the stage begins.
type stage struct {
	context.Context //nolint:containedctx // It is the tracker's own lifetime.

	start context.CancelFunc
}

func newStage() stage {
	ctx, begin := context.WithCancel(context.Background())
	return stage{Context: ctx, start: begin}
}

// A shutdown waits for the work of a tracker, in three stages. It is safe for concurrent use.
type shutdown struct {
	stopping   stage // No operation begins. Results are stored without long waits.
	cancelling stage // Operations that still run are cancelled.
	abandoning stage // Results that are not stored are left to the next process.

	mu      sync.Mutex
	started bool
	running int
	idle    chan struct{} // closed when running gets to 0 after the shutdown has begun
}

func newShutdown() *shutdown {
	return &shutdown{stopping: newStage(), cancelling: newStage(), abandoning: newStage(), idle: make(chan struct{})}
}

// run the shutdown. Operations are cancelled after timeout, and abandoned after another
// timeout. It returns how many were abandoned.
func (s *shutdown) run(timeout time.Duration) int {
	s.mu.Lock()
	s.started = true
	s.closeIfIdle()
	s.mu.Unlock()
	s.stopping.start()

	// The stages also begin if nothing is left to wait for: an abandoned operation may still end.
	for _, next := range []stage{s.cancelling, s.abandoning} {
		s.awaitIdle(timeout)
		next.start()
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
