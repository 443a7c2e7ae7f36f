package asyncstate

import (
	"context"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// A callInProgress is a call of an external client that may begin an operation until it returns.
type callInProgress struct {
	record      *creation.Record
	annotations map[string]string // of the managed resource before the call
	semaphore   *semaphore

	// reconciled is closed when the reconcile has ended.
	reconciled <-chan struct{}

	mu     sync.Mutex
	op     *Operation
	closed bool
}

type callKey struct{}

// callOf returns the call that ctx is the context of, or nil.
func callOf(ctx context.Context) *callInProgress {
	c, _ := ctx.Value(callKey{}).(*callInProgress)
	return c
}

// Begin an operation that the caller runs in a goroutine of its own. It is for external clients
// that return from Create, Update and Delete at once, of trackers that were created
// WithOwnGoroutines: they call it with the context that they were given, before anything can
// reach the external system. The operation's record is stored by then. The caller must call
// End when the operation is over, and should heed its Context. An operation that has not ended
// a minute after its deadline is abandoned: nothing waits for it any more, and it is treated as
// an interrupted one. Its later result is still stored, unless the record has changed by then.
//
// It returns ErrNotInOperation if ctx does not belong to a call of that type, or the call has
// returned, ErrRunning if that call has begun an operation already, and ErrStopped if the
// tracker was stopped.
func (t *Tracker) Begin(ctx context.Context, mg resource.Managed, typ Type) (*Operation, error) {
	c := callOf(ctx)
	if c == nil || c.record.UID != mg.GetUID() || Type(c.record.Type) != typ {
		return nil, errors.Wrapf(ErrNotInOperation, "cannot begin %s", typ)
	}
	op, err := c.beginOperation(ctx, t, mg)
	return op, errors.Wrapf(err, "cannot begin %s", typ)
}

// beginOperation begins the operation that the call was made for.
func (c *callInProgress) beginOperation(ctx context.Context, t *Tracker, mg resource.Managed) (*Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.closed:
		return nil, errors.Wrap(ErrNotInOperation, "the call has returned")
	case c.op != nil:
		return nil, ErrRunning
	}

	op, err := t.register(newOperation(ctx, t, mg, c.annotations, c.record, c.semaphore), c.reconciled)
	if err != nil {
		return nil, err
	}
	c.op = op
	op.lifetime.abandonAt(creation.Later(c.record.Deadline.Time, creation.EndGrace), op.abandon)
	return op, nil
}

// close stops the call from beginning an operation, and takes over annotations that it set. It
// returns the operation that was begun, or nil.
func (c *callInProgress) close(mg resource.Managed) *Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.op != nil {
		c.op.stored.addAnnotations(annotatedSince(c.annotations, mg))
	}
	return c.op
}

// Token is Operation.Token of the operation that ctx is the context of, or that Begin would
// begin with ctx. It is empty if there is none: check it if the external system must have one.
func Token(ctx context.Context) string {
	if op, err := operationIn(ctx); err == nil {
		return op.Token()
	}
	if c := callOf(ctx); c != nil {
		return c.record.Token
	}
	return ""
}
