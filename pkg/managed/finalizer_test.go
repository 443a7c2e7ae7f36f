package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A pause that comes up while the external resource is observed must not be
// followed by a finalizer, nor by a create that no finalizer protects.
func TestFinalizerGuard(t *testing.T) {
	pause := func(mg resource.Managed) {
		meta.AddAnnotations(mg, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
	}

	cases := map[string]struct {
		reason  string
		object  *v1alpha1.Bucket
		opts    []ReconcilerOption
		observe func(mg resource.Managed)
		want    []string
		creates int
	}{
		"Usual": {
			reason:  "A finalizer is added before the external resource is created.",
			object:  bucket(),
			observe: func(resource.Managed) {},
			want:    []string{FinalizerName},
			creates: 1,
		},
		"PausedMeanwhile": {
			reason:  "No finalizer is added to what is paused, and nothing created.",
			object:  bucket(),
			observe: pause,
		},
		"PausedMeanwhileWithout": {
			reason:  "Without the guard it is added, but nothing is created for what is known to be paused.",
			object:  bucket(),
			opts:    []ReconcilerOption{WithoutFinalizerGuard()},
			observe: pause,
			want:    []string{FinalizerName},
			creates: 0,
		},
		"Deleting": {
			reason:  "No finalizer is added to what is being deleted.",
			object:  bucket(deleting, finalizers("other", "another")),
			observe: func(resource.Managed) {},
			want:    []string{"other", "another"},
		},
		"Paused": {
			reason:  "No finalizer is added to what was paused before.",
			object:  bucket(annotated(meta.AnnotationKeyReconciliationPaused, "true")),
			observe: func(resource.Managed) {},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, creates := testkit.NewAPI(tc.object), 0
			r := newBucketReconciler(a, append(tc.opts, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					tc.observe(mg)
					return absent(ctx, mg)
				},
				CreateFn: counts[ExternalCreation](&creates),
			}))...)

			if _, err := r.Reconcile(context.Background(), request()); err != nil {
				t.Errorf("\n%s\nReconcile: %v", tc.reason, err)
			}

			if diff := cmp.Diff([]any{tc.want, tc.creates}, []any{get(t, a).GetFinalizers(), creates}); diff != "" {
				t.Errorf("\n%s\nfinalizers, creates: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A custom finalizer is called, and its errors are reported, as with upstream.
func TestCustomFinalizer(t *testing.T) {
	boom := errors.New("boom")

	cases := map[string]struct {
		reason   string
		err      error
		calls    int
		requeues bool
		synced   string
	}{
		"Fine":     {reason: "It is called once a reconcile.", calls: 1},
		"Fails":    {reason: "Its error is said.", err: boom, calls: 1, requeues: true, synced: "boom"},
		"Conflict": {reason: "A conflict is quiet.", err: lostRace(testkit.Request{}), calls: 1, requeues: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, calls := testkit.NewAPI(bucket(named("id-1"))), 0
			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{}), WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { calls++; return tc.err },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
			}))

			result, err := r.Reconcile(context.Background(), request())
			b := get(t, a)

			//nolint:staticcheck // Upstream asks for a requeue this way.
			got := []any{calls, err == nil, result.Requeue, b.GetCondition("Synced").Message}
			if diff := cmp.Diff([]any{tc.calls, true, tc.requeues, tc.synced}, got); diff != "" {
				t.Errorf("\n%s\ncalls, no error, requeue, message: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever finalizers do it, the last step of a deletion must not fail because
// the object is gone.
func TestFinalizerOfWhatIsGone(t *testing.T) {
	for wayName, w := range ways() {
		t.Run(wayName, func(t *testing.T) {
			a := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName)))
			r := newBucketReconciler(a, append(w.opts(a), connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				b := get(t, a)
				b.SetFinalizers(nil)

				must(t, a.Server().Update(ctx, b))

				return absent(ctx, mg)
			}}))...)

			if _, err := r.Reconcile(context.Background(), request()); err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
				t.Errorf("\n%s\nReconcile: %v", w.reason, err)
			}

			if n := r.seam.Memory().Len(); n != 0 {
				if _, err := r.Reconcile(context.Background(), request()); err != nil || r.seam.Memory().Len() != 0 {
					t.Errorf("\n%s\nMemory.Len: want 0, got %d, %v", w.reason, n, err)
				}
			}
		})
	}
}

// A conflict has shown the pause before a finalizer of the provider's own is added or
// removed, which writes whatever the resource version is.
func TestFinalizerOfWhatHasChanged(t *testing.T) {
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		exists bool
		want   []string
	}{
		"Add":    {reason: "What is paused gets none.", object: bucket(named("id-1")), exists: true},
		"Remove": {reason: "What is paused keeps it.", object: bucket(named("id-1"), finalizers(FinalizerName), deleting), want: []string{FinalizerName}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)

			r := newBucketReconciler(a, WithFinalizer(patchingFinalizer{a: a}), connects(upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					edit(t, a, "b", annotated(meta.AnnotationKeyReconciliationPaused, "true"))
					meta.AddAnnotations(mg, map[string]string{"learned": "now"})

					return ExternalObservation{ResourceExists: tc.exists, ResourceUpToDate: true}, nil
				},
			}))

			run(t, r, "b")

			if diff := cmp.Diff(tc.want, bucketNamed(t, a, "b").GetFinalizers()); diff != "" {
				t.Errorf("\n%s\nfinalizers: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
