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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// The API server refuses to store what an external client set, for good.
func TestAnnotationsRefused(t *testing.T) {
	forbidden := kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("no"))
	invalid := kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)

	type outcome struct {
		Name             string
		Creates, Deletes int
		Gone             bool
	}

	cases := map[string]struct {
		reason string
		refuse func(r testkit.Request) error
		// async external clients learn the name when they observe.
		async bool
		want  outcome
	}{
		"PatchesOfAsync": {
			reason: "Without permission to patch, a name that Observe learned should be stored as well.",
			async:  true,
			refuse: func(r testkit.Request) error {
				if r.Verb == testkit.Patch || r.Verb == testkit.StatusPatch {
					return forbidden
				}

				return nil
			},
			want: outcome{Name: "id-1", Creates: 1, Deletes: 1, Gone: true},
		},
		"Patches": {
			reason: "Without permission to patch, the whole object should be updated.",
			refuse: func(r testkit.Request) error {
				if r.Verb == testkit.Patch || r.Verb == testkit.StatusPatch {
					return forbidden
				}

				return nil
			},
			want: outcome{Name: "id-1", Creates: 1, Deletes: 1, Gone: true},
		},
		"TheName": {
			reason: "If the name can't be stored at all, nothing should be created again, and deletion should not be held up.",
			refuse: func(r testkit.Request) error {
				if r.Verb == testkit.Patch || r.Verb == testkit.Update && meta.GetExternalName(r.Object) != "" && !meta.WasDeleted(r.Object) {
					return invalid
				}

				return nil
			},
			want: outcome{Creates: 1, Deletes: 1, Gone: true},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket())
			a.Before = func(_ context.Context, r testkit.Request) error { return tc.refuse(r) }

			got := outcome{}
			external := false

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					if external && tc.async {
						meta.SetExternalName(mg, "id-1")
					}

					if !external || meta.GetExternalName(mg) == "" {
						return absent(ctx, mg)
					}

					return exists(ctx, mg)
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					got.Creates++
					external = true

					if !tc.async {
						meta.SetExternalName(mg, "id-1")
					}

					return ExternalCreation{}, nil
				},
				DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
					got.Deletes++
					external = false

					return ExternalDelete{}, nil
				},
			}))

			reconcile := func() {
				for range 5 {
					// What is refused is an error, and may be.
					_, _ = r.Reconcile(context.Background(), request())
				}
			}

			reconcile()

			got.Name = meta.GetExternalName(get(t, a))

			must(t, a.Server().Delete(context.Background(), get(t, a)))

			reconcile()

			err := a.Server().Get(context.Background(), request().NamespacedName, &v1alpha1.Bucket{})
			got.Gone = kerrors.IsNotFound(err)

			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
