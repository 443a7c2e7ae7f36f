//go:build integration

package integration

import (
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// An external resource exists already. It is reconciled once: what was observed
// must then be on the API server.
func TestFirstReconcile(t *testing.T) {
	type outcome struct {
		Ready, Synced string
		Observed      sample.Observation
		Finalizers    []string
		Region        string
	}

	cases := map[string]struct {
		reason    string
		defaults  map[string]string
		finalizer string
	}{
		"DefaultFinalizer": {
			reason: "Adding the default finalizer.",
		},
		"CustomFinalizer": {
			reason:    "Adding a finalizer with a client of the provider's own.",
			finalizer: "example.org/custom",
		},
		"LateInitialized": {
			reason:   "Late-initializing the spec, and adding the finalizer.",
			defaults: map[string]string{"region": "north"},
		},
	}

	for name, tc := range cases {
		for _, f := range []flavour{upstream, graft} {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				s := newServer(t)
				world := cloud.New(cloud.Options{Defaults: tc.defaults})
				session, err := world.NewSession(t.Context(), "")
				must(t, "NewSession()", err)

				all := fleet("existing", 1)

				for _, mg := range all {
					r, err := session.Create(t.Context(), cloud.CreateRequest{Kind: "Whatever", Properties: map[string]string{"size": "1"}})
					must(t, "Create()", err)
					meta.SetExternalName(mg, r.ID)
				}

				s.create(t, all...)

				// Nothing but the creation is a reason to reconcile.
				set := setup{connectors: syncConnectors(world), events: predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}}
				want := []string{"finalizer.managedresource.crossplane.io"}

				if tc.finalizer != "" {
					set.finalizer = resource.NewAPIFinalizer(plainClient(t), tc.finalizer)
					want = []string{tc.finalizer}
				}

				p := start(t, f, set)

				eventually(t, "all were reconciled", func() (bool, string) { return set.connectors.disconnects() >= len(all), "" })
				p.stop()

				if n := set.connectors.disconnects(); n != len(all) {
					t.Fatalf("want one reconcile for each of %d objects, got %d", len(all), n)
				}

				for _, mg := range all {
					got := read(t, s, mg)
					id := externalName(mg)

					w := outcome{Ready: "-", Synced: "True/ReconcileSuccess", Finalizers: want, Region: tc.defaults["region"]}
					if f.graft {
						w.Ready = "True/Available"
						w.Observed = sample.Observation{ID: id, Endpoint: id + ".cloud.example.org", State: "available"}
					}

					g := outcome{Ready: condition(got, xpv2.TypeReady), Synced: condition(got, xpv2.TypeSynced), Observed: *got.GetAtProvider(), Finalizers: got.GetFinalizers(), Region: got.GetForProvider().Region}

					if diff := cmp.Diff(w, g); diff != "" {
						t.Errorf("\n%s\n%T: -want, +got:\n%s", tc.reason, mg, diff)
					}
				}
			})
		}
	}
}

// plainClient returns a client that neither a cache nor a seam is part of.
func plainClient(t *testing.T) client.Client {
	t.Helper()

	c, err := client.New(plane.Config(), client.Options{Scheme: newScheme(t)})
	must(t, "client.New()", err)

	return c
}
