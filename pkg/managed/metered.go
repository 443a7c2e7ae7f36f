package managed

import (
	"context"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
)

// metered charges the calls of a provider whose operations are synchronous.
type metered struct {
	external
}

func newMetered(_ parts, next external) layer { return layer{external: &metered{external: next}} }

// Observe the external resource.
func (m *metered) Observe(ctx context.Context, c *call) (observeResult, error) {
	return limit.Call(c.Meter(), func() (observeResult, error) { return m.external.Observe(ctx, c) })
}

// Create the external resource.
func (m *metered) Create(ctx context.Context, c *call) (createResult, error) {
	return limit.CallKeepingError(c.Meter(), func() (createResult, error) { return m.external.Create(ctx, c) })
}

// Update the external resource.
func (m *metered) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	return limit.CallKeepingError(c.Meter(), func() (ExternalUpdate, error) { return m.external.Update(ctx, c) })
}

// Delete the external resource.
func (m *metered) Delete(ctx context.Context, c *call) (deleteResult, error) {
	return limit.Call(c.Meter(), func() (deleteResult, error) { return m.external.Delete(ctx, c) })
}
