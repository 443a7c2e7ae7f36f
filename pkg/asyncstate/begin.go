package asyncstate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// beginning is what a call of an external client can turn into an operation, until
// it returns.
type beginning struct {
	record *creation.Record
	stored map[string]string // The annotations before the call.
	slots  *slots

	// done is closed when the reconcile is done with the object.
	done <-chan struct{}

	mu   sync.Mutex
	op   *Operation
	over bool
}

// end of the call, which may have set annotations of mg. It returns the operation that was
// begun, or nil.
func (b *beginning) end(mg resource.Managed) *Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.op != nil {
		b.op.learned(annotatedSince(b.stored, mg))
	}
	return b.op
}

type beginningKey struct{}

// endGrace is how long after its deadline an operation is waited for that the client
// has to end.
const endGrace = time.Minute

// Begin an operation that the caller runs in a goroutine of its own. It is for
// external clients that return from Create, Update and Delete at once, of trackers
// that were created WithOwnGoroutines: they call it with the context that they were
// given, before anything can reach the external system. The operation's record is
// stored by then. The caller must call End when the operation is over, and should
// heed its Context. An operation that has not ended a minute after its deadline is
// abandoned: it holds up nothing any more, and is treated as an interrupted one. What
// it learns later is still stored, unless the record has changed by then.
//
// It returns ErrNotInOperation if ctx is not that of such a call of that type, or the
// call has returned, ErrRunning if that call has begun an operation already, and
// ErrStopped if the tracker was stopped.
func (t *Tracker) Begin(ctx context.Context, mg resource.Managed, typ Type) (*Operation, error) {
	b, ok := ctx.Value(beginningKey{}).(*beginning)
	if !ok || b.record.UID != mg.GetUID() || Type(b.record.Type) != typ {
		return nil, errors.Wrapf(ErrNotInOperation, "cannot begin %s", typ)
	}

	// Registering waits for nothing.
	b.mu.Lock()
	defer b.mu.Unlock()

	switch {
	case b.over:
		return nil, errors.Wrapf(ErrNotInOperation, "cannot begin %s: the call has returned", typ)
	case b.op != nil:
		return nil, errors.Wrapf(ErrRunning, "cannot begin %s", typ)
	}

	op, err := t.register(ctx, mg, b.stored, b.record, b.slots)
	if err != nil {
		return nil, errors.Wrapf(err, "cannot begin %s", typ)
	}
	b.op = op
	op.mu.Lock()
	defer op.mu.Unlock()
	op.reconciled = b.done
	if !op.over {
		op.abandonment = time.AfterFunc(time.Until(op.record.Deadline.Time)+endGrace, op.abandon)
	}
	return op, nil
}

// beginNew begins an operation that has no record yet.
func (e *external[M]) beginNew(ctx context.Context, mg M, typ Type, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
	t := e.tracker
	had, err := creation.RecordOf(mg)
	if err != nil {
		return err
	}
	r := t.next(mg, typ, had)

	// Only an external resource that exists is updated or deleted.
	if err := t.persist(ctx, mg, creation.On(mg).SucceededIfIncomplete(time.Now()).Recorded(r), seam.Decided); err != nil {
		return err
	}
	return e.begin(ctx, mg, r, call)
}

// begin an operation whose record is stored.
func (e *external[M]) begin(ctx context.Context, mg M, r *creation.Record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
	t := e.tracker
	if t.ownGoroutines {
		return e.beginOwn(ctx, mg, r, call)
	}
	return e.background(ctx, mg, r, call)
}

// background registers an operation, and has it run when the reconcile is done with
// the object, so that neither writes what the other has read.
func (e *external[M]) background(ctx context.Context, mg M, r *creation.Record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
	op, err := e.tracker.register(ctx, mg, mg.GetAnnotations(), r, e.slots)
	if err != nil {
		return e.notBegun(ctx, mg, r, err)
	}
	e.begun(ctx, mg, op)
	theirs := copyOf(mg)

	e.start = func() { //nolint:contextcheck // An operation has a context of its own.
		go op.run(theirs, func(ctx context.Context) (managed.ConnectionDetails, error) {
			defer func() {
				// If it panics, that says nothing of the operation.
				if _, err := op.call(func(ctx context.Context) (managed.ConnectionDetails, error) {
					return nil, e.inner.Disconnect(context.WithoutCancel(ctx))
				}); err != nil {
					e.tracker.log.Debug("Cannot disconnect from provider", "uid", theirs.GetUID(), "error", err)
				}
			}()
			return call(ctx, theirs)
		})
	}
	return nil
}

// notBegun removes the record of an operation that could not be begun because of err,
// and returns err. A record of an operation that was begun before stays.
func (e *external[M]) notBegun(ctx context.Context, mg M, r *creation.Record, err error) error {
	if e.tracker.neverStarted(r) {
		// Without the record, upstream's announcement would stop the object.
		_ = e.tracker.persist(ctx, mg, creation.On(mg).Unrecorded().FailedIfIncomplete(time.Now()), seam.Decided)
	}
	return err
}

