package reconciler

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

func TestGuardFinalizer(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

	type outcome struct {
		Added, Removed, Conflict bool
	}

	cases := map[string]struct {
		reason string
		object *testkit.Bucket
		want   outcome
	}{
		"Alive": {reason: "A finalizer should be added to what is neither paused nor being deleted.", object: &testkit.Bucket{}, want: outcome{Added: true, Removed: true}},
		"Deleting": {
			reason: "A finalizer should not be added to what is being deleted, and be removed from it.",
			object: &testkit.Bucket{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, want: outcome{Removed: true, Conflict: true},
		},
		"Paused": {
			reason: "A finalizer should not be added to what is paused.",
			object: &testkit.Bucket{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{meta.AnnotationKeyReconciliationPaused: "true"}}},
			want:   outcome{Removed: true, Conflict: true},
		},
		"NotPaused": {
			reason: "Only the value true pauses.",
			object: &testkit.Bucket{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{meta.AnnotationKeyReconciliationPaused: "false"}}},
			want:   outcome{Added: true, Removed: true},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := outcome{}
			f := GuardFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { got.Added = true; return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { got.Removed = true; return nil },
			})

			err := f.AddFinalizer(context.Background(), tc.object)
			got.Conflict = kerrors.IsConflict(err)

			if err != nil && !got.Conflict {
				t.Errorf("\n%s\nAddFinalizer(...): %v", tc.reason, err)
			}

			if err := f.RemoveFinalizer(context.Background(), tc.object); err != nil {
				t.Errorf("\n%s\nRemoveFinalizer(...): %v", tc.reason, err)
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
