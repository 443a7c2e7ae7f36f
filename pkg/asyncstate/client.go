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

// An asyncClient is the external client of one reconcile, whose operations outlive it.
type asyncClient struct {
	starter

	// outcome of the last call.
	outcome seam.Outcome

	// undeletable says why the external resource cannot be deleted yet although no operation
	// runs.
	undeletable string
}

// LooksUp reports whether a Finder looks up the external resource of a recorded create, for earlier layers.
func (e *asyncClient) LooksUp() bool { return e.find != nil }

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
	if err != nil || res.done {
		return res.observation(), err
	}
	if res.observed == nil {
		o, err := e.observeExternal(ctx, mg, basis.changed)
		if err != nil {
			return o, err
		}
		res.observed = &o
	}
	return e.afterObserve(ctx, mg, res, *res.observed, began)
}

// observeRunning returns the observation while an operation runs: upstream must begin nothing.
func (e *asyncClient) observeRunning(
	ctx context.Context, mg resource.Managed, op *operation,
) upstream.ExternalObservation {
	s, _ := op.status()
	e.outcome.State = seam.InProgress
	e.tracker.pollRunning(ctx, mg, s)
	if s.Type == Create && !meta.WasDeleted(mg) {
		mg.SetConditions(xpv2.Creating())
	}
	return upstream.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}
}

// observeExternal observes the external resource. It is a conflict if mg has changed meanwhile.
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
	t.objects.noteObserved(mg, o)
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
	}

	t.report(ctx).observed = true
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
	return t.objects.withDetails(mg, o), nil
}

// postpone an operation: for wait, unless that is 0, or until there is a permit. Upstream begins nothing after an
// external resource that exists and is up to date.
func (e *asyncClient) postpone(ctx context.Context, o *upstream.ExternalObservation, wait time.Duration) {
	if wait > 0 {
		seam.From(ctx).Requeue(seam.Within(wait))
	}
	if !o.ResourceExists {
		e.outcome.State = seam.Waiting
	}
	o.ResourceExists, o.ResourceUpToDate = true, true
}

// stop the reconcile with a condition that has the text of err, and reconcile again after a
// while.
func (e *asyncClient) stop(
	ctx context.Context, mg resource.Managed, reason xpv2.ConditionReason, again time.Duration, err error,
) error {
	t, message := e.tracker, err.Error()
	had := mg.GetCondition(TypeOperation)
	if had.Reason == ReasonOutcomeUnknown && had.Message == message {
		// An earlier process has waited longer than this one.
		reason = ReasonOutcomeUnknown
	}

	if had.Reason != reason || had.Message != message {
		switch reason {
		case ReasonRecordUnusable:
			t.config.events.warn(mg, reasonRecordUnusable, err)
		case ReasonOutcomeUnknown:
			t.config.events.warn(mg, reasonOutcomeUnknown, err)
			t.config.metrics.observeResolution(Create, interruptedUnknown)
		}
	}

	if meta.WasDeleted(mg) {
		e.outcome.Reason, e.outcome.Message = deletion.ReasonCreateResultUnknown, message
	}
	*t.report(ctx) = progressReport{reason: reason, message: message, stopped: err}
	seam.From(ctx).Requeue(seam.InsteadOfBackoff(again))
	return err
}

// change begins the operation of Create, Update or Delete, and stores its record before. The record of a create
// may be stored together with upstream's announcement.
func (e *asyncClient) change(ctx context.Context, mg resource.Managed, typ Type) error {
	t := e.tracker
	r, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}
	if typ != Create || !t.records.neverStarted(r) || r.Type != creation.Create || !r.Announces(mg) {
		cs := creation.On(mg)
		if typ != Create {
			// An update or delete begins only if the external resource exists, so the create succeeded.
			cs = cs.SucceededIfIncomplete(time.Now())
		}
		r = t.records.next(mg, typ, r)
		if err := t.persist(ctx, mg, cs.WithRecord(r)); err != nil {
			return err
		}
	}
	return e.beginRecorded(ctx, mg, r, nil)
}

// beginRecorded begins an operation whose record is stored, or the resumption of an attempt.
func (e *asyncClient) beginRecorded(
	ctx context.Context, mg resource.Managed, r *creation.Record, resume *Attempt,
) error {
	op, err := e.begin(ctx, mg, r, resume)
	if err != nil {
		return err
	}
	s, _ := op.status()
	e.tracker.pollRunning(ctx, mg, s)
	if e.outcome.State = seam.InProgress; s.Type == Delete {
		e.reportDeleting(ctx, messageOf(Delete))
	}
	return nil
}

// delete the external resource in the background, when no other operation runs.
func (e *asyncClient) delete(ctx context.Context, mg resource.Managed) error {
	t, s := e.tracker, seam.From(ctx)
	if op := t.operation(mg.GetUID()); op != nil {
		running, _ := op.status()
		if running.Type == Create && t.config.cancellableCreates && !op.begunBefore {
			// A repeated create is not cancelled: its result is needed for the deletion.
			op.lifetime.cancel(ErrCancelled)
		}
		e.reportDeleting(ctx, messageOf(running.Type))
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
		if wait := t.config.backoff.until(r); wait > 0 {
			t.report(ctx).failed = true
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
	return e.change(ctx, mg, Delete)
}

// messageOf says why a deletion waits for an operation.
func messageOf(running Type) string {
	if running == Delete {
		return "The external resource is being deleted."
	}
	return "The external resource is deleted once the " + string(running) + " that runs has ended."
}

// reportDeleting reports message as the cause that delays the deletion of the object.
func (e *asyncClient) reportDeleting(ctx context.Context, message string) {
	e.tracker.poll(ctx)
	e.outcome = seam.Outcome{
		State:   seam.InProgress,
		Reason:  deletion.ReasonWaitingForAsyncOperation,
		Message: message,
	}
}
