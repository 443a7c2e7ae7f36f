package asyncstate

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// personAgain is how soon an object is reconciled by itself of which only a person
// knows more.
const personAgain = 10 * time.Minute

// resolve an operation of which only the record is left, or a create that failed and is looked
// up before the next one.
//
// Every step begins with a write that the API server refuses if the object has changed: another
// writer may have settled the record.
func (e *external[M]) resolve(ctx context.Context, mg M, s creation.State) (managed.ExternalObservation, error) {
	r := s.Record
	if s.Recorded && r != nil && r.Type != creation.Create {
		if resume := resumerOf(e.inner); resume != nil && r.Handle != "" && r.Phase != creation.RecordFailed {
			return e.resume(ctx, mg, r)
		}
		// The next Observe shows what is left to do.
		return e.observe(ctx, mg, r)
	}

	t := e.tracker
	q := creation.Question{
		State: s,
		Can: creation.Can{
			Resume: resumerOf(e.inner) != nil, Find: finderOf(e.inner) != nil, Tokens: t.idempotent, Names: t.deterministic,
			Create: seam.Allows(mg, xpv2.ManagementActionCreate), Delete: meta.WasDeleted(mg),
		},
		Limits: creation.Limits{Announced: t.timeout, Recorded: t.absentAfter, Grace: t.grace},
		Now:    time.Now(),
	}
	q.FirstSeen = t.known.firstSeen.At(&t.known.Store, mg, s, q.Now)

	var (
		found   string
		lookErr error
	)

	for {
		switch step := creation.Next(q); step.Action {
		case creation.Proceed:
			return e.observe(ctx, mg, r)
		case creation.Resume:
			return e.resume(ctx, mg, r)
		case creation.LookUp:
			q.Now = time.Now()
			q.Lookup, found, lookErr = e.lookUp(ctx, mg, s)
		case creation.Observe:
			q.Now = time.Now()
			// Some clients plan in Observe the request that they make in Create.
			o, err := e.inner.Observe(ctx, mg)
			if err != nil {
				return o, err
			}
			q.Observed = creation.Absent
			if o.ResourceExists {
				q.Observed = creation.Exists
			}
		case creation.Adopt:
			return e.adopt(ctx, mg, found)
		case creation.Confirm:
			return e.confirm(ctx, mg)
		case creation.Repeat:
			return e.repeat(ctx, mg, q)
		case creation.BelieveAbsent:
			return e.believeAbsent(ctx, mg, q)
		case creation.Wait:
			return managed.ExternalObservation{}, e.wait(ctx, mg, q, step, lookErr)
		case creation.Stop:
			return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonResultUnknown, personAgain, outcomeUnknownOf(s, messageOf(step.Reason)))
		}
	}
}

// messageOf returns the text of the reason why the outcome of a create is unknown.
func messageOf(r creation.Reason) string {
	switch r {
	case creation.LookUpFailed:
		return "looking it up failed, see the events of this object"
	case creation.NotAllowed:
		return "its management policies do not allow to repeat it"
	case creation.NoLookUp:
		return "this provider cannot look it up"
	default:
		return "the provider cannot tell yet whether there is an external resource"
	}
}

// lookUp asks the Finder.
func (e *external[M]) lookUp(ctx context.Context, mg M, s creation.State) (creation.Answer, string, error) {
	a := Attempt{Type: Create, Number: 1, Started: s.Since}
	if s.Record != nil {
		a = attemptOf(s.Record)
	}

	f, err := finderOf(e.inner)(ctx, mg, a)
	if err == nil && f.Found() {
		err = errors.Wrap(seam.CheckText(f.ExternalName, seam.MaxExternalName), "the external name that was found cannot be stored")
	}

	switch {
	case err != nil:
		return creation.Errored, "", err
	case f.Found():
		return creation.Exists, f.ExternalName, nil
	case f.Absent():
		return creation.Absent, "", nil
	default:
		return creation.Inconclusive, "", nil
	}
}

