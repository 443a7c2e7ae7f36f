package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Another controller replaces a condition whenever it was written.
func TestAnotherControllerReplaces(t *testing.T) {
	theirs := xpv2.Condition{Type: reconciler.TypeDeleting, Status: "True", Reason: "Theirs", Message: "as they see it"}
	silent := func(context.Context, client.Client, *composite.Unstructured) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}
	writing := func(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error) {
		o.SetConditions(xpv2.ReconcileSuccess())
		return reconcile.Result{}, c.Status().Update(ctx, o)
	}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		inner  func(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error)

		// most is how often the condition is restored at once.
		most int
	}{
		"NotDeleting":          {reason: "A Deleting condition of an object that is not being deleted is withdrawn three times.", object: of(composites, "", "x", held("f"), being(theirs)), inner: silent, most: 3},
		"NotDeletingWriting":   {reason: "An inner reconciler that writes status makes no difference.", object: of(composites, "", "x", held("f"), being(theirs)), inner: writing, most: 3},
		"Deleting":             {reason: "The report is written by two stages, and restored three times.", object: xr(), inner: silent, most: 5},
		"DeletingAndReporting": {reason: "The report in the inner reconciler's status is restored as often.", object: xr(), inner: writing, most: 5},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(tc.object)
			r := newRig(t, c, xr())
			r.now = requestedAt().Add(time.Minute)
			r.inner = tc.inner
			is := func() string { return c.says(t, tc.object, reconciler.TypeDeleting).Reason }

			// restored returns how many of n reconciles restored the condition.
			restored := func(n int) int {
				times := 0
				for range n {
					pass(t, r, tc.object)
					if is() != "Theirs" {
						times++
						c.replace(t, tc.object, theirs)
					}
				}
				return times
			}
			if got := restored(20); got > tc.most || got == 0 {
				t.Errorf("\n%s\nrestored in 20 reconciles: want at most %d, and once, got %d", tc.reason, tc.most, got)
			}
			result := pass(t, r, tc.object)
			wants(t, "It is restored after an interval.", "next reconcile", true, result.RequeueAfter > 0 && result.RequeueAfter <= 10*time.Second)
			for range 3 {
				r.now = r.now.Add(10 * time.Second)
				wants(t, "Once in each interval.", "restored", 1, restored(5))
			}

			// The other controller stops.
			r.now = r.now.Add(10 * time.Second)
			passes(t, 2, r, tc.object)
			r.now = r.now.Add(time.Minute)
			c.replace(t, tc.object, theirs)
			pass(t, r, tc.object)
			wants(t, "A condition that was replaced once is restored at once.", "theirs", false, is() == "Theirs")
		})
	}
}
