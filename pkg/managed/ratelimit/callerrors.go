package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// callErrors reports errors that say when a retry makes sense: throttled errors, and terminal
// errors, after which neither Create nor Update is called.
type callErrors struct {
	layer.External

	limits  *Limits
	kind    schema.GroupVersionKind
	retry   func(mg client.Object) time.Duration
	configs providerConfigs

	store *store.Store
	last  store.Key[failedCall]
	slot  seam.Slot[reportedErrors]
}

// A failedCall is the error of the last Create or Update.
type failedCall struct {
	// terminal is the text of a terminal error. of is the fingerprint of the managed
	// resource and the provider config for which the call returned it.
	terminal string
	call     creation.OperationType
	of       fingerprint

	// throttled is the time until which the external system throttles calls.
	throttled time.Time
}

// reportedErrors has the throttled and terminal errors of one reconcile.
type reportedErrors struct {
	// throttled is the time until which calls are throttled, terminal the text of a terminal
	// error. polled reports whether the call with that error is repeated at each poll.
	throttled time.Time
	terminal  string
	polled    bool
}

func newCallErrors(l *Limits) layer.New {
	return func(p layer.Parts, next layer.External) layer.Layer {
		e := &callErrors{
			External: next,
			limits:   l,
			kind:     p.Kind,
			retry:    p.Settings.Retry,
			configs:  newProviderConfigs(p.Client, p.Scheme, p.Kind.Group),
			store:    p.Store,
		}
		return layer.Layer{External: e, Patch: seam.Patch{
			Open: e.open, Status: e.status, Close: e.close, Postponed: e.postponed, Gone: e.gone,
		}}
	}
}

// open stops to count a managed resource of this name that no longer exists.
func (e *callErrors) open(_ context.Context, s *seam.Session, o client.Object) error {
	if e.last.Get(e.store, o).terminal == "" {
		e.limits.setTerminal(e.kind, s.Key(), false)
	}
	return nil
}

// Connect to the provider.
func (e *callErrors) Connect(ctx context.Context, c *layer.Call) error {
	err := e.External.Connect(ctx, c)
	if err == nil || kerrors.IsConflict(err) {
		return err
	}

	if failure.Of(err, c.Now()).APIServer {
		// The API server throttles, not the external system.
		return err
	}
	c.Meter().Returned(err)
	e.judge(c, err, true)
	return err
}

// Observe the external resource. After a terminal error, it reports the external resource as
// up to date, so that upstream does not repeat the call.
func (e *callErrors) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	known := e.last.Get(e.store, c.Managed)
	unchanged := known.terminal != "" && known.of.annotations == storedAnnotations(c)
	if r := creation.Last(c.Managed).Record; r != nil {
		// An operation may be resumed or repeated, for the spec that it began with.
		e.watch(ctx, c, r.Generation, r.Type)
	}
	o, err := e.External.Observe(ctx, c)
	if unchanged {
		e.keepAnnotations(c, storedAnnotations)
	}
	if err != nil {
		if !kerrors.IsConflict(err) {
			e.judge(c, err, true)
		}
		return o, err
	}

	f := e.last.Get(e.store, c.Managed)
	if f == (failedCall{}) {
		return o, nil
	}
	failed := o.State != seam.InProgress && creation.Last(c.Managed).Record != nil
	if failed && f.throttled.After(time.Now()) {
		e.slot.In(c.Session).throttled = f.throttled
	}

	// A create with an unknown outcome is repeated although its error is terminal.
	repeats := !o.ResourceExists && creation.Last(c.Managed).Incomplete()
	switch {
	case f.terminal == "", meta.WasDeleted(c.Managed), o.State == seam.InProgress, repeats:
		return o, nil
	case f.call == creation.Update && !o.ResourceExists, f.of != e.configs.fingerprint(ctx, c):
		e.forget(c.Managed)
		return o, nil
	case o.ResourceExists && o.ResourceUpToDate && !failed:
		// It was repaired.
		e.forget(c.Managed)
		return o, nil
	}

	if o.ResourceLateInitialized && o.ResourceExists && seam.Allows(c.Managed, xpv2.ManagementActionLateInitialize) {
		// Upstream stores all annotations.
		e.keepAnnotations(c, annotationsInMemory)
	}

	at := e.slot.In(c.Session)
	at.terminal = f.terminal
	if o.ResourceExists || !seam.Allows(c.Managed, xpv2.ManagementActionCreate) {
		o.ResourceUpToDate = true
		return o, nil
	}
	c.Requeue(seam.InsteadOfBackoff(e.retry(c.Managed)))
	return o, seam.Conflict(c.Managed, "its create failed with a terminal error")
}

// keepAnnotations makes the annotations that a call of the provider has set part of the
// fingerprint of a terminal error, because they are no reason to repeat the call.
func (e *callErrors) keepAnnotations(c *layer.Call, hash func(c *layer.Call) uint64) {
	if e.last.Get(e.store, c.Managed).terminal != "" {
		e.last.Update(e.store, c.Managed, func(f *failedCall) { f.of.annotations = hash(c) })
	}
}

