package managed

import (
	"context"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A providerConnector is the connector of an option, typed or untyped.
type providerConnector struct {
	of    string
	typed bool

	// disconnects reports whether the connector has its own Disconnect.
	disconnects bool
	accepts     func(mg resource.Managed) bool

	// provider is the untyped connector.
	provider upstream.ExternalConnectDisconnector
}

// A connector is the external connector of upstream's reconciler. It passes each call through
// the layers to the provider.
type connector struct {
	layers   layer.External
	provider upstream.ExternalConnectDisconnector
}

// Connect to the provider.
func (c *connector) Connect(ctx context.Context, mg resource.Managed) (upstream.ExternalClient, error) {
	ec := &externalClient{call: layer.Call{Session: seam.From(ctx), Managed: mg}, layers: c.layers}
	ec.call.Connecting(mg)
	if err := ec.held(c.layers.Connect(ctx, &ec.call)); err != nil {
		return nil, err
	}
	return ec, nil
}

// Disconnect from the provider.
func (c *connector) Disconnect(ctx context.Context) error {
	return c.provider.Disconnect(ctx)
}

// An externalClient is the external client of upstream's reconciler for one reconcile.
type externalClient struct {
	call   layer.Call
	layers layer.External
}

// Observe the external resource.
func (c *externalClient) Observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	c.call.Managed = mg
	o, err := c.layers.Observe(ctx, &c.call)
	return o.ExternalObservation, c.held(err)
}

// Create the external resource.
func (c *externalClient) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	c.call.Managed = mg
	o, err := c.layers.Create(ctx, &c.call)
	return o.ExternalCreation, c.held(err)
}

// Update the external resource.
func (c *externalClient) Update(ctx context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
	c.call.Managed = mg
	o, err := c.layers.Update(ctx, &c.call)
	return o, c.held(err)
}

// Delete the external resource.
func (c *externalClient) Delete(ctx context.Context, mg resource.Managed) (upstream.ExternalDelete, error) {
	c.call.Managed = mg
	o, err := c.layers.Delete(ctx, &c.call)
	return o.ExternalDelete, c.held(err)
}

// held returns the error of a call, and reconciles again when a Hold says so.
func (c *externalClient) held(err error) error {
	if h := layer.HoldOf(err); h != nil && h.After > 0 {
		c.call.Requeue(seam.InsteadOfBackoff(h.After))
	}
	return err
}

// Disconnect from the provider.
func (c *externalClient) Disconnect(ctx context.Context) error {
	return c.call.Client.Disconnect(ctx)
}

// providerCalls calls the provider's own clients, below all layers.
type providerCalls struct {
	connector upstream.ExternalConnector
}

// Connect to the provider.
func (p *providerCalls) Connect(ctx context.Context, c *layer.Call) error {
	ec, err := p.connector.Connect(ctx, c.Managed)
	if err == nil && ec == nil {
		err = errors.New("the external connector returned neither a client nor an error")
	}
	c.Client = ec
	return err
}

// Observe the external resource.
func (p *providerCalls) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := c.Client.Observe(ctx, c.Managed)
	return layer.Observation{ExternalObservation: o}, err
}

// Create the external resource.
func (p *providerCalls) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	o, err := c.Client.Create(ctx, c.Managed)
	var outcome seam.Outcome
	if failure.Lost(err, failure.Stated) {
		outcome.State = seam.Unknown
	}
	return layer.Creation{ExternalCreation: o, Outcome: outcome}, err
}

// Update the external resource.
func (p *providerCalls) Update(ctx context.Context, c *layer.Call) (upstream.ExternalUpdate, error) {
	return c.Client.Update(ctx, c.Managed)
}

// Delete the external resource.
func (p *providerCalls) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	o, err := c.Client.Delete(ctx, c.Managed)
	return layer.Deletion{ExternalDelete: o}, err
}
