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

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// beginning is what a call of an external client can turn into an operation, until
// it returns.
type beginning struct {
	record *record
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
	if !ok || b.record.UID != mg.GetUID() || b.record.Type != typ {
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
	had, err := recordOf(mg)
	if err != nil {
		return err
	}
	r := t.next(mg, typ, had)

	// Updates and deletes are of what exists.
	cs := append(concluded(mg), remember(mg, r))
	if err := t.persist(ctx, mg, cs, seam.Decided); err != nil {
		return err
	}
	return e.begin(ctx, mg, r, call)
}

// begin an operation whose record is stored.
func (e *external[M]) begin(ctx context.Context, mg M, r *record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
	t := e.tracker
	if t.ownGoroutines {
		return e.beginOwn(ctx, mg, r, call)
	}
	return e.background(ctx, mg, r, call)
}

// background registers an operation, and has it run when the reconcile is done with
// the object, so that neither writes what the other has read.
func (e *external[M]) background(ctx context.Context, mg M, r *record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
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
func (e *external[M]) notBegun(ctx context.Context, mg M, r *record, err error) error {
	if e.tracker.neverStarted(r) {
		cs := seam.Changes{forget(mg)}

		if r.Type == Create && meta.ExternalCreateIncomplete(mg) {
			// Without the record, upstream's announcement would stand alone.
			cs = append(cs, failed(mg, time.Now()))
		}

		_ = e.tracker.persist(ctx, mg, cs, seam.Decided)
	}
	return err
}

// beginOwn lets an external client begin an operation.
func (e *external[M]) beginOwn(ctx context.Context, mg M, r *record, call func(ctx context.Context, mg M) (managed.ConnectionDetails, error)) error {
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
func (e *external[M]) inline(ctx context.Context, mg M, r *record, stored map[string]string, err error) error {
	// The client may have read mg again, from a cache that lags.
	before := copyOf(mg)
	before.SetAnnotations(stored)
	set, c := annotatedSince(stored, mg), forget(before)

	// In the same patch: without the record, upstream's announcement would stand alone.
	ends := concluded(before)

	if err != nil {
		ended := r.ended(err, time.Now())
		ended.Named = ended.Named || set[meta.AnnotationKeyExternalName] != ""
		ends = nil
		if r.Type == Create && ended.Phase == phaseFailed && meta.ExternalCreateIncomplete(before) {
			ends = seam.Changes{failed(before, time.Now())}
		}

		// The external resource of a create that failed is looked up before another is
		// created. What is known of that create is stored here.
		unknown := ended.Phase == phaseUnknown
		if unknown || r.Type == Create && finderOf(e.inner) != nil {
			c = remember(before, ended)
			e.outcome.State = seam.InProgress
			e.tracker.failures.keep(ended, err)
		}

		if unknown {
			e.outcome.State = seam.Unknown
		}
	}

	cs := append(seam.Changes{c}, ends...)
	for k, v := range set {
		cs = append(cs, seam.SetAnnotation(before, k, v))
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

// remember is the change that puts a record on an object.
func remember(o resource.Managed, r *record) seam.Change {
	return seam.SetAnnotation(o, AnnotationKeyOperation, r.text())
}

// forget is the change that takes an object's record away.
func forget(o resource.Managed) seam.Change {
	was, existed := o.GetAnnotations()[AnnotationKeyOperation]
	return seam.Change{Key: AnnotationKeyOperation, Was: was, Existed: existed, Remove: true}
}

// ruleOf returns how the result of an operation is stored. A create returns it only once.
func ruleOf(r *record) seam.Rule {
	if r.Type == Create {
		return seam.Result
	}
	return seam.Observed
}

// persist changes in a reconcile, on the API server and in memory.
func (t *Tracker) persist(ctx context.Context, mg resource.Managed, cs seam.Changes, rule seam.Rule) error {
	ow := func(key, theirs, ours string) { t.overwrote(mg, key, theirs, ours) }

	if s := seam.From(ctx); s.Tracks(mg) {
		if err := s.TryStoreAnnotations(ctx, mg, cs, rule, ow); err != nil {
			return err
		}
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		server, followed, err := t.writer.Store(ctx, mg, cs, rule, ow)
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
