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

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// How soon an object that is stuck is looked at again by itself.
const (
	// finderAgain: its Finder may know more then.
	finderAgain = time.Minute

	// personAgain: only a person knows more, and will wake it.
	personAgain = 10 * time.Minute
)

// resolve finds out what came of an operation of which only the record is left.
//
// Whatever is done about it begins with a write that the API server refuses if the
// object is not the one that was read: the record may be settled by now.
func (e *external[M]) resolve(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	t := e.tracker

	// What is found to be absent was so then, whenever the answer comes.
	asked := time.Now()

	if resume := resumerOf(e.inner); resume != nil && r.Handle != "" {
		return e.again(ctx, mg, r, interruptedResumed, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
			return nil, resume(ctx, mg, r.attempt())
		})
	}

	if r.Type != Create {
		// Whatever is left of it to be done is what is observed to be.
		return e.observe(ctx, mg, r)
	}

	if find := finderOf(e.inner); find != nil && !r.Named {
		f, err := find(ctx, mg, r.attempt())

		switch {
		case err != nil:
			return managed.ExternalObservation{}, e.unknown(ctx, mg, finderAgain, errors.Wrap(err, "cannot find out what came of the interrupted create"))
		case f.Found():
			return e.found(ctx, mg, r, f.ExternalName)
		case !f.Known:
			return managed.ExternalObservation{}, e.unknown(ctx, mg, finderAgain, errors.Wrap(ErrResultUnknown, "the create was interrupted, and the provider can't tell yet what came of it"))
		case !t.idempotent || meta.WasDeleted(mg):
			return e.absent(ctx, mg, r, asked)
		}
	}

	if !r.Named && !t.deterministic && !t.idempotent {
		return managed.ExternalObservation{}, e.unknown(ctx, mg, personAgain, errors.Wrap(ErrResultUnknown, "the create was interrupted, and the provider has nothing to find out by what came of it. "+messageResolve))
	}

	// Also before a create is repeated: some clients plan in Observe what they do in
	// Create.
	o, err := e.inner.Observe(ctx, mg)

	switch {
	case err != nil:
		return o, err
	case o.ResourceExists:
		return e.settle(ctx, mg, r)
	case (r.Named || t.deterministic) && (meta.WasDeleted(mg) || !t.idempotent && !t.deterministic):
		// Without a name, only repeating the create tells what to delete.
		return e.absent(ctx, mg, r, asked)
	default:
		return e.repeat(ctx, mg, r)
	}
}

// settle the record of a create that turned out to have succeeded.
func (e *external[M]) settle(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, seam.Changes{succeeded(mg, time.Now()), forget(mg)}, seam.StoreOptions{Strict: true}); err != nil {
		return managed.ExternalObservation{}, err
	}

	e.tracker.metrics.resolved(r.Type, interruptedFound)

	return e.observe(ctx, mg, nil)
}

// settledElsewhere removes the record of a create that upstream's annotations say has
// ended.
func (e *external[M]) settledElsewhere(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	if err := e.tracker.persist(ctx, mg, seam.Changes{forget(mg)}, seam.StoreOptions{Strict: true}); err != nil {
		return managed.ExternalObservation{}, err
	}

	e.tracker.log.Info("Removed the record of a create that was settled by another writer", "uid", mg.GetUID())

	return e.observe(ctx, mg, nil)
}

// found stores the name of what an interrupted create turned out to have made, and
// has the object reconciled again.
func (e *external[M]) found(ctx context.Context, mg M, r *record, name string) (managed.ExternalObservation, error) {
	t := e.tracker

	if err := seam.CheckText(name, seam.MaxExternalName); err != nil {
		return managed.ExternalObservation{}, e.unknown(ctx, mg, finderAgain, errors.Wrap(err, "what the interrupted create made was found, but its external name can't be stored"))
	}

	cs := seam.Changes{succeeded(mg, time.Now()), seam.SetAnnotation(mg, meta.AnnotationKeyExternalName, name), forget(mg)}
	if err := t.persist(ctx, mg, cs, seam.StoreOptions{Strict: true}); err != nil {
		return managed.ExternalObservation{}, err
	}

	t.metrics.resolved(r.Type, interruptedFound)
	t.record.Event(mg, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)))

	// The client was connected without this name, and may see nothing without it.
	return managed.ExternalObservation{}, conflict(mg, "the external name was stored after the provider was connected")
}

// succeeded is the change that says when a create succeeded.
func succeeded(o client.Object, at time.Time) seam.Change {
	return seam.CreateEnded(o, meta.AnnotationKeyExternalCreateSucceeded, at)
}

// failed is the change that says when a create failed.
func failed(o client.Object, at time.Time) seam.Change {
	return seam.CreateEnded(o, meta.AnnotationKeyExternalCreateFailed, at)
}

