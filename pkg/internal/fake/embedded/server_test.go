package embedded_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	const (
		foreground = metav1.DeletePropagationForeground
		orphan     = metav1.DeletePropagationOrphan
		background = metav1.DeletePropagationBackground
	)
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
				t.Errorf(
					"\n%s\nwant generation 2, got %d; finalizers: -want, +got:\n%s", tc.reason, d.GetGeneration(),
					diff,
				)
			}
		})
	}
}
