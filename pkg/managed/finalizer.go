package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithFinalizer sets how finalizers are added and removed. Other than upstream, it adds no
// finalizer to a managed resource that is paused or being deleted, and it keeps status that
// is not stored yet, even if f writes with a client of its own. It panics if f is nil.
func WithFinalizer(f resource.Finalizer) ReconcilerOption {
	is.MustNotBeNil(f, "managed.WithFinalizer")
	return func(r *Reconciler) { r.config.finalizer = f }
}

// WithoutFinalizerGuard adds the finalizer as upstream does, even to a managed resource that
// is paused or being deleted.
func WithoutFinalizerGuard() ReconcilerOption {
	return func(r *Reconciler) { r.config.guardsFinalizer = false }
}

// newFinalizerGuard returns the layer that adds no finalizer to a managed resource that is
// paused or being deleted. Upstream checks that earlier, but the answer to a later write may
// show that the managed resource was paused or deleted since.
func newFinalizerGuard(layer.Parts, layer.External) layer.Layer {
	return layer.Layer{Finalizer: seam.GuardFinalizer}
}

// A userFinalizer is the finalizer of WithFinalizer, which may not write through the client
// seam.
type userFinalizer struct {
	resource.Finalizer
}

// AddFinalizer to the managed resource, and keep status that is not stored yet.
func (f *userFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.check(ctx, o); err != nil {
		return err
	}
	// A write without a resource version updates the object to the API server's version. If
	// another process has created meanwhile, the next write would not conflict.
	observed := creation.IdentityOf(o)
	if err := seam.From(ctx).KeepStatus(o, func() error { return f.Finalizer.AddFinalizer(ctx, o) }); err != nil {
		return err
	}
	if creation.IdentityOf(o) != observed {
		return seam.Conflict(o, "its external resource is not the one that was observed")
	}
	return nil
}

// check returns a conflict if the managed resource is known to have changed since it was
// read: it may be paused by now. Upstream's finalizer writes with a resource version, so the
// API server returns the conflict.
func (f *userFinalizer) check(ctx context.Context, o resource.Object) error {
	if _, upstreams := f.Finalizer.(*resource.APIFinalizer); upstreams {
		return nil
	}
	if s := seam.From(ctx); s.Moved(o) && !s.Gone() {
		return seam.Conflict(o, "it has changed since it was read")
	}
	return nil
}

// RemoveFinalizer from the managed resource.
func (f *userFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.check(ctx, o); err != nil {
		return err
	}
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	seam.From(ctx).NoteDirectWrite(o)
	return nil
}
