package managed_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// hasOtherThanUpstreams reports whether there are conditions beside upstream's Ready and Synced.
func hasOtherThanUpstreams(cs []xpv2.Condition) bool {
	return slices.ContainsFunc(
		cs, func(c xpv2.Condition) bool { return c.Type != xpv2.TypeReady && c.Type != xpv2.TypeSynced },
	)
}

func TestStatus_RefusedConditions(t *testing.T) {
	maxItems := func(cs []xpv2.Condition) bool { return len(cs) > 2 }
	maxLength := func(cs []xpv2.Condition) bool {
		return slices.ContainsFunc(
			cs, func(c xpv2.Condition) bool { return len(c.Message) > len(deletion.MessageRequested) },
		)
	}
	invalid := kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
	denied := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("denied"))

	cases := map[string]struct {
		reason  string
		refuses func(cs []xpv2.Condition) bool
		err     error
	}{
		"Enum": {
			reason:  "Upstream's status should be written when the schema lists the types of conditions.",
			refuses: hasOtherThanUpstreams,
			err:     invalid,
		},
		"MaxItems": {
			reason:  "Upstream's status should be written when the schema allows two conditions.",
			refuses: maxItems,
			err:     invalid,
		},
		"MaxLength": {
			reason:  "Upstream's status should be written when the schema allows only short messages.",
			refuses: maxLength,
			err:     invalid,
		},
		"Forbidden": {
			reason:  "Upstream's status should be written when a webhook denies our condition.",
			refuses: hasOtherThanUpstreams,
			err:     denied,
		},
		"Bad": {
			reason:  "Upstream's status should be written when a webhook calls the request bad.",
			refuses: hasOtherThanUpstreams,
			err:     kerrors.NewBadRequest("denied"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)))
			ext := &kit.ExternalResource{Exists: true}
			recorder := &testkit.Said{}
			api.Before = refuseConditions(t, tc.refuses, tc.err)
			r := kit.NewBucketReconciler(api, kit.WithClient(ext.Client()), managed.WithRecorder(recorder))
			kit.MustReconcile(t, r, "b")
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "Ready", xpv2.ReasonDeleting, kit.ReasonOf(b, xpv2.TypeReady))
			kit.ExpectEqual(t, tc.reason, "Synced", xpv2.ReasonReconcileSuccess, kit.ReasonOf(b, xpv2.TypeSynced))
			kit.ExpectEqual(
				t, "An event should say that the deletion can't be reported.", "has the event", true,
				len(recorder.Events("CannotReportDeletion")) > 0,
			)
			kit.MustReconcile(t, r, "b")
			kit.ExpectEqual(t, "The deletion should not be blocked.", "calls of Delete", 1, ext.Count("delete"))
			kit.ExpectEqual(t, "The deletion should not be blocked.", "name", "", kit.GetBucket(t, api).GetName())
		})
	}
}

func TestStatus_RefusedConditionWithoutDeletion(t *testing.T) {
	cases := map[string]struct {
		reason     string
		bucket     *v1alpha1.Bucket
		opts       func(api *testkit.API) managed.ReconcilerOption
		wantSynced xpv2.ConditionReason
	}{
		"CreateResolved": {
			reason: "Upstream's error should be written when the schema refuses CreateResolved.",
			bucket: kit.NewBucket(kit.WithInterruptedCreate(0)),
			opts: func(*testkit.API) managed.ReconcilerOption {
				return resolve.With(&kit.FakeFinder{Err: kit.ErrProvider})
			},
			wantSynced: xpv2.ReasonReconcileError,
		},
		"OperationRunning": {
			reason: "Upstream's success should be written when the schema refuses OperationRunning.",
			bucket: kit.NewBucket(kit.WithExternalName("b"), func(b *v1alpha1.Bucket) {
				b.SetConditions(xpv2.Condition{
					Type:   asyncstate.TypeOperation,
					Status: corev1.ConditionTrue,
					Reason: asyncstate.ReasonRunning,
				})
			}),
			opts: func(api *testkit.API) managed.ReconcilerOption {
				return asyncstate.With(asyncstate.NewTracker())
			},
			wantSynced: xpv2.ReasonReconcileSuccess,
		},
		"ExternalNameReserved": {
			reason: "Upstream's error should be written when the schema refuses ExternalNameReserved.",
			bucket: kit.NewBucket(kit.WithExternalName("shared")),
			opts: func(api *testkit.API) managed.ReconcilerOption {
				other := kit.NewBucket(kit.WithExternalName("shared"))
				other.SetName("other")
				kit.Must(t, api.Server().Create(t.Context(), other))
				kit.MustReconcile(
					t,
					kit.NewBucketReconciler(
						api, kit.WithClient(kit.NewExternalClient(managed.ExternalClientFns{})),
						reservation.With("default"),
					),
					"other",
				)
				return reservation.With("default")
			},
			wantSynced: xpv2.ReasonReconcileError,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(tc.bucket)
			r := kit.NewBucketReconciler(
				api, kit.WithClient(kit.NewExternalClient(managed.ExternalClientFns{})), tc.opts(api),
			)
			api.Before = refuseConditions(
				t, hasOtherThanUpstreams, kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
			)
			_, _ = r.Reconcile(t.Context(), kit.Request())
			kit.ExpectEqual(t, tc.reason, "Synced", tc.wantSynced, kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced))
		})
	}
}

// refuseConditions returns a hook that fails writes of a status with err, if refuses returns true
// for the conditions.
func refuseConditions(t *testing.T, refuses func(cs []xpv2.Condition) bool, err error) testkit.Hook {
	t.Helper()
	return func(_ context.Context, r testkit.Request) error {
		if !kit.IsStatusWrite(r) {
			return nil
		}
		written := &v1alpha1.Bucket{}
		if r.Verb == testkit.StatusPatch {
			kit.Must(t, json.Unmarshal([]byte(r.Body), written))
		} else if b, ok := r.Object.(*v1alpha1.Bucket); ok {
			written = b
		}
		if refuses(written.Status.Conditions) {
			return err
		}
		return nil
	}
}
