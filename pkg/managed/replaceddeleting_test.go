package managed_test

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/managedtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// TestDeletionStatus_DeletingReplacedByAnotherController has another controller that replaces the
// Deleting condition after each write. Each write causes a reconcile, so the number of writes must
// have a limit.
func TestDeletionStatus_DeletingReplacedByAnotherController(t *testing.T) {
	cases := map[string]struct {
		reason   string
		bucket   []managedtest.BucketModifier
		provider managedtest.FakeProvider
		options  []managed.ReconcilerOption
	}{
		"StillExists": {
			reason: "The writes should be limited while the external resource still exists.",
			bucket: []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName)},
		},
		"DeleteFails": {
			reason:   "The writes should be limited while Delete fails.",
			bucket:   []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName)},
			provider: managedtest.FakeProvider{Client: managed.ExternalClientFns{DeleteFn: managedtest.DeleteFails}},
		},
		"ConnectFails": {
			reason:   "The writes should be limited while the provider can't be connected to.",
			bucket:   []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName)},
			provider: managedtest.FakeProvider{ConnectErr: managedtest.ErrProvider},
		},
		"OtherFinalizers": {
			reason: "The writes should be limited while foreign finalizers hold the managed resource, and upstream writes no status.",
			bucket: []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName, "example.org/a")},
		},
		"Late": {
			reason:  "The writes should be limited after the deadline of the deletion.",
			bucket:  []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName)},
			options: []managed.ReconcilerOption{escape.WithDeadline(time.Second, nil)},
		},
		"Paused": {
			reason: "The writes should be limited while the managed resource is paused.",
			bucket: []managedtest.BucketModifier{managedtest.WithFinalizers(managed.FinalizerName), managedtest.WithPausedAnnotation},
		},
	}
	for name, tc := range cases {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			t.Run(name+string(status), func(t *testing.T) {
				theirs := xpv2.Condition{
					Type:    reconciler.TypeDeleting,
					Status:  status,
					Reason:  "Theirs",
					Message: "as they see it",
				}
				api := testkit.NewAPI(managedtest.NewDeletedBucket(tc.bucket...))
				clock := managedtest.NewClock()
				r := managedtest.NewReconcilerWithProvider(api, tc.provider, func() {}, append(tc.options, clock.Option())...)
				clock.Now = clock.Now.Add(time.Minute) // after the deadline of the deletion

				// restored returns how many of n reconciles replaced the other controller's
				// condition.
				restored := func(n int) int {
					times := 0
					for range n {
						_, _ = r.Reconcile(t.Context(), managedtest.Request())
						if b := managedtest.GetBucket(t, api); deletion.ConditionOf(b).Reason != theirs.Reason {
							times++
							b.SetConditions(theirs)
							managedtest.Must(t, api.Server().Status().Update(t.Context(), b))
						}
					}
					return times
				}
				// The first report, three restorations, and the reports that are new meanwhile.
				if got := restored(20); got == 0 || got > 6 {
					t.Errorf("\n%s\nrestored in 20 reconciles: want 1 to 6, got %d", tc.reason, got)
				}
				for range 3 {
					clock.Now = clock.Now.Add(managed.RestoreInterval)
					managedtest.ExpectEqual(
						t, "The condition should be restored once in each interval.", "restored in an interval", 1,
						restored(5),
					)
				}
				result, err := r.Reconcile(t.Context(), managedtest.Request())
				managedtest.ExpectEqual(
					t, tc.reason, "reconciled again", true,
					err != nil || !result.IsZero() && result.RequeueAfter <= managed.RestoreInterval,
				)
			})
		}
	}
}
