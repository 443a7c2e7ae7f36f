package asyncstate

import (
	"context"
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A call of an external client's Create, Update, Delete or Resume.
type clientCall[M resource.Managed] func(ctx context.Context, mg M) (managed.ConnectionDetails, error)

// A starter begins operations in one reconcile.
type starter[M resource.Managed] struct{ reconciliation[M] }

// recordAndBegin records an operation, and begins it.
func (e *starter[M]) recordAndBegin(ctx context.Context, mg M, typ Type, call clientCall[M]) error {
	had, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}
	r := e.tracker.records.next(mg, typ, had)

	// Only an external resource that exists is updated or deleted.
	if err := e.tracker.persist(
		ctx, mg, creation.On(mg).SucceededIfIncomplete(time.Now()).WithRecord(r), seam.Decided,
	); err != nil {
		return err
	}
	return e.begin(ctx, mg, r, call)
}

// begin an operation whose record is stored.
func (e *starter[M]) begin(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	if e.tracker.config.ownGoroutines {
		return e.callInForeground(ctx, mg, r, call)
	}
	return e.beginInBackground(ctx, mg, r, call)
}

// beginInBackground registers an operation, which runs in a goroutine when the reconcile has ended.
// Neither then overwrites an object that the other has read.
func (e *starter[M]) beginInBackground(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	op, err := e.tracker.register(newOperation(ctx, e.tracker, mg, mg.GetAnnotations(), r, e.semaphore), nil)
	if err != nil {
		return e.beginFailed(ctx, mg, r, err)
	}
	e.operationBegan(ctx, mg, op)
	theirs := copyOf(mg)

	e.startOperation = func() { //nolint:contextcheck // An operation has a context of its own.
		go op.run(theirs, func(ctx context.Context) (managed.ConnectionDetails, error) {
			defer func() {
				// A panic of Disconnect says nothing about the operation.
				if _, err := op.call(func(ctx context.Context) (managed.ConnectionDetails, error) {
					return nil, e.inner.Disconnect(context.WithoutCancel(ctx))
				}); err != nil {
					e.tracker.config.events.log.Debug(
						"Cannot disconnect from provider", "uid", theirs.GetUID(), "error", err,
					)
				}
			}()
			return call(ctx, theirs)
		})
	}
	return nil
}

// beginFailed removes the record of an operation that could not begin because of err, and returns
// err. The record of an attempt that was begun before stays.
func (e *starter[M]) beginFailed(ctx context.Context, mg M, r *creation.Record, err error) error {
	if e.tracker.records.neverStarted(r) {
		// Without the record, upstream's announcement would stop the object.
		_ = e.tracker.persist(ctx, mg, creation.On(mg).WithoutRecord().FailedIfIncomplete(time.Now()), seam.Decided)
	}
	return err
}

// callInForeground calls an external client that may begin the operation itself.
func (e *starter[M]) callInForeground(ctx context.Context, mg M, r *creation.Record, call clientCall[M]) error {
	t := e.tracker

	// A shutdown waits for the call, too.
	if !t.shutdown.enter() {
		return e.beginFailed(ctx, mg, r, ErrStopped)
	}
	defer t.shutdown.leave()
	if e.reconciled == nil {
		e.reconciled = make(chan struct{})
	}
	b := &callInProgress{
		record:      r,
		annotations: maps.Clone(mg.GetAnnotations()),
		semaphore:   e.semaphore,
		reconciled:  e.reconciled,
	}
	returned := false
	defer func() {
		// Upstream catches the panic. The outcome of the call is unknown.
		if returned {
			return
		}
		if op := b.close(mg); op != nil {
			op.End(errPanicked) //nolint:contextcheck // An operation has a context of its own.
		} else {
			_ = e.storeCallResult(ctx, mg, b, errPanicked)
		}
	}()

	_, err := call(context.WithValue(ctx, callKey{}, b), mg)
	returned = true

	switch op := b.close(mg); {
	case op == nil:
		return e.storeCallResult(ctx, mg, b, err)
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

// operationBegan notes that an operation was begun, which has the permit now.
func (e *starter[M]) operationBegan(ctx context.Context, mg M, op *Operation) {
	e.semaphore = nil
	s, _ := op.status()
	e.reportRunning(ctx, mg, s)
	e.poll(ctx)
	e.outcome.State = seam.InProgress
	if s.Type == Delete {
		e.reportDeleting(ctx, "The external resource is being deleted.")
	}
}

// storeCallResult stores the result of a call that returned err and began no operation. Upstream
// handles it like any other call.
func (e *starter[M]) storeCallResult(ctx context.Context, mg M, b *callInProgress, err error) error {
	t, r, now := e.tracker, b.record, time.Now()
	err = readable(err)

	// The client may have read mg again from a stale cache.
	before := copyOf(mg)
	before.SetAnnotations(b.annotations)
	set := annotatedSince(b.annotations, mg)
	cs := creation.On(before)

	if err == nil {
		// One write: without the record, upstream's announcement would stop the object.
		cs = cs.WithoutRecord().SucceededIfIncomplete(now)
	} else {
		ended := failedRecord(r, err, set[meta.AnnotationKeyExternalName] != "", now)
		failed := r.Type == creation.Create && ended.Phase == creation.RecordFailed

		switch {
		case ended.Phase == creation.RecordUnknown:
			cs = cs.WithRecord(ended)
			e.outcome.State = seam.Unknown
			t.objects.keepFailure(mg, ended, err)
		case failed && finderOf(e.inner) != nil:
			// The Finder is asked before the next create.
			cs = cs.FailedWith(ended, now)
			e.outcome.State = seam.InProgress
			t.objects.keepFailure(mg, ended, err)
		case failed:
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
		return err
	}

	// The stored record says that nothing was begun. No operation may begin until the
	// result is stored.
	op, rerr := t.register(newOperation(ctx, t, mg, b.annotations, r, e.semaphore), e.reconciled)
	if rerr != nil {
		return err
	}
	op.stored.addAnnotations(set)
	op.End(err) //nolint:contextcheck // An operation has a context of its own.
	return err
}
