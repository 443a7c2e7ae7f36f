package asyncstate

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
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

// An Operation is a create, update or delete that may outlive the reconcile that began it. It
// is safe for concurrent use.
type Operation struct {
	tracker  *Tracker
	stored   *storedRecord
	progress operationProgress
	lifetime lifetime

	// semaphore holds the permit. It is nil if the reconciler began an operation for which
	// Observe acquired none.
	semaphore *semaphore

	// begunBefore means that this attempt was begun before, by this process or another one.
	begunBefore bool
}

type operationKey struct{}

// operationIn returns the operation that ctx is the context of.
func operationIn(ctx context.Context) (*Operation, error) {
	op, ok := ctx.Value(operationKey{}).(*Operation)
	if !ok {
		return nil, withUnknownOutcome{ErrNotInOperation}
	}
	return op, nil
}

// newOperation returns an operation whose record is stored, in an object with these
// annotations. It does not run yet.
func newOperation(
	ctx context.Context, t *Tracker, mg resource.Managed, annotations map[string]string, r *creation.Record,
	s *semaphore,
) *Operation {
	o, _ := mg.DeepCopyObject().(client.Object)
	o.SetAnnotations(maps.Clone(annotations))
	op := &Operation{
		tracker:     t,
		semaphore:   s,
		stored:      newStoredRecord(t.config, t.shutdown, o, r),
		begunBefore: r.Repeated || r.Handle != "",
	}

	// The operation outlives the reconcile, even if that is cancelled.
	op.lifetime.start(
		context.WithValue(context.WithoutCancel(ctx), operationKey{}, op), t.shutdown.cancelling, r.Deadline.Time,
	)
	return op
}

// Context is done when the operation is over, past its deadline, or cancelled: context.Cause
// then says which (ErrEnded, ErrDeadline, ErrCancelled), or why else the operation was given
// up: the process stops, or another one makes the same attempt. It has the values of the
// reconcile's context, and the functions of this package that take an operation's context find
// the operation in it.
func (op *Operation) Context() context.Context { return op.lifetime.ctx }

// Token is an idempotency token for the external system: the same whenever this attempt is
// repeated, after a crash too, and never the same for another attempt.
func (op *Operation) Token() string { return op.stored.snapshot().Token }

// SetExternalName stores the name of the external resource on the API server before it
// returns. Call it as soon as the name is known. A create that has set its name and then fails
// has an unknown outcome.
//
// It returns an error if the name cannot be stored yet, and then stores it with the
// operation's result at the latest; or if the name can never be stored. There is an external
// resource in both cases, so all its errors wrap ErrOutcomeUnknown: a Create that returns one
// is not repeated as one that failed is.
func (op *Operation) SetExternalName(ctx context.Context, name string) error {
	if err := seam.CheckText(name, seam.MaxExternalName); err != nil {
		return withUnknownOutcome{errors.Wrap(err, "cannot set external name")}
	}
	if !op.lifetime.isOver() {
		op.stored.setName(name)
	}
	return op.update(ctx, func(r *creation.Record) { r.Named = true })
}

// SetHandle stores the text that a Resumer needs to resume the operation in another process,
// before it returns. Call it when the external system has accepted the operation. The handle must
// not be a secret, and has 32 KiB at most. SetHandle returns an error if the handle cannot be stored
// yet, and then stores it with the operation's result; or if the handle can never be stored. Its
// errors wrap ErrOutcomeUnknown.
func (op *Operation) SetHandle(ctx context.Context, handle string) error {
	if err := seam.CheckText(handle, maxHandle); err != nil {
		return withUnknownOutcome{errors.Wrap(err, "cannot set handle")}
	}

	// The record is JSON, in which some characters take more than one byte.
	had := *op.stored.snapshot()
	had.Handle = handle
	if n := len(had.Text()); n > creation.MaxRecord {
		return withUnknownOutcome{
			errors.Errorf(
				"cannot set handle: the record of the operation would have %d bytes, and %d is the most", n,
				creation.MaxRecord,
			),
		}
	}
	if !op.lifetime.isOver() {
		op.stored.setHandle(handle)
	}
	return op.update(ctx, func(*creation.Record) {})
}

func (op *Operation) update(ctx context.Context, fn func(r *creation.Record)) error {
	if err := op.stored.update(ctx, op.lifetime.isOver, fn); err != nil {
		return withUnknownOutcome{err}
	}
	return nil
}

// keepRecord prevents upstream's reconciler from replacing the record and the external name by older ones: it
// writes the annotations of mg after Create has returned. If one of them changes during that write, both are
// stored again when the reconcile has ended.
func (op *Operation) keepRecord(mg resource.Managed, reconciled <-chan struct{}) {
	had := op.stored.annotationsToKeep()
	meta.AddAnnotations(mg, maps.Clone(had))

	go func() {
		<-reconciled
		ctx := context.Background()
		if op.stored.lock(ctx) == nil { // A write in progress may have been replaced, too.
			op.stored.unlock()
		}
		if maps.Equal(op.stored.annotationsToKeep(), had) {
			return
		}
		op.storeWhileRunning(
			"Cannot store the record of an operation again, which another write may have replaced, will retry",
			func() error { return op.update(ctx, func(*creation.Record) {}) },
		)
	}()
}

