package managed

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithCriticalAnnotationUpdater sets how the annotations that record the start and the
// result of a create are stored. Other than upstream, it keeps status that is not stored yet,
// even if u writes with a client of its own. The default differs from upstream's: it writes
// only the annotations that changed. It panics if u is nil.
func WithCriticalAnnotationUpdater(u CriticalAnnotationUpdater) ReconcilerOption {
	is.MustNotBeNil(u, "managed.WithCriticalAnnotationUpdater")
	return func(r *Reconciler) { r.config.criticalAnnotation = u }
}

// createOutcome stores the outcome of a create. Upstream has two outcomes, success and
// failure, and stores them in annotations. This layer has more:
//
//   - The create is in progress, or its outcome is unknown: no result is stored after the
//     announcement. Upstream refuses to create again after that, with or without Graft.
//   - The external name is deterministic, and Create got no answer: a failure is stored,
//     because upstream repeats it, and the time until which the create may be carried out.
//   - Create returned an error, but has set an external name: it created something, which
//     the external system may not show yet. The create is stored as a success, so that the
//     creation grace period applies. But a create failed that the external system has refused with
//     a status: the external resource of that name has another owner.
//   - Create returned "already exists", and an earlier create with the same name had
//     succeeded: the external resource is from the earlier create. The create is stored as a
//     success, too, unless it was refused since. A create resolver looks for another external
//     resource if the name leads to none: this one may be of a request whose answer was lost.
//   - The provider was not called. With a create resolver, the announcement is withdrawn, so
//     that nothing is looked up. A create that was refused failed: the create before it no
//     longer counts, because the external resource is another owner's.
//
// It replaces upstream's CriticalAnnotationUpdater.
type createOutcome struct {
	layer.External

	settings layer.Settings
	client   client.Client
	log      logging.Logger
	recorder event.Recorder

	// whole writes the whole object.
	whole CriticalAnnotationUpdater

	attempts seam.Slot[attempt]
}

// An attempt is the create of one reconcile.
type attempt struct {
	// before is the state of the previous create.
	before creation.State

	// announced is the managed resource as the announcement of this create was stored.
	announced client.Object

	outcome attemptOutcome
}

type attemptOutcome int

const (
	attemptNone attemptOutcome = iota
	attemptSucceeded
	attemptFailed
	attemptNoAnswer
	attemptUnknown
	attemptWithdrawn
)

func newCreateOutcome(p layer.Parts, next layer.External) layer.Layer {
	c := &createOutcome{
		External: next,
		settings: p.Settings,
		client:   p.Seam,
		log:      p.Log,
		recorder: p.Recorder,
		whole:    upstream.NewRetryingCriticalAnnotationUpdater(p.Seam),
	}
	return layer.Layer{
		External: c,
		Patch:    seam.Patch{Close: c.poll},
		Upstream: []upstream.ReconcilerOption{upstream.WithCriticalAnnotationUpdater(c)},
	}
}

// poll reconciles a managed resource again whose create has no outcome. Upstream doesn't: it
// waits for an event. After a failover the old process stores the outcome, in annotations that
// event filters usually ignore.
func (e *createOutcome) poll(_ context.Context, s *seam.Session) error {
	o := s.Base()
	on := e.settings.Persist
	if meta.WasDeleted(o) {
		on = e.settings.Reports
	}
	// Empty management policies pause upstream, too, which says so in Synced.
	paused := meta.IsPaused(o) || seam.ConditionOf(o, xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused
	if on && creation.Last(o).Incomplete() && !paused {
		s.Requeue(seam.Within(e.settings.Retry(o)))
	}
	return nil
}

// Observe the external resource, before upstream announces a create.
func (e *createOutcome) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := e.External.Observe(ctx, c)
	if err == nil && !o.ResourceExists {
		e.attempts.In(c.Session).before = creation.Last(c.Managed)
	}
	return o, err
}

// Create the external resource.
func (e *createOutcome) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	a, previous, emptied := e.attempts.In(c.Session), creation.Last(c.Managed), c.Emptied
	a.announced = c.Base()
	o, err := e.External.Create(ctx, c)
	name := creation.Last(c.Managed).Name
	a.outcome = classify(returnedCreate{
		state:   o.State,
		err:     err,
		meaning: failure.Of(err, c.Now()),
		named:   e.settings.Persist && name != "" && (name != previous.Name || emptied && !c.Emptied),
		exists: previous.Confirmed && !emptied && a.before.Phase != creation.Refused &&
			previous.Name != "" && failure.Exists(err, previous.Name),
		withdrawn:     e.settings.Resolves,
		deterministic: e.settings.DeterministicExternalName,
	})
	return o, err
}

// A returnedCreate describes a Create that has returned.
type returnedCreate struct {
	state   seam.State
	err     error
	meaning failure.Meaning

	named         bool // it has set an external name
	exists        bool // it says that the external resource of an earlier create exists
	withdrawn     bool // its announcement is withdrawn if the provider was not called
	deterministic bool // its external name is known before it is called
}

