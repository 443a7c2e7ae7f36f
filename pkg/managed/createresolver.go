package managed

import (
	"cmp"
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

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
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

	mustHaveNoNil(o, "WithCreateResolver", 2)
	for _, fn := range o {
		fn(&co)
	}
	return func(r *Reconciler) {
		r.config.createResolver = func(p parts, next external) layer {
			c := &createResolver{
				external: next,
				finder:   f,
				limits:   creation.Limits{Announced: cmp.Or(co.after, p.settings.timeout+createMargin), Grace: p.settings.grace},
				log:      p.log,
				record:   p.record,
				store:    p.store,
				settings: p.settings,
			}
			return layer{
				external: c,
				patch:    seam.Patch{Conditions: []xpv2.ConditionType{TypeCreateResolved}},
				initializer: func(next Initializer) Initializer {
					return upstream.InitializerChain{next, upstream.InitializerFn(c.resolve)}
				},
			}
		}
	}
}

// A CreateResolverOption configures WithCreateResolver.
type CreateResolverOption func(*createResolverOptions)

type createResolverOptions struct{ after time.Duration }

// WithResolveAfter sets how long after it began a create may still be in progress, so that
// finding nothing proves nothing. The default is what a reconcile may take
// (WithTimeout, by default one minute) and a minute more: two minutes. The creation grace
// period is added, in which the external system may not show what was created. A shorter
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

// createResolver settles creates whose outcome is unknown: after the initializers, right
// before upstream refuses to continue, and in Observe, if the last create failed.
type createResolver struct {
	external

	finder asyncstate.Finder
	limits creation.Limits
	log    logging.Logger
	record event.Recorder

	settings settings

	store     *store.Store
	firstSeen creation.FirstSeen

	// looked reports whether the finder was asked in this reconcile.
	looked seam.Slot[bool]
}

// Connect to the provider, unless the outcome of the last create is unknown. Upstream has
// refused to continue before, except with WithAsync.
func (c *createResolver) Connect(ctx context.Context, ca *call) error {
	was := createOf(ca.mg)
	if was.Phase == creation.Announced && !was.Recorded && !c.settings.deterministicExternalName {
		return &unresolvedError{errors.Errorf("cannot determine the result of the create started at %s: see the %s condition", seam.Stamp(was.Since), TypeCreateResolved)}
	}
	return c.external.Connect(ctx, ca)
}

// An unresolvedError says that the outcome of the last create is unknown.
type unresolvedError struct{ error }

// Observe the external resource. If there is none and the last create failed, look it up:
// the create may have failed at a later step.
func (c *createResolver) Observe(ctx context.Context, ca *call) (observeResult, error) {
	o, err := c.external.Observe(ctx, ca)
	if err != nil || o.ResourceExists || c.settings.deterministicExternalName || *c.looked.In(ca.Session) {
		return o, err
	}
	was := createOf(ca.mg)
	settledElsewhere := was.Phase != creation.Failed && was.Phase != creation.Unknown || was.Recorded && c.settings.async
	if settledElsewhere || !meta.WasDeleted(ca.mg) && !seam.Allows(ca.mg, xpv2.ManagementActionCreate) {
		return o, nil
	}
	step, name, err := c.lookUp(ctx, ca.Session, ca.mg, was)

	switch step.Action {
	case creation.Proceed, creation.BelieveAbsent:
		return o, nil
	case creation.Adopt:
		if err := c.found(ctx, ca.Session, ca.mg, name); err != nil {
			return observeResult{}, err
		}
		return observeResult{}, seam.Conflict(ca.mg, "the external name was stored after the provider was connected")
	default:
		if err == nil {
			err = errors.New("it is unknown whether the create that failed created an external resource. " + messageSettle)
		}
		return observeResult{}, errors.Wrap(err, "cannot look up the external resource of a create that failed")
	}
}

// Create the external resource. A create without an answer has an unknown outcome, because
// that can be resolved.
func (c *createResolver) Create(ctx context.Context, ca *call) (createResult, error) {
	o, err := c.external.Create(ctx, ca)
	if _, known := outcomeOf(ca.client); !known && asyncstate.OutcomeUnknown(err) {
		o.State = seam.Unknown
	}
	return o, err
}

// resolve the create of mg that was announced and has no end, if there is one. It returns an
// error if the outcome could not be stored. A create whose outcome stays unknown is left as it
// is.
func (c *createResolver) resolve(ctx context.Context, mg resource.Managed) error {
	s, was := seam.From(ctx), createOf(mg)
	if !s.Tracks(mg) || was.Recorded {
		return nil
	}
	if c.settings.deterministicExternalName || was.Phase != creation.Announced {
		c.resolved(s, mg)
		return nil
	}
	step, name, err := c.lookUp(ctx, s, mg, was)
	began := seam.Stamp(was.Since)

	switch step.Action {
	case creation.Adopt:
		return c.found(ctx, s, mg, name)
	case creation.BelieveAbsent:
		return c.absent(ctx, s, mg)
	default:
	}

	switch step.Reason {
	case creation.LookUpFailed:
		c.log.Info("Cannot look up the external resource of an interrupted create", "uid", mg.GetUID(), "error", err)
		c.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.Wrap(err, "cannot look up the external resource")))
		c.report(s, mg, ReasonFindFailed, fmt.Sprintf(messageFindFailed, began))
		s.Requeue(seam.WithBackoff())
		return nil
	case creation.CannotTell:
		message := fmt.Sprintf(messageResultUnknown, began)
		if seam.ConditionOf(mg, TypeCreateResolved).Reason != reconciler.ReasonCreateResultUnknown {
			c.record.Event(mg, event.Warning(reasonCannotResolveCreate, errors.New(message)))
		}
		c.report(s, mg, reconciler.ReasonCreateResultUnknown, message)
	default:
		c.report(s, mg, ReasonWaitingForCreate, fmt.Sprintf(messageWaitingForCreate, began, seam.Stamp(step.Until)))
	}

	s.Requeue(seam.Within(step.Delay))
	return nil
}

