package controller

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
)

// NewReserved returns a reconciler that reserves external names.
func NewReserved(m manager.Manager, of resource.ManagedKind, c managed.ExternalConnector) reconcile.Reconciler {
	return managed.NewReconciler(m, of,
		managed.WithExternalConnector(c),
		managed.WithExternalNameReservation("default"),
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(creationGracePeriod),
		managed.WithPollInterval(pollInterval),
	)
}
