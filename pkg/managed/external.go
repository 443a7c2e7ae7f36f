package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A connection is a connector of any type of managed resource.
type connection struct {
	of    string
	typed bool

	// disconnects says that the connector has a Disconnect of its own.
	disconnects bool
	accepts     func(mg resource.Managed) bool

	// connector returns the connector for any managed resource. Operations are
	// asynchronous if there is a tracker.
	connector func(t *asyncstate.Tracker) ExternalConnectDisconnector
}

// A connector is the external connector that upstream is given. Each call passes
// through the layers to the provider.
type connector struct {
	layers   external
	provider ExternalConnectDisconnector
}

// newConnector returns a connector that calls the provider through the layers.
func newConnector(p ExternalConnectDisconnector, layers []layer) *connector {
	innermost := &providerCalls{connector: p}
	return &connector{
		layers:   wrap[external](layers, innermost, func(l layer) func(external) external { return l.external }),
		provider: p,
	}
}

// Connect to the provider.
func (c *connector) Connect(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
	ec := &externalClient{call: call{Session: seam.From(ctx), mg: mg, terms: termsOf(mg)}, layers: c.layers}
	ec.call.Connecting(mg)
	if err := c.layers.Connect(ctx, &ec.call); err != nil {
		return nil, err
	}
	return ec, nil
}

// Disconnect from the provider.
func (c *connector) Disconnect(ctx context.Context) error {
	return c.provider.Disconnect(ctx)
}

// An externalClient is the external client that upstream is given for one reconcile.
type externalClient struct {
	call   call
	layers external
}

// Observe the external resource.
func (c *externalClient) Observe(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
	c.call.mg = mg
	o, err := c.layers.Observe(ctx, &c.call)
	return o.ExternalObservation, err
}

// Create the external resource.
func (c *externalClient) Create(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
	c.call.mg = mg
	o, err := c.layers.Create(ctx, &c.call)
	return o.ExternalCreation, err
}

// Update the external resource.
func (c *externalClient) Update(ctx context.Context, mg resource.Managed) (ExternalUpdate, error) {
	c.call.mg = mg
	return c.layers.Update(ctx, &c.call)
}

// Delete the external resource.
func (c *externalClient) Delete(ctx context.Context, mg resource.Managed) (ExternalDelete, error) {
	c.call.mg = mg
	o, err := c.layers.Delete(ctx, &c.call)
	return o.ExternalDelete, err
}

// Disconnect from the provider.
func (c *externalClient) Disconnect(ctx context.Context) error {
	return c.call.client.Disconnect(ctx)
}

// providerCalls calls the provider's own clients. It is what the last layer calls.
type providerCalls struct {
	connector ExternalConnector
}

// Connect to the provider.
func (p *providerCalls) Connect(ctx context.Context, c *call) error {
	ec, err := p.connector.Connect(ctx, c.mg)
	if err == nil && ec == nil {
		err = errors.New("the external connector returned neither a client nor an error")
	}
	c.client = ec
	return err
}

// Observe the external resource.
func (p *providerCalls) Observe(ctx context.Context, c *call) (observation, error) {
	o, err := c.client.Observe(ctx, c.mg)
	led, _ := outcomeOf(c.client)
	return observation{ExternalObservation: o, Outcome: led}, err
}

// Create the external resource.
func (p *providerCalls) Create(ctx context.Context, c *call) (creation, error) {
	o, err := c.client.Create(ctx, c.mg)
	led, ok := outcomeOf(c.client)
	if !ok && errors.Is(err, asyncstate.ErrOutcomeUnknown) {
		led.State = seam.Unknown
	}
	return creation{ExternalCreation: o, Outcome: led}, err
}

// Update the external resource.
func (p *providerCalls) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	return c.client.Update(ctx, c.mg)
}

// Delete the external resource.
func (p *providerCalls) Delete(ctx context.Context, c *call) (deletion, error) {
	o, err := c.client.Delete(ctx, c.mg)
	led, _ := outcomeOf(c.client)
	return deletion{ExternalDelete: o, Outcome: led}, err
}

// outcomeOf returns what the last call of an external client led to. It is false if
// the client knows nothing but what it returned, as is the case for those of providers.
func outcomeOf(client any) (seam.Outcome, bool) {
	if c, ok := client.(interface{ Outcome() (seam.Outcome, bool) }); ok {
		return c.Outcome()
	}
	return seam.Outcome{}, false
}
