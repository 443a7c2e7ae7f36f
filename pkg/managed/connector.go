package managed

import (
	"context"
	"fmt"
	"reflect"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
)

// WithExternalConnector sets the connector that creates external clients. It panics if c is
// nil.
func WithExternalConnector(c ExternalConnector) ReconcilerOption {
	layer.MustBeConnector(c, "managed.WithExternalConnector")
	return withConnector(providerConnectorOf(upstream.NewNopDisconnector(c), false))
}

// WithExternalConnecter is WithExternalConnector.
//
// Deprecated: Use WithExternalConnector.
func WithExternalConnecter(c ExternalConnector) ReconcilerOption {
	return WithExternalConnector(c)
}

// WithExternalConnectDisconnector sets the connector that creates external clients, and whose
// Disconnect is called at the end of the reconcile. It panics if c is nil.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithExternalConnectDisconnector(c ExternalConnectDisconnector) ReconcilerOption {
	layer.MustBeConnector(c, "managed.WithExternalConnectDisconnector")
	return withConnector(providerConnectorOf(c, true))
}

// WithExternalConnectDisconnecter is WithExternalConnectDisconnector.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithExternalConnectDisconnecter(c ExternalConnectDisconnector) ReconcilerOption {
	return WithExternalConnectDisconnector(c)
}

// WithTypedExternalConnector is WithExternalConnector for a connector of one
// type of managed resource. NewReconciler panics if the kind has another type, or if an
// untyped connector is set, too.
func WithTypedExternalConnector[managed resource.Managed](c TypedExternalConnector[managed]) ReconcilerOption {
	layer.MustBeConnector(c, "managed.WithTypedExternalConnector")
	return withConnector(typedProviderConnectorOf(upstream.NewTypedNopDisconnector(c), false))
}

// WithTypedExternalConnectDisconnector is WithExternalConnectDisconnector for a
// connector of one type of managed resource. NewReconciler panics if the kind has another
// type.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithTypedExternalConnectDisconnector[managed resource.Managed](
	c TypedExternalConnectDisconnector[managed],
) ReconcilerOption {
	layer.MustBeConnector(c, "managed.WithTypedExternalConnectDisconnector")
	return withConnector(typedProviderConnectorOf(c, true))
}

// WithTypedExternalConnectDisconnecter is WithTypedExternalConnectDisconnector.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithTypedExternalConnectDisconnecter[managed resource.Managed](
	c TypedExternalConnectDisconnector[managed],
) ReconcilerOption {
	return WithTypedExternalConnectDisconnector(c)
}

func providerConnectorOf(c ExternalConnectDisconnector, disconnects bool) *providerConnector {
	return &providerConnector{
		of:          "any managed resource",
		disconnects: disconnects,
		accepts:     func(resource.Managed) bool { return true },
		provider:    c,
	}
}

func typedProviderConnectorOf[managed resource.Managed](
	c TypedExternalConnectDisconnector[managed], disconnects bool,
) *providerConnector {
	return &providerConnector{
		of:          fmt.Sprint(reflect.TypeFor[managed]()),
		typed:       true,
		disconnects: disconnects,
		accepts: func(mg resource.Managed) bool {
			_, ok := mg.(managed)
			return ok
		},
		provider: &typedConnector[managed]{inner: c},
	}
}

func withConnector(c *providerConnector) ReconcilerOption {
	return func(r *Reconciler) {
		if had := r.config.connector; had != nil && had.typed != c.typed {
			panic(errors.New("managed was given both a typed and an untyped external connector, which exclude each other: pass one of them"))
		}
		r.config.connector = c
	}
}

// A typedConnector adapts a connector of one type of managed resource.
type typedConnector[M resource.Managed] struct {
	inner TypedExternalConnectDisconnector[M]
}

// Connect to the provider.
func (c *typedConnector[M]) Connect(ctx context.Context, o resource.Managed) (ExternalClient, error) {
	mg, err := layer.As[M](o)
	if err != nil {
		return nil, err
	}
	ec, err := c.inner.Connect(ctx, mg)
	if err != nil || ec == nil {
		return nil, err
	}
	return layer.TypedClient{ExternalClient: &typedClient[M]{inner: ec}, Own: ec}, nil
}

// Disconnect from the provider.
func (c *typedConnector[M]) Disconnect(ctx context.Context) error {
	return c.inner.Disconnect(ctx)
}

// A typedClient adapts an external client of one type of managed resource.
type typedClient[M resource.Managed] struct {
	inner TypedExternalClient[M]
}

// Observe the external resource.
func (c *typedClient[M]) Observe(ctx context.Context, o resource.Managed) (ExternalObservation, error) {
	mg, err := layer.As[M](o)
	if err != nil {
		return ExternalObservation{}, err
	}
	return c.inner.Observe(ctx, mg)
}

// Create the external resource.
func (c *typedClient[M]) Create(ctx context.Context, o resource.Managed) (ExternalCreation, error) {
	mg, err := layer.As[M](o)
	if err != nil {
		return ExternalCreation{}, err
	}
	return c.inner.Create(ctx, mg)
}

// Update the external resource.
func (c *typedClient[M]) Update(ctx context.Context, o resource.Managed) (ExternalUpdate, error) {
	mg, err := layer.As[M](o)
	if err != nil {
		return ExternalUpdate{}, err
	}
	return c.inner.Update(ctx, mg)
}

// Delete the external resource.
func (c *typedClient[M]) Delete(ctx context.Context, o resource.Managed) (ExternalDelete, error) {
	mg, err := layer.As[M](o)
	if err != nil {
		return ExternalDelete{}, err
	}
	return c.inner.Delete(ctx, mg)
}

// Disconnect from the provider.
func (c *typedClient[M]) Disconnect(ctx context.Context) error {
	return c.inner.Disconnect(ctx)
}
