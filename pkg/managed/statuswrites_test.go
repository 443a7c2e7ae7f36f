package managed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// What Observe put in status must be on the API server after the first
// reconcile, whatever else had to be written in it.
func TestFirstReconcileStoresWhatWasObserved(t *testing.T) {
	lateInit := func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		o, err := exists(ctx, mg)
		if b, ok := mg.(*v1alpha1.Bucket); ok {
			b.Spec.ForProvider.Region = "eu"
		}

		o.ResourceLateInitialized = true

		return o, err
	}

	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		opts   func(a *testkit.API) []ReconcilerOption
		check  func(t *testing.T, b *v1alpha1.Bucket)
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
			check: func(t *testing.T, b *v1alpha1.Bucket) {
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
			check: func(t *testing.T, b *v1alpha1.Bucket) {
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
			check: func(t *testing.T, b *v1alpha1.Bucket) {
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

			run(t, r, "b")

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
				run(t, r, "b")
			}

			if n := a.Writes(); n != 0 {
				t.Errorf("\n%s\nwrites in 10 more reconciles: want 0, got %d: %+v", tc.reason, n, a.Requests())
			}
		})
	}
}

// A condition of another writer must never be overwritten, at whatever moment it is
// written.
func TestForeignConditionsAreKept(t *testing.T) {
	const most = 12

	for wayName, w := range ways() {
		for _, moment := range []string{"Before", "After"} {
			for k := 1; k <= most; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", wayName, moment, k), func(t *testing.T) {
					a, x := testkit.NewAPI(bucket()), newOutside()
					foreign := xpv2.Condition{Type: "Foreign", Status: corev1.ConditionTrue, Reason: "Because", Message: "of another writer"}
					write := on(k, func(testkit.Request) bool { return true }, func(testkit.Request) error {
						b := get(t, a)
						b.SetConditions(foreign)

						return a.Server().Status().Update(context.Background(), b)
					})

					if moment == "Before" {
						a.Before = write
					} else {
						a.After = write
					}

					r := newBucketReconciler(a, append(w.opts(a), connects(x.client()))...)

					for range most {
						if _, err := r.Reconcile(context.Background(), request()); err != nil {
							t.Errorf("\n%s\nReconcile: %v", w.reason, err)
						}
					}

					drive(t, r, a)
					settledAs(t, w.reason, a, x)

					if diff := cmp.Diff(foreign, get(t, a).GetCondition("Foreign")); diff != "" {
						t.Errorf("\n%s\ncondition of another writer: -want, +got:\n%s", w.reason, diff)
					}
				})
			}
		}
	}
}

