package asyncstate

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// An Operation is a create, update or delete that may outlive the reconcile that
// began it. It is safe for concurrent use.
type Operation struct {
	tracker *Tracker

	// object as it was when the operation began. It is never changed.
	object client.Object

	// slots are those of which the operation has one.
	slots *slots

	ctx    context.Context //nolint:containedctx // It is the operation's own lifetime.
	cancel context.CancelCauseFunc

	// storing has room for one: who stores something has filled it.
	storing chan struct{}

	// reconciled is closed when the reconcile has ended in which it began, if a client
	// began it.
	reconciled <-chan struct{}

	// settled is closed when there is nothing left to be stored.
	settled chan struct{}

	// again says that this attempt was made, or begun, before.
	again bool

	// mu is never held while anything waits.
	mu sync.Mutex

	// record as the API server has it, and as text.
	record *creation.Record
	text   string

	// set are annotations that are to be stored: the external name above all.
	set map[string]string

	// tried is what of that was sent to the API server before, and may be there.
	tried map[string][]string

	// abandonment is due a while after the deadline if the client has to end the
	// operation. It is nil if the tracker runs it.
	abandonment *time.Timer

	// abandoned says that the operation holds up nothing any more, although it has
	// not ended.
	abandoned bool

	over    bool
	endedAt time.Time
	err     error
	version string

	percent  int
	message  string
	reported time.Time
	ticking  bool
}

// Context is done when the operation is over, past its deadline, or cancelled:
// context.Cause then says which (ErrEnded, ErrDeadline, ErrCancelled), or why else it was
// given up: the process stops, or another one makes the same attempt. It carries
// what the context of the reconcile carried, and in it the functions of this
// package that ask for an operation's context find the operation.
func (op *Operation) Context() context.Context { return op.ctx }

// Token is an idempotency token for the external system: the same whenever this
// attempt is repeated, after a crash too, and never the same for another.
func (op *Operation) Token() string {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.record.Token
}

// SetExternalName puts the name of the external resource on the API server, and
// returns when it is there. Call it as soon as the name is known.
//
// It returns an error if the name cannot be stored yet, and then stores it with the
// operation's result at the latest; or if the name can never be stored. There is an
// external resource in both cases, so all its errors wrap ErrOutcomeUnknown: a Create
// that returns one is not repeated as one that failed is.
func (op *Operation) SetExternalName(ctx context.Context, name string) error {
	if err := seam.CheckText(name, seam.MaxExternalName); err != nil {
		return unknown{errors.Wrap(err, "cannot set external name")}
	}
	op.mu.Lock()
	if !op.over {
		op.set[meta.AnnotationKeyExternalName] = name
	}
	op.mu.Unlock()
	return op.update(ctx, func(r *creation.Record) { r.Named = true })
}

// SetHandle puts on the API server what a Resumer needs to resume the operation in
// another process, and returns when it is there. It must not be a secret, and has 32 KiB
// at most. It returns an error, which wraps ErrOutcomeUnknown, for a handle that cannot be
// stored or could not be.
func (op *Operation) SetHandle(ctx context.Context, handle string) error {
	if err := seam.CheckText(handle, maxHandle); err != nil {
		return unknown{errors.Wrap(err, "cannot set handle")}
	}

	// The record is JSON, in which some characters take more than one byte.
	had := *op.snapshot()
	had.Handle = handle
	if n := len(had.Text()); n > creation.MaxRecord {
		return unknown{errors.Errorf("cannot set handle: the record of the operation would have %d bytes, and %d is the most", n, creation.MaxRecord)}
	}
	return op.update(ctx, func(r *creation.Record) { r.Handle = handle })
}

