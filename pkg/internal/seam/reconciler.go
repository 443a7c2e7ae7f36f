package seam

import (
	"context"
	stderrors "errors"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A Patch changes the behaviour of an inner reconciler. The goroutine of the reconcile calls
// its functions; nil functions do nothing.
type Patch struct {
	// Open is called with the object as it was first read, before the inner
	// reconciler sees it. An error is returned from that read.
	Open func(ctx context.Context, s *Session, o client.Object) error

	// Write is called with the object before the whole of it is written, but
	// for its status. The last patch comes first: it is the one next to the inner
	// reconciler.
	Write func(ctx context.Context, s *Session, o client.Object)

	// Status is called with the object before its status is written. It may set
	// conditions, and nothing else.
	Status func(ctx context.Context, s *Session, o client.Object)

	// Conditions are the types that no other writer sets. If the API server refuses a
	// status write, it is made without them, and without what Status set.
	Conditions []xpv2.ConditionType

	// Refused is called when a status write was made without them. err is why.
	Refused func(s *Session, o client.Object, err error)

	// Close is called when the inner reconciler has returned. Its error is the
	// reconcile's, if that has none.
	Close func(ctx context.Context, s *Session) error

	// Gone is called when the object is known not to exist any more, which may
	// be before it was ever read.
	Gone func(s *Session)
}

// Options of the seams. The zero value is made usable by NewReconciler.
type Options struct {
	// Live reads from the API server itself. The client, if nil.
	Live client.Reader

	// WriteUnchangedStatus makes every status write, also those that change
	// nothing.
	WriteUnchangedStatus bool

	// Store keeps values about objects between reconciles. A new one, if nil.
	Store *store.Store

	// Now returns the time. time.Now, if nil.
	Now func() time.Time

	// Wait waits, or returns the context's error. A timer, if nil.
	Wait func(ctx context.Context, d time.Duration) error
}

// A Reconciler is the reconcile seam. It is safe for concurrent use if the
// inner reconciler is.
type Reconciler struct {
	inner   reconcile.Reconciler
	client  client.Client
	kind    Kind
	writes  *writes
	patches []Patch
	options Options
}

// NewReconciler returns a reconcile seam over the reconciler that build returns
// for a client seam over c. Patches are applied in the order given.
func NewReconciler(c client.Client, k Kind, build func(c client.Client) reconcile.Reconciler, o Options, p ...Patch) *Reconciler {
	if o.Live == nil {
		o.Live = c
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	if o.Wait == nil {
		o.Wait = Wait
	}

	if o.Store == nil {
		o.Store = &store.Store{}
	}
	return &Reconciler{
		inner:   build(NewClient(c)),
		client:  c,
		kind:    k,
		writes:  &writes{store: o.Store},
		patches: p,
		options: o,
	}
}

// Store returns the values about objects that are kept between reconciles.
func (r *Reconciler) Store() *store.Store { return r.options.Store }

// Reconcile the object that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := &Session{
		turn:    make(chan struct{}, 1),
		key:     req.NamespacedName,
		kind:    r.kind,
		options: r.options,
		client:  r.client,
		writes:  r.writes,
		patches: r.patches,
	}

	ctx = with(ctx, s)
	result, err := r.inner.Reconcile(ctx, req)

	// The inner reconciler may have left a goroutine behind.
	if aerr := s.acquire(ctx); aerr != nil {
		return result, stderrors.Join(err, aerr)
	}
	defer s.release(ctx)

	acquired := s.acquired(ctx)
	for _, p := range r.patches {
		if p.Close == nil || s.base == nil || s.gone {
			continue
		}
		cerr := p.Close(acquired, s)

		switch {
		case cerr == nil:
		case kerrors.IsConflict(cerr):
			// Another writer was first. That is no failure worth reporting.
			s.Requeue(WithBackoff())
		case err == nil:
			err = cerr
		}
	}

	if s.base != nil && meta.WasDeleted(s.base) && len(s.base.GetFinalizers()) == 0 {
		// Nothing holds it any more, so there will be nothing to remember.
		s.ended()
	}

	if err == nil {
		return s.requeue.decide(result), nil
	}
	if again := s.requeue.decide(reconcile.Result{}); errors.Is(err, reconcile.TerminalError(nil)) && !again.IsZero() {
		// controller-runtime doesn't retry it, and ignores a result that comes with it.
		log.FromContext(ctx).Error(err, "Reconciler error")
		return again, nil
	}
	return result, err
}

// open starts the session with o as it was first read.
func (s *Session) open(ctx context.Context, o client.Object) error {
	s.rebase(clone(o), s.writes.get(o).fresh(o.GetResourceVersion()))
	s.nothingToStore(o)

	ctx = s.acquired(ctx)
	for _, p := range s.patches {
		if p.Open == nil {
			continue
		}
		if err := p.Open(ctx, s, o); err != nil {
			s.unopened = true
			return err
		}
	}

	s.unopened = false
	return nil
}

// Wait for d, or until ctx is done, whose error it then returns.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
