package asyncstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// Delays between attempts to store a result.
	firstStoreDelay = time.Second
	lastStoreDelay  = 30 * time.Second

	// Delays between looks at the cache, until it has the result.
	firstCacheDelay = 10 * time.Millisecond
	lastCacheDelay  = time.Second
)

// An operation is a create, update or delete that outlives the reconcile that began it. It
// is safe for concurrent use.
type operation struct {
	tracker  *Tracker
	stored   *storedRecord
	progress operationProgress
	lifetime lifetime

	// release releases the permit. It does nothing if the reconciler began an operation for which
	// Observe acquired none.
	release func()

	// begunBefore means that this attempt was begun before, by this process or another one.
	begunBefore bool
}

// newOperation returns an operation whose record is stored. It does not run yet.
func newOperation(
	ctx context.Context, t *Tracker, mg resource.Managed, r *creation.Record, release func(),
) *operation {
	o, _ := mg.DeepCopyObject().(client.Object)
	if release == nil {
		release = func() {}
	}
	op := &operation{
		tracker:     t,
		release:     release,
		stored:      newStoredRecord(t.config, t.shutdown, o, r),
		begunBefore: r.Repeated || r.Handle != "",
	}

	// The operation outlives the reconcile, even if that is cancelled.
	op.lifetime.start(
		context.WithValue(context.WithoutCancel(ctx), operationKey{}, op), t.shutdown.cancelling, r.Deadline.Time,
	)
	return op
}

// update changes the record while the operation runs, and stores it with the annotations that are set.
func (op *operation) update(ctx context.Context, mutate func(r *creation.Record)) error {
	server, err := op.stored.update(ctx, func(r *creation.Record) (creation.Changes, error) {
		if op.lifetime.get().over {
			return creation.Changes{}, ErrEnded
		}
		mutate(r)
		return creation.On(op.stored.object).WithRecord(r), nil
	})
	switch {
	case errors.Is(err, ErrEnded):
		return err
	case err == nil, server != nil && seam.IsRefused(err): // The record and the name are stored.
		return nil
	case errors.Is(err, errGone), errors.Is(err, errOverruled), seam.Permanent(err):
		return errors.Wrap(err, "cannot store the record of the operation")
	default:
		return errors.Wrap(err, "cannot store the record of the operation; it is stored with its result")
	}
}

// storeResult stores how the operation ended. It reports whether the object no longer exists.
func (op *operation) storeResult() (gone bool, err error) {
	s, end := op.stored, op.lifetime.get().ending
	own := s.name()
	server, err := s.update(op.lifetime.ctx, func(r *creation.Record) (creation.Changes, error) {
		return resultOf(s.object, failedRecord(r, end.err, own, end.at), end), nil
	})
	switch {
	case errors.Is(err, errGone):
		return true, nil
	case errors.Is(err, errOverruled):
		s.events.overruled(s.object, own, meta.GetExternalName(server))
		return false, nil
	case server != nil && seam.IsRefused(err):
		s.events.warn(s.object, reasonCannotStoreResult, err)
		return false, nil
	}
	return false, errors.Wrap(err, "cannot store the result of the operation")
}

func (op *operation) key() client.ObjectKey { return client.ObjectKeyFromObject(op.stored.object) }

func (op *operation) uid() types.UID { return op.stored.object.GetUID() }

// status returns the status of the operation, and whether it runs.
func (op *operation) status() (Status, bool) {
	r := op.stored.snapshot()
	percent, message := op.progress.get()
	return Status{
		Attempt:  attemptOf(r),
		Deadline: r.Deadline.Time,
		Percent:  percent,
		Message:  message,
	}, !op.lifetime.get().over
}

// run the operation to its end. The annotations of mg that fn sets are stored with the result.
func (op *operation) run(mg resource.Managed, fn func(ctx context.Context) (upstream.ConnectionDetails, error)) {
	var details upstream.ConnectionDetails
	before, err := maps.Clone(mg.GetAnnotations()), errExited

	// Deferred, because a client may end the goroutine (runtime.Goexit).
	defer func() {
		op.stored.prepare(func(s *storedRecord) {
			// SetExternalName comes first.
			set := annotatedSince(before, mg)
			maps.Copy(set, s.annotations)
			s.annotations = set
		})
		op.finish(err, details)
		op.storeWithRetries()
	}()

	details, err = recovered(op.tracker.config.events.log, op.uid(), func() (upstream.ConnectionDetails, error) {
		return fn(op.lifetime.ctx)
	})
}

