package managed

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// TypeCreateResolved is the type of the condition that says whether it was found
// out what came of a create that was interrupted. A managed resource of which that
// was clear at once does not have the condition.
const TypeCreateResolved xpv2.ConditionType = "CreateResolved"

// Reasons of the CreateResolved condition. Another is ReasonCreateResultUnknown of
// pkg/reconciler: nobody knows whether there is an external resource, and the
// message says what to do.
const (
	// ReasonWaitingForCreate means that no external resource was found, and that
	// the create may still be at work. The message says until when.
	ReasonWaitingForCreate xpv2.ConditionReason = "WaitingForCreate"

	// ReasonFindFailed means that the external resource could not be looked for.
	// The message says why.
	ReasonFindFailed xpv2.ConditionReason = "FindFailed"

	// ReasonCreateResolved means that it is known by now.
	ReasonCreateResolved xpv2.ConditionReason = "Resolved"
)

const (
	// createMargin is how much longer than a reconcile may take a create is
	// taken to be at work: its last request may be under way, and clocks differ.
	createMargin = time.Minute

	// minResolveAfter is what the annotations that record a create resolve.
	minResolveAfter = time.Second

	// askAgain is when a question is asked again that nobody had an answer to.
	askAgain = 5 * time.Minute
)

// WithCreateResolver finds out what came of a create that was interrupted: the
// provider was killed, or the API server could not be told. Upstream then says
// "cannot determine creation result", and stops until somebody looks for the
// external resource by hand. With a resolver, f is asked at that point:
//
//   - If it finds the external resource, the external name and
//     external-create-succeeded are stored in one write, and the reconcile goes on.
//     Another external name gives way, as it does to the one that Create sets. If
//     that wasn't just metadata.name, an event names both.
//   - If there surely is none, external-create-failed is stored, and the reconcile
//     goes on, which is to create. That f finds nothing is believed only when
//     whoever began the create can't be at work any more (ResolveAfter); until
//     then the managed resource waits.
//   - If nobody knows, or f fails, upstream's refusal stands, and nothing is ever
//     created. f is asked again: after an error with backoff, otherwise after five
//     minutes at the latest.
//
// A Create that failed for want of an answer (asyncstate.OutcomeUnknown) gets there,
// too: upstream would take it to have created nothing, and create again.
//
// The condition CreateResolved and events say which it is, and what to do. While
// the managed resource is being deleted the same is asked, and the Deleting
// condition has the answer: what is found is deleted, and what is surely not there
// holds nothing up.
//
// f is asked where upstream would stop, and nowhere else: not for what is paused,
// or is deleted without its external resource, nor WithDeterministicExternalName,
// which upstream takes for an answer. It is asked at most once a reconcile, is
// given a copy of the managed resource, and has as long as WithTimeout says. What
// is in the annotation graft.crossplane.io/async-operation is left to pkg/asyncstate.
// It costs nothing as long as no create was interrupted, and one write, which
// fails if anything about the managed resource has changed, for each that was.
//
// To ask an external client that implements asyncstate.Finder, pass
// FindWithConnector. WithCreateResolver panics if f is nil.
func WithCreateResolver(f asyncstate.Finder, o ...CreateResolverOption) ReconcilerOption {
	if seam.IsNil(f) {
		panic(errors.New("managed.WithCreateResolver was given nil: pass what looks for external resources, such as FindWithConnector(connector)"))
	}

	var c createResolver

	for i, fn := range o {
		if fn == nil {
			panic(errors.Errorf("managed.WithCreateResolver was given nil (argument %d): leave it out", i+2))
		}

		fn(&c)
	}

	return func(r *Reconciler) {
		r.config.createResolver = &createResolver{finder: f, after: c.after, config: &r.config}
	}
}

// A CreateResolverOption configures WithCreateResolver.
type CreateResolverOption func(*createResolver)

// ResolveAfter sets how long after it began a create may still be at work, so that
// finding nothing proves nothing. The default is what a reconcile may take
// (WithTimeout, by default one minute) and a minute more: two minutes. A shorter
// one risks a second external resource whenever the process that was to be dead is
// not. Take a longer one for external systems that go on with a request for longer,
// and for clients that don't heed the end of their context.
//
// ResolveAfter panics if d is less than a second, in which upstream can't tell one
// create from the next.
func ResolveAfter(d time.Duration) CreateResolverOption {
	if d < minResolveAfter {
		panic(errors.Errorf("managed.ResolveAfter was given %s: pass how long a create may be at work, a second or more", d))
	}

	return func(c *createResolver) { c.after = d }
}

