package asyncstate

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A clientCall calls an external client's Create, Update, Delete or Resume.
type clientCall[M resource.Managed] func(ctx context.Context, mg M) (managed.ConnectionDetails, error)

// recordAndBegin stores the record of a new operation, and begins it.
func (e *asyncClient[M]) recordAndBegin(ctx context.Context, mg M, typ Type, call clientCall[M]) error {
	had, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}
	r := e.tracker.records.next(mg, typ, had)

	// An update or delete begins only if the external resource exists, so the create succeeded.
	if err := e.tracker.persist(
		ctx, mg, creation.On(mg).SucceededIfIncomplete(time.Now()).WithRecord(r), seam.Decided,
	); err != nil {
		return err
	}
	return e.begin(ctx, mg, r, call)
}

// begin registers an operation whose record is stored. It runs in a goroutine when the reconcile
// has ended. Then reconcile and operation do not write the object at the same time.
func (e *asyncClient[M]) begin(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	op, err := e.tracker.register(newOperation(ctx, e.tracker, mg, r, e.semaphore))
	if err != nil {
		return e.beginFailed(ctx, mg, r, err)
	}
	e.operationBegan(ctx, mg, op)
	operand, began := copyOf(mg), time.Now()

	e.startOperation = func() { //nolint:contextcheck // An operation has a context of its own.
		op.lifetime.abandonAt(creation.Later(r.Deadline.Time, creation.EndGrace), op.abandon)
		go op.run(operand, func(ctx context.Context) (managed.ConnectionDetails, error) {
			defer func() {
				// A panic of Disconnect says nothing about the operation.
				if _, err := op.call(func(ctx context.Context) (managed.ConnectionDetails, error) {
					return nil, e.inner.Disconnect(context.WithoutCancel(ctx))
				}); err != nil {
					e.tracker.config.events.log.Debug(
						"Cannot disconnect from provider", "uid", operand.GetUID(), "error", err,
					)
				}
			}()
			if err := op.checkLateStart(ctx, time.Since(began)); err != nil {
				return nil, err
			}
			return call(ctx, operand)
		})
	}
	return nil
}

// beginFailed removes the record of an operation that could not begin because of err, and returns
// err. The record of an attempt that was begun before stays.
func (e *asyncClient[M]) beginFailed(ctx context.Context, mg M, r *creation.Record, err error) error {
	if e.tracker.records.neverStarted(r) {
		// Without the record, upstream's announcement would stop the object.
		_ = e.tracker.persist(ctx, mg, creation.On(mg).WithoutRecord().FailedIfIncomplete(time.Now()), seam.Decided)
	}
	return err
}

// operationBegan records that op runs; op releases the permit.
func (e *asyncClient[M]) operationBegan(ctx context.Context, mg M, op *operation) {
	e.semaphore = nil
	s, _ := op.status()
	e.reportRunning(ctx, mg, s)
	e.poll(ctx)
	e.outcome.State = seam.InProgress
	switch s.Type {
	case Create:
		time.AfterFunc(yieldInterval, op.yieldIfMoved)
	case Delete:
		e.reportDeleting(ctx, "The external resource is being deleted.")
	}
}
