package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// WithoutFinalizerGuard calls the finalizer as upstream does, whatever state the
// managed resource is in.
func WithoutFinalizerGuard() ReconcilerOption {
	return func(r *Reconciler) { r.config.finalizerGuard = nil }
}

// newFinalizerGuard returns the layer that adds no finalizer to a managed resource that
// is paused or being deleted. Upstream has seen neither if it adds the finalizer: one
// that came up since was in the answer to a write.
func newFinalizerGuard(parts, external) layer {
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
	// A finalizer that writes without a resource version turns the object into the one that
	// the API server has. Another process may have created meanwhile, and the next write
	// would not meet the conflict that says so.
	observed := creation.IdentityOf(o)
	if err := seam.From(ctx).KeepStatus(o, func() error { return f.Finalizer.AddFinalizer(ctx, o) }); err != nil {
		return err
	}
	if creation.IdentityOf(o) != observed {
		return seam.Conflict(o, "it has another external resource than the one that was observed")
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
