// Package controller sets up the controllers of the sample provider, as provider
// authors do it. It exists twice, once for upstream and once for Graft: the two
// differ in one import, and in nothing else.
package controller

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
)

// New returns a reconciler of managed resources whose ids the cloud assigns.
func New(
	m manager.Manager, of resource.ManagedKind, c managed.ExternalConnector, more ...managed.ReconcilerOption,
) reconcile.Reconciler {
	return managed.NewReconciler(m, of, append(more,
		managed.WithExternalConnector(c),
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(time.Nanosecond), // A story continues after a real period would end.
		managed.WithPollInterval(time.Hour),              // Longer than any story. A story that needs a poll says so.
	)...)
}
