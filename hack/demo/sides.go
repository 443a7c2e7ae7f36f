package main

import (
	"runtime/debug"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	graft "github.com/crossplane-graft/graft/pkg/hack/demo/provider/graft"
	upstream "github.com/crossplane-graft/graft/pkg/hack/demo/provider/upstream"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A side is one column: who reconciles.
type side struct {
	// key names the side where a word has to do, title in the table.
	key, title string

	newReconciler func(m manager.Manager, of resource.ManagedKind, c managed.ExternalConnector) reconcile.Reconciler

	// newReserved returns a reconciler that reserves external names, if it can.
	newReserved func(m manager.Manager, of resource.ManagedKind, c managed.ExternalConnector) reconcile.Reconciler

	// newClaimant returns a reconciler of claims.
	newClaimant func(c client.Client) reconcile.Reconciler

	// engines makes what runs controllers of composites.
	engines engineMaker

	// release is how movers remove an object.
	release release

	// newAsync returns a reconciler whose operations run in the background, and
	// what waits for them.
	newAsync func(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func())
}

// sides are the two columns.
type sides struct{ upstream, graft side }

func bothSides() sides {
	return sides{
		upstream: side{
			key: "upstream", title: "upstream " + upstreamVersion(),
			newReconciler: upstream.New, newReserved: upstream.New, newAsync: upstream.NewAsync,
			newClaimant: newClaimant, engines: engineOfUpstreamsShape(), release: usualOrder,
		},
		graft: side{
			key: "graft", title: "Graft",
			newReconciler: graft.New, newReserved: graft.NewReserved, newAsync: graft.NewAsync,
			newClaimant: graftedClaimant, engines: graftsEngine(), release: graftsOrder,
		},
	}
}

// upstreamVersion is the version of crossplane-runtime that is compared with.
func upstreamVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/crossplane/crossplane-runtime/v2" {
			return m.Version
		}
	}
	return ""
}