// lookUp returns what to do about the last create of mg, and the name that the finder found.
// The error is the finder's.
func (c *createResolver) lookUp(ctx context.Context, s *seam.Session, mg resource.Managed, was creation.State) (creation.Step, string, error) {
	now := s.Now()
	q := creation.Question{
		State:     was,
		Can:       creation.Can{Find: true, Create: seam.Allows(mg, xpv2.ManagementActionCreate), Delete: meta.WasDeleted(mg)},
		Limits:    c.limits,
		Now:       now,
		FirstSeen: c.firstSeen.At(c.store, mg, was, now),
	}

	f, err := c.find(ctx, s, mg, was)

	switch {
	case err != nil:
		q.Lookup = creation.Errored
	case f.Found():
		q.Lookup = creation.Exists
	case f.Absent():
		q.Lookup = creation.Absent
	default:
		q.Lookup = creation.Inconclusive
	}
	return creation.Next(q), f.ExternalName, err
}

// find calls the finder with a copy of mg.
func (c *createResolver) find(ctx context.Context, s *seam.Session, mg resource.Managed, was creation.State) (asyncstate.Finding, error) {
	*c.looked.In(s) = true

	// Changes that the finder makes to the managed resource must not be stored.
	o, err := copyOf(mg)
	if err != nil {
		return asyncstate.Finding{}, err
	}

	// Upstream leaves itself time to report an error, and so does this.
	ctx, cancel := context.WithTimeout(ctx, c.settings.timeout)
	defer cancel()
	f, err := c.finder.Find(ctx, o, asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: was.Since})
	if err != nil || !f.Found() {
		return f, err
	}
	return f, errors.Wrap(seam.CheckText(f.ExternalName, seam.MaxExternalName), "the external name that was found cannot be stored")
}

// found stores that the create succeeded, and under which name.
func (c *createResolver) found(ctx context.Context, s *seam.Session, mg resource.Managed, name string) error {
	had := meta.GetExternalName(mg)

	if err := c.commit(ctx, s, mg, creation.On(mg).Succeeded(s.Now()).Named(name)); err != nil {
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
	if err := c.commit(ctx, s, mg, creation.On(mg).Absent()); err != nil {
		return err
	}
	c.log.Debug("An interrupted create created nothing", "uid", mg.GetUID())
	c.record.Event(mg, event.Normal(reasonResolvedCreate, "An interrupted create created no external resource"))
	c.resolved(s, mg)
	return nil
}

// commit changes, if mg is all that the API server has. A conflict means that it is not: the
// finder may have looked for another external resource.
func (c *createResolver) commit(ctx context.Context, s *seam.Session, mg resource.Managed, cs creation.Changes) error {
	err := s.StoreAnnotations(ctx, mg, cs.Changes, seam.Decided, nil)

	switch {
	case err == nil && s.Gone(), kerrors.IsNotFound(err):
		return seam.Conflict(mg, "it no longer exists")
	case err != nil:
		return errors.Wrap(err, "cannot store the result of an interrupted create")
	}

	cs.Apply(mg)
	return nil
}

// resolved reports that the outcome is known, if it was reported to be unknown.
func (c *createResolver) resolved(s *seam.Session, mg resource.Managed) {
	c.firstSeen.Forget(c.store, mg)
	if seam.ConditionOf(mg, TypeCreateResolved).Status == corev1.ConditionFalse {
		c.report(s, mg, ReasonCreateResolved, "")
	}
}

func (c *createResolver) report(s *seam.Session, mg resource.Managed, reason xpv2.ConditionReason, message string) {
	status := corev1.ConditionFalse
	if reason == ReasonCreateResolved {
		status = corev1.ConditionTrue
	}
	s.SetConditions(mg, xpv2.Condition{Type: TypeCreateResolved, Status: status, LastTransitionTime: metav1.NewTime(s.Now()), Reason: reason, Message: message})
}

const (
	messageWaitingForCreate = "No external resource found for the create started at %s. It may still be in progress until %s; after that it is treated as failed and retried."
	messageResultUnknown    = "It is unknown whether the create started at %s created an external resource. The provider looks for it again every few minutes. To settle it now: " + messageSettle
	messageFindFailed       = "Cannot look up the result of the create started at %s: see the events. The provider tries again. To settle it now: " + messageSettle
)
