package controller

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// shutdownTimeout is short: a provider that dies waits for nothing.
const shutdownTimeout = time.Millisecond

// NewAsync returns a reconciler whose operations run in the background. A tracker is
// told of them, and keeps a record of each. The function waits for those that run.
func NewAsync(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func()) {
	t := asyncstate.NewTracker(m.GetClient(),
		asyncstate.WithLiveReader(m.GetAPIReader()),
		asyncstate.WithOwnGoroutines(),
		asyncstate.WithShutdownTimeout(shutdownTimeout),
	)
	connector := sample.NewAsync[resource.Managed](c, sample.WithBackground(), sample.WithOperations(t))
	return managed.NewReconciler(m, of,
		managed.WithExternalConnector(connector),
		managed.WithAsync(t),
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(creationGracePeriod),
		managed.WithPollInterval(pollInterval),
	), connector.Wait
}
