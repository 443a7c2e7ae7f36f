package asyncstate

import (
	"context"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// A lifetime lasts from the start of an operation until its result is stored.
// It is safe for concurrent use.
type lifetime struct {
	ctx    context.Context //nolint:containedctx // It is the operation's own.
	cancel context.CancelCauseFunc

	mu sync.Mutex
	lifeState

	// timer abandons the operation.
	timer *time.Timer
}

// A lifeState says how far an operation is.
type lifeState struct {
	over   bool
	ending ending

	// unstored is why the result is not stored yet, after the last attempt.
	unstored error

	// abandoned means that nothing waits for the operation, although it has not ended when the timer fired.
	abandoned bool
}

// An ending is the error and the time that an operation ended with.
type ending struct {
	err error
	at  time.Time
}

// start a lifetime with a deadline. The operation is cancelled early when stopping is done.
func (l *lifetime) start(ctx, stopping context.Context, deadline time.Time) {
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(deadline), func() { l.cancel(ErrDeadline) })
	stop := context.AfterFunc(stopping, func() { l.cancel(errStopped) })

	context.AfterFunc(l.ctx, func() { //nolint:contextcheck // The operation's own.
		timer.Stop()
		stop()
	})
}

// end the operation with err, and return how it ended.
// cancellable means that a create that was cancelled has failed. Otherwise its outcome is unknown.
func (l *lifetime) end(err error, cancellable bool) ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cause := context.Cause(l.ctx); err != nil && cause != nil && !errors.Is(err, errNotStarted) {
		err = errorOfCancelled(err, cause, cancellable)
	}
	l.over, l.ending = true, ending{err: err, at: time.Now()}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.cancel(ErrEnded)
	return l.ending
}

func (l *lifetime) get() lifeState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lifeState
}

func (l *lifetime) setStoreError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unstored = err
}

// abandonAt calls abandon unless the operation has ended by then.
func (l *lifetime) abandonAt(at time.Time, abandon func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.timer = time.AfterFunc(time.Until(at), abandon)
	}
}

// abandon the operation. It reports whether it did: an operation that has ended is not
// abandoned.
func (l *lifetime) abandon() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = !l.over
	return l.abandoned
}
