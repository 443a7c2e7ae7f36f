package asyncstate

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// observe the external resource, unless an operation runs.
func (e *asyncClient) observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	op, err := e.tracker.running(mg)
	if err != nil {
		return upstream.ExternalObservation{}, err
	}
	if op != nil {
		if op.takenOver(mg) {
			// Otherwise it might create an external resource after the other process
			// has deleted its own.
			op.lifetime.cancel(errTakenOver)
		}
		return e.observeRunning(ctx, mg, op), nil
	}
	if e.ExternalClient == nil {
		return upstream.ExternalObservation{}, seam.Conflict(mg, messageEnded)
	}

	s, err := creation.Of(mg)
	if err != nil {
		return upstream.ExternalObservation{}, e.stop(ctx, mg, ReasonRecordUnusable, personInterval, err)
	}
	began := time.Now()
	res, err := e.resolve(ctx, mg, s)

	switch {
	case err != nil && res.observed == nil:
		return upstream.ExternalObservation{}, err
	case res.done || err != nil:
		return *res.observed, err
	case res.observed != nil:
		return e.afterObserve(ctx, mg, res, *res.observed, began)
	}
	o, err := e.observeExternal(ctx, mg, basis.changed)
	if err != nil {
		return o, err
	}
	return e.afterObserve(ctx, mg, res, o, began)
}

// observeExternal observes the external resource. It is a conflict if changed reports that mg has another basis then.
func (e *asyncClient) observeExternal(
	ctx context.Context, mg resource.Managed, changed func(b basis, mg resource.Managed) bool,
) (upstream.ExternalObservation, error) {
	was := basisOf(ctx, mg)
	o, err := limit.Call(seam.From(ctx).Meter(), func() (upstream.ExternalObservation, error) {
		return e.ExternalClient.Observe(ctx, mg)
	})
	if err == nil && changed(was, mg) {
		err = seam.Conflict(mg, "it was changed while its external resource was observed")
	}
	return o, err
}

// afterObserve does what follows an observation that began at a time. res says how the reconcile continues.
func (e *asyncClient) afterObserve(
	ctx context.Context, mg resource.Managed, res continuation, o upstream.ExternalObservation, began time.Time,
) (upstream.ExternalObservation, error) {
	t, r := e.tracker, res.record
	if o.ResourceExists {
		t.objects.noteFound(mg)
	}
	if o.ResourceUpToDate {
		t.objects.noteUpToDate(mg)
	}
	e.outcome.Deleted = !o.ResourceExists && t.objects.deleteSucceeded(mg)

	if meta.WasDeleted(mg) {
		if err := e.stopIfCreateOpen(ctx, mg, o.ResourceExists, began); err != nil {
			return o, err
		}
	}
	seen := observed{
		Exists: o.ResourceExists, UpToDate: o.ResourceUpToDate, Deleting: meta.WasDeleted(mg),
		MayCreate: seam.Allows(mg, xpv2.ManagementActionCreate),
		MayUpdate: seam.Allows(mg, xpv2.ManagementActionUpdate),
		Recorded:  r != nil, Backoff: res.wait, Invisible: t.objects.untilNextUpdate(mg),
	}
	what := decide(seen)
	if what == settle {
		if err := t.persist(ctx, mg, creation.On(mg).OperationSucceeded(r, time.Now())); err != nil {
			return o, err
		}
		r = nil
	}

	setEnded(mg, r, t.objects.failure(mg, r), t.config.backoff)
	if seen.creates() && !seen.Deleting {
		// Upstream sets it only when the create begins.
		mg.SetConditions(xpv2.Creating())
	}
	switch what {
	case backOff:
		e.postpone(ctx, &o, res.wait)
		if !seen.Exists && r.Type == creation.Create && e.find != nil {
			e.outcome.State = seam.Unknown
		}
	case rest:
		o.ResourceUpToDate = true
		seam.From(ctx).Requeue(seam.Within(seen.Invisible))
	case begin:
		if !e.acquire(ctx, mg) {
			e.postpone(ctx, &o, 0)
		}
	}
	return e.withDetails(mg, o), nil
}

// create the external resource in the background.
func (e *asyncClient) create(ctx context.Context, mg resource.Managed) error {
	t := e.tracker
	r, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}

	// The record was stored together with upstream's announcement of the create.
	if !t.records.neverStarted(r) || r.Type != creation.Create || !r.Announces(mg) {
		r = t.records.next(mg, Create, r)
		r.EndsBefore = nil
		if err := t.persist(ctx, mg, creation.On(mg).WithRecord(r)); err != nil {
			return err
		}
	}
	return e.begin(ctx, mg, r, nil)
}

// delete the external resource in the background, when no other operation runs.
func (e *asyncClient) delete(ctx context.Context, mg resource.Managed) error {
	t, s := e.tracker, seam.From(ctx)
	if op := t.operation(mg.GetUID()); op != nil {
		e.awaitOperation(ctx, mg, op)
		return nil
	}
	if e.ExternalClient == nil {
		return seam.Conflict(mg, messageEnded)
	}
	if e.undeletable != "" {
		e.reportDeleting(ctx, e.undeletable)
		return nil
	}

	// Observe reports a record that cannot be used.
	if r, err := creation.RecordOf(mg); err == nil && r != nil && r.Type == creation.Delete {
		if wait := time.Until(t.config.backoff.end(r)); wait > 0 {
			t.reconciles.In(s).failed = true
			s.Requeue(seam.InsteadOfBackoff(wait))

			// Upstream reports that a delete failed.
			return t.objects.lastError(mg, r)
		}
	}

	if wait := t.objects.untilNextDelete(mg); wait > 0 {
		e.outcome = seam.Outcome{
			State:   seam.InProgress,
			Reason:  deletion.ReasonWaitingForExternalResource,
			Message: deletion.MessageStillExists,
		}
		s.Requeue(seam.InsteadOfBackoff(wait))
		return nil
	}

	if !e.acquire(ctx, mg) {
		e.reportDeleting(ctx, messageQueued)
		return nil
	}
	return e.recordAndBegin(ctx, mg, Delete)
}

// awaitOperation reports the operation that the deletion of the object waits for, and cancels a
// create that can be cancelled.
func (e *asyncClient) awaitOperation(ctx context.Context, mg resource.Managed, op *operation) {
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
func (e *asyncClient) Disconnect(ctx context.Context) error {
	if e.startOperation != nil {
		e.startOperation()
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