// classify returns the outcome of a Create.
func classify(r returnedCreate) attemptOutcome {
	switch m := r.meaning; {
	case r.state == seam.InProgress, r.state == seam.Unknown:
		return attemptUnknown
	case r.state == seam.Refused:
		return attemptFailed
	case r.err == nil, r.exists && r.state != seam.Untried:
		return attemptSucceeded
	case r.state == seam.Untried && r.withdrawn:
		return attemptWithdrawn
	case r.state == seam.Untried, m.Answer == failure.Refused && m.Evidence >= failure.Typed:
		return attemptFailed
	case r.named:
		return attemptSucceeded
	case r.deterministic && m.Answer == failure.NoAnswer:
		// Upstream creates again at once, but this create may arrive, too.
		return attemptNoAnswer
	default:
		return attemptFailed
	}
}

// UpdateCriticalAnnotations stores the outcome, instead of the outcome that upstream has set.
func (e *createOutcome) UpdateCriticalAnnotations(ctx context.Context, o client.Object) error {
	s := seam.From(ctx)
	a := e.attempts.Find(s)
	if a == nil || a.outcome == attemptNone || !s.Tracks(o) {
		return e.whole.UpdateCriticalAnnotations(ctx, o)
	}

	creation.RestoreEnds(o, s.Base())
	outcome := creation.On(o)

	switch a.outcome {
	case attemptUnknown:
		// With WithoutExternalNamePersistence, a name that Create set is not stored yet.
		if err := s.StoreAnnotations(ctx, o, s.ChangedAnnotations(o), seam.Result, nil); err != nil {
			return err
		}
		e.storeOthers(ctx, s, o)
		return nil
	case attemptSucceeded:
		outcome = outcome.Succeeded(s.Now())
		if name := meta.GetExternalName(o); name != "" {
			// Another writer may have set another name meanwhile.
			outcome = outcome.Named(name)
		} else if s.EmptiesName(o) {
			outcome.Changes = append(
				outcome.Changes, seam.SetAnnotation(a.announced, meta.AnnotationKeyExternalName, ""),
			)
		}
	case attemptFailed:
		outcome = outcome.OfAnnounced().Failed(s.Now())
	case attemptNoAnswer:
		outcome = outcome.OfAnnounced().Failed(s.Now()).Open(s.Now(), e.settings.Timeout)
	case attemptWithdrawn:
		outcome = outcome.Withdrawn(a.before.Announcement)
	case attemptNone:
	}

	if e.settings.Async {
		// The record is obsolete once the create has a result.
		outcome = outcome.WithoutRecord()
	}

	switch {
	case e.settings.Critical != nil:
		outcome.Apply(o)
		return s.KeepStatus(o, func() error { return e.settings.Critical.UpdateCriticalAnnotations(ctx, o) })
	case !e.settings.Persist:
		outcome.Apply(o)
		return e.whole.UpdateCriticalAnnotations(ctx, o)
	default:
		return e.store(ctx, s, o, outcome.Changes, a)
	}
}

// store the outcome with a patch of the annotations, which keeps other unsaved changes in
// memory. If that fails, the outcome is stored before the next reconcile.
func (e *createOutcome) store(
	ctx context.Context, s *seam.Session, o client.Object, outcome seam.Changes, a *attempt,
) error {
	all := slices.Concat(outcome, s.ChangedAnnotations(o).Without(outcome))
	outcome.Apply(o)
	err := s.StoreAnnotations(
		ctx, o, all, seam.Result, func(key, theirs, ours string) {
			layer.Overwrote(e.log, e.recorder, o, key, theirs, ours)
		},
	)

	if s.Gone() && a.outcome == attemptSucceeded && meta.GetExternalName(o) == meta.GetExternalName(s.Base()) {
		reportLeak(e.log, e.recorder, o, meta.GetExternalName(o))
	}
	if err != nil {
		return err
	}
	// If another writer has changed the managed resource, other changes are dropped, like upstream does.
	// Only the connection details and the status are still to be written.
	if !s.Rebase(o, a.announced) {
		e.storeOthers(ctx, s, o)
	}
	return nil
}

// storeOthers stores the changes by Create that are no annotations, once those are stored: upstream
// writes the whole object, too. Like upstream, it retries the write, and drops the changes on a conflict.
//
// It returns no error, because upstream would not publish the connection details then, which Create
// may return only once.
func (e *createOutcome) storeOthers(ctx context.Context, s *seam.Session, o client.Object) {
	if s.Gone() || s.OnlyAnnotationsDiffer(o) {
		return
	}
	err := retry.OnError(retry.DefaultRetry, func(err error) bool {
		return !kerrors.IsConflict(err) && !seam.Permanent(err) && !errors.Is(err, context.Canceled)
	}, func() error { return e.client.Update(ctx, o) })
	if err == nil || kerrors.IsConflict(err) && !seam.IsRefused(err) {
		return
	}
	err = errors.Wrap(err, "cannot store the changes by Create that are no annotations; they are dropped")
	e.log.Info("Cannot update managed resource after creating the external resource", "uid", o.GetUID(), "error", err)
	e.recorder.Event(o, event.Warning(reasonCannotUpdateManaged, err))
}
