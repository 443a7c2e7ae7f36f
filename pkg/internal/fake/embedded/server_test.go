package embedded_test

import (
	"errors"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/answers"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const finalizer = "example.org/finalizer"

func serve(t *testing.T) *embedded.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatalf("AddToScheme(): %v", err)
	}
	s, err := embedded.New(embedded.Options{
		Scheme:              scheme,
		CRDs:                v1alpha1.CRDs(),
		Now:                 func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 999, time.UTC) },
		CollectorFinalizers: true,
	})
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	return s
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestCreate(t *testing.T) {
	s := serve(t)
	ctx := t.Context()
	bucket := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "chosen", Generation: 7}}
	bucket.Spec.ForProvider.Size = 1
	bucket.Status.AtProvider.ID = "from the user"
	must(t, "Create()", s.Client().Create(ctx, bucket))
	want := v1alpha1.NewBucket("default", "one")
	want.UID = "00000000-0000-4000-8000-000000000001"
	want.Generation = 1
	want.ResourceVersion = "1"
	want.CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if diff := cmp.Diff(want, bucket); diff != "" {
		t.Errorf("Create(): the server sets metadata and defaults and drops status: -want, +got:\n%s", diff)
	}
	again := v1alpha1.NewBucket("default", "one")
	if err := s.Client().Create(ctx, again); !kerrors.IsAlreadyExists(err) || again.UID != "" {
		t.Errorf("Create() of what exists: want AlreadyExists and an untouched object, got %v and UID %q", err, again.UID)
	}
	if err := s.Client().Create(ctx, v1alpha1.NewBucket("", "one")); !kerrors.IsBadRequest(err) {
		t.Errorf("Create() without a namespace: want BadRequest, got %v", err)
	}
	must(t, "Delete()", s.Client().Delete(ctx, bucket))
	must(t, "Create()", s.Client().Create(ctx, again))
	if again.UID == bucket.UID || again.ResourceVersion == bucket.ResourceVersion {
		t.Errorf("a new object has a UID and a resourceVersion of its own, got %s and %s twice", bucket.UID, bucket.ResourceVersion)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"forProvider": map[string]any{"size": int64(2)}}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.DatabaseKind))
	u.SetName("two")
	must(t, "Create() unstructured", s.Client().Create(ctx, u))
	policy, _, _ := unstructured.NestedString(u.Object, "spec", "deletionPolicy")
	if u.GetUID() == "" || u.GetUID() == bucket.UID || u.GetGeneration() != 1 || policy != string(xpv2.DeletionDelete) {
		t.Errorf("Create() unstructured: want an own UID, generation 1 and defaults, got %v", u.Object)
	}
}

// The server in memory answers as a real one does, of which integration tests ask the
// same.
func TestAnswers(t *testing.T) {
	answers.Run(t, func(t *testing.T) client.Client {
		t.Helper()
		return serve(t).Client()
	})
}

// What the garbage collector has to do is in finalizers, of which there is one.
func TestCollectorFinalizers(t *testing.T) {
	const foreground, orphan, background = metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground
	cases := map[string]struct {
		reason  string
		deletes []metav1.DeletionPropagation
		want    []string
	}{
		"Foreground": {
			reason:  "A delete that waits for dependents leaves the collector's finalizer.",
			deletes: []metav1.DeletionPropagation{foreground},
			want:    []string{finalizer, metav1.FinalizerDeleteDependents},
		},
		"Orphan": {
			reason:  "A second delete's policy is in force, and its finalizer takes the place of the first's.",
			deletes: []metav1.DeletionPropagation{foreground, orphan},
			want:    []string{finalizer, metav1.FinalizerOrphanDependents},
		},
		"Background": {
			reason:  "A delete that waits for nothing removes the collector's finalizer.",
			deletes: []metav1.DeletionPropagation{orphan, background},
			want:    []string{finalizer},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := serve(t).Client()
			d := v1alpha1.NewDatabase("one")
			d.SetFinalizers([]string{finalizer})
			must(t, "Create()", c.Create(t.Context(), d))
			for _, p := range tc.deletes {
				must(t, "Delete()", c.Delete(t.Context(), d, client.PropagationPolicy(p)))
			}
			must(t, "Get()", c.Get(t.Context(), client.ObjectKeyFromObject(d), d))
			if diff := cmp.Diff(tc.want, d.GetFinalizers()); diff != "" || d.GetGeneration() != 2 {
				t.Errorf("\n%s\nwant generation 2, got %d; finalizers: -want, +got:\n%s", tc.reason, d.GetGeneration(), diff)
			}
		})
	}
}

func TestAnswersAreWhatIsStored(t *testing.T) {
	s := serve(t)
	ctx := t.Context()
	d := v1alpha1.NewDatabase("one")
	must(t, "Create()", s.Client().Create(ctx, d))
	d.SetConditions(xpv2.Available())
	must(t, "Status().Update()", s.Client().Status().Update(ctx, d))
	stored := &v1alpha1.Database{}
	must(t, "Get()", s.Client().Get(ctx, client.ObjectKeyFromObject(d), stored))
	if diff := cmp.Diff(stored, d); diff != "" {
		t.Errorf("-stored, +answer to the write:\n%s", diff)
	}
	if got := d.GetCondition(xpv2.TypeReady).LastTransitionTime.Nanosecond(); got != 0 {
		t.Errorf("want times of whole seconds, got %d ns more", got)
	}
}
