package managed

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// runs knows the operations that may still run on external resources.
type runs struct {
	settings settings

	// tracked has the operations of this process. It is nil without WithAsync.
	tracked tracked
}

// of returns the operation that may still run on the external resource of o. The settings and the memory of
// this process only add to what o says.
func (r *runs) of(o client.Object, now time.Time) creation.Run {
	run := creation.RunsUntil(o, now)
	if s := createOf(o); s.Phase == creation.Announced {
		run = run.Or(creation.RunOfAnnounced(s, r.settings.longestCreate())).At(now)
	}
	return run.Or(r.own(o))
}

// own returns the operation of this process on the external resource of o. Its time may have passed.
func (r *runs) own(o client.Object) creation.Run {
	if r.tracked == nil {
		return creation.Run{}
	}
	return r.tracked.RunsUntil(o)
}

// A runGuard keeps the finalizer while an operation may still run on an external resource that is kept: upstream
// removes the finalizer without a call of the provider, and the result of the operation would be lost. If the
// external resource was observed, the layers before have decided that it no longer exists.
type runGuard struct {
	external

	runs     *runs
	observed seam.Slot[bool]
}

func newRunGuard(p parts, next external) layer {
	g := &runGuard{external: next, runs: p.runs}
	return layer{
		external: g,
		finalizer: func(next resource.Finalizer) resource.Finalizer {
			return resource.FinalizerFns{
				AddFinalizerFn: next.AddFinalizer,
				RemoveFinalizerFn: func(ctx context.Context, o resource.Object) error {
					if run := g.run(seam.From(ctx), o); !run.Until.IsZero() {
						seam.From(ctx).Requeue(seam.InsteadOfBackoff(deletion.BusyInterval))
						return &runningError{error: seam.Conflict(o, "an operation runs"), run: run}
					}
					return next.RemoveFinalizer(ctx, o)
				},
			}
		},
	}
}

// Observe the external resource.
func (g *runGuard) Observe(ctx context.Context, c *call) (observeResult, error) {
	o, err := g.external.Observe(ctx, c)
	if meta.WasDeleted(c.mg) {
		*g.observed.In(c.Session) = err == nil
	}
	return o, err
}

// run returns the operation that the finalizer waits for.
func (g *runGuard) run(s *seam.Session, o client.Object) creation.Run {
	if *g.observed.In(s) {
		return g.runs.own(o)
	}
	return g.runs.of(o, s.Now())
}

// A runningError says that the finalizer stays until an operation has ended.
type runningError struct {
	error

	run creation.Run
}

// Unwrap returns the conflict, after which upstream reconciles again.
func (e *runningError) Unwrap() error { return e.error }
