package managed_test

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
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
		bucket   []kit.BucketModifier
		provider kit.FakeProvider
		options  []managed.ReconcilerOption
	}{
		"StillExists": {
			reason: "The writes should be limited while the external resource still exists.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)},
		},
		"DeleteFails": {
			reason:   "The writes should be limited while Delete fails.",
			bucket:   []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)},
			provider: kit.FakeProvider{Client: managed.ExternalClientFns{DeleteFn: kit.DeleteFails}},
		},
		"ConnectFails": {
			reason:   "The writes should be limited while the provider can't be connected to.",
			bucket:   []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)},
			provider: kit.FakeProvider{ConnectErr: kit.ErrProvider},
		},
		"OtherFinalizers": {
			reason: "The writes should be limited while foreign finalizers hold the managed resource, and upstream writes no status.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, "example.org/a")},
		},
		"Late": {
			reason:  "The writes should be limited after the deadline of the deletion.",
			bucket:  []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)},
			options: []managed.ReconcilerOption{escape.WithDeadline(time.Second, nil)},
		},
		"Paused": {
			reason: "The writes should be limited while the managed resource is paused.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName), kit.WithPausedAnnotation},
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
				api := testkit.NewAPI(kit.NewDeletedBucket(tc.bucket...))
				clock := kit.NewClock()
				r := kit.NewReconcilerWithProvider(api, tc.provider, func() {}, append(tc.options, clock.Option())...)
				clock.Now = clock.Now.Add(time.Minute) // after the deadline of the deletion

				// restored returns how many of n reconciles replaced the other controller's
				// condition.
				restored := func(n int) int {
					times := 0
					for range n {
						_, _ = r.Reconcile(t.Context(), kit.Request())
						if b := kit.GetBucket(t, api); deletion.ConditionOf(b).Reason != theirs.Reason {
							times++
							b.SetConditions(theirs)
							kit.Must(t, api.Server().Status().Update(t.Context(), b))
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
					kit.ExpectEqual(
						t, "The condition should be restored once in each interval.", "restored in an interval", 1,
						restored(5),
					)
				}
				result, err := r.Reconcile(t.Context(), kit.Request())
				kit.ExpectEqual(
					t, tc.reason, "reconciled again", true,
					err != nil || !result.IsZero() && result.RequeueAfter <= managed.RestoreInterval,
				)
			})
		}
	}
}
