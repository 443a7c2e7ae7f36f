package managed

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/interrupted"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	// createMargin is how much longer than a reconcile may take a create is
	// taken to be in progress: its last request may be in progress, and clocks differ.
	createMargin = time.Minute

	// minResolveAfter is the resolution of the annotations that record a create.
	minResolveAfter = time.Second
)

// WithCreateResolver finds out the result of a create that was interrupted: the
// provider was killed, or the API server could not be reached. Upstream then says
// "cannot determine creation result", and stops until a person looks for the
// external resource. With a resolver, f is asked at that point:
//
//   - If it finds the external resource, the external name and
//     external-create-succeeded are stored in one write, and the reconcile continues.
//     Another external name is replaced, as it is by the one that Create sets. If
//     that wasn't just metadata.name, an event names both.
//   - If there surely is none, external-create-failed is stored, and the reconcile
//     continues, which is to create. This result of f is used only when the
//     process that began the create can no longer be running it (WithResolveAfter);
//     until then the managed resource waits.
//   - If f does not know, or fails, upstream's refusal stands, and nothing is ever
//     created. f is asked again with growing delays of up to five minutes.
//
// A Create that failed without an answer (asyncstate.OutcomeUnknown) is resolved,
// too: upstream would take it to have created nothing, and create again.
//
// A Create that failed with any other error may have created the external resource
// and failed at a later step. So f is asked before the create is repeated, and before
// a managed resource that is being deleted goes. That create has ended: if there surely
// is no external resource, nothing waits. It is not asked about a create that failed
// before the provider's Create was called.
//
// The condition CreateResolved and events say which it is, and what to do. While
// the managed resource is being deleted the same is asked, and the Deleting
// condition has the answer: what is found is deleted, and what surely does not exist
// does not delay the deletion.
//
// f is asked where upstream would stop, or repeat a create, and nowhere else: not for
// what is paused, or is deleted without its external resource, nor
// WithDeterministicExternalName, which upstream takes for an answer. It is asked at
// most once a reconcile, is given a copy of the managed resource, and has as long as
// WithTimeout says. What is in the annotation graft.crossplane.io/async-operation is
// left to pkg/asyncstate. It costs nothing as long as no create was interrupted or
// failed, and one write, which fails if anything about the managed resource has
// changed, for each that was interrupted, or had made something.
//
// To ask an external client that implements asyncstate.Finder, pass
// FindWithConnector. WithCreateResolver panics if f is nil.
func WithCreateResolver(f asyncstate.Finder, o ...CreateResolverOption) ReconcilerOption {
	if is.Nil(f) {
		panic(errors.New("managed.WithCreateResolver was given nil: pass what looks for external resources, such as FindWithConnector(connector)"))
	}
	var co createResolverOptions

	for i, fn := range o {
		if fn == nil {
			panic(errors.Errorf("managed.WithCreateResolver was given nil (argument %d): leave it out", i+2))
		}
		fn(&co)
	}
	return withLayer(slotCreateResolver, func(p parts) layer {
		c := &createResolver{
			finder:        f,
			after:         co.after,
			log:           p.log,
			record:        p.record,
			timeout:       p.settings.timeout,
			deterministic: p.settings.deterministicExternalName,
			async:         p.settings.async,
		}

		if c.after == 0 {
			c.after = c.timeout + createMargin
		}
		return layer{
			patch:    seam.Patch{Conditions: []xpv2.ConditionType{TypeCreateResolved}},
			external: func(next external) external { return &resolvedExternal{external: next, resolver: c} },
			initializer: func(next Initializer) Initializer {
				return upstream.InitializerChain{next, upstream.InitializerFn(c.resolve)}
			},
			critical: func(next CriticalAnnotationUpdater) CriticalAnnotationUpdater {
				return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
					c.withdraw(seam.From(ctx), o)
					return next.UpdateCriticalAnnotations(ctx, o)
				})
			},
		}
	})
}

// A CreateResolverOption configures WithCreateResolver.
type CreateResolverOption func(*createResolverOptions)

type createResolverOptions struct{ after time.Duration }

// WithResolveAfter sets how long after it began a create may still be in progress, so that
// finding nothing proves nothing. The default is what a reconcile may take
// (WithTimeout, by default one minute) and a minute more: two minutes. A shorter
// one risks a second external resource whenever the process that began the create is
// still running. Take a longer one for external systems that work on a request for
// longer, and for clients that don't heed the end of their context.
//
// WithResolveAfter panics if d is less than a second, in which upstream can't tell one
// create from the next.
func WithResolveAfter(d time.Duration) CreateResolverOption {
	if d < minResolveAfter {
		panic(errors.Errorf("managed.WithResolveAfter was given %s: pass how long a create may be in progress, a second or more", d))
	}
	return func(o *createResolverOptions) { o.after = d }
}

// resolvedExternal takes a create without an answer for one whose outcome is unknown,
// since that can be found out.
type resolvedExternal struct {
	external

	resolver *createResolver
}