func TestStatusWrites(t *testing.T) {
	const reconciles = 100

	steady := func(int) upstream.ExternalClientFns { return upstream.ExternalClientFns{} }

	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		opts   []ReconcilerOption

		// client returns the external client of the n-th reconcile.
		client func(n int) upstream.ExternalClientFns

		// between is done before the n-th reconcile.
		between func(n int, b *v1alpha1.Bucket) bool
		want    int
	}{
		"Unchanged": {
			reason: "A status that does not change is not written.",
			object: bucket(named("id-1")),
			client: steady,
		},
		"UnchangedWanted": {
			reason: "It is if that is wanted.",
			object: bucket(named("id-1")),
			opts:   []ReconcilerOption{WithUnchangedStatusWrites()},
			client: steady,
			want:   reconciles,
		},
		"EmptyLists": {
			reason: "An empty map is no map.",
			object: bucket(named("id-1")),
			client: func(n int) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					o, err := exists(ctx, mg)
					if n%2 == 0 {
						bucketOf(mg).Status.AtProvider.Facts = map[string]string{}
					}

					return o, err
				}}
			},
		},
		"Changing": {
			reason: "A status that changes each time is written each time.",
			object: bucket(named("id-1")),
			client: func(n int) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					o, err := exists(ctx, mg)
					bucketOf(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(n)}

					return o, err
				}}
			},
			want: reconciles,
		},
		"Failing": {
			reason: "The same failure each time is written once.",
			object: bucket(named("id-1")),
			client: func(int) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: returns(ExternalObservation{}, errors.New("boom"))}
			},
		},
		"Paused": {
			reason: "What is paused says so once.",
			object: bucket(named("id-1"), annotated(meta.AnnotationKeyReconciliationPaused, "true")),
			client: steady,
		},
		"PausedByPolicy": {
			reason: "What is paused by policy says so once.",
			object: bucket(named("id-1"), policies()),
			client: steady,
		},
		"ReconcileRequested": {
			reason: "A request to reconcile is acknowledged, though nothing else changed.",
			object: bucket(named("id-1")),
			client: steady,
			between: func(n int, b *v1alpha1.Bucket) bool {
				if n%50 != 0 {
					return false
				}

				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconcileRequestedAt: fmt.Sprint("token-", n)})

				return true
			},
			want: 2,
		},
		"ForeignAnnotations": {
			reason: "That others write what is not status is no reason to write status.",
			object: bucket(named("id-1")),
			client: steady,
			between: func(n int, b *v1alpha1.Bucket) bool {
				meta.AddAnnotations(b, map[string]string{"example.org/n": fmt.Sprint(n)})
				return true
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			n := 0
			r := newBucketReconciler(a, append(tc.opts, WithExternalConnector(ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
				c := clientOf(tc.client(n))
				return &c, nil
			})))...)

			for range 3 {
				run(t, r, "b")
			}

			a.Forget()

			for n = 1; n <= reconciles; n++ {
				if b := get(t, a); tc.between != nil && tc.between(n, b) {
					must(t, a.Server().Update(context.Background(), b))
				}

				run(t, r, "b")
			}

			if diff := cmp.Diff([]int{tc.want, tc.want}, []int{a.Count(testkit.StatusUpdate), a.Writes()}); diff != "" {
				t.Errorf("\n%s\nstatus updates, writes in %d reconciles: -want, +got:\n%s", tc.reason, reconciles, diff)
			}

			b := get(t, a)
			if token := b.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt]; b.GetLastHandledReconcileAt() != token {
				t.Errorf("\n%s\nlast handled request: want %q, got %q", tc.reason, token, b.GetLastHandledReconcileAt())
			}
		})
	}
}

// What the API server stores in the same way is not written again.
func TestStatusIsComparedAsStored(t *testing.T) {
	cases := map[string]struct {
		reason  string
		observe func(b *v1alpha1.Bucket, n int)
		want    int
	}{
		"RawNewline": {
			reason:  "Raw JSON with a trailing newline, as an encoder writes it.",
			observe: func(b *v1alpha1.Bucket, _ int) { b.Status.AtProvider.Manifest.Raw = []byte("{\"b\": 1,\"a\":[1.0]}\n") },
		},
		"Milliseconds": {
			reason: "A time with milliseconds, as an external API returns it.",
			observe: func(b *v1alpha1.Bucket, n int) {
				b.Status.AtProvider.Created = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 1000*n, time.UTC)}
			},
		},
		"AnotherTime": {
			reason: "Another second is another time.",
			observe: func(b *v1alpha1.Bucket, n int) {
				b.Status.AtProvider.Created = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC)}
			},
			want: 3,
		},
		"AnotherRaw": {
			reason: "Another value is another value.",
			observe: func(b *v1alpha1.Bucket, n int) {
				b.Status.AtProvider.Manifest.Raw = fmt.Appendf(nil, "{\"a\":%d}\n", n)
			},
			want: 3,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, n := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				n++
				tc.observe(bucketOf(mg), n)

				return exists(ctx, mg)
			}}))

			reconcile := func() {
				run(t, r, "b")
			}

			reconcile()
			a.Forget()

			for range 3 {
				reconcile()
			}

			if got := a.Writes(); got != tc.want {
				t.Errorf("\n%s\nwrites in a steady state: want %d, got %d", tc.reason, tc.want, got)
			}
		})
	}
}
