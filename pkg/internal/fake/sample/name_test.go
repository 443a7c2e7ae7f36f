package sample_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
)

// A provider of upjet's shape learns the external name after Create has returned.
// With Graft's package managed it keeps the name, whatever its management policies,
// without a change of its code. It also does with a tracker, which it tells when an
// operation begins and ends. With a tracker the name is stored as soon as the
// operation has ended, before the next Observe.
func TestNameIsKept(t *testing.T) {
	type outcome struct {
		Resources int
		Named     bool
		Ready     string
	}

	shapes := []struct {
		name string

		// process returns a provider with an empty memory.
		process func(t *testing.T, s *embedded.Server, world *cloud.Cloud) (reconcile.Reconciler, *sample.Async[resource.Managed])

		// unobserved says to end the process as soon as the create has ended.
		unobserved bool

		// loses says that the name is lost where the policies don't allow late
		// initialization.
		loses bool
	}{
		{name: "Upstream", process: upstreamProcess, loses: true},
		{name: "Unchanged", process: unchangedProcess},
		{name: "BeginEnd", process: trackedProcess},
		{name: "BeginEndUnobserved", process: trackedProcess, unobserved: true},
	}

	for _, shape := range shapes {
		for _, policies := range sample.CreatingPolicies() {
			t.Run(fmt.Sprint(shape.name, policies), func(t *testing.T) {
				s, world := serve(t), cloud.New(cloud.Options{})

				d := v1alpha1.NewDatabase("one")
				d.SetManagementPolicies(policies)
				must(t, "Create()", s.Admin().Create(t.Context(), d))

				// Three processes, one after the other.
				for i := range 3 {
					r, c := shape.process(t, s, world)

					rest(t, s, r, d)
					must(t, "Finish()", c.Finish(t.Context()))

					if i > 0 || !shape.unobserved {
						rest(t, s, r, d)
					}
				}

				stored := read(t, s, d)
				ids := []string{}

				for _, r := range world.Inventory() {
					ids = append(ids, r.ID)
				}

				want := outcome{Resources: 1, Named: true, Ready: "True/Available"}
				if shape.loses && !slices.Contains(policies, xpv2.ManagementActionAll) && !slices.Contains(policies, xpv2.ManagementActionLateInitialize) {
					want.Resources, want.Named = 3, false
				}

				got := outcome{Resources: len(ids), Named: slices.Contains(ids, meta.GetExternalName(stored)), Ready: ready(stored)}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want, +got:\n%s", diff)
				}

				if _, left := stored.GetAnnotations()[asyncstate.AnnotationKeyOperation]; left {
					t.Errorf("a record of an operation is left: %v", stored.GetAnnotations())
				}
			})
		}
	}
}

// rest reconciles an object until there is nothing left to do. Errors on the way
// are conflicts with what is stored in the background.
func rest(t *testing.T, s *embedded.Server, r reconcile.Reconciler, d *v1alpha1.Database) {
	t.Helper()

	_, err := s.Settle(t.Context(), r, d, 50)
	must(t, "Settle()", err)
}

func upstreamProcess(_ *testing.T, s *embedded.Server, world *cloud.Cloud) (reconcile.Reconciler, *sample.Async[resource.Managed]) {
	c := sample.NewAsync[resource.Managed](world)

	return databases(s, c), c
}

func unchangedProcess(_ *testing.T, s *embedded.Server, world *cloud.Cloud) (reconcile.Reconciler, *sample.Async[resource.Managed]) {
	c := sample.NewAsync[resource.Managed](world)

	return graft.NewReconciler(s.Manager(), v1alpha1.DatabaseManagedKind(), graftOptions(graft.WithExternalConnector(c))...), c
}

func trackedProcess(t *testing.T, s *embedded.Server, world *cloud.Cloud) (reconcile.Reconciler, *sample.Async[resource.Managed]) {
	t.Helper()

	tracker := asyncstate.NewTracker(s.Client(), asyncstate.WithOwnGoroutines())
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		must(t, "Start()", tracker.Start(ctx))
	})

	c := sample.NewAsync[resource.Managed](world, sample.WithOperations(tracker))

	return graft.NewReconciler(s.Manager(), v1alpha1.DatabaseManagedKind(), graftOptions(graft.WithExternalConnector(c), graft.WithAsync(tracker))...), c
}

func graftOptions(o ...graft.ReconcilerOption) []graft.ReconcilerOption {
	return append([]graft.ReconcilerOption{
		graft.WithManagementPolicies(),
		graft.WithInitializers(),
		graft.WithCreationGracePeriod(time.Nanosecond),
		graft.WithPollInterval(time.Minute),
	}, o...)
}
