package asyncstate

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
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

	switch {
	case s.Settled:
		return e.removeSettled(ctx, mg)
	case r != nil && r.Type != creation.Create && e.optional.resume != nil && r.Handle != "" &&
		r.Phase != creation.RecordFailed:
		return e.resume(ctx, mg, s, "")
	case t.records.neverStarted(r), !e.resolves(mg, s, c.wait):
		// The next Observe decides. A deletion may have to wait for another request of the create.
		if s.OpenUntil.IsZero() || !meta.WasDeleted(mg) {
			t.objects.firstSeen.Forget(&t.objects.Store, mg)
		}
		return c, nil
	default:
		return e.resolveCreate(ctx, mg, s)
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
	c, r := e.tracker.config, s.Record

	switch {
	case !s.Recorded:
		return c.resolveUnrecorded && s.Phase == creation.Announced
	case r != nil && r.Type != creation.Create:
		return false
	case r != nil && (s.Phase == creation.Failed || s.Phase == creation.Created):
		return e.optional.find != nil && (meta.WasDeleted(mg) || wait <= 0)
	default:
		return true
	}
}

// resolveCreate does what creation.Next says.
func (e *asyncClient) resolveCreate(ctx context.Context, mg resource.Managed, s creation.State) (continuation, error) {
	q := e.question(mg, s, time.Now())

	var (
		name     string
		findErr  error
		observed upstream.ExternalObservation
	)

	for {
		switch step := creation.Next(q); step.Action {
		case creation.Proceed:
			return continuation{record: s.Record}, nil
		case creation.Resume:
			if findErr != nil {
				e.cannotLookUp(mg, findErr)
			}
			return e.resume(ctx, mg, s, step.Reason)
		case creation.LookUp:
			q.Now = time.Now()
			q.Lookup, name, findErr = e.lookUp(ctx, mg, s)
		case creation.Observe:
			q.Now = time.Now()

			// Before a create is repeated, too: some clients plan in Observe the
			// request that they make in Create.
			var err error
			if observed, err = e.observeExternal(ctx, mg, basis.createChanged); err != nil {
				return returning(observed, err)
			}
			q.Observed = creation.ObservedAs(observed.ResourceExists)
		case creation.Adopt:
			return e.adopt(ctx, mg, q, name)
		case creation.Confirm:
			return e.confirm(ctx, mg, q, observed)
		case creation.Repeat:
			return e.repeat(ctx, mg, q)
		case creation.BelieveAbsent:
			return e.believeAbsent(ctx, mg, q)
		case creation.Wait:
			return failing(e.waitForOutcome(ctx, mg, q, step, findErr))
		case creation.Stop:
			err := e.unknownCreateError(mg, s, step.Reason)
			return failing(e.stop(ctx, mg, ReasonOutcomeUnknown, personInterval, err))
		}
	}
}

