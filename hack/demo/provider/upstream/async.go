package controller

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// NewAsync returns a reconciler whose operations run in the background, and are
// known in memory only. The function waits for those that run.
func NewAsync(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func()) {
	connector := sample.NewAsync[resource.Managed](c, sample.WithBackground())
	return New(m, of, connector), connector.Wait
}
