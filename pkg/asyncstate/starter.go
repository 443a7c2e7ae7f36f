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

// A starter begins the operation of one reconcile, at most one.
type starter struct {
	// ExternalClient is the provider's, with the optional methods that it has. It is nil if an operation ran at Connect.
	upstream.ExternalClient
	optional

	tracker *Tracker

	// release releases the permit of the object for this reconcile. It is nil if there is none.
	release func()

	// start the goroutine of the operation when the reconcile has ended.
	start func()
}

// acquire a permit for the object, or report that the object waits for one. Create, Update and
// Delete of this reconcile use the permit, also if the object is deleted in between.
func (e *starter) acquire(ctx context.Context, mg resource.Managed) bool {
	t := e.tracker

	// During a shutdown no operation can begin, so none may be recorded.
	if e.release == nil && t.shutdown.stopping.Err() == nil {
		e.release = t.semaphores.acquire(ctx, mg)
	}
	if e.release != nil {
		return true
	}
	r := t.report(ctx)
	r.reason, r.message = ReasonQueued, messageQueued
	t.poll(ctx)
	return false
}

// begin registers an operation whose record is stored, or the resumption of an attempt. It runs in a goroutine when
// the reconcile has ended. Then reconcile and operation do not write the object at the same time.
func (e *starter) begin(
	ctx context.Context, mg resource.Managed, r *creation.Record, resume *Attempt,
) (*operation, error) {
	t := e.tracker
	op, err := t.register(newOperation(ctx, t, mg, r, e.release))
	if err != nil {
		if t.records.neverStarted(r) {
			// Without the record, upstream's announcement would stop the object. The record of an attempt that was
			// begun before stays.
			_ = t.persist(ctx, mg, creation.On(mg).WithoutRecord().FailedIfIncomplete(time.Now()))
		}
		return nil, err
	}
	e.release = nil // The operation releases it.
	if r.Type == creation.Create {
		time.AfterFunc(yieldInterval, op.yieldIfMoved)
	}
	operand, began := copyOf(mg), time.Now()

	// A second Disconnect must not send the request twice.
	e.start = sync.OnceFunc(func() { //nolint:contextcheck // An operation has a context of its own.
		op.lifetime.abandonAt(creation.Later(r.Deadline.Time, creation.EndGrace), op.abandon)
		go op.run(operand, func(ctx context.Context) (upstream.ConnectionDetails, error) {
			defer e.disconnect(op) //nolint:contextcheck // As above.
			if err := op.checkLateStart(ctx, time.Since(began)); err != nil {
				return nil, err
			}
			return e.call(ctx, operand, Type(r.Type), resume)
		})
	})
	return op, nil
}

// call the external client, and charge the call to the account. The error of an operation is judged when it ends.
func (e *starter) call(
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

// disconnect from the provider after an operation. A panic of Disconnect says nothing about the operation.
func (e *starter) disconnect(op *operation) {
	log := e.tracker.config.events.log
	if _, err := recovered(log, op.uid(), func() (upstream.ConnectionDetails, error) {
		return nil, e.ExternalClient.Disconnect(context.WithoutCancel(op.lifetime.ctx))
	}); err != nil {
		log.Debug("Cannot disconnect from provider", "uid", op.uid(), "error", err)
	}
}

// Disconnect from the provider, now or when the operation that was begun has ended.
func (e *starter) Disconnect(ctx context.Context) error {
	if e.start != nil {
		e.start()
		return nil
	}
	if e.release != nil {
		e.release()
	}
	if e.ExternalClient == nil {
		return nil
	}
	return e.ExternalClient.Disconnect(ctx)
}
