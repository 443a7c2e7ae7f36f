//go:build integration

package integration

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
)

// newGraft is the provider's code over Graft. That in upstream_test.go is the
// same but for the import.
func newGraft(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
	o := []managed.ReconcilerOption{
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(s.grace()),
		managed.WithPollInterval(s.pollInterval()),
	}

	if c := s.connectors.typedFor(of); c != nil {
		o = append(o, managed.WithTypedExternalConnector(c))
	} else {
		o = append(o, managed.WithExternalConnector(s.connectors.untyped))
	}

	if s.finalizer != nil {
		o = append(o, managed.WithFinalizer(s.finalizer))
	}

	return managed.NewReconciler(m, of, o...)
}
