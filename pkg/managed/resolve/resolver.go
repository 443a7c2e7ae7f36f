package resolve

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	// minResolveAfter is the resolution of upstream's annotations about creates.
	minResolveAfter = time.Second
)

// With determines the result of a create that was interrupted, because the
// provider was killed or could not reach the API server. Upstream then reports "cannot
// determine creation result", and stops until a person looks for the external resource. With
// a resolver, f looks for it at that point:
//
//   - If f finds the external resource, the external name and
//     external-create-succeeded are stored in one write, and the reconcile continues.
//     The name that f found replaces the external name. If the replaced name was not
//     metadata.name, an event has both names.
//   - If f returns that there is none, external-create-failed is stored, and the reconcile
//     continues and creates. This result counts only after the time in which the create may
//     still be in progress (WithAfter); until then, the managed resource waits.
//   - If f cannot tell, upstream's refusal stands, and nothing is created. f is called again
//     with growing delays of up to five minutes. If f fails, with the controller's backoff.
//
// A Create that failed without an answer of the external system (asyncstate.OutcomeUnknown)
// is resolved, too. Upstream would record it as failed, and create again.
//
// A Create that failed with any other error may have created the external resource
// and failed at a later step. So f is called before the create is repeated, and before the
// finalizer of a managed resource that is being deleted is removed. That create has ended,
// so "absent" counts at once. f is not called for a create that failed before the provider's
// Create was called, nor for one that set the external name: that one created something, which
// Observe finds by its name. Nor is it called after a person has settled the create by removing
// external-create-pending.
//
// The condition CreateResolved and events report the state, and the steps to resolve it. f is
// called in the same way while the managed resource is being deleted, and the Deleting
// condition reports it: an external resource that f finds is deleted, and one that does not
// exist does not delay the deletion.
//
// f is called only where upstream would stop or repeat a create. It is not called for a
// managed resource that is paused or whose external resource is orphaned, nor with
// WithDeterministicExternalName. It is called at most once in a reconcile, with a copy of the
// managed resource, and within the timeout of WithTimeout. Creates that have a record in the
// annotation graft.crossplane.io/async-operation are left to pkg/asyncstate.
//
// It costs nothing while no create is interrupted or fails. Each create that was interrupted,
// or that created something and failed, costs one write, which fails if the managed resource
// has changed.
//
// If external clients implement asyncstate.Finder, pass FindWithConnector.
// With panics if f is nil.
func With(f asyncstate.Finder) managed.ReconcilerOption {
	if is.Nil(f) {
		panic(
			errors.New("resolve.With was given nil: pass a Finder, such as FindWithConnector(connector)"),
		)
	}
	return managed.With(layer.Option{
		Name: "resolve.With",
		Layers: []layer.Staged{{
			Stage: layer.Answer,
			New: func(p layer.Parts, next layer.External) layer.Layer {
				return newCreateResolver(f, cmp.Or(p.Settings.ResolveAfter, p.Settings.LongestCreate()), p, next)
			},
		}},
		Set: func(s *layer.Settings) { s.Resolves = true },
	})
}

// WithAfter sets for With how long after its start a create may still be in progress, so that
// an absent external resource does not prove that the create failed. The default is the
// timeout of a reconcile (WithTimeout, one minute by default) and one more minute. The
// creation grace period is added, because the external system may not show a new resource at
// once.
//
// A shorter time risks a second external resource if the process that started the create
// still runs. Set a longer time if the external system works on requests for longer, or if
// external clients don't stop when their context ends.
//
// WithAfter panics if d is less than a second, the resolution of upstream's
// annotations about creates. NewReconciler panics if it is passed without With.
func WithAfter(d time.Duration) managed.ReconcilerOption {
	if d < minResolveAfter {
		panic(errors.Errorf(
			"resolve.WithAfter was given %s: pass how long a create may be in progress, a second or more", d,
		))
	}
	return managed.With(layer.Option{
		Name: "resolve.WithAfter",
		Set:  func(s *layer.Settings) { s.ResolveAfter = d },
		Check: func(s layer.Settings) error {
			if !s.Resolves {
				return errors.New("resolve.WithAfter was given without resolve.With: pass both, or leave it out")
			}
			return nil
		},
	})
}