// Observe the external resource, and look it up if the last create failed and it is not
// there: the error may have been that of a later step.
func (e *resolvedExternal) Observe(ctx context.Context, c *call) (observation, error) {
	// It may be observed once more after the create was announced.
	if e.resolver.attempt.Find(c.Session) == nil {
		e.resolver.attempt.In(c.Session).before = c.mg.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
	}
	o, err := e.external.Observe(ctx, c)
	if err != nil || o.ResourceExists || !e.resolver.failed(c) {
		return o, err
	}
	f, err := e.resolver.find(ctx, c.mg)

	switch {
	case err != nil:
		return observation{}, errors.Wrap(err, "cannot look up the external resource of a create that failed")
	case f.Found():
		if err := e.resolver.found(ctx, c.Session, c.mg, f.ExternalName); err != nil {
			return observation{}, err
		}
		return observation{}, seam.Conflict(c.mg, "the external name was stored after the provider was connected")
	case !f.Absent():
		return observation{}, errors.New("it is unknown whether the create that failed created an external resource. " + messageSettle)
	}
	return o, nil
}

// Create the external resource.
func (e *resolvedExternal) Create(ctx context.Context, c *call) (creation, error) {
	e.resolver.attempt.In(c.Session).made = true
	o, err := e.external.Create(ctx, c)
	if _, known := outcomeOf(c.client); !known && asyncstate.OutcomeUnknown(err) {
		o.State = seam.Unknown
	}
	return o, err
}

// createResolver settles incomplete creates. It runs after the initializers, right
// before upstream asks whether a create is incomplete.
type createResolver struct {
	finder asyncstate.Finder
	after  time.Duration
	log    logging.Logger
	record event.Recorder

	// timeout and deterministic are settings of upstream's reconciler.
	timeout       time.Duration
	deterministic bool

	// async says that creates that have a record are left to it.
	async bool

	// asked is when the finder was first asked about a create.
	asked interrupted.Sightings

	// answered says that the finder was asked in this reconcile.
	answered seam.Slot[bool]

	attempt seam.Slot[attempt]
}

// An attempt is what is known of the create of this reconcile.
type attempt struct {
	// before is what was said of the last create that was announced before.
	before string

	// made is whether the provider was called.
	made bool
}

// withdraw the announcement of a create that failed before the provider was called, so
// that nothing is looked up for it.
func (c *createResolver) withdraw(s *seam.Session, o client.Object) {
	a := c.attempt.Find(s)
	if a != nil && !a.made && !meta.GetExternalCreateFailed(o).Before(meta.GetExternalCreatePending(o)) {
		meta.AddAnnotations(o, map[string]string{meta.AnnotationKeyExternalCreatePending: a.before})
	}
}

// resolve the create of mg that is incomplete, if there is one. It returns an error
// if the result could not be stored. If the result is not known, the create is left
// incomplete.
func (c *createResolver) resolve(ctx context.Context, mg resource.Managed) error {
	s := seam.From(ctx)
	if !s.Tracks(mg) || recorded(mg) {
		return nil
	}
	if c.deterministic || !meta.ExternalCreateIncomplete(mg) {
		c.resolved(s, mg)
		return nil
	}
	now, begun := s.Now(), meta.GetExternalCreatePending(mg)
	asked := c.asked.First(mg.GetUID(), mg.GetAnnotations()[meta.AnnotationKeyExternalCreatePending], now)

	// The clock of another machine may be ahead.
	if begun.After(asked) {
		begun = asked
	}
	until := begun.Add(c.after)
	f, err := c.find(ctx, mg)
	answer := interrupted.Decide(interrupted.Question{Found: f.Found(), Absent: f.Absent(), Err: err, Now: now, Until: until, Since: asked})

	switch answer.Verdict {
	case interrupted.Found:
		return c.found(ctx, s, mg, f.ExternalName)
	case interrupted.Absent:
		return c.absent(ctx, s, mg)
	case interrupted.Failed:
		c.log.Info("Cannot look up the external resource of an interrupted create", "uid", mg.GetUID(), "error", err)
		c.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.Wrap(err, "cannot look up the external resource")))
		c.say(s, mg, corev1.ConditionFalse, ReasonFindFailed, fmt.Sprintf(messageFindFailed, seam.Stamp(begun)))
		s.Requeue(seam.WithBackoff())
		return nil
	case interrupted.Wait:
		c.say(s, mg, corev1.ConditionFalse, ReasonWaitingForCreate, fmt.Sprintf(messageWaitingForCreate, seam.Stamp(begun), seam.Stamp(until)))
	case interrupted.Unknown:
		msg := fmt.Sprintf(messageResultUnknown, seam.Stamp(begun))
		if seam.ConditionOf(mg, TypeCreateResolved).Message != msg {
			c.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.New(msg)))
		}
		c.say(s, mg, corev1.ConditionFalse, reconciler.ReasonCreateResultUnknown, msg)
	}

	s.Requeue(seam.Within(answer.Again))
	return nil
}