// FindWithConnector returns a Finder that connects to the external system, asks
// the external client, which must implement asyncstate.Finder, and disconnects.
// Pass the connector that makes the provider's own clients, not one that was made
// of it. It panics if c is nil.
func FindWithConnector(c ExternalConnector) asyncstate.Finder {
	mustBeConnector(c, "FindWithConnector")

	return findWith(c)
}

// FindWithTypedConnector is FindWithConnector for a connector of one type of
// managed resource, whose clients implement asyncstate.TypedFinder of that type, or
// asyncstate.Finder.
func FindWithTypedConnector[managed resource.Managed](c TypedExternalConnector[managed]) asyncstate.Finder {
	mustBeConnector(c, "FindWithTypedConnector")

	return findWith(c)
}

func findWith[managed resource.Managed](c TypedExternalConnector[managed]) asyncstate.Finder {
	return asyncstate.FinderFn(func(ctx context.Context, o resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
		mg, ok := o.(managed)
		if !ok {
			return asyncstate.Finding{}, errors.Errorf("the connector is one for %s, but the managed resource is a %T: pass the connector of this kind", reflect.TypeFor[managed](), o)
		}

		if d, ok := c.(ExternalDisconnector); ok {
			// What was found counts more than how the connection ended, here
			// and below.
			defer func() { _ = d.Disconnect(ctx) }()
		}

		ec, err := c.Connect(ctx, mg)
		if err != nil {
			return asyncstate.Finding{}, errors.Wrap(err, "cannot connect")
		}

		if ec == nil {
			return asyncstate.Finding{}, errors.New("the external connector returned neither a client nor an error")
		}

		defer func() { _ = ec.Disconnect(ctx) }()

		switch f := ec.(type) {
		case asyncstate.TypedFinder[managed]:
			return f.Find(ctx, mg, a)
		case asyncstate.Finder:
			return f.Find(ctx, mg, a)
		default:
			return asyncstate.Finding{}, errors.Errorf("%T can't look for external resources: implement asyncstate.Finder, or leave WithCreateResolver out", ec)
		}
	})
}

// createResolver settles incomplete creates. It stands behind the initializer,
// right before upstream asks whether a create is incomplete: what doesn't get there
// is none of its business. It keeps nothing between reconciles.
type createResolver struct {
	finder asyncstate.Finder
	after  time.Duration
	config *config

	// timeout and deterministic are what the user told upstream's reconciler.
	timeout       time.Duration
	deterministic bool
}

// learn from a reconciler of upstream's what that was told, by whatever options.
func (c *createResolver) learn(r *upstream.Reconciler) {
	field := func(name string, k reflect.Kind) reflect.Value {
		v := reflect.ValueOf(r).Elem().FieldByName(name)
		if v.Kind() != k {
			panic(errors.Errorf("managed.WithCreateResolver can't look into this version of crossplane-runtime (no field %s): use the version that Graft requires", name))
		}

		return v
	}

	c.timeout = time.Duration(field("timeout", reflect.Int64).Int())
	c.deterministic = field("deterministicExternalName", reflect.Bool).Bool()

	if c.after == 0 {
		c.after = c.timeout + createMargin
	}
}

// resolve the create of mg that is incomplete, if there is one. It returns an error
// if what came of it could not be stored. If it is not known, it is left
// incomplete.
func (c *createResolver) resolve(ctx context.Context, s *seam.Session, mg resource.Managed) error {
	if c == nil || !s.Tracks(mg) || underway(mg) {
		return nil
	}

	if c.deterministic || !meta.ExternalCreateIncomplete(mg) {
		c.resolved(s, mg)
		return nil
	}

	begun := meta.GetExternalCreatePending(mg)
	until := begun.Add(c.after)
	wait := min(askAgain, max(until.Sub(s.Now()), 0))

	f, err := c.find(ctx, mg, begun)

	switch {
	case err != nil:
		c.config.log.Info("Cannot look for what an interrupted create made", "uid", mg.GetUID(), "error", err)
		c.config.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.Wrap(err, "cannot look for the external resource")))
		c.say(s, mg, corev1.ConditionFalse, ReasonFindFailed, fmt.Sprintf(messageFindFailed, stamp(begun), err))
		// The Deleting condition holds nothing of errors.
		s.Explain(reconciler.ReasonCreateResultUnknown, messageFindFailedDeleting)
		s.Requeue()

		return nil
	case f.Found():
		return c.found(ctx, s, mg, f.ExternalName)
	case f.Absent() && wait == 0:
		return c.absent(ctx, s, mg)
	case f.Absent():
		c.unresolved(s, mg, ReasonWaitingForCreate, fmt.Sprintf(messageWaitingForCreate, stamp(begun), stamp(until)))
	default:
		msg := fmt.Sprintf(messageResultUnknown, stamp(begun))
		c.config.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.New(msg)))
		c.unresolved(s, mg, reconciler.ReasonCreateResultUnknown, msg)
	}

	if wait == 0 {
		wait = askAgain
	}

	s.RequeueWithin(wait)

	return nil
}

