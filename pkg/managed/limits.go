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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// limits starts a reconcile only if its account has a token, and calls neither Create nor
// Update after a terminal error.
type limits struct {
	external

	limits   *RateLimits
	kind     schema.GroupVersionKind
	poll     time.Duration
	log      logging.Logger
	recorder event.Recorder
	dropped  *droppedEvents
	configs  providerConfigs

	store *store.Store
	last  store.Key[failure]
	slot  seam.Slot[limitErrors]
}

// A failure is the error of the last Create or Update.
type failure struct {
	// terminal is the text of a terminal error. of is the fingerprint of the managed
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
			recorder: p.recorder,
			dropped:  p.dropped,
			configs:  newProviderConfigs(p.client, p.scheme, p.kind.Group),
			store:    p.store,
		}
		return layer{external: ls, patch: seam.Patch{Open: ls.open, Status: ls.status, Close: ls.close, Gone: ls.gone}}
	}
}

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
	known := l.last.Get(l.store, c.mg)
	unchanged := known.terminal != "" && known.of.annotations == annotationsOf(c.mg)
	o, err := l.external.Observe(ctx, c)
	if unchanged {
		l.keepAnnotations(c)
	}
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

// keepAnnotations makes the annotations that a call of the provider has set part of the
// fingerprint of a terminal error, because they are no reason to repeat the call.
func (l *limits) keepAnnotations(c *call) {
	if l.last.Get(l.store, c.mg).terminal != "" {
		l.last.Update(l.store, c.mg, func(f *failure) { f.of.annotations = annotationsOf(c.mg) })
	}
}

// Create the external resource.
func (l *limits) Create(ctx context.Context, c *call) (createResult, error) {
	l.watch(ctx, c)
	o, err := l.external.Create(ctx, c)
	l.keepAnnotations(c)
	l.judge(c, err, reasonCannotCreate)
	return o, err
}

// Update the external resource.
func (l *limits) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	l.watch(ctx, c)
	o, err := l.external.Update(ctx, c)
	l.keepAnnotations(c)
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
	// An operation may run for long, so it keeps less than the managed resource.
	id := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{UID: mg.GetUID(), Namespace: mg.GetNamespace(), Name: mg.GetName()},
	}

	m.OnError(func(v limit.Verdict, err error) {
		f := failure{of: of}
		if v.Terminal {
			f.terminal, f.of.config = short(err), l.configs.hash(ctx, kind, config)
			l.limits.setTerminal(l.kind, client.ObjectKeyFromObject(id), true)
		}
		if v.Throttled {
			f.throttled = m.Account().Closed()
		}
		l.last.Update(l.store, id, func(had *failure) { *had = f })
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
			l.recorder.Event(c.mg, event.Warning(reasonThrottled, errors.New(messageThrottled)))
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
