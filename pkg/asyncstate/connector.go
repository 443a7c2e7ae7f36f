package asyncstate

import (
	"context"
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// askAgain is how soon an object is reconciled again while its operation runs or waits,
// if the tracker's source is not watched.
const askAgain = 10 * time.Second

// Connector makes the operations of the external clients that c connects to outlive
// the reconciles that begin them. By default Create, Update and Delete are called
// in the background, each with a copy of the managed resource, and at most one at a
// time for an object. What they set on that copy's annotations is stored with their
// result; connection details that they return are published by a later reconcile,
// from memory, so a crash in between loses them.
//
// While an operation of an object runs, c does not connect for the object and the
// external resource is not observed: it is said to exist and to be up to date, and its
// conditions stay as they are.
//
// Disconnect is called once for each client that was connected: when the operation
// that was begun with it has ended, or when the reconcile has, if none was begun or
// the tracker was created WithOwnGoroutines.
//
// Under Graft's package managed use its WithAsync instead, which does more.
func Connector(c managed.ExternalConnector, t *Tracker) managed.ExternalConnector {
	return TypedConnector(c, t)
}

// TypedConnector is Connector for a connector of one type of managed resource.
func TypedConnector[M resource.Managed](c managed.TypedExternalConnector[M], t *Tracker) managed.TypedExternalConnector[M] {
	mustNotBeNil(c, "Connector")
	mustNotBeNil(t, "Connector")
	return managed.TypedExternalConnectorFn[M](func(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
		if op := t.operation(mg.GetUID()); op != nil && !op.storedIn(mg) {
			// What runs may share the client's state.
			return &external[M]{tracker: t}, nil
		}
		ec, err := c.Connect(ctx, mg)
		if err != nil {
			return nil, err
		}
		if is.Nil(ec) {
			return nil, errors.New("the external connector returned neither a client nor an error")
		}
		if err := checkSignatures(ec); err != nil {
			_ = ec.Disconnect(ctx)
			return nil, err
		}
		return &external[M]{inner: ec, tracker: t}, nil
	})
}

// external is an external client whose operations outlive reconciles. There is one
// a reconcile.
type external[M resource.Managed] struct {
	// inner is nil if an operation ran when the provider was to be connected.
	inner   managed.TypedExternalClient[M]
	tracker *Tracker

	// slots are those of which the object has one for this reconcile. They are nil
	// if it has none.
	slots  *slots
	holder types.UID

	// start what was begun, when the reconcile is done with the object.
	start func()

	// done is closed then, if the client may have begun something.
	done chan struct{}

	// outcome is what the last call led to.
	outcome seam.Outcome

	// waits says for what an object that is being deleted has to wait, although
	// nothing runs: what there is to delete is not known before.
	waits string
}

// Outcome of the last call, for Graft's package managed. It is always known.
func (e *external[M]) Outcome() (seam.Outcome, bool) { return e.outcome, true }

// Observe the external resource, unless an operation stands in the way.
func (e *external[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	e.outcome = seam.Outcome{}
	t := e.tracker
	op, err := t.recall(ctx, mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	if op != nil {
		if op.takenOver(mg) {
			op.cancel(errTakenOver) // What it makes later would outlive what the other makes and deletes.
		}
		return e.observeRunning(ctx, mg, op), nil
	}
	if e.inner == nil {
		return managed.ExternalObservation{}, seam.Conflict(mg, messageEndedMeanwhile)
	}
	s, err := creation.Of(mg)
	if err != nil {
		return managed.ExternalObservation{}, e.stop(ctx, mg, ReasonRecordUnusable, personAgain, err)
	}

	switch r := s.Record; {
	case s.Settled:
		return e.settled(ctx, mg)
	case !s.Recorded, r != nil && t.neverStarted(r), r != nil && s.Phase == creation.Failed && !e.looksUp(mg, r):
		t.known.firstSeen.Forget(&t.known.Store, mg)
		return e.observe(ctx, mg, r)
	default:
		return e.resolve(ctx, mg, s)
	}
}

// recall the operation of an object that runs in this process. A conflict means that
// the object was read before the result of an operation was stored.
func (t *Tracker) recall(ctx context.Context, mg resource.Managed) (*Operation, error) {
	op := t.operation(mg.GetUID())
	if op == nil {
		return nil, nil //nolint:nilnil // Most objects have none.
	}
	op.mu.Lock()
	over := op.over
	op.mu.Unlock()
	if !over {
		return op, nil
	}
	if op.storedIn(mg) {
		// The cache has it, which settle finds out only when it looks next. Until
		// then the operation would be in the next one's way.
		t.operations.CompareAndDelete(mg.GetUID(), op)
		return nil, nil //nolint:nilnil // As above.
	}

	// It is stored at most once.
	if err := op.attempt(ctx); err != nil {
		return nil, err
	}
	return nil, seam.Conflict(mg, "it was read before the result of its operation was stored")
}

// takenOver reports whether mg has a record of another process that makes this attempt again,
// since it took this process for dead. A repetition is no reason to give up another one: two
// processes would do so in turns.
func (op *Operation) takenOver(mg resource.Managed) bool {
	r, err := creation.RecordOf(mg)
	return !op.again && err == nil && r != nil && r.Token == op.Token() && r.Holder != op.tracker.holder
}

const messageEndedMeanwhile = "its operation has ended meanwhile"

// neverStarted reports whether a record is of an operation that this tracker recorded
// and did not run. The cache may be stale, and the operation have ended since: the
// caller must act with a write that fails then.
func (t *Tracker) neverStarted(r *creation.Record) bool {
	return r.Phase == creation.RecordRunning && r.Holder == t.holder && !r.Repeated && !r.Named && r.Handle == ""
}

// observeRunning says what a reconcile should know while an operation runs: that
// there is nothing for it to do.
func (e *external[M]) observeRunning(ctx context.Context, mg M, op *Operation) managed.ExternalObservation {
	s, _ := op.status()
	e.outcome.State = seam.InProgress
	e.lookAgain(ctx)
	e.sayRunning(ctx, mg, s)
	if s.Type == Create && !meta.WasDeleted(mg) {
		mg.SetConditions(xpv2.Creating())
	}
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}
}

// sayRunning says that an operation runs. An update that is soon over is not worth
// two writes of status: it says so if it takes longer.
func (e *external[M]) sayRunning(ctx context.Context, mg M, s Status) {
	quiet := e.tracker.reportEvery - time.Since(s.Started)
	if s.Type != Update || quiet <= 0 || meta.WasDeleted(mg) {
		sayRunning(mg, s)
		return
	}
	if session := seam.From(ctx); session != nil {
		session.Requeue(seam.Within(quiet))
	}
}

// lookAgain makes sure that the object is reconciled again when that makes sense.
func (e *external[M]) lookAgain(ctx context.Context) {
	if s := seam.From(ctx); s != nil && !e.tracker.watched() {
		s.Requeue(seam.Within(askAgain))
	}
}

// observe the external resource of an object that has no operation. r is the record
// of the last one, if there is one.
func (e *external[M]) observe(ctx context.Context, mg M, r *creation.Record) (managed.ExternalObservation, error) {
	t := e.tracker
	o, err := e.inner.Observe(ctx, mg)
	if err != nil {
		return o, err
	}
	if !o.ResourceExists {
		t.known.deletions.Delete(&t.known.Store, mg)
	}
	deleting, wanted := meta.WasDeleted(mg), wants(mg, o)
	done := !deleting && o.ResourceExists && !wanted

	if done && r != nil {
		// There is no reason left to do it, or it was done, or it may not be done any more.
		if err := t.persist(ctx, mg, creation.On(mg).SucceededIfIncomplete(time.Now()).Unrecorded(), seam.Decided); err != nil {
			return o, err
		}
		r = nil
	}

	t.sayEnded(mg, r)
	if deleting || !wanted {
		return e.withDetails(mg, o), nil
	}
	if wait := t.backoff(mg, r); wait > 0 {
		exists := o.ResourceExists
		o, err = e.postpone(ctx, mg, o, wait, errors.Wrap(t.failure(mg, r), string(r.Type)+" failed"))
		if !exists && r != nil && r.Type == creation.Create && !r.Named && finderOf(e.inner) != nil {
			e.outcome.State = seam.Unknown
		}
		return o, err
	}

	if !e.acquire(ctx, mg) {
		return e.postpone(ctx, mg, o, 0, nil)
	}
	return e.withDetails(mg, o), nil
}

// wants reports whether upstream will begin an operation, given what was observed. What
// does not exist it updates if the management policies allow that, and no create.
func wants(mg resource.Managed, o managed.ExternalObservation) bool {
	return !o.ResourceExists && seam.Allows(mg, xpv2.ManagementActionCreate) || !o.ResourceUpToDate && seam.Allows(mg, xpv2.ManagementActionUpdate)
}

// postpone an operation. Under plain upstream only an error does that without
// calling it a success.
func (e *external[M]) postpone(ctx context.Context, mg M, o managed.ExternalObservation, wait time.Duration, err error) (managed.ExternalObservation, error) {
	s := seam.From(ctx)
	if s == nil && err != nil {
		return o, err
	}
	if s != nil && wait > 0 {
		s.Requeue(seam.Within(wait))
	}

	if !o.ResourceExists {
		e.outcome.State = seam.Waiting
	}
	o.ResourceExists, o.ResourceUpToDate = true, true
	return e.withDetails(mg, o), nil
}

// withDetails adds connection details that were returned by an operation.
func (e *external[M]) withDetails(mg M, o managed.ExternalObservation) managed.ExternalObservation {
	served := e.tracker.known.serveDetails(mg)
	if len(served) == 0 {
		return o
	}

	// The client may return the same map for all of its objects.
	all := maps.Clone(served)
	maps.Copy(all, o.ConnectionDetails)
	o.ConnectionDetails = all
	return o
}

const messageQueued = "Waiting for operations of other objects to end."

// acquire a slot for the object, or say that it waits for one. Create, Update and Delete
// of this reconcile use it even if the object turns out to be deleted in between.
func (e *external[M]) acquire(ctx context.Context, mg M) bool {
	ss := e.tracker.slotsFor(mg)
	if !e.tracker.acquire(ss, mg) {
		say(mg, corev1.ConditionFalse, ReasonQueued, messageQueued)
		e.lookAgain(ctx)
		return false
	}
	e.slots, e.holder = ss, mg.GetUID()
	return true
}

// Create the external resource, in the background.
func (e *external[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	var c managed.ExternalCreation
	e.outcome = seam.Outcome{}
	t := e.tracker
	r, err := creation.RecordOf(mg)
	if err != nil {
		return c, err
	}

	// Under Graft's package managed the record is there already: it was stored
	// together with upstream's announcement of the create.
	if r == nil || !t.neverStarted(r) || r.Type != creation.Create || !r.Announces(mg) {
		r = t.next(mg, Create, r)
		r.Announced = nil
		if err := t.persist(ctx, mg, creation.On(mg).Recorded(r), seam.Decided); err != nil {
			return c, err
		}
	}

	err = e.begin(ctx, mg, r, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		var err error
		c, err = e.inner.Create(ctx, mg)
		return c.ConnectionDetails, err
	})
	return c, err
}

// Update the external resource, in the background.
func (e *external[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	var u managed.ExternalUpdate

	err := e.beginNew(ctx, mg, Update, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		var err error
		u, err = e.inner.Update(ctx, mg)
		return u.ConnectionDetails, err
	})
	return u, err
}

// Delete the external resource, in the background, once no other operation runs.
func (e *external[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	var d managed.ExternalDelete
	e.outcome = seam.Outcome{}
	t := e.tracker

	if op := t.operation(mg.GetUID()); op != nil {
		e.await(ctx, mg, op)
		return d, nil
	}
	if e.inner == nil {
		return d, seam.Conflict(mg, messageEndedMeanwhile)
	}
	if e.waits != "" {
		e.goesOn(ctx, e.waits)
		return d, nil
	}

	// A record that can't be used was met by Observe.
	if r, err := creation.RecordOf(mg); err == nil && r != nil && r.Type == creation.Delete && r.Error != "" {
		if wait := time.Until(t.retryAt(r)); wait > 0 {
			if s := seam.From(ctx); s != nil {
				s.Requeue(seam.InsteadOfBackoff(wait))
			}

			// Upstream says that a delete failed.
			return d, t.failure(mg, r)
		}
	}

	if wait := t.known.untilNextDelete(mg); wait > 0 {
		e.outcome = seam.Outcome{
			State:   seam.InProgress,
			Reason:  reconciler.ReasonWaitingForExternalResource,
			Message: "The external resource still exists after its deletion was requested.",
		}

		if s := seam.From(ctx); s != nil {
			s.Requeue(seam.InsteadOfBackoff(wait))
		}
		return d, nil
	}

	if !e.acquire(ctx, mg) {
		e.goesOn(ctx, messageQueued)
		return d, nil
	}
	err := e.beginNew(ctx, mg, Delete, func(ctx context.Context, mg M) (managed.ConnectionDetails, error) {
		var err error
		d, err = e.inner.Delete(ctx, mg)
		return nil, err
	})
	return d, err
}

// await the end of an operation that runs although the object is being deleted.
func (e *external[M]) await(ctx context.Context, mg M, op *Operation) {
	s, running := op.status()
	if running {
		sayRunning(mg, s)
	}

	switch {
	case s.Type == Delete:
		e.goesOn(ctx, "The external resource is being deleted.")
		return
	case s.Type == Create && e.tracker.cancellable && !op.again:
		// A create that is repeated finds out what there is to delete: cancelling it
		// would say nothing of the first time.
		op.cancel(ErrCancelled)
	}

	e.goesOn(ctx, "The external resource is deleted once the "+string(s.Type)+" that runs has ended.")
}

// goesOn says that it is an operation that an object which is being deleted waits
// for.
func (e *external[M]) goesOn(ctx context.Context, message string) {
	e.lookAgain(ctx)
	e.outcome = seam.Outcome{State: seam.InProgress, Reason: reconciler.ReasonWaitingForAsyncOperation, Message: message}
}

// Disconnect from the provider, now or when the operation that was begun has ended.
func (e *external[M]) Disconnect(ctx context.Context) error {
	if e.done != nil {
		close(e.done)
		e.done = nil
	}
	if e.start != nil {
		e.start()
		return nil
	}
	if e.slots != nil {
		e.tracker.release(e.slots, e.holder)
	}

	if e.inner == nil {
		return nil
	}
	return e.inner.Disconnect(ctx)
}
