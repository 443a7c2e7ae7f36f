//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// shardLabel says which process of a provider has a managed resource.
const shardLabel = "example.org/shard"

// shardTimeout is how long an operation may take. A process that gets an object
// believes no earlier that a create made nothing.
const shardTimeout = 10 * time.Second

// startShard starts a process that sees nothing but its own managed resources.
func startShard(t *testing.T, name string, f flavour, c connectors) {
	t.Helper()
	start(t, f, setup{only: labels.SelectorFromSet(labels.Set{shardLabel: name}), poll: time.Second, connectors: c})
}

// sharded is an asynchronous provider: Databases are looked for after a hand-over;
// Buckets are created again with the same token.
func sharded() flavour {
	return flavour{name: "Async", build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		o := []asyncstate.TrackerOption{asyncstate.WithTimeout(shardTimeout), asyncstate.WithBackoff(100*time.Millisecond, time.Second)}
		if of.Kind == v1alpha1.BucketKind {
			o = append(o, asyncstate.WithIdempotentTokens())
		}
		return newAsync(m, of, s, func(*asyncstate.Tracker) connectors { return s.connectors }, o...)
	}}
}

func shardConnectors(world *cloud.Cloud) connectors {
	return connectors{untyped: sample.NewLasting[resource.Managed](world), typed: sample.NewLasting[*v1alpha1.Bucket](world, sample.WithCreateTokens())}
}

func kindOf(mg sample.Instance) string {
	if _, ok := mg.(*v1alpha1.Database); ok {
		return v1alpha1.DatabaseKind
	}
	return v1alpha1.BucketKind
}

// assign managed resources to a process, those that exist.
func (s server) assign(t *testing.T, shard string, fleet ...sample.Instance) {
	t.Helper()
	for _, mg := range fleet {
		must(t, "Patch()", client.IgnoreNotFound(s.Patch(t.Context(), mg, mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, shardLabel, shard)))))
	}
}

// Managed resources change hands while the process that had them waits for the answers
// to their creates, and some of them are given back. The first process stores what it
// learns, although it no longer sees them.
func TestShardHandOver(t *testing.T) {
	cases := map[string]struct {
		reason string
		flavour
		connectors func(world *cloud.Cloud) connectors

		// noticed reports whether the next process has done what it can.
		noticed func(mg sample.Instance) bool

		// named says that all get their names.
		named bool
	}{
		"Async": {
			reason:     "The record says that a create is in progress, or the external system knows what was made.",
			flavour:    sharded(),
			connectors: shardConnectors,
			noticed:    func(mg sample.Instance) bool { return kindOf(mg) == v1alpha1.BucketKind || externalName(mg) != "" },
			named:      true,
		},
		"Sync": {
			reason:     "The announcement says that a create is in progress. Its result is stored by the process that learns it, past the filter.",
			flavour:    graft,
			connectors: syncConnectors,
			noticed:    func(mg sample.Instance) bool { return condition(mg, xpv2.TypeSynced) == "False/ReconcileError" },
			named:      true,
		},
		"Upstream": {
			reason:     "A conflict makes it read the object from the cache, which does not have it any more: the name is lost.",
			flavour:    upstream,
			connectors: syncConnectors,
			noticed:    func(mg sample.Instance) bool { return condition(mg, xpv2.TypeSynced) == "False/ReconcileError" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{Defaults: map[string]string{"region": "north"}, ReadyAfter: 300 * time.Millisecond})
			answers := newBarrier(world, cloud.OpCreate)

			// No more than there are workers of a synchronous provider.
			all := fleet("shard", 2, func(mg sample.Instance) { mg.SetLabels(map[string]string{shardLabel: "a"}) })
			returned := all[2:]
			s.create(t, all...)
			a, b := tc.connectors(world), tc.connectors(world)
			startShard(t, "a", tc.flavour, a)
			answers.await(t, cloud.OpCreate, len(all))
			startShard(t, "b", tc.flavour, b)
			s.assign(t, "b", all...)
			s.until(t, "the next process has done what it can", all, tc.noticed)
			s.assign(t, "a", returned...)
			answers.open(cloud.OpCreate)
			if !tc.named {
				eventually(t, "the creates have ended", func() (bool, string) {
					return a.disconnects() >= len(all), fmt.Sprint(a.disconnects())
				})
				for _, mg := range all[:2] {
					if got := read(t, s, mg); externalName(got) != "" || world.Stats(string(mg.GetUID())).Existing != 1 {
						t.Errorf("\n%s\n%T %s: want no external name, got %q", tc.reason, mg, mg.GetName(), externalName(got))
					}
				}
				return
			}
			s.until(t, "all are as they should be, in whatever hands", all, func(mg sample.Instance) bool {
				return isAvailable(mg) && mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
			})
			s.owned(t, world, len(all))
		})
	}
}

// Managed resources are created, changed, deleted and created again, and all that there
// are are handed to and fro between two processes meanwhile, whatever runs.
func TestShardChurn(t *testing.T) {
	const (
		objects   = 20 // half of them Databases and half Buckets
		handovers = 25
		calls     = 30 // of the cloud, from one hand-over to the next
	)
	seed := seedOf(t)
	s := newServer(t)
	world := slowCloud(seed)
	u := &users{server: s, rand: rand.New(rand.NewPCG(seed, 0)), slots: fleet("killed", objects/2), labels: map[string]string{shardLabel: "a"}}
	startShard(t, "a", sharded(), shardConnectors(world))
	startShard(t, "b", sharded(), shardConnectors(world))
	called := func() int {
		n := 0
		for _, count := range world.Counts() {
			n += count
		}
		return n
	}
	for i := range u.slots {
		u.fill(t, i)
	}
	for range handovers {
		u.change(t, 8)
		for _, mg := range u.slots {
			s.assign(t, []string{"a", "b"}[u.rand.IntN(2)], mg)
		}
		before := called()
		eventually(t, "the processes do something", func() (bool, string) {
			return called() >= before+calls, fmt.Sprintf("%d of %d calls", called()-before, calls)
		})
	}
	u.settle(t, world)
	if diff := cmp.Diff(found{Objects: objects, Resources: objects, Named: objects}, u.find(t, world)); diff != "" {
		t.Errorf("after %d hand-overs, -want, +got:\n%s", handovers, diff)
	}
	s.remove(t, u.slots...)
	for range handovers / 5 {
		for _, mg := range u.slots {
			s.assign(t, []string{"a", "b"}[u.rand.IntN(2)], mg)
		}
	}
	s.untilGone(t)
	if diff := cmp.Diff(found{}, u.find(t, world)); diff != "" {
		t.Errorf("after the deletion, -want, +got:\n%s", diff)
	}
	t.Logf("%d managed resources were created in all, with %d calls of the cloud", len(u.created), called())
}
