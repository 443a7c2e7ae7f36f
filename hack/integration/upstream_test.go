//go:build integration

package integration

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newUpstream is the provider's code over upstream. That in graft_test.go is the
// same but for the import.
func newUpstream(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
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
