//go:build integration

package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const shardLabel = "example.org/shard"

func startShard(t *testing.T, name string, f flavour, c connectors) {
	t.Helper()
	start(t, f, setup{only: labels.SelectorFromSet(labels.Set{shardLabel: name}), poll: time.Second, connectors: c})
}

func shardConnectors(world *cloud.Cloud) connectors {
	return connectors{
		untyped: sample.NewLasting[resource.Managed](world),
		typed:   sample.NewLasting[*v1alpha1.Bucket](world, sample.WithCreateTokens()),
	}
}

func (s server) assign(t *testing.T, shard string, fleet ...sample.Instance) {
	t.Helper()
	for _, mg := range fleet {
		must(
			t,
			"Patch()",
			client.IgnoreNotFound(s.Patch(
				t.Context(), mg, mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, shardLabel, shard)),
			)),
		)
	}
}

// Managed resources change hands while the process that had them waits for the answers
// to their creates, and some of them are given back. The first process stores the
// answers, although it no longer sees the managed resources.
func TestShardHandOver(t *testing.T) {
	cases := map[string]struct {
		reason string
		flavour
		connectors func(world *cloud.Cloud) connectors

		noticed func(mg sample.Instance) bool // The next process has done what it can.
		named   bool                          // All get their names.
	}{
		"Async": {
			reason:     "The record says that a create is in progress, or the external system lists the external resource.",
			flavour:    async(),
			connectors: shardConnectors,
			noticed: func(mg sample.Instance) bool {
				_, looked := mg.(*v1alpha1.Database)
				return !looked || externalName(mg) != ""
			},
			named: true,
		},
		"Sync": {
			reason:     "The announcement says that a create is in progress. Its result is stored by the process that learns it, past the filter.",
			flavour:    graft,
			connectors: syncConnectors,
			noticed: func(mg sample.Instance) bool {
				return condition(mg, xpv2.TypeSynced) == "False/ReconcileError"
			},
			named: true,
		},
		"Upstream": {
			reason:     "A conflict makes it read the object from the cache, which does not have it any more: the name is lost.",
			flavour:    upstream,
			connectors: syncConnectors,
			noticed: func(mg sample.Instance) bool {
				return condition(mg, xpv2.TypeSynced) == "False/ReconcileError"
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{
				Defaults: map[string]string{"region": "north"}, ReadyAfter: 300 * time.Millisecond,
			})
			answer, creates := make(chan struct{}), atomic.Int64{}
			world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
				if c.Op != cloud.OpCreate {
					return nil
				}
				creates.Add(1)
				select {
				case <-answer:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}})

			// No more than there are workers of a synchronous provider.
			all := fleet("shard", 2, func(mg sample.Instance) { mg.SetLabels(map[string]string{shardLabel: "a"}) })
			returned := all[2:]
			s.create(t, all...)
			a, b := tc.connectors(world), tc.connectors(world)
			startShard(t, "a", tc.flavour, a)
			eventually(t, "all creates have reached the cloud", func() (bool, string) {
				return creates.Load() >= int64(len(all)), fmt.Sprint(creates.Load())
			})
			startShard(t, "b", tc.flavour, b)
			s.assign(t, "b", all...)
			s.until(t, "the next process has done what it can", all, tc.noticed)
			s.assign(t, "a", returned...)
			close(answer)
			if !tc.named {
				eventually(t, "the creates have ended", func() (bool, string) {
					return a.disconnects() >= len(all), fmt.Sprint(a.disconnects())
				})
				for _, mg := range all[:2] {
					if got := read(t, s, mg); externalName(got) != "" ||
						world.Stats(string(mg.GetUID())).Existing != 1 {
						t.Errorf(
							"\n%s\n%T %s: want no external name, got %q",
							tc.reason,
							mg,
							mg.GetName(),
							externalName(got),
						)
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

// Managed resources are created, changed, deleted and created again, while all of
// them change hands between two processes, with operations in progress.
func TestShardChurn(t *testing.T) {
	const (
		objects   = 20 // half of them Databases and half Buckets
		handovers = 25
		calls     = 30 // of the cloud, from one hand-over to the next
	)
	seed := seedOf(t, 1)
	s := newServer(t)
	world := slowCloud(seed)
	startShard(t, "a", async(), shardConnectors(world))
	startShard(t, "b", async(), shardConnectors(world))
	called := func() int {
		n := 0
		for _, count := range world.Counts() {
			n += count
		}
		return n
	}
	u := newUsers(t, s, seed, objects, map[string]string{shardLabel: "a"})
	handOver := func() {
		for _, mg := range u.slots {
			s.assign(t, []string{"a", "b"}[u.rand.IntN(2)], mg)
		}
	}
	for range handovers {
		u.change(t, 8)
		handOver()
		before := called()
		eventually(t, "the processes do something", func() (bool, string) {
			return called() >= before+calls, fmt.Sprintf("%d of %d calls", called()-before, calls)
		})
	}
	u.settle(t, world)
	u.check(t, world, objects)
	s.remove(t, u.slots...)
	for range handovers / 5 {
		handOver()
	}
	s.untilGone(t)
	u.check(t, world, 0)
	t.Logf("%d managed resources were created in all, with %d calls of the cloud", len(u.created), called())
}
