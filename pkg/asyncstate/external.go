package asyncstate

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// newAsyncClient returns an external client that calls inner. inner is nil if an operation runs.
func newAsyncClient[M resource.Managed](t *Tracker, inner managed.TypedExternalClient[M]) *asyncClient[M] {
	return &asyncClient[M]{tracker: t, inner: inner}
}

// Outcome of the last call, for Graft's package managed. It is always known.
func (e *asyncClient[M]) Outcome() (seam.Outcome, bool) { return e.outcome, true }

// Observe the external resource, unless an operation runs.
func (e *asyncClient[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	e.outcome = seam.Outcome{}
	op, err := e.tracker.running(ctx, mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	if op != nil {
		if op.takenOver(mg) {
			// Otherwise it might create an external resource after the other process
			// has deleted its own.
			op.lifetime.cancel(errTakenOver)
		}
		return e.observeRunning(ctx, mg, op), nil
	}
	if e.inner == nil {
		return managed.ExternalObservation{}, seam.Conflict(mg, messageEnded)
	}

	s, err := creation.Of(mg)
	if err != nil {
		return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonRecordUnusable, personInterval, err)
	}
	began := time.Now()
	res, err := e.resolve(ctx, mg, s)

	switch {
	case err != nil && res.observed == nil:
		return managed.ExternalObservation{}, err
	case res.done || err != nil:
		return *res.observed, err
	case res.observed != nil:
		return e.afterObserve(ctx, mg, res, *res.observed, began)
	}
	o, err := e.observe(ctx, mg, basis.changed)
	if err != nil {
		return o, err
	}
	return e.afterObserve(ctx, mg, res, o, began)
}

// observe the external resource. It is a conflict if changed reports that mg has another basis then.
func (e *asyncClient[M]) observe(
	ctx context.Context, mg M, changed func(b basis, mg resource.Managed) bool,
) (managed.ExternalObservation, error) {
	was := basisOf(ctx, mg)
	o, err := e.client().Observe(ctx, mg)
	if err == nil && changed(was, mg) {
		err = seam.Conflict(mg, "it was changed while its external resource was observed")
	}
	return o, err
}

// afterObserve decides which operation begins after an observation that began at a time, as res
// says.
func (e *asyncClient[M]) afterObserve(
	ctx context.Context, mg M, res continuation, o managed.ExternalObservation, began time.Time,
) (managed.ExternalObservation, error) {
	t, r := e.tracker, res.record
	if o.ResourceExists {
		t.objects.noteFound(mg)
	}
	if o.ResourceUpToDate {
		t.objects.noteUpToDate(mg)
	}
	e.outcome.Deleted = !o.ResourceExists && t.objects.deleteSucceeded(mg)
	deleting, begins := meta.WasDeleted(mg), upstreamBegins(mg, o)

	if deleting {
		if err := e.stopIfCreateOpen(ctx, mg, o.ResourceExists, began); err != nil {
			return o, err
		}
	}

	if !deleting && o.ResourceExists && !begins && r != nil {
		// The operation is done, or no longer needed or allowed.
		if err := t.persist(
			ctx, mg, creation.On(mg).OperationSucceeded(r, time.Now()), seam.Decided,
		); err != nil {
			return o, err
		}
		r = nil
	}

	setEnded(mg, r, t.objects.failure(mg, r), t.config.backoff)
	if deleting || !begins {
		return e.withDetails(mg, o), nil
	}
	creates := !o.ResourceExists && seam.Allows(mg, xpv2.ManagementActionCreate)
	if creates {
		// Upstream sets it only when the create begins.
		mg.SetConditions(xpv2.Creating())
	}
	if res.wait > 0 {
		exists := o.ResourceExists
		o, err := e.postpone(ctx, mg, o, res.wait, errors.Wrap(t.objects.lastError(mg, r), string(r.Type)+" failed"))
		if !exists && r.Type == creation.Create && finderOf(e.inner) != nil {
			e.outcome.State = seam.Unknown
		}
		return o, err
	}

	if wait := t.objects.untilNextUpdate(mg); !creates && wait > 0 {
		// Upstream does not update an external resource that is up to date, and rests, as it does
		// after a synchronous update.
		o.ResourceUpToDate = true
		seam.From(ctx).Requeue(seam.Within(wait))
		return e.withDetails(mg, o), nil
	}

	if !e.acquire(ctx, mg) {
		return e.postpone(ctx, mg, o, 0, nil)
	}
	return e.withDetails(mg, o), nil
}

// upstreamBegins reports whether upstream begins an operation after an observation. It updates
// an external resource that does not exist if the management policies allow that, and no create.
func upstreamBegins(mg resource.Managed, o managed.ExternalObservation) bool {
	return !o.ResourceExists && seam.Allows(mg, xpv2.ManagementActionCreate) ||
		!o.ResourceUpToDate && seam.Allows(mg, xpv2.ManagementActionUpdate)
}

// Create the external resource in the background.
func (e *asyncClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	e.outcome = seam.Outcome{}
	t := e.tracker
	r, err := creation.RecordOf(mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}

	// The record was stored together with upstream's announcement of the create.
	if !t.records.neverStarted(r) || r.Type != creation.Create || !r.Announces(mg) {
		r = t.records.next(mg, Create, r)
		r.EndsBefore = nil
		if err := t.persist(ctx, mg, creation.On(mg).WithRecord(r), seam.Decided); err != nil {
			return managed.ExternalCreation{}, err
		}
	}
	return managed.ExternalCreation{}, e.begin(ctx, mg, r, e.create)
}

func (e *asyncClient[M]) create(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
	c, err := e.client().Create(ctx, mg)
	return c.ConnectionDetails, err
}

// Update the external resource in the background.
func (e *asyncClient[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	err := e.recordAndBegin(ctx, mg, Update, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		u, err := e.client().Update(ctx, mg)
		return u.ConnectionDetails, err
	})
	return managed.ExternalUpdate{}, err
}

// Delete the external resource in the background, when no other operation runs.
func (e *asyncClient[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	var d managed.ExternalDelete
	e.outcome = seam.Outcome{}
	t := e.tracker

	if op := t.operations.get(mg.GetUID()); op != nil {
		e.awaitOperation(ctx, mg, op)
		return d, nil
	}
	if e.inner == nil {
		return d, seam.Conflict(mg, messageEnded)
	}
	if e.undeletable != "" {
		e.reportDeleting(ctx, e.undeletable)
		return d, nil
	}

	// Observe reports a record that cannot be used.
	s := seam.From(ctx)
	if r, err := creation.RecordOf(mg); err == nil && r != nil && r.Type == creation.Delete {
		if wait := time.Until(t.config.backoff.end(r)); wait > 0 {
			t.reconciles.In(s).failed = true
			s.Requeue(seam.InsteadOfBackoff(wait))

			// Upstream reports that a delete failed.
			return d, t.objects.lastError(mg, r)
		}
	}

	if wait := t.objects.untilNextDelete(mg); wait > 0 {
		e.outcome = seam.Outcome{
			State:   seam.InProgress,
			Reason:  reconciler.ReasonWaitingForExternalResource,
			Message: deletion.MessageStillExists,
		}
		s.Requeue(seam.InsteadOfBackoff(wait))
		return d, nil
	}

	if !e.acquire(ctx, mg) {
		e.reportDeleting(ctx, messageQueued)
		return d, nil
	}
	err := e.recordAndBegin(ctx, mg, Delete, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		_, err := e.client().Delete(ctx, mg)
		return nil, err
	})
	return d, err
}

// awaitOperation reports the operation that the deletion of the object waits for, and cancels a
// create that can be cancelled.
func (e *asyncClient[M]) awaitOperation(ctx context.Context, mg M, op *operation) {
	s, running := op.status()
	if running {
		setRunning(mg, s)
	}

	switch {
	case s.Type == Delete:
		e.reportDeleting(ctx, "The external resource is being deleted.")
		return
	case s.Type == Create && e.tracker.config.cancellableCreates && !op.begunBefore:
		// A repeated create is not cancelled: its result is needed for the deletion.
		op.lifetime.cancel(ErrCancelled)
	}

	e.reportDeleting(ctx, "The external resource is deleted once the "+string(s.Type)+" that runs has ended.")
}

// Disconnect from the provider, now or when the operation that was begun has ended.
func (e *asyncClient[M]) Disconnect(ctx context.Context) error {
	if e.startOperation != nil {
		e.startOperation()
		return nil
	}
	e.semaphore.release(e.uid)
	e.semaphore = nil

	if e.inner == nil {
		return nil
	}
	return e.inner.Disconnect(ctx)
}
