//go:build integration

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A composite resource that is stuck in its deletion is orphaned. Its managed
// resources and their external resources stay, although there is a garbage collector.
func TestForceOrphanKeepsManagedResources(t *testing.T) {
	cases := map[string]struct {
		reason    string
		kind      schema.GroupVersionKind
		resource  string
		namespace string
		composed  []sample.Instance
	}{
		"Namespaced": {
			reason:    "What a namespaced composite resource owns is kept.",
			kind:      stackKind(),
			resource:  "stacks",
			namespace: namespace,
			composed:  []sample.Instance{v1alpha1.NewBucket(namespace, "kept-0"), v1alpha1.NewBucket(namespace, "kept-1")},
		},
		"Legacy": {
			reason:   "So is what one without a namespace owns.",
			kind:     xappKind(),
			resource: "xapps",
			composed: []sample.Instance{v1alpha1.NewDatabase("kept"), v1alpha1.NewBucket(namespace, "kept")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason) // It is shown if anything fails.
			s := newPlatform(t)
			world := cloud.New(cloud.Options{})
			start(t, graft, setup{connectors: syncConnectors(world)})
			startCrossplane(t, crossplaneSetup{options: []reconciler.Option{reconciler.WithForceOrphan(otherFinalizer)}})
			w := watchKind(t, platformResource(tc.resource))
			s.create(t, tc.composed...)
			s.until(t, "they are Available", tc.composed, isAvailable)
			xr := object(tc.kind, tc.namespace, "stuck")
			xr.SetFinalizers([]string{otherFinalizer})
			var composed []client.Object
			for _, mg := range tc.composed {
				composed = append(composed, mg)
			}
			must(t, "cannot compose", s.compose(t.Context(), xr, composed...))
			w.until(t, "stuck", "it is Available", isReady)
			must(t, "Delete()", s.Delete(t.Context(), xr))
			hint := "graft.crossplane.io/force-orphan=" + string(xr.GetUID()) + ": that removes " + otherFinalizer + ", and deletes nothing."
			w.until(t, "stuck", "it says how to orphan it", quotes(hint))
			must(t, "Patch()", s.Patch(t.Context(), xr.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"graft.crossplane.io/force-orphan":"`+string(xr.GetUID())+`"}}}`)))
			w.until(t, "stuck", "it is gone", isGone)

			// What has no owner is never collected.
			for _, mg := range tc.composed {
				got := read(t, s, mg)
				if got.GetDeletionTimestamp() != nil || len(got.GetOwnerReferences()) > 0 {
					t.Errorf("%s: want no deletion and no owner, got %v and %v", mg.GetName(), got.GetDeletionTimestamp(), got.GetOwnerReferences())
				}
			}
			if diff := cmp.Diff([]int{len(tc.composed), 0}, []int{len(world.Inventory()), world.Counts()[cloud.OpDelete]}); diff != "" {
				t.Errorf("external resources, deletions: -want, +got:\n%s", diff)
			}
		})
	}
}