// beginOwn lets an external client begin an operation.
func (e *external[M]) beginOwn(ctx context.Context, mg M, r *creation.Record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
	t := e.tracker

	// What is over when the call returns is waited for like what isn't.
	if !t.enter() {
		return e.notBegun(ctx, mg, r, ErrStopped)
	}
	defer t.leave()
	if e.done == nil {
		e.done = make(chan struct{})
	}
	b := &beginning{record: r, stored: maps.Clone(mg.GetAnnotations()), slots: e.slots, done: e.done}
	returned := false
	defer func() {
		// Upstream catches the panic. What was done before it is unknown.
		if returned {
			return
		}
		if op := b.end(mg); op != nil {
			op.End(errPanicked) //nolint:contextcheck // An operation has a context of its own.
		} else {
			_ = e.inline(ctx, mg, r, b.stored, errPanicked)
		}
	}()

	_, err := call(context.WithValue(ctx, beginningKey{}, b), mg)
	returned = true

	switch op := b.end(mg); {
	case op == nil:
		return e.inline(ctx, mg, r, b.stored, err)
	case err != nil:
		// The operation stores the outcome.
		e.outcome.State = seam.InProgress
		op.End(err) //nolint:contextcheck // As above.
		return err
	default:
		e.begun(ctx, mg, op)
		return nil
	}
}

// begun notes that an operation was begun. Its slot is its own now.
func (e *external[M]) begun(ctx context.Context, mg M, op *Operation) {
	e.slots = nil
	s, _ := op.status()
	e.sayRunning(ctx, mg, s)
	e.lookAgain(ctx)
	e.outcome.State = seam.InProgress
	if s.Type == Delete {
		e.goesOn(ctx, "The external resource is being deleted.")
	}
}

// inline ends an operation that was over when the call returned: as in upstream, the
// outcome is in the call's results.
func (e *external[M]) inline(ctx context.Context, mg M, r *creation.Record, stored map[string]string, err error) error {
	// The client may have read mg again, from a cache that lags.
	before := copyOf(mg)
	before.SetAnnotations(stored)
	set, now := annotatedSince(stored, mg), time.Now()
	cs := creation.On(before)

	if err == nil {
		// One write: without the record, upstream's announcement would stop the object.
		cs = cs.Unrecorded().SucceededIfIncomplete(now)
	} else {
		began := *r
		began.Named = r.Named || set[meta.AnnotationKeyExternalName] != ""
		ended := endedWith(&began, err, now)
		failed := r.Type == creation.Create && ended.Phase == creation.RecordFailed

		switch {
		case ended.Phase == creation.RecordUnknown:
			cs = cs.Recorded(ended)
			e.outcome.State = seam.Unknown
			e.tracker.known.keepFailure(mg, ended, err)
		case failed && finderOf(e.inner) != nil:
			// The Finder is asked before the next create.
			cs = cs.FailedWith(ended, now)
			e.outcome.State = seam.InProgress
			e.tracker.known.keepFailure(mg, ended, err)
		case failed:
			cs = cs.Unrecorded().FailedIfIncomplete(now)
		default:
			cs = cs.Unrecorded()
		}
	}

	for k, v := range set {
		cs.Changes = append(cs.Changes, seam.SetAnnotation(before, k, v))
	}
	perr := e.tracker.persist(ctx, mg, cs, ruleOf(r))
	if perr == nil || seam.IsOverruled(perr) {
		return err
	}

	// As it is, the record says that nothing was begun. Nothing may be until it
	// says what is true.
	op, rerr := e.tracker.register(ctx, mg, stored, r, e.slots)
	if rerr != nil {
		return err
	}
	op.reconciled = e.done
	op.learned(set)
	op.End(err) //nolint:contextcheck // An operation has a context of its own.
	return err
}

// ruleOf returns how the result of an operation is stored. A create returns it only once.
func ruleOf(r *creation.Record) seam.Rule {
	if r.Type == creation.Create {
		return seam.Result
	}
	return seam.Observed
}

// persist changes in a reconcile, on the API server and in memory.
func (t *Tracker) persist(ctx context.Context, mg resource.Managed, cs creation.Changes, rule seam.Rule) error {
	ow := func(key, theirs, ours string) { t.overwrote(mg, key, theirs, ours) }

	if s := seam.From(ctx); s.Tracks(mg) {
		if err := s.TryStoreAnnotations(ctx, mg, cs.Changes, rule, ow); err != nil {
			return err
		}
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		server, followed, err := t.writer.Store(ctx, mg, cs.Changes, rule, ow)
		if err != nil {
			return err
		}
		if followed {
			mg.SetResourceVersion(server.GetResourceVersion())
		}
	}

	cs.Apply(mg)
	return nil
}