// failed reports whether the last create was seen to fail, and either another or the
// end of the managed resource may follow.
func (c *createResolver) failed(ca *call) bool {
	mg := ca.mg
	if answered := c.answered.Find(ca.Session); answered != nil && *answered || c.deterministic || c.async && recorded(mg) {
		return false
	}
	pending := meta.GetExternalCreatePending(mg)
	return meta.GetExternalCreateSucceeded(mg).Before(pending) && !meta.GetExternalCreateFailed(mg).Before(pending) &&
		(meta.WasDeleted(mg) || seam.Allows(mg, xpv2.ManagementActionCreate))
}

// find calls the finder with a copy of mg.
func (c *createResolver) find(ctx context.Context, mg resource.Managed) (asyncstate.Finding, error) {
	*c.answered.In(seam.From(ctx)) = true

	// What the finder does to the managed resource must not be stored.
	o, err := copyOf(mg)
	if err != nil {
		return asyncstate.Finding{}, err
	}

	// Upstream leaves itself time to say what went wrong, and so do we.
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	f, err := c.finder.Find(ctx, o, asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: meta.GetExternalCreatePending(mg)})
	if err != nil {
		return asyncstate.Finding{}, err
	}
	if f.Found() {
		if err := seam.CheckText(f.ExternalName, seam.MaxExternalName); err != nil {
			return asyncstate.Finding{}, errors.Wrap(err, "the external name that was found cannot be stored")
		}
	}
	return f, nil
}

// found stores that the create succeeded, and under which name.
func (c *createResolver) found(ctx context.Context, s *seam.Session, mg resource.Managed, name string) error {
	had := meta.GetExternalName(mg)

	if err := c.store(ctx, s, mg, seam.Changes{
		seam.CreateEnded(mg, meta.AnnotationKeyExternalCreateSucceeded, s.Now()),
		seam.SetAnnotation(mg, meta.AnnotationKeyExternalName, name),
	}); err != nil {
		return err
	}

	if had != "" && had != name && had != mg.GetName() {
		overwrote(c.log, c.record, mg, meta.AnnotationKeyExternalName, had, name)
	}
	c.log.Debug("Found the external resource of an earlier create", "uid", mg.GetUID(), "external-name", name)
	c.record.Event(mg, event.Normal(reasonResolvedCreate, fmt.Sprintf("The external resource of an earlier create was found: %q", name), "external-name", name))
	c.resolved(s, mg)
	return nil
}

// absent stores that the create failed.
func (c *createResolver) absent(ctx context.Context, s *seam.Session, mg resource.Managed) error {
	// It is the attempt that failed, not this moment: annotations count whole
	// seconds, and the next create, which may begin in this one, has to be newer
	// to be found incomplete in turn.
	announced := mg.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
	if err := c.store(ctx, s, mg, seam.Changes{seam.SetAnnotation(mg, meta.AnnotationKeyExternalCreateFailed, announced)}); err != nil {
		return err
	}
	c.log.Debug("An interrupted create created nothing", "uid", mg.GetUID())
	c.record.Event(mg, event.Normal(reasonResolvedCreate, "An interrupted create created no external resource"))
	c.resolved(s, mg)
	return nil
}

// store annotations, if mg is all that the API server has. A conflict means that
// it is not: the finder may have been asked the wrong question.
func (c *createResolver) store(ctx context.Context, s *seam.Session, mg resource.Managed, cs seam.Changes) error {
	err := s.StoreAnnotations(ctx, mg, cs, seam.Decided, nil)

	switch {
	case err == nil && s.Gone(), kerrors.IsNotFound(err):
		return seam.Conflict(mg, "it no longer exists")
	case err != nil:
		return errors.Wrap(err, "cannot store the result of an interrupted create")
	}

	cs.Apply(mg)
	return nil
}

// resolved says so, if anything else was said before.
func (c *createResolver) resolved(s *seam.Session, mg resource.Managed) {
	c.asked.Forget(mg.GetUID())
	if seam.ConditionOf(mg, TypeCreateResolved).Status == corev1.ConditionFalse {
		c.say(s, mg, corev1.ConditionTrue, ReasonCreateResolved, "")
	}
}

func (c *createResolver) say(s *seam.Session, mg resource.Managed, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	s.SetConditions(mg, xpv2.Condition{Type: TypeCreateResolved, Status: status, LastTransitionTime: metav1.NewTime(s.Now()), Reason: reason, Message: message})
}

const (
	messageWaitingForCreate = "No external resource found for the create started at %s. It may still be in progress until %s; after that it is treated as failed and retried."
	messageResultUnknown    = "It is unknown whether the create started at %s created an external resource. The provider looks for it again every few minutes. To settle it now: " + messageSettle
	messageFindFailed       = "Cannot look up the result of the create started at %s: see the events. The provider tries again. To settle it now: " + messageSettle
)
