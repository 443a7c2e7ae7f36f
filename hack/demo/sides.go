package main

import (
	"context"
	"runtime/debug"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	graft "github.com/crossplane-graft/graft/pkg/hack/demo/provider/graft"
	upstream "github.com/crossplane-graft/graft/pkg/hack/demo/provider/upstream"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A newReconciler returns a reconciler of a kind of managed resource.
type newReconciler func(m manager.Manager, of resource.ManagedKind, c managed.ExternalConnector) reconcile.Reconciler

// A side is one column: its reconcilers.
type side struct {
	// key names the side where a word has to do, title in the table.
	key, title string

	// newReserved returns a reconciler that reserves external names, if it can.
	newReconciler, newReserved newReconciler

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

// newClaimant returns a reconciler of claims that acts as Crossplane's.
func newClaimant(c client.Client) reconcile.Reconciler {
	return crossplane.NewClaimReconciler(c, platformKind("App"), platformKind("XApp"))
}

// graftedClaimant is the same with Graft around it.
func graftedClaimant(c client.Client) reconcile.Reconciler {
	return reconciler.New(c, platformKind("App"), newClaimant,
		reconciler.WithDependents(reconciler.CompositeOfClaim(platformKind("XApp"))),
		reconciler.WithOwnFinalizers(crossplane.FinalizerClaim))
}

// A release removes an object from a cluster without the cleanup that finalizers
// stand for.
type release func(ctx context.Context, c client.Client, o client.Object, finalizers []string) error

// usualOrder is what movers do: pause, remove finalizers, delete.
func usualOrder(ctx context.Context, c client.Client, o client.Object, _ []string) error {
	for _, body := range []string{
		`{"metadata":{"annotations":{"crossplane.io/paused":"true"}}}`,
		`{"metadata":{"finalizers":null}}`,
	} {
		if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			return err
		}
	}
	return c.Delete(ctx, o)
}

// graftsOrder deletes before it removes finalizers, and removes only those given.
func graftsOrder(ctx context.Context, c client.Client, o client.Object, finalizers []string) error {
	_, err := reconciler.Release(ctx, c, o, finalizers)
	return err
}
