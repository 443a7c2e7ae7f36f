//go:build integration

package integration

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// An asyncReconciler is one whose controller hears of the ends of operations.
type asyncReconciler struct {
	reconcile.Reconciler

	tracker *asyncstate.Tracker
}

func (r asyncReconciler) Source() source.Source { return r.tracker.Source() }

// graftAsync is Graft with one option more: the connectors' clients do everything
// while they are called, and a tracker calls them in the background.
func graftAsync(o ...asyncstate.TrackerOption) flavour {
	return asyncFlavour("Graft in the background", func(s setup, _ *asyncstate.Tracker) connectors {
		return s.connectors
	}, o...)
}

// graftTracked is Graft with a provider of upjet's shape whose authors have it begin
// and end its operations with a tracker. Its connectors are its own; the manager
// waits for what they have running, since the tracker does.
func graftTracked(world *cloud.Cloud) flavour {
	return asyncFlavour("Graft with Begin and End", func(_ setup, t *asyncstate.Tracker) connectors {
		return asyncConnectorsWith(world, sample.WithOperations(t))
	}, asyncstate.WithOwnGoroutines())
}

func asyncFlavour(name string, connect func(s setup, t *asyncstate.Tracker) connectors, o ...asyncstate.TrackerOption) flavour {
	return flavour{name: name, graft: true, build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		t := asyncstate.NewTracker(m.GetClient(), append([]asyncstate.TrackerOption{asyncstate.WithLiveReader(m.GetAPIReader())}, o...)...)
		c := connect(s, t)

		ro := []managed.ReconcilerOption{
			managed.WithManagementPolicies(),
			managed.WithInitializers(),
			managed.WithCreationGracePeriod(s.grace()),
			managed.WithPollInterval(s.pollInterval()),
			managed.WithAsync(t),
		}

		if typed := c.typedFor(of); typed != nil {
			ro = append(ro, managed.WithTypedExternalConnector(typed))
		} else {
			ro = append(ro, managed.WithExternalConnector(c.untyped))
		}

		return asyncReconciler{Reconciler: managed.NewReconciler(m, of, ro...), tracker: t}
	}}
}

// lastingConnectors create until the external resource is ready.
func lastingConnectors(world *cloud.Cloud) connectors {
	untyped := sample.NewLasting[resource.Managed](world)
	typed := sample.NewLasting[*sample.Bucket](world)

	return connectors{
		untyped:     untyped,
		typed:       typed,
		wait:        func() {},
		disconnects: func() int { return untyped.Disconnects() + typed.Disconnects() },
	}
}
