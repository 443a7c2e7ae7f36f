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
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// personInterval is how soon an object that waits for a person is reconciled again.
const personInterval = 10 * time.Minute

// A continuation says how a reconcile continues.
type continuation struct {
	// observed is the result of Observe. If it is nil, the caller calls Observe.
	observed *upstream.ExternalObservation

	// done means that this reconcile begins no operation.
	done bool

	// record of the last operation. It is nil if there is none.
	record *creation.Record

	// wait is how long the next operation has to wait. It is not worked out again after Observe:
	// a backoff that ends meanwhile would begin a create for which no Finder was called.
	wait time.Duration
}

// observation that the reconcile ends with.
func (c continuation) observation() upstream.ExternalObservation {
	if c.observed == nil {
		return upstream.ExternalObservation{}
	}
	return *c.observed
}

// failing returns the continuation of a reconcile that ends with err.
func failing(err error) (continuation, error) { return returning(upstream.ExternalObservation{}, err) }

// returning returns the continuation of a reconcile that ends with o.
func returning(o upstream.ExternalObservation, err error) (continuation, error) {
	return continuation{observed: &o, done: true}, err
}

// resolve determines the outcome of the last operation.
//
// Each of its steps begins with a write that the API server refuses if the object has changed:
// another writer may have settled the operation.
func (e *asyncClient) resolve(ctx context.Context, mg resource.Managed, s creation.State) (continuation, error) {
	t, r := e.tracker, s.Record
	c := e.continuing(mg, r)
	never := t.records.neverStarted(r)
	if never && r.Failures > 0 {
		// The attempt before it may have failed at a later step than the create.
		s.Phase, never = creation.Failed, false
	}

	switch {
	case s.Settled:
		return e.removeSettled(ctx, mg)
	case r != nil && r.Type != creation.Create && e.resume != nil && r.Handle != "" &&
		r.Phase != creation.RecordFailed:
		return e.resumeOperation(ctx, mg, r)
	case never, !e.resolves(mg, s, c.wait):
		// The next Observe decides. A deletion may have to wait for another request of the create.
		if s.OpenUntil.IsZero() || !meta.WasDeleted(mg) {
			t.objects.firstSeen.Forget(&t.objects.Store, mg)
		}
		return c, nil
	default:
		return (&resolution{e, mg, e.question(mg, s, time.Now())}).run(ctx)
	}
}

// continuing returns the continuation of a reconcile that observes the external resource. r is the
// record of the last operation, or nil.
func (e *asyncClient) continuing(mg resource.Managed, r *creation.Record) continuation {
	return continuation{record: r, wait: e.tracker.config.backoff.left(mg, r)}
}

// resolves reports whether the outcome of the last create is determined now. A create that failed
// is looked up when the next create is due or the object is being deleted, because only a later
// step than the create may have failed. wait is how long the next create has to wait.
func (e *asyncClient) resolves(mg resource.Managed, s creation.State, wait time.Duration) bool {
	r, due := s.Record, e.find != nil && (meta.WasDeleted(mg) || wait <= 0)

	switch unrecorded := e.tracker.config.resolveUnrecorded; {
	case !s.Recorded:
		failed := s.Phase == creation.Failed && s.Announcement != ""
		return unrecorded && (s.Phase == creation.Announced || failed && due)
	case r != nil && r.Type != creation.Create:
		return false
	case r != nil && (s.Phase == creation.Failed || s.Phase == creation.Created):
		return due
	default:
		return true
	}
}

// question returns the question about the last create of mg, whose state is s.
func (e *asyncClient) question(mg resource.Managed, s creation.State, now time.Time) creation.Question {
	c := e.tracker.config
	return creation.Question{
		State: s,
		Can: creation.Can{
			Resume: e.resume != nil,
			Find:   e.find != nil, Tokens: c.idempotentTokens, Names: c.deterministicNames,
			Create: seam.Allows(mg, xpv2.ManagementActionCreate),
		},
		Limits:    creation.Limits{Announced: c.timeout, Recorded: c.absenceAfter, Grace: c.gracePeriod},
		Deleting:  meta.WasDeleted(mg),
		Now:       now,
		FirstSeen: e.tracker.objects.firstSeen.At(&e.tracker.objects.Store, mg, s, now),
	}
}

// stopIfCreateOpen returns an error if, when the observation began, another request of the create
// might still create the external resource again after its delete.
func (e *asyncClient) stopIfCreateOpen(ctx context.Context, mg resource.Managed, exists bool, began time.Time) error {
	s, err := creation.Of(mg)
	if err != nil || s.OpenUntil.IsZero() {
		return nil
	}
	r := &resolution{e, mg, e.question(mg, s, began)}
	r.Observed = creation.ObservedAs(exists)
	if step := creation.Next(r.Question); step.Reason == creation.OtherMayBeInProgress {
		return r.wait(ctx, step, nil)
	}
	return nil
}

// removeSettled removes the record of a create that another writer has settled.
func (e *asyncClient) removeSettled(ctx context.Context, mg resource.Managed) (continuation, error) {
	if err := e.tracker.persist(ctx, mg, creation.On(mg).WithoutRecord()); err != nil {
		return failing(err)
	}
	e.tracker.config.events.log.Info(
		"Removed the record of a create that was settled by another writer", "uid", mg.GetUID(),
	)
	return continuation{}, nil
}

// resumeOperation resumes an operation by its handle.
func (e *asyncClient) resumeOperation(
	ctx context.Context, mg resource.Managed, had *creation.Record,
) (continuation, error) {
	a := attemptOf(had)
	return e.beginAgain(ctx, mg, had, e.tracker.records.continued(had), interruptedResumed, &a)
}

// beginAgain begins the attempt of a record again, or resumes it.
func (e *asyncClient) beginAgain(
	ctx context.Context, mg resource.Managed, had, r *creation.Record, how string, resume *Attempt,
) (continuation, error) {
	t := e.tracker

	if meta.WasDeleted(mg) {
		e.undeletable = "The " + string(r.Type) +
			" that was interrupted must be completed first, to find out what to delete."
		e.outcome.Reason, e.outcome.Message = deletion.ReasonWaitingForAsyncOperation, e.undeletable
	}

	if wait := t.config.backoff.until(had); wait > 0 {
		t.report(ctx).reason = ReasonInterrupted
		return e.postponed(ctx, mg, wait)
	}
	if !e.acquire(ctx, mg) {
		return e.postponed(ctx, mg, 0)
	}
	if err := t.persist(ctx, mg, creation.On(mg).WithRecord(r)); err != nil {
		return failing(err)
	}
	t.config.metrics.observeResolution(Type(r.Type), how)
	if err := e.beginRecorded(ctx, mg, r, resume); err != nil {
		return failing(err)
	}
	op := t.operation(mg.GetUID())
	if op == nil {
		return failing(seam.Conflict(mg, messageEnded))
	}
	return returning(e.observeRunning(ctx, mg, op), nil)
}

// postponed returns the continuation of a reconcile whose attempt has to wait.
func (e *asyncClient) postponed(ctx context.Context, mg resource.Managed, wait time.Duration) (continuation, error) {
	var o upstream.ExternalObservation
	e.postpone(ctx, &o, wait)
	return returning(e.tracker.objects.withDetails(mg, o), nil)
}