// concluded is what there is to say, beside its record, of a create whose external
// resource turned out to exist although it was never seen to succeed: without the
// record, an announcement alone would be refused to go on from.
func concluded(mg resource.Managed, r *record) seam.Changes {
	if r == nil || r.Type != Create || !meta.ExternalCreateIncomplete(mg) {
		return nil
	}

	return seam.Changes{succeeded(mg, time.Now())}
}

// absent goes on from what an interrupted create should have made, and hadn't when
// that was asked, once it can't do so any more.
func (e *external[M]) absent(ctx context.Context, mg M, r *record, asked time.Time) (managed.ExternalObservation, error) {
	t := e.tracker

	at := t.settledAt(r)
	if wait := at.Sub(asked); wait > 0 {
		return managed.ExternalObservation{}, e.unknown(ctx, mg, wait, errors.Errorf("the create was interrupted. The external resource was not found, but may come up until %s, since the process that asked for it may still be at work. "+
			"If it surely isn't, remove the annotations %s and %s", at.UTC().Format(time.RFC3339), AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending))
	}

	// The next attempt is begun by a write of the whole object, which fails if
	// it is not the one that was read.
	ended := r
	if r.Phase == phaseRunning {
		ended = r.ended(errors.New("interrupted"), at)
		t.metrics.resolved(r.Type, interruptedAbsent)
		t.record.Event(mg, event.Normal(reasonAbsent, "The create that was interrupted has made nothing"))
	}

	return e.observe(ctx, mg, ended)
}

// repeat an attempt that the external system makes once, however often it is asked.
func (e *external[M]) repeat(ctx context.Context, mg M, r *record) (managed.ExternalObservation, error) {
	return e.again(ctx, mg, r, interruptedRepeated, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		c, err := e.inner.Create(ctx, mg)
		return c.ConnectionDetails, err
	})
}

// again makes the same attempt once more.
func (e *external[M]) again(ctx context.Context, mg M, r *record, how string, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) (managed.ExternalObservation, error) {
	t := e.tracker

	if meta.WasDeleted(mg) {
		e.waits = "The " + string(r.Type) + " that was interrupted has to be gone on with, to find out what to delete."
		e.explain(ctx, reconciler.ReasonWaitingForAsyncOperation, e.waits)
	}

	if wait := time.Until(t.retryAt(r)); wait > 0 {
		say(mg, corev1.ConditionFalse, ReasonInterrupted, failure(r).Error())
		return e.postpone(ctx, mg, managed.ExternalObservation{}, wait, failure(r))
	}

	if !e.acquire(mg) {
		say(mg, corev1.ConditionFalse, ReasonQueued, "Waiting for operations of other objects to end.")
		e.lookAgain(ctx)

		return e.postpone(ctx, mg, managed.ExternalObservation{}, 0, nil)
	}

	r = t.again(r)
	if how == interruptedResumed {
		// Nothing is asked for again.
		r.Repeated = false
	}

	if err := t.persist(ctx, mg, seam.Changes{remember(mg, r)}, seam.StoreOptions{Strict: true}); err != nil {
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
		return managed.ExternalObservation{}, conflict(mg, "its operation has ended meanwhile")
	}

	return e.observeRunning(ctx, mg, op)
}

// unknown stops the reconcile, since nobody knows what came of a create.
func (e *external[M]) unknown(ctx context.Context, mg M, again time.Duration, err error) error {
	reason := ReasonInterrupted
	if errors.Is(err, ErrResultUnknown) {
		reason = ReasonResultUnknown
	}

	stopped := e.stop(ctx, mg, reason, err)

	if s := seam.From(ctx); s != nil {
		s.RequeueAfter(again)
	}

	return stopped
}

// stop the reconcile with a condition that says why.
func (e *external[M]) stop(ctx context.Context, mg M, reason xpv2.ConditionReason, err error) error {
	message := err.Error()
	if had := mg.GetCondition(TypeOperation); had.Reason != reason || had.Message != message {
		if reason == ReasonRecordUnusable {
			e.tracker.warn(mg, reasonRecordUnusable, err)
		} else {
			e.tracker.warn(mg, reasonResultUnknown, err)
			e.tracker.metrics.resolved(Create, interruptedUnknown)
		}
	}

	say(mg, corev1.ConditionFalse, reason, message)

	if meta.WasDeleted(mg) {
		e.explain(ctx, reconciler.ReasonCreateResultUnknown, message)
	}

	if s := seam.From(ctx); s != nil {
		s.RequeueAfter(personAgain)
	}

	return err
}

func (e *external[M]) explain(ctx context.Context, reason xpv2.ConditionReason, message string) {
	seam.From(ctx).Explain(reason, message)
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

// finderOf returns the Find of an external client, in whatever form it has it.
func finderOf[M resource.Managed](c managed.TypedExternalClient[M]) func(ctx context.Context, mg M, a Attempt) (Finding, error) {
	switch f := c.(type) {
	case TypedFinder[M]:
		return f.Find
	case Finder:
		return func(ctx context.Context, mg M, a Attempt) (Finding, error) { return f.Find(ctx, mg, a) }
	default:
		return nil
	}
}
