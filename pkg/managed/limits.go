package managed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// limits starts a reconcile only if its account has a token, and calls neither Create nor
// Update after a terminal error.
type limits struct {
	external

	limits  *RateLimits
	kind    schema.GroupVersionKind
	poll    time.Duration
	log     logging.Logger
	record  event.Recorder
	dropped *droppedEvents
	configs providerConfigs

	store *store.Store
	last  store.Key[failure]
	slot  seam.Slot[limitErrors]
}

// A failure is the error of the last Create or Update.
type failure struct {
	// terminal is the text of a terminal error, and of the fingerprint of the managed
	// resource and the provider config for which the call returned it.
	terminal string
	of       fingerprint

	// throttled is the time until which the external system throttles calls.
	throttled time.Time
}

// limitErrors has the errors of one reconcile that concern limits.
type limitErrors struct {
	// keyErr is the error of a WithAccountKey function that panicked.
	keyErr error

	// throttled is the time until which calls are throttled, terminal the text of a terminal
	// error. polled reports whether the call with that error is repeated at each poll.
	throttled time.Time
	terminal  string
	polled    bool
}

func newLimits(l *RateLimits) newLayer {
	return func(p parts, next external) layer {
		ls := &limits{
			external: next,
			limits:   l,
			kind:     p.kind,
			poll:     p.settings.pollInterval,
			log:      p.log,
			record:   p.record,
			dropped:  p.dropped,
			configs:  newProviderConfigs(p.client, p.scheme, p.kind.Group),
			store:    p.store,
		}
		return layer{external: ls, patch: seam.Patch{Open: ls.open, Status: ls.status, Close: ls.close, Gone: ls.gone}}
	}
}

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
	if kind == "" {
		kind = kindProviderConfig
	}
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

// Connect to the provider.
func (l *limits) Connect(ctx context.Context, c *call) error {
	if at := l.slot.Find(c.Session); at != nil && at.keyErr != nil {
		return at.keyErr
	}
	err := l.external.Connect(ctx, c)
	if err == nil || kerrors.IsConflict(err) {
		return err
	}
	l.reached(c, false)

	// The API server throttles, not the external system.
	if !kerrors.IsTooManyRequests(err) {
		c.Meter().Returned(err)
	}
	l.judge(c, err, reasonCannotConnect)
	return err
}

// Observe the external resource. After a terminal error, it reports the external resource as
// up to date, so that upstream does not repeat the call.
func (l *limits) Observe(ctx context.Context, c *call) (observeResult, error) {
	o, err := l.external.Observe(ctx, c)
	if err != nil {
		if !kerrors.IsConflict(err) {
			l.reached(c, false)
			l.judge(c, err, reasonCannotObserve)
		}
		return o, err
	}
	l.reached(c, true)

	f := l.last.Get(l.store, c.mg)
	if f == (failure{}) {
		return o, nil
	}
	failed := o.State != seam.InProgress && createOf(c.mg).Record != nil
	if failed && f.throttled.After(time.Now()) {
		l.slot.In(c.Session).throttled = f.throttled
	}

	switch {
	case f.terminal == "", meta.WasDeleted(c.mg), o.State == seam.InProgress:
		return o, nil
	case f.of != l.configs.fingerprint(ctx, c.mg):
		l.forget(c.mg)
		return o, nil
	case o.ResourceExists && o.ResourceUpToDate && !failed:
		// It was repaired.
		return o, nil
	}

	at := l.slot.In(c.Session)
	at.terminal = f.terminal
	if o.ResourceExists || !seam.Allows(c.mg, xpv2.ManagementActionCreate) {
		o.ResourceUpToDate = true
		return o, nil
	}
	c.Requeue(seam.InsteadOfBackoff(l.poll))
	return o, seam.Conflict(c.mg, "its create failed with a terminal error")
}

// Create the external resource.
func (l *limits) Create(ctx context.Context, c *call) (createResult, error) {
	l.watch(ctx, c)
	o, err := l.external.Create(ctx, c)
	l.judge(c, err, reasonCannotCreate)
	return o, err
}

// Update the external resource.
func (l *limits) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	l.watch(ctx, c)
	o, err := l.external.Update(ctx, c)
	l.judge(c, err, reasonCannotUpdate)
	return o, err
}

// Delete the external resource.
func (l *limits) Delete(ctx context.Context, c *call) (deleteResult, error) {
	o, err := l.external.Delete(ctx, c)
	l.judge(c, err, reasonCannotDelete)
	return o, err
}

// watch stores the error of a Create or Update, which may return after the reconcile ended.
func (l *limits) watch(ctx context.Context, c *call) {
	ctx = context.WithoutCancel(ctx)
	mg, m, of := c.mg, c.Meter(), metadataOf(c.mg)
	kind, config := providerConfigOf(mg)
	id := identity{uid: mg.GetUID(), namespace: mg.GetNamespace(), name: mg.GetName()}

	m.OnError(func(v limit.Verdict, err error) {
		f := failure{of: of}
		if v.Terminal {
			f.terminal, f.of.config = short(err), l.configs.hash(ctx, kind, config)
			l.limits.setTerminal(l.kind, id.key(), true)
		}
		if v.Throttled {
			f.throttled = m.Account().Closed()
		}
		l.last.Update(l.store, id.object(), func(had *failure) { *had = f })
	})
}