// createResolver resolves creates whose outcome is unknown: after the initializers, right
// before upstream refuses to continue, and in Observe if the last create failed.
type createResolver struct {
	layer.External

	finder   asyncstate.Finder
	limits   creation.Limits
	log      logging.Logger
	recorder event.Recorder

	settings layer.Settings

	store     *store.Store
	firstSeen creation.FirstSeen

	// looked reports whether this reconcile has called the finder.
	looked seam.Slot[bool]

	// existed is the announcement of a create that failed because an external resource exists, until one is
	// observed or found. After a restart the next create finds that out again, but a deletion does not.
	existed store.Key[string]

	// lost is the last create whose answer was lost.
	lost store.Key[lostCreate]
}

// A lostCreate is a create whose answer was lost, with its error.
type lostCreate struct{ announcement, err string }

func newCreateResolver(f asyncstate.Finder, after time.Duration, p layer.Parts, next layer.External) layer.Layer {
	c := &createResolver{
		External: next,
		finder:   f,
		limits:   creation.Limits{Announced: after, Grace: p.Settings.Grace},
		log:      p.Log,
		recorder: p.Recorder,
		store:    p.Store,
		settings: p.Settings,
	}
	return layer.Layer{
		External: c,
		Patch:    seam.Patch{Conditions: []xpv2.ConditionType{TypeCreateResolved}},
		Report:   explain,
		Initializer: func(next managed.Initializer) managed.Initializer {
			return upstream.InitializerChain{next, upstream.InitializerFn(c.resolve)}
		},
	}
}

// explain copies the message of the CreateResolved condition to the Deleting condition.
func explain(
	_ *seam.Session, o client.Object, reason xpv2.ConditionReason, message string,
) (xpv2.ConditionReason, string) {
	c := seam.ConditionOf(o, TypeCreateResolved)
	if reason != deletion.ReasonCreateResultUnknown || c.Status != corev1.ConditionFalse {
		return reason, message
	}
	return reason, c.Message
}

// Connect to the provider, unless the outcome of the last create is unknown. This happens with
// asyncstate.With only; otherwise, upstream has refused to continue already.
func (c *createResolver) Connect(ctx context.Context, ca *layer.Call) error {
	was := creation.Last(ca.Managed)
	if was.Phase == creation.Announced && !was.Recorded && !c.settings.DeterministicExternalName {
		return &layer.Hold{
			Reason:  deletion.ReasonCreateResultUnknown,
			Message: deletion.MessageCreateUnknown,
			Cause: errors.Errorf(
				"cannot determine the result of the create started at %s: see the %s condition", seam.Stamp(was.Since),
				TypeCreateResolved,
			),
		}
	}
	return c.External.Connect(ctx, ca)
}

// Observe the external resource. If it is not found and the last create failed, call the
// finder, because the create may have failed at a later step.
func (c *createResolver) Observe(ctx context.Context, ca *layer.Call) (layer.Observation, error) {
	o, err := c.External.Observe(ctx, ca)
	if err == nil && o.ResourceExists {
		c.existed.Delete(c.store, ca.Managed)
	}
	if err != nil || o.ResourceExists || c.settings.DeterministicExternalName || *c.looked.In(ca.Session) {
		return o, err
	}
	was := creation.Last(ca.Managed)
	if was.Announcement != "" && was.Announcement == c.existed.Get(c.store, ca.Managed) {
		was.Phase = creation.Failed // It is stored as a success, because of the creation grace period.
	}
	// Each create is announced: without an announcement a person has settled the last one.
	settledElsewhere := was.Announcement == "" || was.Phase != creation.Failed && was.Phase != creation.Unknown ||
		was.Recorded && c.settings.Async
	if settledElsewhere || !meta.WasDeleted(ca.Managed) && !seam.Allows(ca.Managed, xpv2.ManagementActionCreate) {
		return o, nil
	}
	step, name, err := c.lookUp(ctx, ca.Session, ca.Managed, was)

	switch step.Action {
	case creation.Proceed, creation.BelieveAbsent:
		return o, nil
	case creation.Adopt:
		if err := c.found(ctx, ca.Session, ca.Managed, name); err != nil {
			return layer.Observation{}, err
		}
		return layer.Observation{}, seam.Conflict(ca.Managed, "the external name was stored after the provider was connected")
	default:
		if err == nil {
			err = errors.New(
				"it is unknown whether the create that failed created an external resource. " + creation.MessageSettle,
			)
		}
		return layer.Observation{}, errors.Wrap(err, "cannot look up the external resource of a create that failed")
	}
}

