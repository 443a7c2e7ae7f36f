package asyncstate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A clientCall calls an external client's Create, Update, Delete or Resume. It also sets the
// result of the method that begins the operation, which upstream sees only WithOwnGoroutines:
// in the background, the call begins after the method has returned.
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

// begin an operation whose record is stored.
func (e *asyncClient[M]) begin(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	if e.tracker.config.ownGoroutines {
		return e.callInForeground(ctx, mg, r, call)
	}
	return e.beginInBackground(ctx, mg, r, call)
}

// beginInBackground registers an operation, which runs in a goroutine when the reconcile has
// ended. Then reconcile and operation do not write the object at the same time.
func (e *asyncClient[M]) beginInBackground(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	op, err := e.tracker.register(newOperation(ctx, e.tracker, mg, mg.GetAnnotations(), r, e.semaphore), nil)
	if err != nil {
		return e.beginFailed(ctx, mg, r, err)
	}
	e.operationBegan(ctx, mg, op)
	operand, began := copyOf(mg), time.Now()

	e.startOperation = sync.OnceFunc(func() { //nolint:contextcheck // An operation has a context of its own.
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
	})
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

// callInForeground calls an external client that may begin the operation itself.
func (e *asyncClient[M]) callInForeground(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	t := e.tracker

	// A shutdown waits for the call, too.
	if !t.shutdown.enter() {
		return e.beginFailed(ctx, mg, r, ErrStopped)
	}
	defer t.shutdown.leave()
	if e.reconciled == nil {
		e.reconciled = make(chan struct{})
	}
	c := &callInProgress{
		record:      r,
		annotations: maps.Clone(mg.GetAnnotations()),
		semaphore:   e.semaphore,
		reconciled:  e.reconciled,
	}
	hasReturned := false
	defer func() {
		// Upstream catches the panic. The outcome of the call is unknown.
		if hasReturned {
			return
		}
		if op := c.close(mg); op != nil {
			op.End(errPanicked) //nolint:contextcheck // An operation has a context of its own.
		} else {
			_ = e.storeCallResult(ctx, mg, c, errPanicked)
		}
	}()

	_, err := call(context.WithValue(ctx, callKey{}, c), mg)
	hasReturned = true

	op := c.close(mg)
	if op != nil && !seam.From(ctx).Tracks(mg) {
		op.keepRecord(mg, c.reconciled) //nolint:contextcheck // An operation has a context of its own.
	}

	switch {
	case op == nil:
		return e.storeCallResult(ctx, mg, c, err)
	case err != nil:
		// The operation stores the outcome.
		e.outcome.State = seam.InProgress
		op.End(err) //nolint:contextcheck // As above.
		return err
	default:
		e.operationBegan(ctx, mg, op)
		return nil
	}
}

// operationBegan records that op runs; op releases the permit.
func (e *asyncClient[M]) operationBegan(ctx context.Context, mg M, op *Operation) {
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

// storeCallResult stores the result of a call that returned err and began no operation. Upstream
// handles it like any other call.
func (e *asyncClient[M]) storeCallResult(ctx context.Context, mg M, c *callInProgress, err error) error {
	t, r, now := e.tracker, c.record, time.Now()
	err = readable(err)

	// The client may have read mg again from a stale cache.
	before := copyOf(mg)
	before.SetAnnotations(c.annotations)
	set := annotatedSince(c.annotations, mg)
	cs := creation.On(before)

	if err == nil {
		// One write: without the record, upstream's announcement would stop the object.
		cs = cs.OperationSucceeded(r, now)
	} else {
		failed := failedRecord(r, err, set[meta.AnnotationKeyExternalName] != "", now)
		createFailed := r.Type == creation.Create && failed.Phase == creation.RecordFailed

		switch {
		case failed.Phase == creation.RecordUnknown:
			cs = cs.WithRecord(failed)
			e.outcome.State = seam.Unknown
			t.objects.keepFailure(mg, failed, err)
		case createFailed && finderOf(e.inner) != nil:
			// Graft calls the Finder before the next create.
			cs = cs.FailedWith(failed, err, now)
			e.outcome.State = seam.InProgress
			t.objects.keepFailure(mg, failed, err)
		case createFailed:
			cs = cs.WithoutRecord().FailedIfIncomplete(now)
		default:
			cs = cs.WithoutRecord()
		}
	}

	for k, v := range set {
		cs.Changes = append(cs.Changes, seam.SetAnnotation(before, k, v))
	}
	perr := t.persist(ctx, mg, cs, ruleOf(r))
	if perr == nil || seam.IsOverruled(perr) {
		if err == nil {
			t.operationSucceeded(mg, r)
		}
		return err
	}

	// The stored record says that the operation runs. No operation may begin until the
	// result is stored.
	op, rerr := t.register(newOperation(ctx, t, mg, c.annotations, r, e.semaphore), e.reconciled)
	if rerr != nil {
		return err
	}
	op.stored.addAnnotations(set)
	op.End(err) //nolint:contextcheck // An operation has a context of its own.
	return err
}
