package managed_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

func TestCreateWithoutOutcome_Polled(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, started.Format(time.RFC3339))

	cases := map[string]struct {
		reason string
		mods   []kit.BucketModifier
		want   time.Duration
	}{
		"Announced": {
			reason: "A process that reads the announcement of another process should poll: it may miss the outcome, which causes no event.",
			mods:   []kit.BucketModifier{pending},
			want:   10 * time.Minute,
		},
		"Deleted": {
			reason: "A deletion that waits for the outcome of a create should be polled, too.",
			mods:   []kit.BucketModifier{pending, kit.WithDeletionTimestamp},
			want:   10 * time.Minute,
		},
		"Paused": {
			reason: "A paused managed resource should not be polled.",
			mods:   []kit.BucketModifier{pending, kit.WithPausedAnnotation},
		},
		"PausedByPolicies": {
			reason: "A managed resource without management policies is paused, too.",
			mods:   []kit.BucketModifier{pending, kit.WithPolicies()},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ext := &kit.ExternalResource{}
			api := testkit.NewAPI(kit.NewBucket(append(tc.mods, kit.WithFinalizers(managed.FinalizerName))...))
			r := kit.NewBucketReconciler(api, kit.WithClient(ext.Client()), managed.WithPollInterval(10*time.Minute))
			result, err := r.Reconcile(t.Context(), kit.Request())
			kit.Must(t, err)
			kit.ExpectEqual(t, tc.reason, "RequeueAfter", tc.want, result.RequeueAfter)
		})
	}
}

// TestCreate_AnotherWriter has another writer that changes the managed resource during Create. Like
// upstream's, the reconcile should still report the create.
func TestCreate_AnotherWriter(t *testing.T) {
	annotate := func(t *testing.T, api *testkit.API) {
		kit.UpdateBucket(t, api, "b", kit.WithAnnotation("a", "theirs"))
	}
	cases := map[string]struct {
		reason       string
		duringCreate func(t *testing.T, api *testkit.API)
		losesAnswer  bool // to the patch of the result
		setsName     bool
		createErr    error
		wantSynced   xpv2.ConditionReason
		wantID       string
		wantForeign  xpv2.ConditionReason
	}{
		"Succeeded": {
			reason:       "A create that succeeded should be reported, with the status that Create has set.",
			duringCreate: annotate,
			wantSynced:   xpv2.ReasonReconcileSuccess,
			wantID:       "id-1",
		},
		"Named": {
			reason:       "A create that set an external name should be reported, although the name is stored first.",
			duringCreate: annotate,
			setsName:     true,
			wantSynced:   xpv2.ReasonReconcileSuccess,
			wantID:       "id-1",
		},
		"Failed": {
			reason:       "A create that failed should be reported.",
			duringCreate: annotate,
			createErr:    kit.ErrProvider,
			wantSynced:   xpv2.ReasonReconcileError,
			wantID:       "id-1",
		},
		"AnswerLost": {
			reason:      "A create should be reported although the answer to the write of its result is lost.",
			losesAnswer: true,
			wantSynced:  xpv2.ReasonReconcileSuccess,
			wantID:      "id-1",
		},
		"StatusWritten": {
			reason: "As with upstream, the status that the other writer has written should be kept.",
			duringCreate: func(t *testing.T, api *testkit.API) {
				b := kit.GetBucket(t, api)
				b.SetConditions(kit.ForeignCondition())
				kit.Must(t, api.Server().Status().Update(t.Context(), b))
			},
			wantSynced:  xpv2.ReasonReconcileSuccess,
			wantForeign: kit.ForeignCondition().Reason,
		},
		"Replaced": {
			reason: "Nothing should be written to another object with the same name.",
			duringCreate: func(t *testing.T, api *testkit.API) {
				kit.RemoveBucket(t, api, "b")
				kit.Must(t, api.Server().Create(t.Context(), kit.NewBucket()))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			if tc.losesAnswer {
				api.After = func(_ context.Context, r testkit.Request) error {
					if r.Verb != testkit.Patch {
						return nil
					}
					api.After = nil
					return kerrors.NewInternalError(errors.New("lost"))
				}
			}
			kit.TryReconcile(kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.ObserveAbsent,
				CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					kit.AsBucket(mg).Status.AtProvider.ID = "id-1"
					if tc.setsName {
						meta.SetExternalName(mg, "id-1")
					}
					if tc.duringCreate != nil {
						tc.duringCreate(t, api)
					}
					return managed.ExternalCreation{}, tc.createErr
				},
			})), 1)
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "Synced", tc.wantSynced, b.GetCondition(xpv2.TypeSynced).Reason)
			kit.ExpectEqual(
				t, tc.reason, "reports the create", tc.wantSynced != "",
				b.GetCondition(xpv2.TypeReady).Reason == xpv2.ReasonCreating,
			)
			kit.ExpectEqual(t, tc.reason, "ID", tc.wantID, b.Status.AtProvider.ID)
			kit.ExpectEqual(t, tc.reason, "Foreign", tc.wantForeign, b.GetCondition(kit.ForeignCondition().Type).Reason)
		})
	}
}
