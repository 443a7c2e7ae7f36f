package managed

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// createOutcome stores the outcome of a create. Upstream knows two outcomes, success and
// failure, and stores them in annotations. There are more:
//
//   - The create is in progress, or its outcome is unknown: all that is stored is its
//     announcement. Upstream refuses to create again after that, with or without Graft.
//   - Create returned an error, and has set an external name: it created something, which
//     the external system may not show yet. It is stored as a success, so that the creation
//     grace period counts.
//   - Create returned that the external resource exists, and an earlier create with the same
//     name had succeeded: that is the earlier one's. It is stored as a success, too.
//   - The provider was not called. With a resolver of creates the announcement is withdrawn,
//     so that nothing is looked up.
//
// It takes the place of upstream's CriticalAnnotationUpdater.
type createOutcome struct {
	external

	settings settings
	client   client.Client
	log      logging.Logger
	record   event.Recorder

	// whole writes the whole object.
	whole CriticalAnnotationUpdater

	attempts seam.Slot[attempt]
}

// An attempt is what is known about the create of this reconcile.
type attempt struct {
	// before is the announcement of the create before this one.
	before string

	outcome attemptOutcome
}

type attemptOutcome int

const (
	attemptNone attemptOutcome = iota
	attemptSucceeded
	attemptFailed
	attemptOpen
	attemptWithdrawn
)

func newCreateOutcome(p parts, next external) layer {
	c := &createOutcome{
		external: next,
		settings: p.settings,
		client:   p.seam,
		log:      p.log,
		record:   p.record,
		whole:    upstream.NewRetryingCriticalAnnotationUpdater(p.seam),
	}
	return layer{external: c, upstream: []upstream.ReconcilerOption{upstream.WithCriticalAnnotationUpdater(c)}}
}

// Observe the external resource, before upstream announces a create.
func (e *createOutcome) Observe(ctx context.Context, c *call) (observeResult, error) {
	o, err := e.external.Observe(ctx, c)
	if err == nil && !o.ResourceExists {
		e.attempts.In(c.Session).before = createOf(c.mg).Announcement
	}
	return o, err
}

// Create the external resource.
func (e *createOutcome) Create(ctx context.Context, c *call) (createResult, error) {
	was := createOf(c.mg)
	o, err := e.external.Create(ctx, c)
	is, outcome := createOf(c.mg), attemptFailed

	switch {
	case o.State == seam.InProgress, o.State == seam.Unknown:
		outcome = attemptOpen
	case err == nil:
		outcome = attemptSucceeded
	case o.State == seam.Untried:
		if e.settings.resolves {
			outcome = attemptWithdrawn
		}
	case e.settings.persist && is.Name != "" && is.Name != was.Name, was.Confirmed && was.Name != "" && creation.AlreadyExists(err):
		outcome = attemptSucceeded
	}

	e.attempts.In(c.Session).outcome = outcome
	return o, err
}

// UpdateCriticalAnnotations stores the outcome, in place of the one that upstream has set.
func (e *createOutcome) UpdateCriticalAnnotations(ctx context.Context, o client.Object) error {
	s := seam.From(ctx)
	a := e.attempts.Find(s)
	if a == nil || a.outcome == attemptNone || !s.Tracks(o) {
		return e.whole.UpdateCriticalAnnotations(ctx, o)
	}

	creation.RestoreEnds(o, s.Base())
	outcome := creation.On(o)

	switch a.outcome {
	case attemptOpen:
		// Create may have set the external name. With WithoutExternalNamePersistence it is
		// not stored yet.
		return s.StoreAnnotations(ctx, o, s.ChangedAnnotations(o), seam.Result, nil)
	case attemptSucceeded:
		outcome = outcome.Succeeded(s.Now())
		if name := meta.GetExternalName(o); name != "" {
			// Another writer may have set another name meanwhile.
			outcome = outcome.Named(name)
		}
	case attemptFailed:
		outcome = outcome.OfAnnounced().Failed(s.Now())
	case attemptWithdrawn:
		outcome = outcome.Withdrawn(a.before)
	case attemptNone:
	}

	if e.settings.async {
		// A create with a result does not need its record.
		outcome = outcome.Unrecorded()
	}

	switch {
	case e.settings.critical != nil:
		outcome.Apply(o)
		return s.KeepStatus(o, func() error { return e.settings.critical.UpdateCriticalAnnotations(ctx, o) })
	case !e.settings.persist:
		outcome.Apply(o)
		return e.whole.UpdateCriticalAnnotations(ctx, o)
	default:
		return e.store(ctx, s, o, outcome.Changes, a.outcome == attemptSucceeded)
	}
}

// store the outcome with a small patch, which keeps the rest of the object that is in memory.
// An outcome that cannot be stored now is stored before the next reconcile.
func (e *createOutcome) store(ctx context.Context, s *seam.Session, o client.Object, outcome seam.Changes, succeeded bool) error {
	all := slices.Concat(outcome, slices.DeleteFunc(s.ChangedAnnotations(o), func(c seam.Change) bool {
		return slices.ContainsFunc(outcome, func(d seam.Change) bool { return d.Key == c.Key })
	}))
	outcome.Apply(o)
	err := s.StoreAnnotations(ctx, o, all, seam.Result, func(key, theirs, ours string) { overwrote(e.log, e.record, o, key, theirs, ours) })

	if s.Gone() && succeeded && meta.GetExternalName(o) == meta.GetExternalName(s.Base()) {
		createdForNothing(e.log, e.record, o, meta.GetExternalName(o))
	}
	if err != nil || s.Gone() || s.OnlyAnnotationsDiffer(o) {
		return err
	}

	// Upstream writes the whole object, and with it what else Create has changed. Like
	// upstream, give that up on a conflict.
	if err := e.client.Update(ctx, o); err != nil && !kerrors.IsConflict(err) {
		return errors.Wrap(err, "cannot update managed resource after creating the external resource")
	}
	return nil
}