// Create the external resource. The outcome of a create without an answer is unknown, and the
// next reconcile resolves it.
func (c *createResolver) Create(ctx context.Context, ca *layer.Call) (layer.Creation, error) {
	o, err := c.External.Create(ctx, ca)
	if !c.settings.Async && failure.Lost(err, failure.Text) {
		o.State = seam.Unknown
		lost := lostCreate{announcement: creation.Last(ca.Managed).Announcement, err: err.Error()}
		c.lost.Update(c.store, ca.Managed, func(v *lostCreate) { *v = lost })
	}
	if failure.Exists(err, creation.Last(ca.Managed).Name) {
		announcement := creation.Last(ca.Managed).Announcement
		c.existed.Update(c.store, ca.Managed, func(v *string) { *v = announcement })
	}
	return o, err
}

// resolve the last create of mg if it was announced and has no result. It returns an error if
// the result could not be stored. It changes nothing if the outcome stays unknown.
func (c *createResolver) resolve(ctx context.Context, mg resource.Managed) error {
	s, was := seam.From(ctx), creation.Last(mg)
	if !s.Tracks(mg) || was.Recorded {
		return nil
	}
	if c.settings.DeterministicExternalName || was.Phase != creation.Announced {
		c.resolved(s, mg)
		return nil
	}
	step, name, err := c.lookUp(ctx, s, mg, was)
	message := func(format, end string) string { return c.message(mg, was, format, end) }

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
		c.recorder.Event(
			mg, event.Warning(reasonCannotResolveCreate, errors.Wrap(err, "cannot look up the external resource")),
		)
		c.report(s, mg, ReasonFindFailed, message(messageFindFailed, creation.SettleAfter(mg, was.Since)))
		s.Requeue(seam.WithBackoff())
		return nil
	case creation.CannotTell:
		message := message(messageResultUnknown, creation.SettleAfter(mg, was.Since))
		if seam.ConditionOf(mg, TypeCreateResolved).Reason != deletion.ReasonCreateResultUnknown {
			c.recorder.Event(mg, event.Warning(reasonCannotResolveCreate, errors.New(message)))
		}
		c.report(s, mg, deletion.ReasonCreateResultUnknown, message)
	default:
		c.report(s, mg, ReasonWaitingForCreate, message(messageWaitingForCreate, seam.Stamp(step.Until)))
	}

	s.Requeue(seam.Within(step.Delay))
	return nil
}

// message returns a message about the last create, with the error that it ended with, if it is known. The format
// has the time at which it began, and a text about its end.
func (c *createResolver) message(mg resource.Managed, was creation.State, format, end string) string {
	err := ""
	if lost := c.lost.Get(c.store, mg); lost.announcement == was.Announcement {
		err = lost.err
	}
	stored := seam.ConditionOf(mg, TypeCreateResolved).Message
	return creation.WithLastError(fmt.Sprintf(format, seam.Stamp(was.Since), end), err, stored, was.Since)
}

