package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// With limits the calls of the external system. Each call of Observe, Create, Update
// and Delete, also an asynchronous one, takes a token of the managed resource's account;
// Charge takes more. A reconcile that gets no token does not start, and runs again when its
// token is due. It writes only the Deleting condition of a managed resource that is being
// deleted, and the conditions about an asynchronous operation that has ended. A managed resource
// that is paused, or whose deletion leaves the external resource alone, needs no token.
//
// New deletions, new and changed specs and, with crossplane-runtime v2.3 or later, requested
// reconciles are urgent. Retries of deletions, and managed resources that are not Ready yet, settle. All
// others are polls. Of ten reconciles that start while all three wait, six are urgent, three settle and one
// is a poll; the share of one that does not wait is for the others. After a start, the polls of managed
// resources that were Synced and Ready are spread over the poll interval, unless an operation has failed.
//
// Without With only an external system that throttles limits calls: see Throttled.
// With panics if l is nil, or not made by New.
func With(l *Limits) managed.ReconcilerOption {
	if is.MustNotBeNil(l, "ratelimit.With"); l.accounts == nil {
		panic(errors.New("ratelimit.With was given empty limits: create them with New"))
	}
	return managed.With(layer.Option{Name: "ratelimit.With", Layers: []layer.Staged{
		{Stage: layer.Admission, New: newAdmission(l)},
		{Stage: layer.Admission, New: newCallErrors(l)},
		{Stage: layer.Provider, New: newMetered},
	}})
}

// admission starts a reconcile only if its account has a token.
type admission struct {
	layer.External

	limits   *Limits
	settings layer.Settings
	log      logging.Logger

	// requested is the last request for which a reconcile has started. Upstream doesn't handle the request while
	// a deletion waits.
	store     *store.Store
	requested store.Key[string]

	// places has the place of each managed resource that waits for a token, by its name: the
	// UID of one that no longer exists is not known.
	mu     sync.Mutex
	places map[client.ObjectKey]*limit.Place

	// keyErr is the error of a WithAccountKey function that panicked in this reconcile.
	keyErr seam.Slot[error]
}

func newAdmission(l *Limits) layer.New {
	return func(p layer.Parts, next layer.External) layer.Layer {
		a := &admission{
			External: next,
			limits:   l,
			settings: p.Settings,
			places:   map[client.ObjectKey]*limit.Place{},
			log:      p.Log,
			store:    p.Store,
		}
		return layer.Layer{External: a, Patch: seam.Patch{Open: a.open, Close: a.close, Gone: a.gone}}
	}
}

// Connect to the provider, unless the function of the account panicked.
func (a *admission) Connect(ctx context.Context, c *layer.Call) error {
	if err := a.keyErr.Find(c.Session); err != nil && *err != nil {
		return *err
	}
	return a.External.Connect(ctx, c)
}

// close returns a token that was not used.
func (a *admission) close(_ context.Context, s *seam.Session) error {
	s.Meter().Close()
	return nil
}

// open takes a token of the account, or postpones the reconcile.
func (a *admission) open(ctx context.Context, s *seam.Session, o client.Object) error {
	mg, ok := o.(resource.Managed)
	if !ok {
		return nil
	}
	now := time.Now()
	acc := a.account(ctx, s, mg, now)
	if meta.IsPaused(mg) || a.settings.Policies && len(mg.GetManagementPolicies()) == 0 || orphans(mg) {
		a.leave(s.Key())
		s.Meter().Open(acc, false)
		return nil
	}

	request := requestOf(mg)
	c := classOf(mg, request != "" && request != a.requested.Get(a.store, mg))
	if c == limit.Poll && isTrue(mg, xpv2.TypeSynced) && !creation.Last(mg).Record.HasFailed() {
		if wait := a.limits.accounts.Spread(mg.GetUID(), a.settings.Poll(mg), now); wait > 0 {
			a.leave(s.Key())
			return &seam.Postponed{After: wait, Priority: handler.LowPriority}
		}
	}
	if wait := a.admit(s.Key(), acc, c, now); wait > 0 {
		p := &seam.Postponed{After: wait}
		if c == limit.Poll {
			p.Priority = handler.LowPriority
		}
		return p
	}
	if request != "" {
		a.requested.Update(a.store, mg, func(last *string) { *last = request })
	}
	s.Meter().Open(acc, true)
	return nil
}

// admit takes a token, or returns how long to wait for it.
func (a *admission) admit(name client.ObjectKey, acc *limit.Account, c limit.Class, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, wait := acc.Admit(a.places[name], c, now)
	if a.places[name] = p; p == nil {
		delete(a.places, name)
	}
	return wait
}

