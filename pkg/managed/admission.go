package managed

import (
	"cmp"
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// open takes a token of the account, or postpones the reconcile.
func (l *limits) open(ctx context.Context, s *seam.Session, o client.Object) error {
	mg, ok := o.(resource.Managed)
	if !ok {
		return nil
	}
	if l.last.Get(l.store, mg).terminal == "" {
		// An earlier managed resource of that name may have had an error.
		l.limits.setTerminal(l.kind, s.Key(), false)
	}
	now := time.Now()
	a := l.account(ctx, s, mg, now)
	if meta.IsPaused(mg) {
		s.Meter().Open(a, false)
		return nil
	}

	c := classOf(mg, a, now)
	wait := time.Duration(0)
	if c == limit.Poll && isTrue(mg, xpv2.TypeSynced) {
		wait = l.limits.accounts.Spread(mg.GetUID(), l.poll, now)
	}
	if wait == 0 {
		wait = a.Admit(mg.GetUID(), c, now)
	}
	if wait == 0 {
		s.Meter().Open(a, true)
		return nil
	}
	if c == limit.Poll {
		return &seam.Postponed{After: wait, Priority: handler.LowPriority}
	}
	return &seam.Postponed{After: wait}
}

// account returns the account of mg.
func (l *limits) account(ctx context.Context, s *seam.Session, mg resource.Managed, now time.Time) *limit.Account {
	kind, of := providerConfigOf(mg)
	kind = cmp.Or(kind, kindProviderConfig)
	key := limit.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	if kind != kindProviderConfig && kind != kindClusterProviderConfig {
		kind = kindOther
	}

	if l.limits.key != nil {
		name, err := callKey(ctx, l.limits.key, mg)
		switch {
		case errors.Is(err, errKeyPanicked):
			l.slot.In(s).keyErr = err
		case err != nil:
			l.log.Debug(
				"Cannot determine the account of the managed resource. It is limited by its provider config", "name",
				mg.GetName(), "error", err,
			)
		case name != "":
			key = limit.Key{Account: name}
		}
	}
	return l.limits.accounts.Account(key, kind, now)
}

var errKeyPanicked = errors.New("the function of managed.WithAccountKey panicked")

// callKey returns the key of mg's account. The error omits the value of a panic, which may be
// a secret.
func callKey(
	ctx context.Context, fn func(ctx context.Context, mg resource.Managed) (string, error), mg resource.Managed,
) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Wrapf(errKeyPanicked, "cannot determine the account of the managed resource (%T)", p)
		}
	}()
	return fn(ctx, mg)
}

// classOf returns how urgent the reconcile of mg is.
func classOf(mg resource.Managed, a *limit.Account, now time.Time) limit.Class {
	synced := mg.GetCondition(xpv2.TypeSynced)
	switch {
	case meta.WasDeleted(mg),
		synced.Status == corev1.ConditionUnknown || synced.Status == "", // Nothing has been done for it yet.
		synced.Reason == xpv2.ReasonReconcilePaused,
		synced.ObservedGeneration != 0 && synced.ObservedGeneration != mg.GetGeneration(),
		isRequested(mg),
		synced.Status == corev1.ConditionFalse && a.Repaired(synced.LastTransitionTime.Time, now):
		return limit.Urgent
	case synced.Status == corev1.ConditionTrue && !isTrue(mg, xpv2.TypeReady):
		return limit.Settling
	default:
		return limit.Poll
	}
}

func isTrue(mg resource.Managed, t xpv2.ConditionType) bool {
	return mg.GetCondition(t).Status == corev1.ConditionTrue
}

// isRequested reports whether an annotation requests a reconcile that was not handled yet.
func isRequested(mg resource.Managed) bool {
	token, ok := mg.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt]
	if !ok {
		return false
	}
	h, ok := mg.(requestHandler)
	return ok && lastHandled(h) != token
}

// A requestHandler stores the last requested reconcile that was handled. Managed resources
// implement it since runtime v2.3. Without it, no reconcile counts as requested.
type requestHandler interface{ GetLastHandledReconcileAt() string }

func lastHandled(h requestHandler) string { return h.GetLastHandledReconcileAt() }