// Progress says how far the operation is: in percent, and in words that must not
// hold a secret. It is shown with the object's next reconcile, for which it asks
// no more often than the tracker's report interval. It costs no request. It
// returns an error, which wraps ErrOutcomeUnknown, if percent is not from 0 to 100, or
// if the operation has ended.
func (op *Operation) Progress(percent int, message string) error {
	if percent < 0 || percent > 100 {
		return unknown{errors.Errorf("cannot set progress to %d%%: pass a number from 0 to 100", percent)}
	}
	message = creation.Clean(message, maxProgress)
	op.mu.Lock()
	defer op.mu.Unlock()

	switch {
	case op.over:
		return unknown{ErrEnded}
	case op.percent == percent && op.message == message:
		return nil
	}

	op.percent, op.message = percent, message
	if op.ticking {
		return nil
	}

	// One timer at a time, and none once all has been said.
	now := time.Now()
	wait := max(0, op.reported.Add(op.tracker.reportEvery).Sub(now))
	op.reported, op.ticking = now.Add(wait), true

	time.AfterFunc(wait, func() {
		op.mu.Lock()
		op.ticking = false
		over := op.over
		op.mu.Unlock()
		if !over {
			op.tracker.enqueue(client.ObjectKeyFromObject(op.object))
		}
	})
	return nil
}

// learned notes annotations that a client has set in its call.
func (op *Operation) learned(set map[string]string) {
	op.mu.Lock()
	defer op.mu.Unlock()
	for k, v := range set {
		// What was said explicitly is not overruled by what was left in an
		// object.
		if _, ok := op.set[k]; !ok {
			op.set[k] = v
		}

		// The reconcile may store it, too.
		op.tried[k] = append(op.tried[k], v)
	}
}

// End says that the operation is over, and with which outcome. It returns at once;
// the result is stored in the background, and not forgotten until it is. It is
// called once; later calls do nothing.
func (op *Operation) End(err error) {
	if op.finish(err, nil) {
		go op.settle()
	}
}

// snapshot returns the record as the API server has it. It must not be changed.
func (op *Operation) snapshot() *creation.Record {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.record
}

// status of an operation, if it runs.
func (op *Operation) status() (Status, bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	return Status{Attempt: attemptOf(op.record), Deadline: op.record.Deadline.Time, Percent: op.percent, Message: op.message}, !op.over
}

// next returns the record of the operation on o that follows had, or that is the first if had
// is nil.
func (t *Tracker) next(o client.Object, typ Type, had *creation.Record) *creation.Record {
	r := creation.NewRecord(o, creation.Operation(typ), t.holder, string(uuid.NewUUID()), time.Now(), t.timeout)

	// The failure is reported until an attempt succeeds.
	if had != nil && had.Type == r.Type {
		r.Failures, r.Error = had.Failures, had.Error
		if r.Attempt = had.Attempt; had.Phase != creation.RecordRunning {
			r.Attempt++
		}
	}
	return r
}

// repeated returns the record of the same attempt, made again by this tracker. Another process
// may make the attempt until open.
func (t *Tracker) repeated(had *creation.Record, open time.Time) *creation.Record {
	r, now := *had, metav1.NewTime(time.Now())
	r.Open = nil
	if o := metav1.NewTime(open); now.Before(&o) {
		r.Open = &o
	}
	r.Holder, r.Phase, r.Repeated, r.Ended = t.holder, creation.RecordRunning, true, nil
	r.Abandoned = false
	r.Began, r.Deadline = &now, metav1.NewTime(now.Add(t.timeout))
	return &r
}

// register an operation whose record is stored. It doesn't run yet; others see it
// already. Its object, of which those annotations are stored, should have one of the
// slots.
func (t *Tracker) register(ctx context.Context, mg resource.Managed, stored map[string]string, r *creation.Record, ss *slots) (*Operation, error) {
	if !t.enter() {
		return nil, ErrStopped
	}
	o, _ := mg.DeepCopyObject().(client.Object)
	o.SetAnnotations(maps.Clone(stored))

	if ss == nil {
		// It was begun although what was observed did not ask for it.
		ss = t.slotsFor(mg)
	}

	op := &Operation{
		tracker: t,
		object:  o,
		slots:   ss,
		storing: make(chan struct{}, 1),
		settled: make(chan struct{}),
		again:   r.Repeated || r.Handle != "",
		record:  r,
		text:    r.Text(),
		set:     map[string]string{},
		tried:   map[string][]string{},
	}

	// The operation outlives the reconcile, even if that is cancelled.
	op.ctx, op.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), operationKey{}, op))

	if _, running := t.operations.LoadOrStore(o.GetUID(), op); running {
		op.cancel(ErrRunning)
		t.leave()
		return nil, ErrRunning
	}

	t.metrics.began(Type(r.Type))
	timer := time.AfterFunc(time.Until(r.Deadline.Time), func() { op.cancel(ErrDeadline) })
	unrush := context.AfterFunc(t.cancelling, func() { op.cancel(ErrStopped) }) //nolint:contextcheck // The tracker's own.

	context.AfterFunc(op.ctx, func() { //nolint:contextcheck // The operation's own.
		timer.Stop()
		unrush()
	})
	return op, nil
}

