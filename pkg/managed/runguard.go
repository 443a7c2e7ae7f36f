package managed

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A runGuard keeps the finalizer while an operation may still run on an external resource that is kept: upstream
// removes the finalizer without a call of the provider, and the result of the operation would be lost. If the
// external resource was observed, the layers before have decided that it no longer exists.
type runGuard struct {
	layer.External

	runs     *layer.Runs
	observed seam.Slot[bool]
}

func newRunGuard(p layer.Parts, next layer.External) layer.Layer {
	g := &runGuard{External: next, runs: p.Runs}
	return layer.Layer{
		External: g,
		Finalizer: func(next resource.Finalizer) resource.Finalizer {
			return resource.FinalizerFns{
				AddFinalizerFn: next.AddFinalizer,
				RemoveFinalizerFn: func(ctx context.Context, o resource.Object) error {
					if run := g.run(seam.From(ctx), o); !run.Until.IsZero() {
						seam.From(ctx).Requeue(seam.InsteadOfBackoff(deletion.BusyInterval))
						return layer.Hold{
							Reason:  deletion.ReasonWaitingForAsyncOperation,
							Message: fmt.Sprintf(deletion.MessageOperationRuns, run),
						}.Silently(o)
					}
					return next.RemoveFinalizer(ctx, o)
				},
			}
		},
	}
}

// Observe the external resource.
func (g *runGuard) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := g.External.Observe(ctx, c)
	if meta.WasDeleted(c.Managed) {
		*g.observed.In(c.Session) = err == nil
	}
	return o, err
}

// run returns the operation that the finalizer waits for.
func (g *runGuard) run(s *seam.Session, o client.Object) creation.Run {
	if *g.observed.In(s) {
		return g.runs.Own(o)
	}
	return g.runs.Of(o, s.Now())
}
