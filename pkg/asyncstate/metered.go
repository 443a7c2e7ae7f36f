package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// meteredClient charges the calls of an external client to the account of the managed resource,
// under Graft's package managed. The error of an operation is judged when the operation ends.
type meteredClient[M resource.Managed] struct {
	client managed.TypedExternalClient[M]
}

// Observe the external resource.
func (m meteredClient[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	return limit.Call(
		seam.From(ctx).Meter(), func() (managed.ExternalObservation, error) { return m.client.Observe(ctx, mg) },
	)
}

// Find the external resource.
func (m meteredClient[M]) Find(ctx context.Context, mg M, a Attempt) (Finding, error) {
	return limit.Call(seam.From(ctx).Meter(), func() (Finding, error) { return finderOf(m.client)(ctx, mg, a) })
}

// Create the external resource.
func (m meteredClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	seam.From(ctx).Meter().Charge()
	return m.client.Create(ctx, mg)
}

// Update the external resource.
func (m meteredClient[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	seam.From(ctx).Meter().Charge()
	return m.client.Update(ctx, mg)
}

// Delete the external resource.
func (m meteredClient[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	seam.From(ctx).Meter().Charge()
	return m.client.Delete(ctx, mg)
}

// Resume an operation.
func (m meteredClient[M]) Resume(ctx context.Context, mg M, a Attempt) error {
	seam.From(ctx).Meter().Charge()
	return resumerOf(m.client)(ctx, mg, a)
}
