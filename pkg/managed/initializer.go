package managed

import (
	"context"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// initializerFor returns the configured initializer, or upstream's default. The
// deletion report wants to know when it fails. What upstream does next is to ask
// whether a create is incomplete.
func (c *config) initializerFor(cl client.Client) Initializer {
	inner := c.initializer
	if inner == nil {
		inner = upstream.NewNameAsExternalName(cl)
	}

	return upstream.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
		s := seam.From(ctx)

		if err := inner.Initialize(ctx, mg); err != nil {
			reached(s, seam.PhaseInitializeFailed, err)
			return err
		}

		if err := c.createResolver.resolve(ctx, s, mg); err != nil {
			reached(s, seam.PhaseInitializeFailed, err)
			return err
		}

		s.Reached(seam.PhaseInitialized)

		return nil
	})
}