// storeWhileRunning retries store until it has stored the record, the operation has ended, or the record is another
// writer's. It returns false if the process stops before: the next process continues from the record.
func (op *Operation) storeWhileRunning(message string, store func() error) bool {
	t := op.tracker
	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		err := store()
		if err == nil || errors.Is(err, ErrEnded) || seam.IsOverruled(err) || errors.Is(err, errGone) {
			return true
		}
		t.config.events.log.Info(message, "uid", op.uid(), "error", err)
		pause(t.shutdown.stopping, delay, nil)

		if t.shutdown.stopping.Err() != nil {
			return false
		}
	}
}

// Progress sets how far the operation is: in percent, and in words that must not hold a
// secret. The object's next reconcile shows it, which is queued no more often than the
// tracker's report interval. It makes no request. It returns an error, which wraps
// ErrOutcomeUnknown, if percent is not from 0 to 100, or if the operation has ended.
func (op *Operation) Progress(percent int, message string) error {
	if op.lifetime.isOver() {
		return withUnknownOutcome{ErrEnded}
	}
	if err := op.progress.set(percent, message, op.tracker.config.reportInterval, func() {
		if !op.lifetime.isOver() {
			op.tracker.queues.enqueue(op.key())
		}
	}); err != nil {
		return withUnknownOutcome{err}
	}
	return nil
}

// End the operation with its outcome. It returns at once. The result is stored in the
// background, and kept until it is stored. Later calls do nothing.
func (op *Operation) End(err error) {
	if op.finish(err, nil) {
		go op.storeWithRetries()
	}
}

func (op *Operation) key() client.ObjectKey { return client.ObjectKeyFromObject(op.stored.object) }

func (op *Operation) uid() types.UID { return op.stored.object.GetUID() }

// status returns the status of the operation, and whether it runs.
func (op *Operation) status() (Status, bool) {
	r := op.stored.snapshot()
	percent, message := op.progress.get()
	return Status{
		Attempt:  attemptOf(r),
		Deadline: r.Deadline.Time,
		Percent:  percent,
		Message:  message,
	}, !op.lifetime.isOver()
}

// run the operation to its end. The annotations of mg that fn sets are stored with the result.
func (op *Operation) run(mg resource.Managed, fn func(ctx context.Context) (managed.ConnectionDetails, error)) {
	var details managed.ConnectionDetails
	before, err := maps.Clone(mg.GetAnnotations()), errExited

	// Deferred, because a client may end the goroutine (runtime.Goexit).
	defer func() {
		op.stored.addAnnotations(annotatedSince(before, mg))
		if op.finish(err, details) {
			op.storeWithRetries()
		}
	}()

	details, err = op.call(fn)
}

// call fn, and turn a panic into an error.
func (op *Operation) call(
	fn func(ctx context.Context) (managed.ConnectionDetails, error),
) (details managed.ConnectionDetails, err error) {
	defer func() {
		// The value of a panic may be a secret.
		if p := recover(); p != nil {
			op.tracker.config.events.log.Info(
				"The external client panicked", "uid", op.uid(), "type", fmt.Sprintf("%T", p), "stack",
				string(debug.Stack()),
			)
			err = errPanicked
		}
	}()
	return fn(op.lifetime.ctx)
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

// finish the operation with err. It reports whether the operation had not ended before.
func (op *Operation) finish(err error, details managed.ConnectionDetails) bool {
	t := op.tracker
	if !op.lifetime.end(readable(err), t.config.cancellableCreates) {
		return false
	}
	end := op.lifetime.result()
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
	if op.lifetime.isAbandoned() {
		t.config.events.log.Info("An operation that was abandoned has ended", "uid", op.uid(), "outcome", outcome)
	} else {
		t.config.metrics.observeEnd(Type(r.Type), outcome, time.Since(r.Started.Time))
		op.semaphore.release(op.uid())
	}
	t.config.events.operationEnded(o, r, outcome, err)
	return true
}

// storeResult stores the result of the operation, unless it is stored.
func (op *Operation) storeResult(ctx context.Context) error {
	t := op.tracker
	end := op.lifetime.result()

	return op.stored.storeResult(ctx, end, op.lifetime.isResultStored, func(gone bool) {
		if gone {
			t.objects.ForgetObject(op.stored.object)

			name, _ := op.stored.name()
			unknown := op.stored.withEnding(end).Phase == creation.RecordUnknown
			if op.stored.snapshot().Type == creation.Create && (end.err == nil || unknown) {
				t.config.metrics.lost.Inc()
				t.config.events.lost(op.stored.object, name)
			}
		}
		close(op.lifetime.resultStored)
		t.config.metrics.unstored.Dec()
	})
}

// storeWithRetries stores the result of an operation that has ended. It retries without limit, then
// waits until the cache has the result, and queues a reconcile.
func (op *Operation) storeWithRetries() {
	t := op.tracker
	if !op.lifetime.isAbandoned() || t.shutdown.enter() {
		defer t.shutdown.leave()
	}
	if op.lifetime.reconciled != nil {
		// Until then the name may change, and upstream may write the old record.
		<-op.lifetime.reconciled
	}

	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		err := op.storeResult(context.WithoutCancel(op.lifetime.ctx))
		if err == nil {
			break
		}
		t.config.events.log.Info("Cannot store the result of an operation, will retry", "uid", op.uid(), "error", err)
		t.config.events.warn(op.stored.object, reasonCannotStoreResult, err)

		// A reconcile tries to store it, too.
		t.queues.enqueue(op.key())
		stop := t.shutdown.stopping
		if stop.Err() != nil {
			stop, delay = t.shutdown.abandoning, firstStoreDelay
		}

		pause(stop, delay, op.lifetime.resultStored)

		if t.shutdown.abandoning.Err() != nil {
			// The next process continues from the record. The operation stays in the
			// registry, because this process knows its result.
			return
		}
	}

	op.awaitCache()
	t.operations.remove(op)
	t.queues.enqueue(op.key())
	if t.shutdown.stopping.Err() != nil {
		op.reportStopped()
	}
}