// recovered calls fn, and turns a panic into an error.
func recovered(
	log logging.Logger, uid types.UID, fn func() (upstream.ConnectionDetails, error),
) (details upstream.ConnectionDetails, err error) {
	defer func() {
		// The value of a panic may be a secret.
		if p := recover(); p != nil {
			log.Info("The external client panicked", "uid", uid, "type", fmt.Sprintf("%T", p), "stack",
				string(debug.Stack()))
			err = errPanicked
		}
	}()
	return fn()
}

// annotatedSince returns the annotations that an external client has set. If it has read mg
// again from a stale cache, mg has older records of creates, which the client did not set.
func annotatedSince(before map[string]string, mg resource.Managed) map[string]string {
	set := map[string]string{}
	for k, v := range mg.GetAnnotations() {
		records := k == AnnotationKeyOperation || seam.IdentifiesResource(k) && k != meta.AnnotationKeyExternalName
		if was, ok := before[k]; (!ok || was != v) && !records && v != "" {
			set[k] = v
		}
	}
	return set
}

// finish the operation with err.
func (op *operation) finish(err error, details upstream.ConnectionDetails) {
	t := op.tracker
	end := op.lifetime.end(readable(err), t.config.cancellableCreates)
	err = end.err
	r, o, outcome := op.stored.snapshot(), op.stored.object, outcomeSucceeded
	t.objects.keepDetails(o, details)
	seam.From(op.lifetime.ctx).Meter().Ended(err, r.Type != creation.Delete)

	if err != nil {
		ended := op.stored.withEnding(end)
		t.objects.keepFailure(o, ended, err)
		outcome = outcomeFailed
		if ended.Phase == creation.RecordUnknown {
			outcome = outcomeUnknown
		}
	} else {
		t.operationSucceeded(o, r)
	}

	t.config.metrics.unstored.Inc()
	if op.lifetime.get().abandoned {
		t.config.events.log.Info("An operation that was abandoned has ended", "uid", op.uid(), "outcome", outcome)
	} else {
		t.config.metrics.observeEnd(Type(r.Type), outcome, time.Since(r.Started.Time))
		op.release()
	}
	t.config.events.operationEnded(o, r, outcome, err)
}

// storeWithRetries stores the result of an operation that has ended. It retries without limit, then
// waits until the cache has the result, and queues a reconcile.
func (op *operation) storeWithRetries() {
	t := op.tracker
	if !op.lifetime.get().abandoned || t.shutdown.enter() {
		defer t.shutdown.leave()
	}

	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		gone, err := op.storeResult()
		op.lifetime.setStoreError(err)
		if err == nil {
			op.resultStored(gone)
			break
		}
		t.config.events.warn(op.stored.object, reasonCannotStoreResult, err)
		t.queues.enqueue(op.key()) // Synced reports it.
		stop := t.shutdown.stopping
		if stop.Err() != nil {
			stop, delay = t.shutdown.abandoning, firstStoreDelay
		}
		pause(stop, delay)

		if t.shutdown.abandoning.Err() != nil {
			// The next process continues from the record. The operation stays in the
			// registry, because this process knows its result.
			return
		}
	}

	op.awaitCache()
	t.operations.CompareAndDelete(op.uid(), op)
	if !t.queues.any() && !t.reportedUnwatched.Swap(true) {
		t.config.events.warn(op.stored.object, reasonUnwatched, errUnwatched)
	}
	t.queues.enqueue(op.key())
	if t.shutdown.stopping.Err() != nil {
		op.reportStopped()
	}
}

// resultStored reports an external resource without an owner if the object is gone.
func (op *operation) resultStored(gone bool) {
	t, end := op.tracker, op.lifetime.get().ending
	t.config.metrics.unstored.Dec()
	if !gone {
		return
	}
	t.objects.ForgetObject(op.stored.object)
	unknown := op.stored.withEnding(end).Phase == creation.RecordUnknown
	if op.stored.snapshot().Type == creation.Create && (end.err == nil || unknown) {
		name := cmp.Or(op.stored.name(), meta.GetExternalName(op.stored.object))
		t.config.metrics.lost.Inc()
		t.config.events.warn(op.stored.object, reasonResultLost, errors.Errorf(
			"a create has ended whose managed resource no longer exists: external resource %q has no owner", name,
		))
	}
}

