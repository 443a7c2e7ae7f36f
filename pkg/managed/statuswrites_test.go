package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// What Observe put in status must be on the API server after the first
// reconcile, whatever else had to be written in it.
func TestFirstReconcileStoresWhatWasObserved(t *testing.T) {
	lateInit := func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		o, err := exists(ctx, mg)
		if b, ok := mg.(*testkit.Bucket); ok {
			b.Spec.ForProvider.Region = "eu"
		}

		o.ResourceLateInitialized = true

		return o, err
	}

	cases := map[string]struct {
		reason string
		object *testkit.Bucket
		opts   func(a *testkit.API) []ReconcilerOption
		check  func(t *testing.T, b *testkit.Bucket)
	}{
		"FinalizerAdded": {
			reason: "Adding the default finalizer should not lose status.",
			object: bucket(named("id-1")),
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{connects(upstream.ExternalClientFns{})}
			},
		},
		"CustomFinalizerAddedPastTheSeam": {
			reason: "A finalizer with a client of its own should not lose status.",
			object: bucket(named("id-1")),
			opts: func(a *testkit.API) []ReconcilerOption {
				return []ReconcilerOption{
					connects(upstream.ExternalClientFns{}),
					WithFinalizer(resource.NewAPIFinalizer(a.Client(), "custom")),
				}
			},
			check: func(t *testing.T, b *testkit.Bucket) {
				t.Helper()

				if !meta.FinalizerExists(b, "custom") {
					t.Errorf("finalizers: want custom, got %v", b.GetFinalizers())
				}
			},
		},
		"NameStored": {
			reason: "Storing an external name that Observe learned should not lose status.",
			object: bucket(policies(xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve)),
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					o, err := exists(ctx, mg)
					meta.SetExternalName(mg, "id-1")
					o.ResourceLateInitialized = true

					return o, err
				}})}
			},
		},
		"SpecLateInitialized": {
			reason: "Late-initializing spec should not lose status.",
			object: bucket(named("id-1")),
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{connects(upstream.ExternalClientFns{ObserveFn: lateInit})}
			},
			check: func(t *testing.T, b *testkit.Bucket) {
				t.Helper()

				if b.Spec.ForProvider.Region != "eu" {
					t.Errorf("spec was not late-initialized")
				}
			},
		},
		"SpecLateInitializedWithoutPolicy": {
			reason: "Spec should not be late-initialized against the management policies.",
			object: bucket(named("id-1"), policies(xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve)),
			opts: func(*testkit.API) []ReconcilerOption {
				// The finalizer would be written with the whole object.
				return []ReconcilerOption{
					connects(upstream.ExternalClientFns{ObserveFn: lateInit}),
					WithFinalizer(resource.FinalizerFns{
						AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
						RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
					}),
				}
			},
			check: func(t *testing.T, b *testkit.Bucket) {
				t.Helper()

				if b.Spec.ForProvider.Region != "" {
					t.Errorf("spec was late-initialized")
				}
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			r := newBucketReconciler(a, tc.opts(a)...)

			if _, err := r.Reconcile(context.Background(), request()); err != nil {
				t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
			}

			b := get(t, a)
			if b.Status.AtProvider.ID != "id-1" || b.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || b.GetCondition(xpv2.TypeSynced).Status != corev1.ConditionTrue {
				t.Errorf("\n%s\nstatus: %+v", tc.reason, b.Status)
			}

			if meta.GetExternalName(b) != "id-1" {
				t.Errorf("\n%s\nexternal name: want id-1, got %q", tc.reason, meta.GetExternalName(b))
			}

			if tc.check != nil {
				tc.check(t, b)
			}

			a.Forget()

			for range 10 {
				if _, err := r.Reconcile(context.Background(), request()); err != nil {
					t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
				}
			}

			if n := a.Writes(); n != 0 {
				t.Errorf("\n%s\nwrites in 10 more reconciles: want 0, got %d: %+v", tc.reason, n, a.Requests())
			}
		})
	}
}
