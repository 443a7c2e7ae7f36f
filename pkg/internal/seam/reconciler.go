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

// A Reconciler is the reconcile seam. It is safe for concurrent use if the
// inner reconciler is.
type Reconciler struct {
	inner     reconcile.Reconciler
	client    client.Client
	kind      Kind
	histories *histories
	patches   []Patch
	options   Options
}

// NewReconciler returns a reconcile seam over inner, which must use a client seam over c.
// Patches are applied in the order given.
func NewReconciler(c client.Client, k Kind, inner reconcile.Reconciler, o Options, p ...Patch) *Reconciler {
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
		inner:     inner,
		client:    c,
		kind:      k,
		histories: &histories{store: o.Store},
		patches:   p,
		options:   o,
	}
}

// Reconcile the object that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := &Session{
		turn:      make(chan struct{}, 1),
		key:       req.NamespacedName,
		kind:      r.kind,
		options:   r.options,
		client:    r.client,
		histories: r.histories,
		patches:   r.patches,
	}

	ctx = with(ctx, s)
	result, err := r.inner.Reconcile(ctx, req)
	if err != nil {
		if p := (*Postponed)(nil); errors.As(err, &p) {
			s.notePostponed()
			if err := r.reportPostponed(ctx, s); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{RequeueAfter: shorter(p.After, s.requeue.deadline), Priority: &p.Priority}, nil
		}
	}

	// The inner reconciler may have left a goroutine behind.
	if lerr := s.lock(ctx); lerr != nil {
		return result, stderrors.Join(err, lerr)
	}
	defer s.unlock()

	for _, p := range r.patches {
		if p.Close == nil || s.base == nil || s.gone {
			continue
		}
		cerr := p.Close(ctx, s)

		switch {
		case cerr == nil:
		case kerrors.IsConflict(cerr):
			// Another writer was first. That is no failure worth reporting.
			s.Requeue(WithBackoff())
		case err == nil:
			err = cerr
		case errors.Is(err, reconcile.TerminalError(nil)):
			// controller-runtime would not reconcile again.
			log.FromContext(ctx).Error(cerr, "Cannot complete a reconcile that failed")
			s.Requeue(WithBackoff())
		}
	}

	if s.base != nil && meta.WasDeleted(s.base) && len(s.base.GetFinalizers()) == 0 {
		// Nothing holds it any more, so there will be nothing to remember.
		s.noteGone()
	}

	if err == nil {
		return s.backOff(s.requeue.decide(result)), nil
	}
	if again := s.requeue.decide(reconcile.Result{}); errors.Is(err, reconcile.TerminalError(nil)) && !again.IsZero() {
		// controller-runtime doesn't retry it, and ignores a result that comes with it.
		log.FromContext(ctx).Error(err, "Reconciler error")
		return s.backOff(again), nil
	}
	return result, err
}

// reportPostponed writes the conditions of the patches for a reconcile that is postponed.
func (r *Reconciler) reportPostponed(ctx context.Context, s *Session) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()

	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		var cs []xpv2.Condition
		for _, p := range r.patches {
			if p.Postponed != nil {
				cs = append(cs, p.Postponed(s, server)...)
			}
		}
		for i, c := range cs {
			// A spec that has changed since was not reconciled.
			cs[i].ObservedGeneration = ConditionOf(server, c.Type).ObservedGeneration
		}
		return cs
	})
	if Permanent(err) || kerrors.IsConflict(err) {
		return nil
	}
	return err
}