// wait for the outcome of a create, or for the time from which absence is believed.
func (e *external[M]) wait(ctx context.Context, mg M, q creation.Question, step creation.Step, lookErr error) error {
	t := e.tracker

	switch step.Reason {
	case creation.MayBeInProgress:
		return e.stop(ctx, mg, ReasonInterrupted, step.Delay, errors.Errorf(messageWaiting, seam.Stamp(q.Since), seam.Stamp(step.Until)))
	case creation.RepeatedElsewhere:
		return e.stop(ctx, mg, ReasonInterrupted, step.Delay, errors.Errorf(messageRepeated, seam.Stamp(q.Since), seam.Stamp(step.Until)))
	case creation.LookUpFailed:
		t.log.Info("Cannot look up the result of an interrupted create", "uid", mg.GetUID(), "error", lookErr)
		t.warn(mg, reasonCannotFind, errors.Wrap(lookErr, "cannot look up the result of the interrupted create"))
	}

	// After minutes only a person can tell.
	reason := ReasonInterrupted
	if step.Delay >= creation.LastDelayUnknown {
		reason = ReasonResultUnknown
	}
	return e.stop(ctx, mg, reason, step.Delay, outcomeUnknownOf(q.State, messageOf(step.Reason)))
}

// looksUp reports whether the Finder is asked about a create that failed: when the next create
// is due, or the object is being deleted. A step after the create may be the one that failed.
func (e *external[M]) looksUp(mg M, r *creation.Record) bool {
	return finderOf(e.inner) != nil && (meta.WasDeleted(mg) || e.tracker.backoff(mg, r) <= 0)
}

// confirm a create whose external resource was observed.
func (e *external[M]) confirm(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, creation.On(mg).Succeeded(time.Now()).Unrecorded(), seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	e.tracker.metrics.resolved(Create, interruptedFound)
	return e.observe(ctx, mg, nil)
}

// settled removes the record of a create that another writer has settled.
func (e *external[M]) settled(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, creation.On(mg).Unrecorded(), seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	e.tracker.log.Info("Removed the record of a create that was settled by another writer", "uid", mg.GetUID())
	return e.observe(ctx, mg, nil)
}

// adopt the external resource that the Finder found.
func (e *external[M]) adopt(ctx context.Context, mg M, name string) (managed.ExternalObservation, error) {
	t := e.tracker
	if err := t.persist(ctx, mg, creation.On(mg).Succeeded(time.Now()).Named(name).Unrecorded(), seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	t.metrics.resolved(Create, interruptedFound)
	t.record.Event(mg, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)))

	// The client was connected without this name. It may see nothing without it.
	return managed.ExternalObservation{}, seam.Conflict(mg, "the external name was stored after the provider was connected")
}

// believeAbsent stores that the create made nothing.
func (e *external[M]) believeAbsent(ctx context.Context, mg M, q creation.Question) (managed.ExternalObservation, error) {
	t, r := e.tracker, q.Record
	cs := creation.On(mg)

	switch {
	case r == nil:
		cs = cs.Absent().Unrecorded()
	case r.Phase == creation.RecordRunning:
		// The next attempt waits for the backoff.
		r = endedWith(r, errInterrupted, q.BelievedFrom())
		cs = cs.AbsentWith(r)
	default:
		cs = cs.AbsentWith(r)
	}

	if err := t.persist(ctx, mg, cs, seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	t.metrics.resolved(Create, interruptedAbsent)
	t.record.Event(mg, event.Normal(reasonAbsent, "The interrupted create made no external resource"))
	t.known.firstSeen.Forget(&t.known.Store, mg)
	r, err := creation.RecordOf(mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	return e.observe(ctx, mg, r)
}

// repeat an attempt, which the external system carries out once.
func (e *external[M]) repeat(ctx context.Context, mg M, q creation.Question) (managed.ExternalObservation, error) {
	t, r := e.tracker, q.Record
	if r == nil {
		// The token of the create is not known.
		r = t.next(mg, Create, nil)
	}
	r = t.repeated(r, q.BelievedFrom().Add(-q.Limits.Grace))
	return e.again(ctx, mg, q.Record, r, interruptedRepeated, e.begin, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		c, err := e.inner.Create(ctx, mg)
		if t.ownGoroutines {
			// No Create of upstream's returns them.
			t.known.keepDetails(mg, c.ConnectionDetails)
		}
		return c.ConnectionDetails, err
	})
}

// resume an operation by its handle.
func (e *external[M]) resume(ctx context.Context, mg M, had *creation.Record) (managed.ExternalObservation, error) {
	r := e.tracker.repeated(had, time.Time{})
	r.Repeated = false
	return e.again(ctx, mg, had, r, interruptedResumed, e.background, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		return nil, resumerOf(e.inner)(ctx, mg, attemptOf(had))
	})
}