// find asks the finder.
func (c *createResolver) find(ctx context.Context, mg resource.Managed, begun time.Time) (asyncstate.Finding, error) {
	// What it does to the managed resource is nobody else's business.
	o, ok := mg.DeepCopyObject().(resource.Managed)
	if !ok {
		return asyncstate.Finding{}, errors.Errorf("cannot copy managed resource: %T has a deep copy of another type", mg)
	}

	// Upstream leaves itself time to say what went wrong, and so do we.
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	f, err := c.finder.Find(ctx, o, asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: begun})
	if err != nil {
		return asyncstate.Finding{}, err
	}

	if f.Found() {
		if err := seam.CheckText(f.ExternalName, seam.MaxExternalName); err != nil {
			return asyncstate.Finding{}, errors.Wrap(err, "what was found has an external name that can't be stored")
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
		c.config.recordOverwritten(mg, meta.AnnotationKeyExternalName, had, name)
	}

	c.config.log.Debug("Found what an interrupted create made", "uid", mg.GetUID(), "external-name", name)
	c.config.record.Event(mg, event.Normal(reasonResolvedCreate, fmt.Sprintf("The external resource that an interrupted create made was found: %q", name), "external-name", name))
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

	c.config.log.Debug("An interrupted create made nothing", "uid", mg.GetUID())
	c.config.record.Event(mg, event.Normal(reasonResolvedCreate, "An interrupted create made no external resource"))
	c.resolved(s, mg)

	return nil
}

// store annotations, if mg is all that the API server has. A conflict means that
// it is not: what was asked may have been the wrong question.
func (c *createResolver) store(ctx context.Context, s *seam.Session, mg resource.Managed, cs seam.Changes) error {
	err := s.StoreAnnotations(ctx, mg, cs, seam.StoreOptions{Strict: true, Forget: true})

	switch {
	case err == nil && s.Gone(), kerrors.IsNotFound(err):
		gk := mg.GetObjectKind().GroupVersionKind()
		return kerrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, mg.GetName(), errors.New("it does not exist any more"))
	case err != nil:
		return errors.Wrap(err, "cannot store what came of an interrupted create")
	}

	cs.Apply(mg)

	return nil
}

// resolved says so, if anything else was said before.
func (c *createResolver) resolved(s *seam.Session, mg resource.Managed) {
	if seam.ConditionOf(mg, TypeCreateResolved).Status == corev1.ConditionFalse {
		c.say(s, mg, corev1.ConditionTrue, ReasonCreateResolved, "")
	}
}

func (c *createResolver) unresolved(s *seam.Session, mg resource.Managed, reason xpv2.ConditionReason, message string) {
	c.say(s, mg, corev1.ConditionFalse, reason, message)
	s.Explain(reconciler.ReasonCreateResultUnknown, message)
}

func (c *createResolver) say(s *seam.Session, mg resource.Managed, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	s.SetConditions(mg, xpv2.Condition{Type: TypeCreateResolved, Status: status, LastTransitionTime: metav1.NewTime(s.Now()), Reason: reason, Message: message})
}

// underway tells whether mg has the record of an operation, which says more of a
// create than upstream's annotations.
func underway(mg resource.Managed) bool {
	_, ok := mg.GetAnnotations()[asyncstate.AnnotationKeyOperation]
	return ok
}

// stamp formats a time that doesn't change, for a message that shouldn't.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const (
	messageSettle = "Look for it in the external system. If it exists, set the annotation " + meta.AnnotationKeyExternalName +
		" to its name. Then remove the annotation " + meta.AnnotationKeyExternalCreatePending +
		", and set " + meta.AnnotationKeyReconcileRequestedAt + " to anything new: removing alone wakes nobody."

	messageWaitingForCreate = "The create that began at %s made no external resource that can be found. Until %s it may still be at work. If there is nothing then, it made nothing."
	messageResultUnknown    = "Nobody knows whether the create that began at %s made an external resource. It is looked for again every few minutes. You need not wait: " + messageSettle
	messageFindFailed       = "What the create that began at %s made can't be looked for: %v"

	messageFindFailedDeleting = "Nobody knows whether the external resource was created, and looking for it failed: see the " + string(TypeCreateResolved) + " condition. " +
		"It is tried again. You need not wait: " + messageSettle
)