// lookUp calls the finder for the last create of mg, and returns the next step and the name
// that was found. The error is the finder's.
func (c *createResolver) lookUp(
	ctx context.Context, s *seam.Session, mg resource.Managed, was creation.State,
) (creation.Step, string, error) {
	now := s.Now()
	q := creation.Question{
		State: was,
		Can: creation.Can{
			Find:   true,
			Create: seam.Allows(mg, xpv2.ManagementActionCreate),
		},
		Limits:    c.limits,
		Deleting:  meta.WasDeleted(mg),
		Now:       now,
		FirstSeen: c.firstSeen.At(c.store, mg, was, now),
	}

	f, err := c.find(ctx, s, mg, was)
	var name string
	q.Lookup, name, err = creation.AnswerOf(f.Known, f.ExternalName, err)
	return creation.Next(q), name, err
}

// find calls the finder with a copy of mg.
func (c *createResolver) find(
	ctx context.Context, s *seam.Session, mg resource.Managed, was creation.State,
) (asyncstate.Finding, error) {
	*c.looked.In(s) = true

	// Changes that the finder makes to the managed resource must not be stored.
	o, err := layer.Copy(mg)
	if err != nil {
		return asyncstate.Finding{}, err
	}

	// Upstream leaves itself time to report an error, and so does this.
	ctx, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	s.Meter().Charge()
	f, err := c.finder.Find(ctx, o, asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: was.Since})
	if !failure.Of(err, s.Now()).APIServer {
		s.Meter().Returned(err) // An API server throttles a Finder that connects, not the external system.
	}
	return f, err
}

// found stores that the create succeeded, and the external name.
func (c *createResolver) found(ctx context.Context, s *seam.Session, mg resource.Managed, name string) error {
	had := meta.GetExternalName(mg)

	if err := c.commit(ctx, s, mg, creation.On(mg).Succeeded(s.Now()).Named(name)); err != nil {
		return err
	}
	c.existed.Delete(c.store, mg)

	if had != "" && had != name && had != mg.GetName() {
		layer.Overwrote(c.log, c.recorder, mg, meta.AnnotationKeyExternalName, had, name)
	}
	c.recorder.Event(
		mg,
		event.Normal(
			reasonResolvedCreate, fmt.Sprintf("The external resource of an earlier create was found: %q", name),
			"external-name", name,
		),
	)
	c.resolved(s, mg)
	return nil
}

// absent stores that the create failed.
func (c *createResolver) absent(ctx context.Context, s *seam.Session, mg resource.Managed) error {
	if err := c.commit(ctx, s, mg, creation.On(mg).Absent()); err != nil {
		return err
	}
	c.recorder.Event(mg, event.Normal(reasonResolvedCreate, "An interrupted create created no external resource"))
	c.resolved(s, mg)
	return nil
}

// commit changes if mg has not changed on the API server. After a conflict, the finder may
// have looked for the wrong external resource.
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

// resolved reports that the outcome is known, if the condition says that it is unknown.
func (c *createResolver) resolved(s *seam.Session, mg resource.Managed) {
	c.firstSeen.Forget(c.store, mg)
	c.lost.Delete(c.store, mg)
	if seam.ConditionOf(mg, TypeCreateResolved).Status == corev1.ConditionFalse {
		c.report(s, mg, ReasonResolved, "")
	}
}

func (c *createResolver) report(s *seam.Session, mg resource.Managed, reason xpv2.ConditionReason, message string) {
	status := corev1.ConditionFalse
	if reason == ReasonResolved {
		status = corev1.ConditionTrue
	}
	s.SetConditions(mg, xpv2.Condition{
		Type:               TypeCreateResolved,
		Status:             status,
		LastTransitionTime: metav1.NewTime(s.Now()),
		Reason:             reason,
		Message:            message,
	})
}

const (
	messageWaitingForCreate = "No external resource found for the create started at %s. It may still be in progress until %s; after that it is treated as failed and retried."
	messageResultUnknown    = "It is unknown whether the create started at %s created an external resource. The provider looks for it again every few minutes. To settle it%s: " +
		creation.MessageSettle
	messageFindFailed = "Cannot look up the result of the create started at %s: see the events. The provider tries again. To settle it%s: " +
		creation.MessageSettle
)
