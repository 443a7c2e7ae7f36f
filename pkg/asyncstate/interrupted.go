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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/interrupted"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// personAgain is how soon an object is reconciled by itself of which only a person
// knows more.
const personAgain = 10 * time.Minute

// An interruption is a create of which only the record is left.
type interruption struct {
	*record

	// asked is when this reconcile looked, before any answer came.
	asked time.Time

	// first is when this process first looked.
	first time.Time
}

func (t *Tracker) interruption(mg resource.Managed, r *record) interruption {
	now := time.Now()

	// A process that repeats it sets a new deadline.
	create := r.Holder + " " + r.Token + " " + r.Deadline.UTC().Format(time.RFC3339)
	return interruption{record: r, asked: now, first: t.sightings.First(mg.GetUID(), create, now)}
}

// decide what an answer means of an interrupted create.
func (t *Tracker) decide(i interruption, f Finding, err error) interrupted.Answer {
	return interrupted.Decide(interrupted.Question{
		Found:  f.Found(),
		Absent: f.Absent(),
		Err:    err,
		Now:    i.asked,
		Until:  t.absentFrom(i.record, i.first),
		Since:  i.first,
	})
}

// resolve the outcome of an operation of which only the record is left.
//
// Whatever is done about it begins with a write that the API server refuses if the
// object is not the one that was read: the record may be settled by now.
func (e *external[M]) resolve(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	t := e.tracker

	if resume := resumerOf(e.inner); resume != nil && r.Handle != "" && r.Phase != phaseFailed {
		return e.again(ctx, mg, r, interruptedResumed, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
			return nil, resume(ctx, mg, r.attempt())
		})
	}

	if r.Type != Create {
		// What is left to be done is what is observed.
		return e.observe(ctx, mg, r)
	}
	i := t.interruption(mg, r)

	// A create whose token is not known cannot be repeated.
	idempotent := t.idempotent && r.Token != ""

	// A create is not repeated against management policies that were changed meanwhile.
	allowed := seam.Allows(mg, xpv2.ManagementActionCreate)

	if find := finderOf(e.inner); find != nil && !r.Named {
		f, err := find(ctx, mg, r.attempt())
		if err == nil && f.Found() {
			err = errors.Wrap(seam.CheckText(f.ExternalName, seam.MaxExternalName), "the external name that was found cannot be stored")
		}

		switch a := t.decide(i, f, err); a.Verdict {
		case interrupted.Found:
			if err := e.repeatedElsewhere(ctx, mg, i); err != nil {
				return managed.ExternalObservation{}, err
			}
			return e.found(ctx, mg, r, f.ExternalName)
		case interrupted.Failed:
			t.log.Info("Cannot look up the result of an interrupted create", "uid", mg.GetUID(), "error", err)
			t.warn(mg, reasonCannotFind, errors.Wrap(err, "cannot look up the result of the interrupted create"))
			return managed.ExternalObservation{}, e.unknown(ctx, mg, i, a, "looking it up failed, see the events of this object")
		case interrupted.Unknown:
			return managed.ExternalObservation{}, e.unknown(ctx, mg, i, a, "the provider cannot tell yet whether there is an external resource")
		case interrupted.Wait, interrupted.Absent:
			if !idempotent || !allowed || meta.WasDeleted(mg) || r.Phase == phaseFailed {
				return e.absent(ctx, mg, i, a)
			}
		}
	}

	if !r.Named && !t.deterministic && !idempotent {
		return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonResultUnknown, personAgain, outcomeUnknownOf(r, "this provider cannot look it up"))
	}

	// Also before a create is repeated: some clients plan in Observe what they do in
	// Create.
	o, err := e.inner.Observe(ctx, mg)

	switch {
	case err != nil:
		return o, err
	case o.ResourceExists:
		if err := e.repeatedElsewhere(ctx, mg, i); err != nil {
			return managed.ExternalObservation{}, err
		}
		return e.settle(ctx, mg, r)
	case (r.Named || t.deterministic) && (!allowed || meta.WasDeleted(mg) || !idempotent && !t.deterministic):
		// Without a name, only repeating the create tells what to delete.
		return e.absent(ctx, mg, i, t.decide(i, Absent(), nil))
	case !allowed:
		return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonResultUnknown, personAgain, outcomeUnknownOf(r, "its management policies do not allow to repeat it"))
	default:
		return e.repeat(ctx, mg, r)
	}
}

// repeatedElsewhere returns an error if the external resource is to be deleted that a
// create made which another process may still repeat. As long as the resource exists that
// makes no second one. External systems forget tokens and names with what they made.
func (e *external[M]) repeatedElsewhere(ctx context.Context, mg M, i interruption) error {
	if !meta.WasDeleted(mg) || !i.Repeated || i.Named {
		return nil
	}
	a := e.tracker.decide(i, Absent(), nil)
	if a.Verdict != interrupted.Wait {
		return nil
	}
	return e.stop(ctx, mg, ReasonInterrupted, a.Again, errors.Errorf(messageRepeated, seam.Stamp(i.Started.Time), seam.Stamp(e.tracker.absentFrom(i.record, i.first))))
}

// looksUp reports whether the external resource of r is looked up although r failed:
// when the next create is due, or the object may go. The error may be that of a step
// after the one that made the resource.
func (e *external[M]) looksUp(mg M, r *record) bool {
	return e.canLookUp(r) && (meta.WasDeleted(mg) || e.tracker.backoff(mg, r) <= 0)
}

// canLookUp reports whether the external resource of r can be looked up.
func (e *external[M]) canLookUp(r *record) bool {
	return r.Type == Create && !r.Named && finderOf(e.inner) != nil
}

