package managed

import (
	"fmt"
	"reflect"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A connection is a connector of whatever type of managed resource.
type connection struct {
	of    string
	typed bool

	// disconnects says that the connector has a Disconnect of its own.
	disconnects bool
	accepts     func(mg resource.Managed) bool
	option      func(e *external) upstream.ReconcilerOption
}

// WithExternalConnector sets how the external client of a managed resource is
// made. It panics if c is nil.
func WithExternalConnector(c ExternalConnector) ReconcilerOption {
	mustBeConnector(c, "WithExternalConnector")
	return withConnector(untyped(upstream.NewNopDisconnector(c)))
}

// WithExternalConnecter is WithExternalConnector.
//
// Deprecated: Use WithExternalConnector.
func WithExternalConnecter(c ExternalConnector) ReconcilerOption {
	return WithExternalConnector(c)
}

// WithExternalConnectDisconnector sets how the external client of a managed
// resource is made, and what is called when the reconcile is done with it. It
// panics if c is nil.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithExternalConnectDisconnector(c ExternalConnectDisconnector) ReconcilerOption {
	mustBeConnector(c, "WithExternalConnectDisconnector")
	return withConnector(disconnecting(untyped(c)))
}

// WithExternalConnectDisconnecter is WithExternalConnectDisconnector.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithExternalConnectDisconnecter(c ExternalConnectDisconnector) ReconcilerOption {
	return WithExternalConnectDisconnector(c)
}

// WithTypedExternalConnector is WithExternalConnector for a connector of one
// type of managed resource. NewReconciler panics if the kind's type is another.
func WithTypedExternalConnector[managed resource.Managed](c TypedExternalConnector[managed]) ReconcilerOption {
	mustBeConnector(c, "WithTypedExternalConnector")
	return withConnector(typed(upstream.NewTypedNopDisconnector(c)))
}

// WithTypedExternalConnectDisconnector is WithExternalConnectDisconnector for a
// connector of one type of managed resource. NewReconciler panics if the kind's
// type is another.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithTypedExternalConnectDisconnector[managed resource.Managed](c TypedExternalConnectDisconnector[managed]) ReconcilerOption {
	mustBeConnector(c, "WithTypedExternalConnectDisconnector")
	return withConnector(disconnecting(typed(c)))
}

// WithTypedExternalConnectDisconnecter is WithTypedExternalConnectDisconnector.
//
// Deprecated: Disconnect in the external client's own Disconnect.
func WithTypedExternalConnectDisconnecter[managed resource.Managed](c TypedExternalConnectDisconnector[managed]) ReconcilerOption {
	return WithTypedExternalConnectDisconnector(c)
}

func untyped(c ExternalConnectDisconnector) *connection {
	return &connection{
		of:      "any managed resource",
		accepts: func(resource.Managed) bool { return true },
		option: func(e *external) upstream.ReconcilerOption {
			//nolint:staticcheck // Deprecated for providers. It is the one that takes all they can give.
			return upstream.WithExternalConnectDisconnector(&connector[resource.Managed]{inner: inAsync(e.config.async, c), external: e})
		},
	}
}

func typed[managed resource.Managed](c TypedExternalConnectDisconnector[managed]) *connection {
	return &connection{
		of:    fmt.Sprint(reflect.TypeFor[managed]()),
		typed: true,
		accepts: func(mg resource.Managed) bool {
			_, ok := mg.(managed)
			return ok
		},
		option: func(e *external) upstream.ReconcilerOption {
			//nolint:staticcheck // As above.
			return upstream.WithTypedExternalConnectDisconnector(&connector[managed]{inner: inAsync(e.config.async, c), external: e})
		},
	}
}

func disconnecting(c *connection) *connection {
	c.disconnects = true
	return c
}

func withConnector(c *connection) ReconcilerOption {
	return func(r *Reconciler) {
		if had := r.config.connector; had != nil && had.typed != c.typed {
			panic(errors.New("managed was given both a typed and an untyped external connector, which exclude each other: pass one of them"))
		}

		r.config.connector = c
	}
}

func mustBeConnector(c any, option string) {
	if seam.IsNil(c) {
		panic(errors.Errorf("managed.%s was given a nil connector: pass what connects to the external system", option))
	}
}
