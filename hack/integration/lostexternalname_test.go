//go:build integration

package integration

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// A provider that learns external names after Create has returned, for 50 managed
// resources at once whose policies don't allow LateInitialize, is restarted with
// an empty memory. Then everything is deleted.
func TestLostExternalName(t *testing.T) {
	type outcome struct {
		// Resources in the cloud after one process of the provider, after
		// another, and after everything was deleted.
		First, Second, Deleted int

		// Nameless are the managed resources without an external name after
		// the first process, Misnamed those with another than the resource's.
		Nameless, Misnamed int
	}

	cases := []struct {
		flavour
		want outcome
	}{
		{flavour: upstream, want: outcome{First: 50, Second: 100, Deleted: 100, Nameless: 50}},
		{flavour: graft, want: outcome{First: 50, Second: 50}},
	}

	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{RequestLatency: 10 * time.Millisecond})
			got := outcome{}

			all := fleet("lost", 25, func(mg sample.Instance) {
				mg.SetManagementPolicies(xpv2.ManagementPolicies{
					xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve,
				})
			})
			s.create(t, all...)

			process := func() *provider {
				return start(t, tc.flavour, setup{connectors: asyncConnectors(world), poll: time.Second})
			}

			p := process()
			s.until(t, "all show Available", all, isAvailable)
			p.stop()

			got.First = len(world.Inventory())
			owners := idsByOwner(world)

			for uid, mg := range s.list(t.Context(), t) {
				switch name := externalName(mg); name {
				case owners[uid]:
				case "":
					got.Nameless++
				default:
					got.Misnamed++
				}
			}

			// The token comes back when the new process has reconciled the object.
			s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, "after-restart", all...)

			p = process()
			s.until(t, "all were reconciled by the new process", all, func(mg sample.Instance) bool {
				return isAvailable(mg) && lastHandled(t, mg) == "after-restart"
			})
			p.stop()

			got.Second = len(world.Inventory())

			s.remove(t, all...)

			p = process()
			s.untilGone(t)
			p.stop()

			got.Deleted = len(world.Inventory())

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func lastHandled(t *testing.T, mg sample.Instance) string {
	t.Helper()

	h, ok := mg.(interface{ GetLastHandledReconcileAt() string })
	if !ok {
		t.Fatalf("%T doesn't keep the last reconcile request", mg)
	}

	return h.GetLastHandledReconcileAt()
}
