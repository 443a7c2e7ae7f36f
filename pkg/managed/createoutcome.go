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

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// createOutcome keeps upstream from recording the result of a create that has none
// yet: it is in progress, or its outcome is unknown. All that is true then is that it was
// announced. Upstream refuses to create again after that, with or without Graft.
type createOutcome struct {
	open seam.Slot[struct{}]
}

func newCreateOutcome(parts) layer {
	c := &createOutcome{}
	return layer{
		external: func(next external) external { return &outcomeExternal{external: next, outcome: c} },
		critical: func(next CriticalAnnotationUpdater) CriticalAnnotationUpdater {
			return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
				if c.undecided(ctx, o) {
					// It may have set the external name. With WithoutExternalNamePersistence
					// that is not stored yet.
					s := seam.From(ctx)
					return s.StoreAnnotations(ctx, o, s.ChangedAnnotations(o), seam.Result, nil)
				}
				return next.UpdateCriticalAnnotations(ctx, o)
			})
		},
	}
}

type outcomeExternal struct {
	external

	outcome *createOutcome
}

// Create the external resource.
func (e *outcomeExternal) Create(ctx context.Context, c *call) (creation, error) {
	o, err := e.external.Create(ctx, c)
	if o.State == seam.InProgress || o.State == seam.Unknown {
		e.outcome.open.In(c.Session)
	}
	return o, err
}

// undecided reports whether the create has no result yet, and takes back what
// upstream says of it.
func (c *createOutcome) undecided(ctx context.Context, o client.Object) bool {
	s := seam.From(ctx)
	if c.open.Find(s) == nil || !s.Tracks(o) {
		return false
	}
	for _, k := range []string{meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed} {
		if was, ok := s.Base().GetAnnotations()[k]; ok {
			meta.AddAnnotations(o, map[string]string{k: was})
		} else {
			meta.RemoveAnnotations(o, k)
		}
	}
	return true
}

// keepsStatus returns u, which may write past the client seam, with the status that
// is in memory kept, and the annotation forget removed.
func keepsStatus(u CriticalAnnotationUpdater, forget string) CriticalAnnotationUpdater {
	return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
		if forget != "" {
			meta.RemoveAnnotations(o, forget)
		}
		return seam.From(ctx).KeepStatus(o, func() error { return u.UpdateCriticalAnnotations(ctx, o) })
	})
}

// criticalAnnotations stores the annotations that record the result of a create, by
// the same small patch that stores an external name: it keeps what else is in
// memory, and what can't be stored now is stored before the next reconcile.
type criticalAnnotations struct {
	client client.Client
	whole  CriticalAnnotationUpdater
	log    logging.Logger
	record event.Recorder

	// forget is an annotation that a create with a result has no use for.
	forget string
}

// ofThisCreate returns changes of o that, if they say that a create failed, give way to
// a create that another process has announced meanwhile: of that they say nothing.
func ofThisCreate(o client.Object, changes seam.Changes) seam.Changes {
	const key = meta.AnnotationKeyExternalCreatePending
	announced, ok := o.GetAnnotations()[key]
	if !ok || len(changes.Only(meta.AnnotationKeyExternalCreateSucceeded)) > 0 {
		return changes
	}
	of := seam.Change{Key: key, Value: announced, Was: announced, Existed: true}
	if withdrawn := changes.Only(key); len(withdrawn) > 0 {
		of = withdrawn[0]
	}
	return append(seam.Changes{of}, slices.DeleteFunc(changes, func(c seam.Change) bool { return c.Key == key })...)
}

// UpdateCriticalAnnotations of the supplied object.
func (u *criticalAnnotations) UpdateCriticalAnnotations(ctx context.Context, o client.Object) error {
	s := seam.From(ctx)
	if !s.Tracks(o) {
		return u.whole.UpdateCriticalAnnotations(ctx, o)
	}
	changes := ofThisCreate(o, s.ChangedAnnotations(o))

	// Another writer may have changed meanwhile what it was created as.
	if name := meta.GetExternalName(o); name != "" && len(changes.Only(meta.AnnotationKeyExternalCreateSucceeded)) > 0 && len(changes.Only(meta.AnnotationKeyExternalName)) == 0 {
		changes = append(changes, seam.SetAnnotation(o, meta.AnnotationKeyExternalName, name))
	}

	if text, ok := o.GetAnnotations()[u.forget]; ok {
		changes = append(changes, seam.Change{Key: u.forget, Was: text, Existed: true, Remove: true})
		meta.RemoveAnnotations(o, u.forget)
	}

	err := s.StoreAnnotations(ctx, o, changes, seam.Result, func(key, theirs, ours string) { overwrote(u.log, u.record, o, key, theirs, ours) })
	if s.Gone() && meta.GetExternalName(o) == meta.GetExternalName(s.Base()) && meta.GetExternalCreateSucceeded(o).After(meta.GetExternalCreateSucceeded(s.Base())) {
		createdForNothing(u.log, u.record, o, meta.GetExternalName(o))
	}

	if err != nil || s.Gone() || s.OnlyAnnotationsDiffer(o) {
		return err
	}

	// Upstream would have written the whole object, and with it what else
	// Create changed. It gives that up on a conflict, and so do we.
	if err := u.client.Update(ctx, o); err != nil && !kerrors.IsConflict(err) {
		return errors.Wrap(err, "cannot update managed resource after creating the external resource")
	}
	return nil
}
