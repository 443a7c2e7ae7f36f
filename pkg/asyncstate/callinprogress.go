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

// callOf returns the beginning that ctx is the context of, or nil.
func callOf(ctx context.Context) *callInProgress {
	b, _ := ctx.Value(callKey{}).(*callInProgress)
	return b
}

// beginOperation the operation.
func (b *callInProgress) beginOperation(ctx context.Context, t *Tracker, mg resource.Managed) (*Operation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	switch {
	case b.closed:
		return nil, errors.Wrap(ErrNotInOperation, "the call has returned")
	case b.op != nil:
		return nil, ErrRunning
	}

	op, err := t.register(newOperation(ctx, t, mg, b.annotations, b.record, b.semaphore), b.reconciled)
	if err != nil {
		return nil, err
	}
	b.op = op
	op.lifetime.abandonAt(b.record.Deadline.Add(endGrace), op.abandon)
	return op, nil
}

// close of the call, which may have set annotations of mg. It returns the operation that was
// begun, or nil.
func (b *callInProgress) close(mg resource.Managed) *Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.op != nil {
		b.op.stored.addAnnotations(annotatedSince(b.annotations, mg))
	}
	return b.op
}

// Token is Operation.Token of the operation that ctx is the context of, or that Begin would
// begin with ctx. It is empty if there is none, which an external system takes for no token:
// check it, if it must have one.
func Token(ctx context.Context) string {
	if op, err := operationIn(ctx); err == nil {
		return op.Token()
	}
	if b := callOf(ctx); b != nil {
		return b.record.Token
	}
	return ""
}