// question returns the question about the last create of mg, whose state is s.
func (e *asyncClient) question(mg resource.Managed, s creation.State, now time.Time) creation.Question {
	c := e.tracker.config
	return creation.Question{
		State: s,
		Can: creation.Can{
			Resume: e.optional.resume != nil,
			Find:   e.optional.find != nil, Tokens: c.idempotentTokens, Names: c.deterministicNames,
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
	q := e.question(mg, s, began)
	q.Observed = creation.ObservedAs(exists)
	if step := creation.Next(q); step.Reason == creation.OtherMayBeInProgress {
		return e.waitForOutcome(ctx, mg, q, step, nil)
	}
	return nil
}

// lookUp the external resource with the Finder.
func (e *asyncClient) lookUp(
	ctx context.Context, mg resource.Managed, s creation.State,
) (creation.Answer, string, error) {
	f, err := limit.Call(seam.From(ctx).Meter(), func() (Finding, error) {
		return e.optional.find(ctx, copyOf(mg), attemptOfCreate(s))
	})
	return creation.AnswerOf(f.Known, f.ExternalName, err)
}

// unknownCreateError returns an error that names the create whose outcome is unknown, the reason,
// and the steps that a person can take.
func (e *asyncClient) unknownCreateError(mg resource.Managed, s creation.State, r creation.Reason) error {
	token, hint := "", ""
	if e.optional.hint != nil {
		hint = e.optional.hint(copyOf(mg), attemptOfCreate(s))
	}
	if s.Record != nil {
		token = " with token " + s.Record.Token
	}
	if hint != "" {
		hint = " (" + creation.Clean(hint, maxHint) + ")"
	}
	message := fmt.Sprintf(
		messageUnknown, seam.Stamp(s.Since), token, reasonClause(r), hint, creation.SettleAfter(mg, s.Since),
	)
	return withUnknownOutcome{errors.New(e.withLastError(mg, s, message))}
}

// withLastError returns a message about the last create, with the error that it ended with, if any.
func (e *asyncClient) withLastError(mg resource.Managed, s creation.State, message string) string {
	if s.Phase != creation.Unknown || s.Record == nil {
		return message
	}
	text, stored := e.tracker.objects.failure(mg, s.Record).text, mg.GetCondition(TypeOperation).Message
	if full := creation.WithLastError(message, text, stored, s.Since); full != message {
		return full
	}
	return creation.WithLastError(message, s.Record.Error, "", s.Since)
}

// waitForOutcome stops the reconcile until the outcome of a create may be known, or until absence
// is believed.
func (e *asyncClient) waitForOutcome(
	ctx context.Context, mg resource.Managed, q creation.Question, step creation.Step, findErr error,
) error {
	switch step.Reason {
	case creation.MayBeInProgress:
		message := fmt.Sprintf(messageWaiting, seam.Stamp(q.Since), seam.Stamp(step.Until))
		return e.stop(ctx, mg, ReasonInterrupted, step.Delay, errors.New(e.withLastError(mg, q.State, message)))
	case creation.OtherMayBeInProgress:
		return e.stop(
			ctx, mg, ReasonInterrupted, step.Delay,
			errors.Errorf(messageRepeated, seam.Stamp(q.Since), seam.Stamp(step.Until)),
		)
	case creation.LookUpFailed:
		e.cannotLookUp(mg, findErr)
	}

	// After some minutes, ask a person.
	reason := ReasonInterrupted
	if step.Delay >= creation.LastDelayUnknown {
		reason = ReasonOutcomeUnknown
	}
	return e.stop(ctx, mg, reason, step.Delay, e.unknownCreateError(mg, q.State, step.Reason))
}

// cannotLookUp reports that the Finder failed.
func (e *asyncClient) cannotLookUp(mg resource.Managed, err error) {
	e.tracker.config.events.warn(
		mg, reasonCannotFind, errors.Wrap(err, "cannot look up the result of the interrupted create"),
	)
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

// confirm a create whose external resource was observed.
func (e *asyncClient) confirm(
	ctx context.Context, mg resource.Managed, q creation.Question, o upstream.ExternalObservation,
) (continuation, error) {
	if err := e.tracker.persist(
		ctx, mg, creation.On(mg).Found(q, time.Now())); err != nil {
		return failing(err)
	}
	e.tracker.config.metrics.observeResolution(Create, interruptedFound)
	return continuation{observed: &o}, nil
}

// adopt the external resource that the Finder found.
func (e *asyncClient) adopt(
	ctx context.Context, mg resource.Managed, q creation.Question, name string,
) (continuation, error) {
	if err := e.tracker.persist(
		ctx, mg, creation.On(mg).Found(q, time.Now()).Named(name)); err != nil {
		return failing(err)
	}
	e.tracker.config.metrics.observeResolution(Create, interruptedFound)
	e.tracker.config.events.record.Event(
		mg, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)),
	)

	// The client was connected without this name, so it may not find the external resource.
	return failing(seam.Conflict(mg, "the external name was stored after the provider was connected"))
}

// believeAbsent stores that the create created nothing.
func (e *asyncClient) believeAbsent(
	ctx context.Context, mg resource.Managed, q creation.Question,
) (continuation, error) {
	r, cs := q.Record, creation.On(mg)

	switch {
	case r == nil:
		cs = cs.Absent().WithoutRecord()
	case r.Phase == creation.RecordRunning:
		// The backoff begins now.
		r = failedRecord(r, errInterrupted, false, q.BelievedFrom())
		cs = cs.AbsentWith(r)
	default:
		cs = cs.AbsentWith(r)
	}

	if err := e.tracker.persist(ctx, mg, cs); err != nil {
		return failing(err)
	}
	e.tracker.config.metrics.observeResolution(Create, interruptedAbsent)
	e.tracker.config.events.record.Event(
		mg, event.Normal(reasonAbsent, "The interrupted create made no external resource"),
	)
	e.tracker.objects.firstSeen.Forget(&e.tracker.objects.Store, mg)
	r, err := creation.RecordOf(mg)
	return e.continuing(mg, r), err
}

// repeat an attempt. The external system carries it out once.
func (e *asyncClient) repeat(ctx context.Context, mg resource.Managed, q creation.Question) (continuation, error) {
	t, had := e.tracker, q.Record
	if had == nil {
		// Another writer announced the create, and its token is not known.
		had = t.records.next(mg, Create, nil)
	}
	r := t.records.repeated(had, q.BelievedFrom().Add(-q.Limits.Grace))

	return e.beginAgain(ctx, mg, had, r, interruptedRepeated, nil)
}

// resume an operation by its handle. why is not empty if a person may have to determine its outcome.
func (e *asyncClient) resume(
	ctx context.Context, mg resource.Managed, s creation.State, why creation.Reason,
) (continuation, error) {
	had, t := s.Record, e.tracker
	if wait := time.Until(t.config.backoff.end(had)); why != "" && wait > 0 {
		return failing(e.stop(ctx, mg, ReasonOutcomeUnknown, wait, e.unknownCreateError(mg, s, why)))
	}

	a := attemptOf(had)
	return e.beginAgain(ctx, mg, had, t.records.continued(had), interruptedResumed, &a)
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

	if wait := time.Until(t.config.backoff.end(had)); wait > 0 {
		setFailed(mg, ReasonInterrupted, had, t.objects.failure(mg, had), t.config.backoff)
		return e.postponed(ctx, mg, wait)
	}
	if !e.acquire(ctx, mg) {
		return e.postponed(ctx, mg, 0)
	}
	if err := t.persist(ctx, mg, creation.On(mg).WithRecord(r)); err != nil {
		return failing(err)
	}
	t.config.metrics.observeResolution(Type(r.Type), how)
	if err := e.begin(ctx, mg, r, resume); err != nil {
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
	return returning(e.withDetails(mg, o), nil)
}