// reportStopped replaces the condition that says that the operation runs, after a shutdown has begun: no reconcile of
// this process does it any more. A report that cannot be stored is left to the next process.
func (op *operation) reportStopped() {
	ctx, cancel := op.stored.withStoreTimeout(context.Background())
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := op.stored.read(ctx, op.stored.writer.Live)
		if err != nil || o.GetUID() != op.uid() {
			return client.IgnoreNotFound(err)
		}
		c, changed := op.tracker.condition(o, progressReport{})
		if mg, ok := o.(resource.Managed); ok && changed {
			mg.SetConditions(c)
			return op.stored.writer.Client.Status().Update(ctx, mg)
		}
		return nil
	})
	if err != nil {
		op.tracker.config.events.log.Info("Cannot report the end of an operation", "uid", op.uid(), "error", err)
	}
}

// awaitCache waits until the cache has the last write. A reconcile that reads an older object
// would act on it.
func (op *operation) awaitCache() {
	cancelling := op.tracker.shutdown.cancelling
	for delay := firstCacheDelay; cancelling.Err() == nil &&
		!op.stored.inCache(op.lifetime.ctx); delay = min(2*delay, lastCacheDelay) {
		pause(cancelling, delay)
	}
}

// abandon an operation that has not ended by its deadline. Its object and its permit become free,
// and Start does not wait for it. A later result replaces nothing of another writer.
func (op *operation) abandon() {
	t := op.tracker
	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		name := op.stored.name()
		err := op.update(context.Background(), func(r *creation.Record) {
			*r = *failedRecord(r, withUnknownOutcome{errNotEnded}, name, time.Now())
			r.Abandoned = true
		})
		if err == nil || errors.Is(err, ErrEnded) || errors.Is(err, errOverruled) || errors.Is(err, errGone) {
			break
		}
		t.config.events.log.Info(
			"Cannot store that an operation did not end by its deadline, will retry", "uid", op.uid(), "error", err,
		)
		if pause(t.shutdown.stopping, delay); t.shutdown.stopping.Err() != nil {
			return // The next process continues from the record.
		}
	}

	op.awaitCache()
	if !op.lifetime.abandon() {
		return
	}
	t.config.events.log.Info("An operation did not end by its deadline: nothing waits for it any more", "uid", op.uid())
	t.operations.CompareAndDelete(op.uid(), op)
	op.release()
	r := op.stored.snapshot()
	t.config.metrics.observeEnd(Type(r.Type), outcomeUnknown, time.Since(r.Started.Time))
	t.queues.enqueue(op.key())
	t.shutdown.leave()
}

// takenOver reports whether mg has a record of another process that repeats this attempt because
// it treats this process as dead. A repetition is never taken over: two processes would cancel
// each other's in turns.
func (op *operation) takenOver(mg resource.Managed) bool {
	r, err := creation.RecordOf(mg)
	own := op.stored.snapshot()
	return !op.begunBefore && err == nil && r != nil && r.Token == own.Token && r.Holder != own.Holder
}

// yieldInterval is how often a process looks whether it still has the object of a create.
const yieldInterval = 30 * time.Second

// yieldIfMoved cancels a create after its object has moved to another shard, whose process has settled the create or
// repeats it. No reconcile takes place here then, and a request that is sent later would create an external resource
// after the other process has deleted its own. It looks again until the operation is over.
func (op *operation) yieldIfMoved() {
	switch ctx := op.lifetime.ctx; {
	case ctx.Err() != nil:
	case op.stored.moved(ctx):
		op.lifetime.cancel(errTakenOver)
	default:
		time.AfterFunc(yieldInterval, op.yieldIfMoved)
	}
}

// promptStart is how soon after its record was stored an operation starts without another look: the time
// between the end of a leader's renewals and the first moment of another leader, by default.
const promptStart = 5 * time.Second

// checkLateStart returns an error if the operation was cancelled before it started, or if it starts this long after
// its record was stored, because the last write of its reconcile took long, and another process has taken the object
// over since.
func (op *operation) checkLateStart(ctx context.Context, after time.Duration) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", errNotStarted, cause)
	}
	if after < promptStart {
		return nil
	}
	owned, err := op.stored.isOwned(ctx)

	switch {
	case err != nil:
		op.tracker.config.events.log.Info(
			"Cannot read the object again before its operation starts late", "uid", op.uid(), "error", err,
		)
		return errors.Wrap(errNotStarted, "its object could not be read again after a write that took long")
	case !owned:
		return errTakenOver
	}
	return nil
}
