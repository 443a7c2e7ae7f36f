package managed

import (
	"context"
	"testing"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A pause that comes up while the external resource is observed must not be
// followed by a finalizer, nor by a create that no finalizer protects.
func TestFinalizerGuard(t *testing.T) {
	cases := map[string]struct {
		reason  string
		pauses  bool
		opts    []ReconcilerOption
		want    []string
		creates int
	}{
		"Usual":                  {reason: "A finalizer is added before the external resource is created.", want: []string{FinalizerName}, creates: 1},
		"PausedMeanwhile":        {reason: "No finalizer is added to what is paused, and nothing created.", pauses: true},
		"PausedMeanwhileWithout": {reason: "Without the guard it is added, but nothing is created for what is known to be paused.", pauses: true, opts: []ReconcilerOption{WithoutFinalizerGuard()}, want: []string{FinalizerName}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket()), &outside{}
			if tc.pauses {
				x.on("observe", func(b *v1alpha1.Bucket) error { paused(b); return nil })
			}

			run(t, newBucketReconciler(a, append(tc.opts, connects(x.client()))...), "b")
			wants(t, tc.reason, "finalizers, creates", []any{tc.want, tc.creates}, []any{get(t, a).GetFinalizers(), x.did("create")})
		})
	}
}

// Whatever finalizers do it, the last step of a deletion must not fail because
// the object is gone.
func TestFinalizerOfWhatIsGone(t *testing.T) {
	for wayName, w := range ways() {
		t.Run(wayName, func(t *testing.T) {
			a := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName)))
			x := (&outside{}).on("observe", func(*v1alpha1.Bucket) error { kill(t, a, "b"); return nil })
			r := newBucketReconciler(a, append(w.opts(a), connects(x.client()))...)

			if _, err := r.Reconcile(context.Background(), request()); err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
				t.Errorf("\n%s\nReconcile: %v", w.reason, err)
			}

			run(t, r, "b")
			wants(t, w.reason, "objects in memory", 0, r.seam.Memory().Len())
		})
	}
}