// Create the external resource.
func (e *callErrors) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	e.watch(ctx, c, c.Managed.GetGeneration(), creation.Create)
	o, err := e.External.Create(ctx, c)
	// Upstream stores all of them with the outcome.
	e.keepAnnotations(c, annotationsInMemory)
	e.judge(c, err, false)
	return o, err
}

// Update the external resource.
func (e *callErrors) Update(ctx context.Context, c *layer.Call) (managed.ExternalUpdate, error) {
	e.watch(ctx, c, c.Managed.GetGeneration(), creation.Update)
	o, err := e.External.Update(ctx, c)
	e.keepAnnotations(c, storedAnnotations)
	e.judge(c, err, false)
	return o, err
}

// Delete the external resource.
func (e *callErrors) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	o, err := e.External.Delete(ctx, c)
	e.judge(c, err, true)
	return o, err
}

// watch stores the error of a Create or Update of a generation, which may return after the
// reconcile ended.
func (e *callErrors) watch(ctx context.Context, c *layer.Call, generation int64, call creation.OperationType) {
	ctx = context.WithoutCancel(ctx)
	mg, m, of := c.Managed, c.Meter(), metadataOf(c)
	of.generation = generation
	kind, config := limit.ProviderConfigOf(mg)
	// An operation may run for long, so it keeps less than the managed resource.
	id := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{
			UID: mg.GetUID(), CreationTimestamp: mg.GetCreationTimestamp(),
			Namespace: mg.GetNamespace(), Name: mg.GetName(),
		},
	}

	m.OnError(func(v failure.Meaning, err error) {
		f := failedCall{call: call, of: of}
		if v.Terminal {
			f.terminal = deletion.Cut(err.Error(), deletion.MaxMessageLength)
			f.of.config = e.configs.hash(ctx, kind, config)
			e.limits.setTerminal(e.kind, client.ObjectKeyFromObject(id), true)
		}
		if v.Throttled {
			f.throttled = m.Account().Closed()
		}
		e.last.Update(e.store, id, func(had *failedCall) { *had = f })
	})
}

func (e *callErrors) forget(mg resource.Managed) {
	e.last.Delete(e.store, mg)
	e.limits.setTerminal(e.kind, client.ObjectKeyFromObject(mg), false)
}

func (e *callErrors) gone(s *seam.Session) { e.limits.setTerminal(e.kind, s.Key(), false) }

// judge says in Synced what an error means that upstream is about to report. After a terminal error the
// poll interval replaces the backoff. An object that is throttled keeps its own backoff.
func (e *callErrors) judge(c *layer.Call, err error, polled bool) {
	now := time.Now()
	v := failure.Of(err, now)

	switch closed := c.Meter().Account().Closed(); {
	case v.Terminal:
		at := e.slot.In(c.Session)
		at.terminal, at.polled = deletion.Cut(err.Error(), deletion.MaxMessageLength), polled
		c.Requeue(seam.InsteadOfBackoff(e.retry(c.Managed)))
	case v.Throttled && closed.After(now):
		e.slot.In(c.Session).throttled = closed
	}
}

// status sets Synced if calls are throttled, or if an error is terminal.
func (e *callErrors) status(_ context.Context, s *seam.Session, o client.Object) {
	at := e.slot.Find(s)
	mg, ok := o.(resource.Managed)
	if at == nil || !ok {
		return
	}
	if mg.GetCondition(xpv2.TypeSynced).Reason != xpv2.ReasonReconcilePaused {
		s.SetConditions(o, at.condition())
	}
}

// condition returns Synced for a terminal error or, without one, for throttling.
func (at *reportedErrors) condition() xpv2.Condition {
	c := xpv2.ReconcileError(errors.New(""))
	switch {
	case at.terminal == "" && !at.throttled.IsZero():
		c.Reason, c.Message = ReasonThrottled, messageThrottled
		// A time that is seconds away is out of date when it is read.
		if time.Until(at.throttled) >= time.Minute {
			until := at.throttled.Add(time.Second - 1).Truncate(time.Second)
			c.Message += fmt.Sprintf(" No call is made until %s.", seam.Stamp(until))
		}
	case at.polled:
		c.Reason, c.Message = ReasonTerminal, fmt.Sprintf(messageTerminalPolled, at.terminal)
	default:
		c.Reason, c.Message = ReasonTerminal, fmt.Sprintf(messageTerminal, at.terminal)
	}
	return c
}

// close writes Synced if upstream wrote no status.
func (e *callErrors) close(ctx context.Context, s *seam.Session) error {
	at := e.slot.Find(s)
	if at == nil || s.StatusWritten() {
		return nil
	}
	c := at.condition()
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

// postponed returns Synced if the last operation was throttled, and its account still is.
func (e *callErrors) postponed(_ *seam.Session, server client.Object) []xpv2.Condition {
	at := reportedErrors{throttled: e.last.Get(e.store, server).throttled}
	if !creation.Last(server).Record.HasFailed() || !at.throttled.After(time.Now()) {
		return nil
	}
	return []xpv2.Condition{at.condition()}
}

const (
	messageThrottled = "The external system throttles the calls of this account."
	messageTerminal  = "%s: not tried again until the spec, labels, annotations or provider config change, or a reconcile is requested."

	// Connect, Observe and Delete are repeated.
	messageTerminalPolled = "%s: tried again only at each poll, because the same call would fail again."
)