type operationFn[M resource.Managed] func(ctx context.Context, mg M) (managed.ConnectionDetails, error)

// again begins an attempt again, whose record is r; had is its record so far, or nil.
func (e *external[M]) again(ctx context.Context, mg M, had, r *creation.Record, how string, begin func(ctx context.Context, mg M, r *creation.Record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error, call operationFn[M]) (managed.ExternalObservation, error) {
	t := e.tracker

	if meta.WasDeleted(mg) {
		e.waits = "The " + string(r.Type) + " that was interrupted must be completed first, to find out what to delete."
		e.explain(reconciler.ReasonWaitingForAsyncOperation, e.waits)
	}

	if had != nil {
		if wait := time.Until(t.retryAt(had)); wait > 0 {
			err := t.failure(mg, had)
			say(mg, corev1.ConditionFalse, ReasonInterrupted, t.attemptFailed(mg, had)+err.Error())
			return e.postpone(ctx, mg, managed.ExternalObservation{}, wait, errors.Wrap(err, string(r.Type)+" failed"))
		}
	}

	if !e.acquire(ctx, mg) {
		return e.postpone(ctx, mg, managed.ExternalObservation{}, 0, nil)
	}
	if err := t.persist(ctx, mg, creation.On(mg).Recorded(r), seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	t.metrics.resolved(Type(r.Type), how)
	if err := begin(ctx, mg, r, call); err != nil {
		return managed.ExternalObservation{}, err
	}
	op := t.operation(mg.GetUID())
	if op == nil {
		// It is over already.
		return managed.ExternalObservation{}, seam.Conflict(mg, messageEndedMeanwhile)
	}
	return e.observeRunning(ctx, mg, op), nil
}

// stop the reconcile with a condition that says why.
func (e *external[M]) stop(ctx context.Context, mg M, reason xpv2.ConditionReason, again time.Duration, err error) error {
	message := err.Error()
	had := mg.GetCondition(TypeOperation)
	if had.Reason == ReasonResultUnknown && had.Message == message {
		// A new process has not asked for as long.
		reason = ReasonResultUnknown
	}

	if had.Reason != reason || had.Message != message {
		switch reason {
		case ReasonRecordUnusable:
			e.tracker.warn(mg, reasonRecordUnusable, err)
		case ReasonResultUnknown:
			e.tracker.warn(mg, reasonResultUnknown, err)
			e.tracker.metrics.resolved(Create, interruptedUnknown)
		}
	}

	say(mg, corev1.ConditionFalse, reason, message)
	if meta.WasDeleted(mg) {
		e.explain(reconciler.ReasonCreateResultUnknown, message)
	}

	if s := seam.From(ctx); s != nil {
		*e.tracker.reasons.In(s) = err
		s.Requeue(seam.InsteadOfBackoff(again))
	}
	return err
}

func (e *external[M]) explain(reason xpv2.ConditionReason, message string) {
	e.outcome.Reason, e.outcome.Message = reason, message
}

// resumerOf returns the Resume of an external client, in whatever form it has it.
func resumerOf[M resource.Managed](c managed.TypedExternalClient[M]) func(ctx context.Context, mg M, a Attempt) error {
	switch r := c.(type) {
	case TypedResumer[M]:
		return r.Resume
	case Resumer:
		return func(ctx context.Context, mg M, a Attempt) error { return r.Resume(ctx, mg, a) }
	default:
		return nil
	}
}

// finderOf returns the Find of an external client, in whatever form it has it. It is
// given a copy of the managed resource: what it does to that must not be stored.
func finderOf[M resource.Managed](c managed.TypedExternalClient[M]) func(ctx context.Context, mg M, a Attempt) (Finding, error) {
	switch f := c.(type) {
	case TypedFinder[M]:
		return func(ctx context.Context, mg M, a Attempt) (Finding, error) { return f.Find(ctx, copyOf(mg), a) }
	case Finder:
		return func(ctx context.Context, mg M, a Attempt) (Finding, error) { return f.Find(ctx, copyOf(mg), a) }
	default:
		return nil
	}
}

func copyOf[M resource.Managed](mg M) M {
	c, _ := mg.DeepCopyObject().(M)
	return c
}
