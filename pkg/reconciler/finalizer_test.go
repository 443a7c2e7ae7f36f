package reconciler

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestGuardFinalizer(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	paused := func(v string) *v1alpha1.Bucket {
		return &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{meta.AnnotationKeyReconciliationPaused: v}}}
	}

	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		want   bool
	}{
		"Alive":     {reason: "A finalizer should be added to what is neither paused nor being deleted.", object: &v1alpha1.Bucket{}, want: true},
		"Deleting":  {reason: "A finalizer should not be added to what is being deleted.", object: &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}},
		"Paused":    {reason: "A finalizer should not be added to what is paused.", object: paused("true")},
		"NotPaused": {reason: "Only the value true pauses.", object: paused("false"), want: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			added, removed := false, false
			f := GuardFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { added = true; return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { removed = true; return nil },
			})

			if err := f.AddFinalizer(context.Background(), tc.object); added != tc.want || kerrors.IsConflict(err) == tc.want || err != nil && tc.want {
				t.Errorf("\n%s\nAddFinalizer(...): added %t, %v", tc.reason, added, err)
			}

			if err := f.RemoveFinalizer(context.Background(), tc.object); err != nil || !removed {
				t.Errorf("\n%s\nRemoveFinalizer(...): removed %t, %v", tc.reason, removed, err)
			}
		})
	}
}
