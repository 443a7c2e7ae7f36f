package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// overwritten is told of a value of somebody else's that had to give way.
type overwritten func(o client.Object, key, theirs, ours string)

// criticalAnnotationsFor returns how critical annotations are stored.
func (c *config) criticalAnnotationsFor(cl client.Client) CriticalAnnotationUpdater {
	if u := c.criticalAnnotation; u != nil {
		return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
			if undecided(ctx, o) {
				return nil
			}

			if c.async != nil {
				meta.RemoveAnnotations(o, asyncstate.AnnotationKeyOperation)
			}

			return seam.From(ctx).KeepStatus(o, func() error { return u.UpdateCriticalAnnotations(ctx, o) })
		})
	}

	whole := upstream.NewRetryingCriticalAnnotationUpdater(cl)

	if c.withoutExternalNamePersistence {
		return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
			if undecided(ctx, o) {
				return nil
			}

			return whole.UpdateCriticalAnnotations(ctx, o)
		})
	}

	return &criticalAnnotations{client: cl, whole: whole, overwritten: c.recordOverwritten, async: c.async != nil}
}

// criticalAnnotations stores the annotations that record how a create went, by
// the same small patch that stores an external name: it keeps what else is in
// memory, and what can't be stored now is stored before the next reconcile.
type criticalAnnotations struct {
	client      client.Client
	whole       CriticalAnnotationUpdater
	overwritten overwritten

	// async says that creates have records.
	async bool
}

// undecided tells whether nobody knows yet what came of a create, and takes back
// what upstream says of it: that it was announced is all that is true. Upstream
// then refuses to create again, with or without Graft.
func undecided(ctx context.Context, o client.Object) bool {
	s := seam.From(ctx)
	if !s.Tracks(o) || !s.Continues {
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

// UpdateCriticalAnnotations of the supplied object.
func (u *criticalAnnotations) UpdateCriticalAnnotations(ctx context.Context, o client.Object) error {
	if undecided(ctx, o) {
		return nil
	}

	s := seam.From(ctx)
	if !s.Tracks(o) {
		return u.whole.UpdateCriticalAnnotations(ctx, o)
	}

	changes := s.ChangedAnnotations(o)

	// A create that goes on doesn't come here. One that was never begun, or is
	// over, has no use for its record.
	if text, ok := o.GetAnnotations()[asyncstate.AnnotationKeyOperation]; ok && u.async {
		changes = append(changes, seam.Change{Key: asyncstate.AnnotationKeyOperation, Was: text, Existed: true, Remove: true, Yield: true})
		meta.RemoveAnnotations(o, asyncstate.AnnotationKeyOperation)
	}

	err := s.StoreAnnotations(ctx, o, changes, seam.StoreOptions{
		Insist:    true,
		Patient:   true,
		Overwrote: func(key, theirs, ours string) { u.overwritten(o, key, theirs, ours) },
	})
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