func (l *limits) forget(mg resource.Managed) {
	l.last.Delete(l.store, mg)
	l.limits.setTerminal(l.kind, client.ObjectKeyFromObject(mg), false)
}

func (l *limits) gone(s *seam.Session) { l.limits.setTerminal(l.kind, s.Key(), false) }

// reached records in the account whether the external system answers.
func (l *limits) reached(c *call, ok bool) {
	if a := c.Meter().Account(); a != nil {
		a.Reached(ok, time.Now())
	}
}

// judge replaces the backoff after an error that upstream is about to report with an event:
// after a terminal error with the poll interval, after throttling with the time until calls
// are allowed again.
func (l *limits) judge(c *call, err error, reported event.Reason) {
	if err == nil || kerrors.IsConflict(err) {
		return
	}
	now := time.Now()
	v := limit.Judge(err, now)
	stored := seam.ConditionOf(c.Base(), xpv2.TypeSynced).Reason

	switch closed := c.Meter().Account().Closed(); {
	case v.Terminal:
		at := l.slot.In(c.Session)
		at.terminal, at.polled = short(err), reported != reasonCannotCreate && reported != reasonCannotUpdate
		c.Requeue(seam.InsteadOfBackoff(l.poll))
		if stored == ReasonTerminal && (reported == reasonCannotConnect || reported == reasonCannotObserve) {
			l.dropped.drop(c.mg, reported)
		}
	case v.Throttled && closed.After(now):
		l.slot.In(c.Session).throttled = closed
		c.Requeue(seam.InsteadOfBackoff(closed.Sub(now)))
		l.dropped.drop(c.mg, reported)
		if stored != ReasonThrottled {
			l.record.Event(c.mg, event.Warning(reasonThrottled, errors.New(messageThrottled)))
		}
	}
}

// status sets Synced if calls are throttled, or if an error is terminal.
func (l *limits) status(_ context.Context, s *seam.Session, o client.Object) {
	at := l.slot.Find(s)
	mg, ok := o.(resource.Managed)
	if at == nil || !ok {
		return
	}
	if c, ok := l.condition(at); ok && mg.GetCondition(xpv2.TypeSynced).Reason != xpv2.ReasonReconcilePaused {
		s.SetConditions(o, c)
	}
}

func (l *limits) condition(at *limitErrors) (xpv2.Condition, bool) {
	c := xpv2.ReconcileError(errors.New(""))
	switch {
	case at.terminal != "":
		c.Reason, c.Message = ReasonTerminal, fmt.Sprintf(messageTerminal, at.terminal)
		if at.polled {
			c.Message = fmt.Sprintf(messageTerminalPolled, at.terminal)
		}
	case !at.throttled.IsZero():
		until := at.throttled.Add(time.Second - 1).Truncate(time.Second)
		c.Reason, c.Message = ReasonThrottled,
			messageThrottled+fmt.Sprintf(" No call is made until %s.", seam.Stamp(until))
	default:
		return c, false
	}
	return c, true
}

// close returns an unused token. It writes Synced if upstream wrote no status.
func (l *limits) close(ctx context.Context, s *seam.Session) error {
	s.Meter().Close()
	at := l.slot.Find(s)
	if at == nil || s.StatusWritten() {
		return nil
	}
	c, ok := l.condition(at)
	if !ok {
		return nil
	}
	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		if had := seam.ConditionOf(server, xpv2.TypeSynced); had.Reason == c.Reason && had.Message == c.Message {
			return nil
		}
		return []xpv2.Condition{c}
	})
	if seam.Permanent(err) {
		return nil
	}
	return errors.Wrap(err, "cannot report an error of the external system")
}

const (
	messageThrottled = "The external system throttles the calls of this account."
	messageTerminal  = "%s: not tried again until the spec, labels, annotations or provider config change, or a reconcile is requested."

	// Connect, Observe and Delete are repeated.
	messageTerminalPolled = "%s: tried again only at each poll, because the same call would fail again."

	maxTerminalText = 4 << 10
)

// short returns the text of an error, cut to the length of a condition's message.
func short(err error) string {
	text := strings.ToValidUTF8(err.Error(), "�")
	if len(text) > maxTerminalText {
		text = strings.ToValidUTF8(text[:maxTerminalText], "") + "…"
	}
	return text
}

// metered charges the calls of a provider whose operations are synchronous.
type metered struct {
	external
}

func newMetered(_ parts, next external) layer { return layer{external: &metered{external: next}} }

// Observe the external resource.
func (m *metered) Observe(ctx context.Context, c *call) (observeResult, error) {
	return limit.Observed(c.Meter(), func() (observeResult, error) { return m.external.Observe(ctx, c) })
}

// Create the external resource.
func (m *metered) Create(ctx context.Context, c *call) (createResult, error) {
	return limit.Changed(c.Meter(), func() (createResult, error) { return m.external.Create(ctx, c) })
}

// Update the external resource.
func (m *metered) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	return limit.Changed(c.Meter(), func() (ExternalUpdate, error) { return m.external.Update(ctx, c) })
}

// Delete the external resource.
func (m *metered) Delete(ctx context.Context, c *call) (deleteResult, error) {
	return limit.Observed(c.Meter(), func() (deleteResult, error) { return m.external.Delete(ctx, c) })
}
