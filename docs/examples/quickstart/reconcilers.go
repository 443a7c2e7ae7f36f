package quickstart

import (
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// withUpstream returns crossplane-runtime's reconciler.
func withUpstream(mgr manager.Manager, c managed.TypedExternalConnector[*Database]) reconcile.Reconciler {
	return upstream.NewReconciler(mgr, resource.ManagedKind(kind()),
		upstream.WithInitializers(),
		upstream.WithManagementPolicies(),
		upstream.WithTypedExternalConnector(c))
}

// withGraft returns Graft's, with the two options that this external system needs.
func withGraft(mgr manager.Manager, c managed.TypedExternalConnector[*Database]) reconcile.Reconciler {
	return managed.NewReconciler(mgr, resource.ManagedKind(kind()),
		managed.WithInitializers(),
		managed.WithManagementPolicies(),
		managed.WithTypedExternalConnector(c),
		resolve.With(resolve.FindWithTypedConnector(c)),
		reservation.With("provider-system"))
}