// run an operation to its end, in the goroutine that calls it. What fn does to the
// annotations of mg is stored with the result.
func (op *Operation) run(mg resource.Managed, fn func(ctx context.Context) (managed.ConnectionDetails, error)) {
	var details managed.ConnectionDetails
	before, err := maps.Clone(mg.GetAnnotations()), errExited

	// Deferred, since a client may end the goroutine (runtime.Goexit).
	defer func() {
		op.learned(annotatedSince(before, mg))
		if op.finish(err, details) {
			op.settle()
		}
	}()

	details, err = op.call(fn)
}

// annotatedSince returns the annotations that an external client has set. If it has read mg
// again, from a cache that lags, mg has older records of creates. They are not the client's.
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

// call fn, and turn a panic into an error.
func (op *Operation) call(fn func(ctx context.Context) (managed.ConnectionDetails, error)) (details managed.ConnectionDetails, err error) {
	defer func() {
		// What the client panicked with may be a secret.
		if p := recover(); p != nil {
			op.tracker.log.Info("The external client panicked", "uid", op.object.GetUID(), "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return fn(op.ctx)
}

// finish notes what an operation ended with. It is false if it had ended already.
func (op *Operation) finish(err error, details managed.ConnectionDetails) bool {
	t := op.tracker
	op.mu.Lock()

	if op.over {
		op.mu.Unlock()
		return false
	}
	if cause := context.Cause(op.ctx); err != nil && cause != nil {
		err = t.cancelled(err, cause)
	}
	op.over, op.endedAt, op.err = true, time.Now(), err
	if op.abandonment != nil {
		op.abandonment.Stop()
	}

	r, abandoned := op.record, op.abandoned
	op.mu.Unlock()
	op.cancel(ErrEnded)
	t.known.keepDetails(op.object, details)
	if err != nil {
		t.known.keepFailure(op.object, endedWith(r, err, op.endedAt), err)
	} else {
		t.known.dropFailure(op.object)
	}

	if r.Type == creation.Delete && err == nil {
		t.known.dropDetails(op.object)
		t.known.deleteSucceeded(op.object, t.firstBackoff, min(t.lastBackoff, time.Minute))
	}

	t.metrics.endedWith(Type(r.Type), outcome(r, err), time.Since(r.Started.Time))
	t.metrics.unstored.Inc()
	if !abandoned {
		t.release(op.slots, op.object.GetUID())
	}
	t.tell(op, r, err)
	return true
}

// cancelled returns what err of an operation means that was cancelled for that
// cause. Clients have many ways to say that they were, most of them in words of their
// own: whatever they say, it may be that.
func (t *Tracker) cancelled(err, cause error) error {
	// Why it was cancelled says more than that it was.
	if errors.Is(err, context.Canceled) {
		err = cause
	} else if !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}

	if t.cancellable && errors.Is(cause, ErrCancelled) {
		return err
	}
	return unknown{err}
}

// unknown is an error of an operation whose outcome it leaves unknown.
type unknown struct{ error }

func (u unknown) Unwrap() []error { return []error{u.error, ErrOutcomeUnknown} }

func outcome(r *creation.Record, err error) string {
	switch {
	case err == nil:
		return outcomeSucceeded
	case endedWith(r, err, time.Time{}).Phase == creation.RecordUnknown:
		return outcomeUnknown
	default:
		return outcomeFailed
	}
}
