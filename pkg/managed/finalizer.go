package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A finalizer is the external seam over a resource.Finalizer.
type finalizer struct {
	inner   resource.Finalizer
	guarded bool

	// past means that inner may write past the client seam.
	past bool
}

func (c *config) finalizerFor(cl client.Client) resource.Finalizer {
	f := &finalizer{inner: c.finalizer, guarded: !c.withoutFinalizerGuard, past: true}
	if f.inner == nil {
		f.inner, f.past = resource.NewAPIFinalizer(cl, FinalizerName), false
	}

	return f
}

// AddFinalizer to the managed resource, unless it is paused or being deleted.
func (f *finalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if f.guarded && (meta.WasDeleted(o) || meta.IsPaused(o)) {
		return nil
	}

	if !f.past {
		return f.inner.AddFinalizer(ctx, o)
	}

	return seam.From(ctx).KeepStatus(o, func() error { return f.inner.AddFinalizer(ctx, o) })
}

// RemoveFinalizer from the managed resource.
func (f *finalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.inner.RemoveFinalizer(ctx, o); err != nil {
		return err
	}

	s := seam.From(ctx)
	s.Written(o)
	s.Reached(seam.PhaseFinalizerRemoved)

	return nil
}
