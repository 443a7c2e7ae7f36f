package managed

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Limits that tests wait for.
const RestoreInterval = seam.RestoreInterval

// NewTypedClient returns the adapter of a typed client.
func NewTypedClient[M resource.Managed](c TypedExternalClient[M]) ExternalClient {
	return &typedClient[M]{inner: c}
}

// NewTypedConnector returns the adapter of a typed connector.
func NewTypedConnector[M resource.Managed](c TypedExternalConnectDisconnector[M]) ExternalConnectDisconnector {
	return &typedConnector[M]{inner: c}
}
