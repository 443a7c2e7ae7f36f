package asyncstate

import (
	"context"
	"sync"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// recordAndBegin stores the record of a new update or delete, and begins it.
func (e *asyncClient) recordAndBegin(ctx context.Context, mg resource.Managed, typ Type) error {
	had, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}
	r := e.tracker.records.next(mg, typ, had)

	// An update or delete begins only if the external resource exists, so the create succeeded.
	if err := e.tracker.persist(
		ctx, mg, creation.On(mg).SucceededIfIncomplete(time.Now()).WithRecord(r)); err != nil {
		return err
	}
	return e.begin(ctx, mg, r, nil)
}

// begin registers an operation whose record is stored, or the resumption of an attempt. It runs in a goroutine when
// the reconcile has ended. Then reconcile and operation do not write the object at the same time.
func (e *asyncClient) begin(ctx context.Context, mg resource.Managed, r *creation.Record, resume *Attempt) error {
	op, err := e.tracker.register(newOperation(ctx, e.tracker, mg, r, e.release))
	if err != nil {
		return e.beginFailed(ctx, mg, r, err)
	}
	e.operationBegan(ctx, mg, op)
	operand, began := copyOf(mg), time.Now()

	// A second Disconnect must not send the request twice.
	e.startOperation = sync.OnceFunc(func() { //nolint:contextcheck // An operation has a context of its own.
		op.lifetime.abandonAt(creation.Later(r.Deadline.Time, creation.EndGrace), op.abandon)
		go op.run(operand, func(ctx context.Context) (upstream.ConnectionDetails, error) {
			defer e.disconnect(op)
			if err := op.checkLateStart(ctx, time.Since(began)); err != nil {
				return nil, err
			}
			return e.call(ctx, operand, Type(r.Type), resume)
		})
	})
	return nil
}

// disconnect from the provider after an operation. A panic of Disconnect says nothing about the operation.
func (e *asyncClient) disconnect(op *operation) {
	if _, err := op.call(func(ctx context.Context) (upstream.ConnectionDetails, error) {
		return nil, e.ExternalClient.Disconnect(context.WithoutCancel(ctx))
	}); err != nil {
		e.tracker.config.events.log.Debug("Cannot disconnect from provider", "uid", op.uid(), "error", err)
	}
}

// call the external client, and charge the call to the account. The error of an operation is judged when it ends.
func (e *asyncClient) call(
	ctx context.Context, mg resource.Managed, typ Type, resume *Attempt,
) (upstream.ConnectionDetails, error) {
	seam.From(ctx).Meter().Charge()
	switch {
	case resume != nil:
		return nil, e.resume(ctx, mg, *resume)
	case typ == Create:
		c, err := e.ExternalClient.Create(ctx, mg)
		return c.ConnectionDetails, err
	case typ == Update:
		u, err := e.ExternalClient.Update(ctx, mg)
		return u.ConnectionDetails, err
	default:
		_, err := e.ExternalClient.Delete(ctx, mg)
		return nil, err
	}
}

// beginFailed removes the record of an operation that could not begin because of err, and returns
// err. The record of an attempt that was begun before stays.
func (e *asyncClient) beginFailed(ctx context.Context, mg resource.Managed, r *creation.Record, err error) error {
	if e.tracker.records.neverStarted(r) {
		// Without the record, upstream's announcement would stop the object.
		_ = e.tracker.persist(ctx, mg, creation.On(mg).WithoutRecord().FailedIfIncomplete(time.Now()))
	}
	return err
}

// operationBegan records that op runs; op releases the permit.
func (e *asyncClient) operationBegan(ctx context.Context, mg resource.Managed, op *operation) {
	e.release = nil
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
