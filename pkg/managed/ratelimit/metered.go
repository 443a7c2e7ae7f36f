package ratelimit

import (
	"context"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// metered charges the calls of a provider whose operations are synchronous.
type metered struct {
	layer.External
}

func newMetered(p layer.Parts, next layer.External) layer.Layer {
	if p.Settings.Async {
		// The operation charges its calls, which outlive the reconcile.
		return layer.Layer{}
	}
	return layer.Layer{External: &metered{External: next}}
}

// Observe the external resource.
func (m *metered) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	return limit.Call(c.Meter(), func() (layer.Observation, error) { return m.External.Observe(ctx, c) })
}

// Create the external resource.
func (m *metered) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	return limit.CallKeepingError(c.Meter(), func() (layer.Creation, error) { return m.External.Create(ctx, c) })
}

// Update the external resource.
func (m *metered) Update(ctx context.Context, c *layer.Call) (managed.ExternalUpdate, error) {
	return limit.CallKeepingError(
		c.Meter(), func() (managed.ExternalUpdate, error) { return m.External.Update(ctx, c) },
	)
}

// Delete the external resource.
func (m *metered) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	return limit.Call(c.Meter(), func() (layer.Deletion, error) { return m.External.Delete(ctx, c) })
}
