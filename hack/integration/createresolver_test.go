//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// resolving is Graft, for clients that can look for what they have created.
func resolving(world *cloud.Cloud) flavour {
	return flavour{name: "GraftWithCreateResolver", graft: true, build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		o := []managed.ReconcilerOption{managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithCreationGracePeriod(s.grace()), managed.WithPollInterval(s.pollInterval())}

		if of.Kind == sample.BucketKind {
			c := sample.NewLasting[*sample.Bucket](world)
			o = append(o, managed.WithTypedExternalConnector(c), managed.WithCreateResolver(managed.FindWithTypedConnector(c), managed.ResolveAfter(2*time.Second)))
		} else {
			c := sample.NewLasting[resource.Managed](world)
			o = append(o, managed.WithExternalConnector(c), managed.WithCreateResolver(managed.FindWithConnector(c), managed.ResolveAfter(2*time.Second)))
		}

		return managed.NewReconciler(m, of, o...)
	}}
}

// Creates were interrupted: some had made their external resource, some had not,
// some had done no more than to announce themselves. Some of the managed resources
// are being deleted.
func TestInterruptedCreate(t *testing.T) {
	type outcome struct {
		// Named managed resources have the external name of their resource, of
		// which there is one, and are available.
		Named int
		// Stuck ones wait until an operator has determined the outcome of their
		// creation.
		Stuck     int
		Resources int
	}

	const (
		each   = 2 // of each kind, and of each sort
		prefix = "unanswered"
	)

	interrupted := func(mg sample.Instance) {
		meta.SetExternalCreatePending(mg, time.Now().Add(-time.Hour))
		meta.AddFinalizer(mg, managed.FinalizerName)
	}

	world := cloud.New(cloud.Options{})

	cases := []struct {
		flavour
		world *cloud.Cloud
		want  outcome
	}{
		// Upstream continues with none of the five kinds. Two have created something.
		{flavour: upstream, world: cloud.New(cloud.Options{}), want: outcome{Stuck: 10 * each, Resources: 4 * each}},
		// The two that leave are gone, and what the three others have is there once.
		{flavour: resolving(world), world: world, want: outcome{Named: 6 * each, Resources: 6 * each}},
	}

	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)

			made, none, unanswered := fleet("made", each, interrupted), fleet("none", each, interrupted), fleet(prefix, each)
			leavingMade, leavingNone := fleet("leaving-made", each, interrupted), fleet("leaving-none", each, interrupted)
			staying := append(append(append([]sample.Instance{}, made...), none...), unanswered...)
			leaving := append(append([]sample.Instance{}, leavingMade...), leavingNone...)

			s.create(t, append(append([]sample.Instance{}, staying...), leaving...)...)

			session, err := tc.world.NewSession(t.Context(), "")
			must(t, "NewSession()", err)

			for _, mg := range append(append([]sample.Instance{}, made...), leavingMade...) {
				kind := sample.DatabaseKind
				if _, ok := mg.(*sample.Bucket); ok {
					kind = sample.BucketKind
				}

				_, err := session.Create(t.Context(), cloud.CreateRequest{Kind: kind, Owner: string(mg.GetUID())})
				must(t, "cannot create an external resource", err)
			}

			s.remove(t, leaving...)

			tr := &traffic{fault: losesFirst(func(o metav1.ObjectMeta) bool {
				return strings.HasPrefix(o.Name, prefix) && !meta.GetExternalCreatePending(&o).IsZero()
			})}

			start(t, tc.flavour, setup{connectors: syncConnectors(tc.world), traffic: tr})

			if tc.graft {
				s.until(t, "what stays is available", staying, isAvailable)
				eventually(t, "what leaves is gone", func() (bool, string) {
					n := len(s.list(t.Context(), t))
					return n == len(staying), fmt.Sprintf("%d managed resources, of which %d are to stay", n, len(staying))
				})
			} else {
				s.until(t, "all are stuck", append(staying, leaving...), isStuck)
			}

			got := outcome{Resources: len(tc.world.Inventory())}
			owners := idsByOwner(tc.world)

			for uid, mg := range s.list(t.Context(), t) {
				if isAvailable(mg) && externalName(mg) == owners[uid] && tc.world.Stats(string(uid)).Created == 1 {
					got.Named++
				}

				if isStuck(mg) {
					got.Stuck++
				}
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// isStuck reports whether a managed resource waits until an operator has determined
// the outcome of its create.
func isStuck(mg sample.Instance) bool {
	return meta.ExternalCreateIncomplete(mg) && strings.HasPrefix(mg.GetCondition(xpv2.TypeSynced).Message, "cannot determine creation result")
}

// losesFirst loses the answer to the first update of each object that matches.
func losesFirst(match func(o metav1.ObjectMeta) bool) func(c call, body []byte) fault {
	var (
		mu   sync.Mutex
		seen = map[types.UID]bool{}
	)

	return func(c call, body []byte) fault {
		var o struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}

		if c.Method != http.MethodPut || c.Subresource != "" || json.Unmarshal(body, &o) != nil || !match(o.Metadata) {
			return noFault
		}

		mu.Lock()
		defer mu.Unlock()

		if seen[o.Metadata.UID] {
			return noFault
		}

		seen[o.Metadata.UID] = true

		return loseAnswer
	}
}
