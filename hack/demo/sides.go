package main

import (
	"context"
	"runtime/debug"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	withGraft "github.com/crossplane-graft/graft/pkg/hack/demo/provider/graft"
	withUpstream "github.com/crossplane-graft/graft/pkg/hack/demo/provider/upstream"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed/contested"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A newReconciler returns a reconciler of a kind of managed resource.
type newReconciler func(m manager.Manager, of resource.ManagedKind, c upstream.ExternalConnector) reconcile.Reconciler

// A side is one column: its reconcilers.
type side struct {
	// key names the side where a word has to do, title in the table.
	key, title string

	// newReserved returns a reconciler that reserves external names, if it can.
	newReconciler, newReserved newReconciler

	// newAsync returns a reconciler whose operations run in the background, and
	// what waits for them.
	newAsync func(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func())

	// newClaimant returns a reconciler of claims.
	newClaimant func(c client.Client) reconcile.Reconciler

	// newCache and newEngine make what runs controllers of composites.
	newCache  cache.NewCacheFunc
	newEngine func(m manager.Manager, live client.Client) engine

	// release removes an object from a cluster without the cleanup that finalizers stand for, as movers do.
	release func(ctx context.Context, c client.Client, o client.Object, finalizers []string) error
}

// sides are the two columns.
type sides struct{ upstream, graft side }

func bothSides() sides {
	return sides{
		upstream: side{
			key: "upstream", title: "upstream " + upstreamVersion(),
			newReconciler: with(withUpstream.New), newReserved: with(withUpstream.New), newAsync: newUntracked,
			newClaimant: newClaimant, newCache: newBaselineCache, newEngine: newBaselineEngine, release: usualOrder,
		},
		graft: side{
			key: "graft", title: "Graft",
			newReconciler: with(withGraft.New, contested.With()),
			newReserved:   with(withGraft.New, reservation.With(namespace)),
			newAsync:      newTracked,
			newClaimant: func(c client.Client) reconcile.Reconciler {
				return reconciler.New(c, platformKind("App"), newClaimant,
					reconciler.WithDependents(reconciler.CompositeOfClaim(platformKind("XApp"))),
					reconciler.WithOwnFinalizers(crossplane.FinalizerClaim))
			},
			newCache: newGraftCache, newEngine: newGraftEngine,
			release: func(ctx context.Context, c client.Client, o client.Object, finalizers []string) error {
				_, err := reconciler.Release(ctx, c, o, finalizers)
				return err
			},
		},
	}
}

// with returns what makes the provider's reconciler with these options.
func with[O any](
	build func(manager.Manager, resource.ManagedKind, upstream.ExternalConnector, ...O) reconcile.Reconciler, o ...O,
) newReconciler {
	return func(m manager.Manager, of resource.ManagedKind, c upstream.ExternalConnector) reconcile.Reconciler {
		return build(m, of, c, o...)
	}
}

// upstreamVersion is the version of crossplane-runtime that is compared with.
func upstreamVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/crossplane/crossplane-runtime/v2" {
				return m.Version
			}
		}
	}
	return ""
}

// newUntracked returns a reconciler whose operations are known in memory only.
func newUntracked(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func()) {
	connector := sample.NewAsync[resource.Managed](c, sample.WithBackground())
	return withUpstream.New(m, of, connector), connector.Wait
}

// newTracked returns a reconciler with a tracker, which runs operations in the background and keeps a record of each.
func newTracked(m manager.Manager, of resource.ManagedKind, c *cloud.Cloud) (reconcile.Reconciler, func()) {
	// A provider that dies waits for nothing.
	t := asyncstate.NewTracker(asyncstate.WithShutdownTimeout(time.Millisecond))
	connector := sample.NewLasting[resource.Managed](c)
	return withGraft.New(m, of, connector, asyncstate.With(t)), connector.Wait
}

// newClaimant returns a reconciler of claims that acts as Crossplane's.
func newClaimant(c client.Client) reconcile.Reconciler {
	return crossplane.NewClaimReconciler(c, platformKind("App"), platformKind("XApp"))
}

// usualOrder is what movers do: pause, remove finalizers, delete. Graft's Release deletes before it removes
// finalizers, and removes only those given.
func usualOrder(ctx context.Context, c client.Client, o client.Object, _ []string) error {
	for _, body := range []string{
		`{"metadata":{"annotations":{"crossplane.io/paused":"true"}}}`,
		`{"metadata":{"finalizers":null}}`,
	} {
		if err := c.Patch(ctx, o, mergePatch(body)); err != nil {
			return err
		}
	}
	return c.Delete(ctx, o)
}