// reportStopped replaces the condition that says that the operation runs, after a shutdown has begun: no reconcile of
// this process does it any more. A report that cannot be stored is left to the next process.
func (op *Operation) reportStopped() {
	ctx, cancel := op.stored.withStoreTimeout(context.Background())
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := op.stored.read(ctx, op.stored.writer.Live)
		mg, ok := o.(resource.Managed)
		if err != nil || !ok || mg.GetUID() != op.uid() || !(clientPatch{op.tracker}).conditionStale(mg) {
			return client.IgnoreNotFound(err)
		}
		r, err := creation.RecordOf(mg)
		if err != nil {
			return err
		}
		clientPatch{op.tracker}.correctOperation(mg, r)
		return op.stored.writer.Client.Status().Update(ctx, mg)
	})
	if err != nil {
		op.tracker.config.events.log.Info("Cannot report the end of an operation", "uid", op.uid(), "error", err)
	}
}

// awaitCache waits until the cache has the last write. A reconcile that reads an older object
// would act on it.
func (op *Operation) awaitCache() {
	cancelling := op.tracker.shutdown.cancelling
	for delay := firstCacheDelay; cancelling.Err() == nil &&
		!op.stored.inCache(op.lifetime.ctx); delay = min(2*delay, lastCacheDelay) {
		pause(cancelling, delay, nil)
	}
}

// abandon an operation that has not ended by its deadline. Its object and its permit become free,
// and Start does not wait for it. A later result replaces nothing of another writer.
func (op *Operation) abandon() {
	t := op.tracker
	store := func() error {
		_, named := op.stored.name()
		return op.update(context.Background(), func(r *creation.Record) {
			*r = *failedRecord(r, withUnknownOutcome{errNotEnded}, named, time.Now())
			r.Abandoned = true
		})
	}
	if !op.storeWhileRunning("Cannot store that an operation did not end by its deadline, will retry", store) {
		return
	}

	op.awaitCache()
	if !op.lifetime.abandon() {
		return
	}
	t.config.events.log.Info("An operation did not end by its deadline: nothing waits for it any more", "uid", op.uid())
	t.operations.remove(op)
	op.semaphore.release(op.uid())
	r := op.stored.snapshot()
	t.config.metrics.observeEnd(Type(r.Type), outcomeUnknown, time.Since(r.Started.Time))
	t.queues.enqueue(op.key())
	t.shutdown.leave()
}

// storedIn reports whether the result of the operation is stored, and not known to be missing
// in o.
func (op *Operation) storedIn(o client.Object) bool {
	return op.lifetime.isResultStored() && !op.stored.newerThan(o)
}

// takenOver reports whether mg has a record of another process that repeats this attempt because
// it treats this process as dead. A repetition is never taken over: two processes would cancel
// each other's in turns.
func (op *Operation) takenOver(mg resource.Managed) bool {
	r, err := creation.RecordOf(mg)
	return !op.begunBefore && err == nil && r != nil && r.Token == op.Token() && r.Holder != op.stored.snapshot().Holder
}

// yieldInterval is how often a process looks whether it still has the object of a create.
const yieldInterval = 30 * time.Second

// yieldIfMoved cancels a create after its object has moved to another shard, whose process has settled the create or
// repeats it. No reconcile takes place here then, and a request that is sent later would create an external resource
// after the other process has deleted its own. It looks again until the operation is over.
func (op *Operation) yieldIfMoved() {
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
func (op *Operation) checkLateStart(ctx context.Context, after time.Duration) error {
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

// SetExternalName is Operation.SetExternalName of the operation that ctx is the context of.
func SetExternalName(ctx context.Context, name string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set external name")
	}
	return op.SetExternalName(ctx, name)
}

// SetHandle is Operation.SetHandle of the operation that ctx is the context of.
func SetHandle(ctx context.Context, handle string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set handle")
	}
	return op.SetHandle(ctx, handle)
}

// Progress is Operation.Progress of the operation that ctx is the context of.
func Progress(ctx context.Context, percent int, message string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set progress")
	}
	return op.Progress(percent, message)
}
