package reconciler_test

import (
	"context"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Another controller replaces a condition whenever it was written.
func TestAnotherControllerReplaces(t *testing.T) {
	theirs := xpv2.Condition{Type: reconciler.TypeDeleting, Status: "True", Reason: "Theirs", Message: "as they see it"}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		opts   []reconciler.Option
		fail   func(verb string, o client.Object, dryRun bool) error

		// writes is whether the inner reconciler writes a status, and most how often the condition is restored at once.
		writes bool
		most   int
	}{
		"NotDeleting": {
			reason: "A Deleting condition of an object that is not being deleted is withdrawn three times.",
			object: newObject(composites, "", "x", withFinalizers("f"), withConditions(theirs)),
			most:   3,
		},
		"Deleting": {
			reason: "The report is written by two stages, and restored three times.",
			object: newComposite(),
			most:   5,
		},
		"OrphanIsRefused": {
			reason: "A request to orphan that the API server refuses is repeated.",
			object: newObject(
				composites, "", "x", withFinalizers("example.org/f"), withDeletionTimestamp,
				withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-x"),
			),
			most: 5,
			opts: []reconciler.Option{reconciler.WithForceOrphan("example.org/f")},
			fail: refuseVerb("delete", kerrors.NewForbidden(schema.GroupResource{}, "x", nil)),
		},
		"DeletingAndReporting": {
			reason: "The report in the inner reconciler's status is restored as often.",
			object: newComposite(),
			writes: true,
			most:   5,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(tc.object)
			c.fail = tc.fail
			r := newTestReconciler(t, c, newComposite(), tc.opts...)
			r.now = deletionTime().Add(time.Minute)
			if tc.writes {
				r.inner = writeStatus
			}
			reason := func() string { return c.condition(t, tc.object, reconciler.TypeDeleting).Reason }

			// once reconciles the object. A refused request fails each time.
			once := func() reconcile.Result {
				result, err := r.Reconcile(context.Background(), requestFor(tc.object))
				expectEqual(t, tc.reason, "failed", tc.fail != nil, err != nil)
				return result
			}

			// restored returns how many of n reconciles restored the condition.
			restored := func(n int) int {
				times := 0
				for range n {
					once()
					if reason() != "Theirs" {
						times++
						c.replace(t, tc.object, theirs)
					}
				}
				return times
			}
			if got := restored(20); got > tc.most || got == 0 {
				t.Errorf("\n%s\nrestored in 20 reconciles: want at most %d, and once, got %d", tc.reason, tc.most, got)
			}
			result := once()
			expectEqual(
				t, "It is restored after an interval, or when the failed reconcile is retried.", "next reconcile", true,
				tc.fail != nil || result.RequeueAfter > 0 && result.RequeueAfter <= 10*time.Second,
			)
			for range 3 {
				r.now = r.now.Add(10 * time.Second)
				expectEqual(t, "Once in each interval.", "restored", 1, restored(5))
			}

			// The other controller stops.
			r.now = r.now.Add(10 * time.Second)
			once()
			once()
			r.now = r.now.Add(time.Minute)
			c.replace(t, tc.object, theirs)
			once()
			expectEqual(
				t, "A condition that was replaced once is restored at once.", "theirs", false, reason() == "Theirs",
			)
		})
	}
}