// settle the record of a create that turned out to have succeeded.
func (e *external[M]) settle(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, seam.Changes{succeeded(mg, time.Now()), forget(mg)}, seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	e.tracker.metrics.resolved(r.Type, interruptedFound)
	return e.observe(ctx, mg, nil)
}

// settledElsewhere removes the record of a create that upstream's annotations say has
// ended.
func (e *external[M]) settledElsewhere(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, seam.Changes{forget(mg)}, seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	e.tracker.log.Info("Removed the record of a create that was settled by another writer", "uid", mg.GetUID())
	return e.observe(ctx, mg, nil)
}

// found stores the name of the external resource of an interrupted create, and has the
// object reconciled again.
func (e *external[M]) found(ctx context.Context, mg M, r *record, name string) (managed.ExternalObservation, error) {
	t := e.tracker
	cs := seam.Changes{succeeded(mg, time.Now()), seam.SetAnnotation(mg, meta.AnnotationKeyExternalName, name), forget(mg)}
	if err := t.persist(ctx, mg, cs, seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	t.metrics.resolved(r.Type, interruptedFound)
	t.record.Event(mg, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)))

	// The client was connected without this name, and may see nothing without it.
	return managed.ExternalObservation{}, seam.Conflict(mg, "the external name was stored after the provider was connected")
}

// succeeded is the change that says when a create succeeded.
func succeeded(o client.Object, at time.Time) seam.Change {
	return seam.CreateEnded(o, meta.AnnotationKeyExternalCreateSucceeded, at)
}

// failed is the change that says when a create failed.
func failed(o client.Object, at time.Time) seam.Change {
	return seam.CreateEnded(o, meta.AnnotationKeyExternalCreateFailed, at)
}

// concluded marks a create as succeeded whose external resource exists although it was
// never seen to succeed: upstream's announcement without the record would stop the
// object.
func concluded(mg resource.Managed) seam.Changes {
	if !meta.ExternalCreateIncomplete(mg) {
		return nil
	}
	return seam.Changes{succeeded(mg, time.Now())}
}

// absent waits for an interrupted create that has made nothing yet, as long as it may
// still be in progress, and then treats it as failed.
func (e *external[M]) absent(ctx context.Context, mg M, i interruption, a interrupted.Answer) (managed.ExternalObservation, error) {
	t := e.tracker
	from := t.absentFrom(i.record, i.first)
	if a.Verdict == interrupted.Wait {
		return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonInterrupted, a.Again, errors.Errorf(messageWaiting, seam.Stamp(i.Started.Time), seam.Stamp(from)))
	}
	r := i.record
	if r.Phase == phaseRunning {
		r = r.ended(errInterrupted, from)

		// The next attempt may not begin now, and this is found out once. There is no
		// record of what upstream announced.
		if r.Holder != "" {
			if err := t.persist(ctx, mg, seam.Changes{remember(mg, r)}, seam.Decided); err != nil {
				return managed.ExternalObservation{}, err
			}
		}

		t.metrics.resolved(r.Type, interruptedAbsent)
		t.record.Event(mg, event.Normal(reasonAbsent, "The interrupted create made no external resource"))
	}
	return e.observe(ctx, mg, r)
}

// repeat an attempt that the external system makes once, however often it is asked.
func (e *external[M]) repeat(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	return e.again(ctx, mg, r, interruptedRepeated, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		c, err := e.inner.Create(ctx, mg)
		if e.tracker.ownGoroutines {
			// They are not returned from a Create of upstream's.
			e.tracker.details.keep(mg.GetUID(), c.ConnectionDetails)
		}
		return c.ConnectionDetails, err
	})
}

// again makes the same attempt once more.
func (e *external[M]) again(ctx context.Context, mg M, r *record, how string, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) (managed.ExternalObservation, error) {
	t := e.tracker

	if meta.WasDeleted(mg) {
		e.waits = "The " + string(r.Type) + " that was interrupted must be completed first, to find out what to delete."
		e.explain(reconciler.ReasonWaitingForAsyncOperation, e.waits)
	}

	if wait := time.Until(t.retryAt(r)); wait > 0 {
		err := t.failure(mg, r)
		say(mg, corev1.ConditionFalse, ReasonInterrupted, t.attemptFailed(mg, r)+err.Error())
		return e.postpone(ctx, mg, managed.ExternalObservation{}, wait, errors.Wrap(err, string(r.Type)+" failed"))
	}

	if !e.acquire(ctx, mg) {
		return e.postpone(ctx, mg, managed.ExternalObservation{}, 0, nil)
	}
	r = t.again(r, t.interruption(mg, r).first)
	if how == interruptedResumed {
		// Nothing is asked for again.
		r.Repeated, r.Open = false, nil
	}

	if err := t.persist(ctx, mg, seam.Changes{remember(mg, r)}, seam.Decided); err != nil {
		return managed.ExternalObservation{}, err
	}
	t.metrics.resolved(r.Type, how)
	begin := e.begin
	if how == interruptedResumed {
		begin = e.background
	}

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

// unknown stops the reconcile, since the outcome of a create is unknown. What is still
// unknown after minutes is for a person to know.
func (e *external[M]) unknown(ctx context.Context, mg M, i interruption, a interrupted.Answer, why string) error {
	reason := ReasonInterrupted
	if a.Again >= interrupted.LastAgainUnknown {
		reason = ReasonResultUnknown
	}
	return e.stop(ctx, mg, reason, a.Again, outcomeUnknownOf(i.record, why))
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