// leave gives up the place of a managed resource: others would wait for it.
func (a *admission) leave(name client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.places[name].Leave()
	delete(a.places, name)
}

func (a *admission) gone(s *seam.Session) { a.leave(s.Key()) }

// orphans reports whether the deletion of mg makes no calls, because the external resource stays.
func orphans(mg resource.Managed) bool {
	switch {
	case !meta.WasDeleted(mg):
		return false
	case !seam.Allows(mg, xpv2.ManagementActionDelete):
		return true
	}
	legacy, ok := mg.(interface{ GetDeletionPolicy() xpv2.DeletionPolicy })
	return ok && legacy.GetDeletionPolicy() == xpv2.DeletionOrphan &&
		!slices.Contains(mg.GetManagementPolicies(), xpv2.ManagementActionDelete)
}

// account returns the account of mg.
func (a *admission) account(ctx context.Context, s *seam.Session, mg resource.Managed, now time.Time) *limit.Account {
	kind, of := limit.ProviderConfigOf(mg)
	kind = cmp.Or(kind, limit.KindProviderConfig)
	key := limit.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	if kind != limit.KindProviderConfig && kind != limit.KindClusterProviderConfig {
		kind = limit.KindOther
	}

	if a.limits.key != nil {
		name, err := callKey(ctx, a.limits.key, mg)
		switch {
		case errors.Is(err, errKeyPanicked):
			*a.keyErr.In(s) = err
		case err != nil:
			a.log.Debug(
				"Cannot determine the account of the managed resource. It is limited by its provider config", "name",
				mg.GetName(), "error", err,
			)
		case name != "":
			key = limit.Key{Account: name}
		}
	}
	return a.limits.accounts.Account(key, kind, now)
}

var errKeyPanicked = errors.New("the function of ratelimit.WithAccountKey panicked")

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

// classOf returns how urgent the reconcile of mg is. requested reports whether it has a request for which none has
// started yet.
func classOf(mg resource.Managed, requested bool) limit.Class {
	synced := mg.GetCondition(xpv2.TypeSynced)
	switch {
	case requested, synced.Reason == xpv2.ReasonReconcilePaused:
		return limit.Urgent
	case meta.WasDeleted(mg) && isRetriedDeletion(mg):
		return limit.Settling
	case meta.WasDeleted(mg),
		synced.Status == corev1.ConditionUnknown || synced.Status == "", // Nothing has been done for it yet.
		synced.ObservedGeneration != 0 && synced.ObservedGeneration != mg.GetGeneration():
		return limit.Urgent
	case !isTrue(mg, xpv2.TypeReady) && (synced.Status == corev1.ConditionTrue || synced.Reason == ReasonThrottled):
		return limit.Settling
	default:
		return limit.Poll
	}
}

// isRetriedDeletion reports whether the deletion of mg was tried before. A deletion that waited
// for finalizers that are removed, or that failed for another spec, counts as a new one.
func isRetriedDeletion(mg resource.Managed) bool {
	c := deletion.ConditionOf(mg)
	switch {
	case c.Status != corev1.ConditionTrue, c.Reason == deletion.ReasonDeadlineExceeded:
		// There is no report WithoutDeletionStatus, and the report of a deadline replaces another one.
		c = mg.GetCondition(xpv2.TypeSynced)
		if c.Status != corev1.ConditionFalse {
			return false
		}
	case c.Reason == deletion.ReasonDeletionRequested, c.Reason == deletion.ReasonBlockedByPause,
		c.Reason == deletion.ReasonWaitingForFinalizers && len(mg.GetFinalizers()) < 2:
		return false
	}
	return c.ObservedGeneration == mg.GetGeneration()
}

func isTrue(mg resource.Managed, t xpv2.ConditionType) bool {
	return mg.GetCondition(t).Status == corev1.ConditionTrue
}

// requestOf returns the request for a reconcile, by an annotation, that was not handled yet.
func requestOf(mg resource.Managed) string {
	token := mg.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt]
	if h, ok := mg.(requestHandler); !ok || lastHandled(h) == token {
		return ""
	}
	return token
}

// A requestHandler stores the last requested reconcile that was handled. Managed resources
// implement it since runtime v2.3. Without it, no reconcile counts as requested.
type requestHandler interface{ GetLastHandledReconcileAt() string }

func lastHandled(h requestHandler) string { return h.GetLastHandledReconcileAt() }
