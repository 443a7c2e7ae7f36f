package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A finalizer is the external seam over a resource.Finalizer.
type finalizer struct {
	inner resource.Finalizer

	// past means that inner may write past the client seam.
	past bool

	// protection is nil if usages are not protected, and reservation if names are
	// not reserved.
	protection  *usageProtection
	reservation *reservation
}

func (c *config) finalizerFor(cl client.Client) resource.Finalizer {
	f := &finalizer{inner: c.finalizer, past: true, protection: c.protection, reservation: c.reservation}
	if f.inner == nil {
		f.inner, f.past = resource.NewAPIFinalizer(cl, FinalizerName), false
	}

	if !c.withoutFinalizerGuard {
		// Upstream has seen neither a pause nor a deletion if it adds the
		// finalizer. One that came up since was in the answer to a write.
		f.inner = reconciler.GuardFinalizer(f.inner)
	}

	return f
}

// AddFinalizer to the managed resource, unless it is paused or being deleted.
func (f *finalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if !f.past {
		return f.inner.AddFinalizer(ctx, o)
	}

	observed := identityOf(o)

	if err := seam.From(ctx).KeepStatus(o, func() error { return f.inner.AddFinalizer(ctx, o) }); err != nil {
		return err
	}

	if identityOf(o) != observed {
		return kerrors.NewConflict(schema.GroupResource{Resource: "managed resource"}, o.GetName(), errors.New("it is not the one that was observed any more"))
	}

	return nil
}

// An identity is what of a managed resource says which external resource it
// has. A finalizer that writes whatever the resource version is turns what was
// read into what the API server has now. If that has another identity, because
// the read was older than a create of ours for example, then what was observed
// means nothing, and the next write would not meet the conflict that says so.
type identity [4]string

func identityOf(o client.Object) identity {
	as := o.GetAnnotations()

	return identity{
		as[meta.AnnotationKeyExternalName],
		as[meta.AnnotationKeyExternalCreatePending],
		as[meta.AnnotationKeyExternalCreateSucceeded],
		as[meta.AnnotationKeyExternalCreateFailed],
	}
}

// RemoveFinalizer from the managed resource.
func (f *finalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	s := seam.From(ctx)

	if err := f.inner.RemoveFinalizer(ctx, o); err != nil {
		if kerrors.IsConflict(err) {
			// Upstream will quietly run the reconcile again.
			s.Reached(seam.PhaseStart)
		}

		return err
	}

	s.Written(o)
	s.Reached(seam.PhaseFinalizerRemoved)
	f.reservation.released(ctx, o)
	f.protection.released(ctx, o)

	return nil
}
