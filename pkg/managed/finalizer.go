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

// WithoutFinalizerGuard calls the finalizer as upstream does, whatever state the
// managed resource is in.
func WithoutFinalizerGuard() ReconcilerOption {
	return func(r *Reconciler) { r.config.layers[slotFinalizerGuard] = nil }
}

// newFinalizerGuard returns the layer that adds no finalizer to a managed resource that
// is paused or being deleted. Upstream has seen neither if it adds the finalizer: one
// that came up since was in the answer to a write.
func newFinalizerGuard(parts) layer {
	return layer{finalizer: reconciler.GuardFinalizer}
}

// A pastFinalizer is a user's finalizer, which may write past the client seam.
type pastFinalizer struct {
	resource.Finalizer
}

// AddFinalizer to the managed resource, and keep the status that is in memory.
func (f *pastFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.check(ctx, o); err != nil {
		return err
	}
	observed := identityOf(o)
	if err := seam.From(ctx).KeepStatus(o, func() error { return f.Finalizer.AddFinalizer(ctx, o) }); err != nil {
		return err
	}
	if identityOf(o) != observed {
		return kerrors.NewConflict(schema.GroupResource{Resource: "managed resource"}, o.GetName(), errors.New("another managed resource was observed than the one that has the finalizer"))
	}
	return nil
}

// check returns a conflict if the managed resource is known to have changed since it was
// read: it may be paused by now. The API server says so only to a finalizer that writes
// under the resource version, as upstream's does.
func (f *pastFinalizer) check(ctx context.Context, o resource.Object) error {
	if _, upstreams := f.Finalizer.(*resource.APIFinalizer); upstreams {
		return nil
	}
	if s := seam.From(ctx); s.Moved(o) && !s.Gone() {
		return seam.Conflict(o, "it has changed since it was read")
	}
	return nil
}

// RemoveFinalizer from the managed resource.
func (f *pastFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.check(ctx, o); err != nil {
		return err
	}
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	seam.From(ctx).Written(o)
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
