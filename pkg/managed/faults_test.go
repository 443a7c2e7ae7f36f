package managed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// An outside is an external system that assigns the ids of its resources.
type outside struct {
	mu      sync.Mutex
	regions map[string]string
	creates int
	deletes int

	// fact is something about all resources that Observe reports.
	fact string

	// nameless counts observations, after a create, of a managed resource that
	// lacked its name.
	nameless int

	// created is called with the managed resource when the external resource
	// was created, and its result is that of Create.
	created func(ctx context.Context, mg resource.Managed) error
}

func newOutside() *outside { return &outside{regions: map[string]string{}} }

func (x *outside) ids() []string {
	x.mu.Lock()
	defer x.mu.Unlock()

	ids := make([]string, 0, len(x.regions))
	for id := range x.regions {
		ids = append(ids, id)
	}

	slices.Sort(ids)

	return ids
}

func (x *outside) client() upstream.ExternalClientFns {
	return upstream.ExternalClientFns{ObserveFn: x.observe, CreateFn: x.create, UpdateFn: x.update, DeleteFn: x.delete}
}

func (x *outside) observe(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
	x.mu.Lock()
	defer x.mu.Unlock()

	name := meta.GetExternalName(mg)
	if name == "" && x.creates > 0 {
		x.nameless++
	}

	region, ok := x.regions[name]
	if !ok {
		return ExternalObservation{}, nil
	}

	b, _ := mg.(*v1alpha1.Bucket)
	b.Status.AtProvider = v1alpha1.Observation{ID: name}

	if x.fact != "" {
		b.Status.AtProvider.Facts = map[string]string{"fact": x.fact}
	}

	mg.SetConditions(xpv2.Available())

	return ExternalObservation{ResourceExists: true, ResourceUpToDate: region == b.Spec.ForProvider.Region}, nil
}

func (x *outside) create(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
	x.mu.Lock()
	b, _ := mg.(*v1alpha1.Bucket)
	x.creates++
	id := fmt.Sprintf("id-%d", x.creates)
	x.regions[id] = b.Spec.ForProvider.Region
	x.mu.Unlock()

	meta.SetExternalName(mg, id)

	if x.created != nil {
		return ExternalCreation{}, x.created(ctx, mg)
	}

	return ExternalCreation{}, nil
}

func (x *outside) update(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
	x.mu.Lock()
	defer x.mu.Unlock()

	b, _ := mg.(*v1alpha1.Bucket)
	x.regions[meta.GetExternalName(mg)] = b.Spec.ForProvider.Region

	return ExternalUpdate{}, nil
}

func (x *outside) delete(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
	x.mu.Lock()
	defer x.mu.Unlock()

	x.deletes++
	delete(x.regions, meta.GetExternalName(mg))

	return ExternalDelete{}, nil
}

// drive reconciles until nothing is left to do: no request to run again and no
// write, twice in a row. It fails the test if that takes too many reconciles.
func drive(t *testing.T, r reconcile.Reconciler, a *testkit.API) {
	t.Helper()

	const enough = 40

	quiet := 0

	var last error

	for range enough {
		before := a.Writes()
		result, err := r.Reconcile(context.Background(), request())
		last = err

		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err == nil && !result.Requeue && a.Writes() == before {
			quiet++
		} else {
			quiet = 0
		}

		if quiet == 2 {
			return
		}
	}

	t.Fatalf("no rest after %d reconciles: last error %v, status %+v", enough, last, get(t, a).Status)
}

func isWrite(r testkit.Request) bool { return r.Verb != testkit.Get && r.Verb != testkit.LiveGet }

// on returns a hook that calls fn for the k-th request that matches, counted
// from 1.
func on(k int, match func(testkit.Request) bool, fn func(r testkit.Request) error) func(context.Context, testkit.Request) error {
	var mu sync.Mutex

	return func(_ context.Context, r testkit.Request) error {
		mu.Lock()
		defer mu.Unlock()

		if !match(r) {
			return nil
		}

		if k--; k != 0 {
			return nil
		}

		return fn(r)
	}
}

func lostRace(testkit.Request) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("another writer was first"))
}

func broken(testkit.Request) error { return kerrors.NewInternalError(errors.New("etcd is on holiday")) }

// A way is one of those in which a reconciler may be configured.
type way struct {
	reason string

	// clobbers means that the reconciler may revert an annotation that another
	// writer changes.
	clobbers bool

	opts func(a *testkit.API) []ReconcilerOption
}

func ways() map[string]way {
	unguarded := func(a *testkit.API) resource.Finalizer {
		set := func(body string) func(context.Context, resource.Object) error {
			return func(ctx context.Context, o resource.Object) error {
				return client.IgnoreNotFound(a.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(body))))
			}
		}

		return resource.FinalizerFns{
			AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
				if meta.FinalizerExists(o, FinalizerName) {
					return nil
				}

				return set(`{"metadata":{"finalizers":["`+FinalizerName+`"]}}`)(ctx, o)
			},
			RemoveFinalizerFn: set(`{"metadata":{"finalizers":null}}`),
		}
	}

	return map[string]way{
		"Default": {
			reason: "As it comes.",
			opts:   func(*testkit.API) []ReconcilerOption { return nil },
		},
		"CustomFinalizer": {
			reason: "A finalizer that writes past the seam.",
			opts: func(a *testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithFinalizer(resource.NewAPIFinalizer(a.Client(), FinalizerName))}
			},
		},
		"UnguardedFinalizer": {
			reason: "A finalizer that writes past the seam, whatever the resource version.",
			opts: func(a *testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithFinalizer(unguarded(a))}
			},
		},
		"UpstreamCriticalAnnotations": {
			reason:   "Upstream's way to store critical annotations, past the seam.",
			clobbers: true,
			opts: func(a *testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))}
			},
		},
	}
}

// settledAs fails the test unless the managed resource is at rest with its one
// external resource.
func settledAs(t *testing.T, reason string, a *testkit.API, x *outside) {
	t.Helper()

	b := get(t, a)
	got := map[string]any{
		"external resources": x.ids(),
		"creates":            x.creates,
		"name":               meta.GetExternalName(b),
		"id":                 b.Status.AtProvider.ID,
		"ready":              b.GetCondition(xpv2.TypeReady).Status,
		"synced":             b.GetCondition(xpv2.TypeSynced).Status,
		"finalizers":         b.GetFinalizers(),
		"incomplete":         meta.ExternalCreateIncomplete(b),
		"nameless":           x.nameless,
	}
	want := map[string]any{
		"external resources": []string{"id-1"},
		"creates":            1,
		"name":               "id-1",
		"id":                 "id-1",
		"ready":              corev1.ConditionTrue,
		"synced":             corev1.ConditionTrue,
		"finalizers":         []string{FinalizerName},
		"incomplete":         false,
		"nameless":           0,
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("\n%s\nat rest: -want, +got:\n%s", reason, diff)
	}
}

// A fault disturbs one request: before it takes effect, or after.
type fault struct {
	before, after func(testkit.Request) error
}

func faults() map[string]fault {
	return map[string]fault{
		"Conflict":   {before: lostRace},
		"Error":      {before: broken},
		"LostAnswer": {after: broken},
	}
}

// inject the fault into the k-th write from now on.
func (f fault) inject(a *testkit.API, k int) (hit *testkit.Request) {
	hit = &testkit.Request{}

	do := func(fn func(testkit.Request) error) func(context.Context, testkit.Request) error {
		return on(k, isWrite, func(r testkit.Request) error {
			*hit = r
			if o, ok := r.Object.DeepCopyObject().(client.Object); ok {
				hit.Object = o
			}

			return fn(r)
		})
	}

	if f.before != nil {
		a.Before = do(f.before)
	}

	if f.after != nil {
		a.After = do(f.after)
	}

	return hit
}

// Each single write of a managed resource fails once, in several ways. The managed
// resource still has one external resource, and ends as it should.
func TestFaultAtAnyWrite(t *testing.T) {
	const most = 12

	for wayName, w := range ways() {
		for faultName, f := range faults() {
			for k := 1; k <= most; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", wayName, faultName, k), func(t *testing.T) {
					reason := w.reason + " A managed resource should come to have one external resource."
					a, x := testkit.NewAPI(bucket()), newOutside()
					r := newBucketReconciler(a, append(w.opts(a), connects(x.client()))...)

					hit := f.inject(a, k)
					drive(t, r, a)

					if f.after != nil && hit.Verb == testkit.Update && x.creates == 0 {
						// The answer to the update that announces the create was
						// lost. Upstream reports that its outcome is unknown, and an
						// operator settles it.
						b := get(t, a)
						if !meta.ExternalCreateIncomplete(b) {
							t.Fatalf("\n%s\nwant an incomplete create, got %+v", reason, b)
						}

						edit(t, a, "b", unannotated(meta.AnnotationKeyExternalCreatePending))

						drive(t, r, a)
					}

					settledAs(t, reason, a, x)

					b := get(t, a)
					b.Spec.ForProvider.Region = "eu"

					must(t, a.Server().Update(context.Background(), b))

					a.Before, a.After = nil, nil
					f.inject(a, k)
					drive(t, r, a)
					settledAs(t, w.reason+" An update should be made.", a, x)

					if diff := cmp.Diff(map[string]string{"id-1": "eu"}, x.regions); diff != "" {
						t.Errorf("\n%s\nAn update should be made: -want, +got:\n%s", w.reason, diff)
					}

					must(t, a.Server().Delete(context.Background(), get(t, a)))

					a.Before, a.After = nil, nil
					f.inject(a, k)
					drive(t, r, a)

					gone := kerrors.IsNotFound(a.Server().Get(context.Background(), request().NamespacedName, bucket()))
					if diff := cmp.Diff([]any{true, []string{}, 0}, []any{gone, x.ids(), r.seam.Memory().Len()}); diff != "" {
						t.Errorf("\n%s\nA deleted managed resource should go, and nothing of it be left (gone, external resources, memory): -want, +got:\n%s", w.reason, diff)
					}
				})
			}
		}
	}
}

// An API server that is away when a create returns must cost neither the name
// nor a second external resource.
func TestOutageAfterCreate(t *testing.T) {
	cases := map[string]struct {
		reason string
		down   func(testkit.Request) bool
	}{
		"Everything": {
			reason: "Reads fail too.",
			down:   func(testkit.Request) bool { return true },
		},
		"AllButTheCache": {
			reason: "The cache serves what it has.",
			down:   func(r testkit.Request) bool { return r.Verb != testkit.Get },
		},
		"PatchesOnly": {
			reason: "Reads and whole updates work.",
			down:   func(r testkit.Request) bool { return r.Verb == testkit.Patch },
		},
	}

	for name, tc := range cases {
		for _, requests := range []int{1, 2, 11, 12, 13, 23, 24, 25, 26, 60} {
			t.Run(fmt.Sprintf("%s/%d", name, requests), func(t *testing.T) {
				a, x := testkit.NewAPI(bucket()), newOutside()
				left := 0
				x.created = func(context.Context, resource.Managed) error {
					left = requests
					return nil
				}
				a.Before = func(_ context.Context, r testkit.Request) error {
					if left == 0 || !tc.down(r) {
						return nil
					}

					left--

					return broken(r)
				}

				drive(t, newBucketReconciler(a, connects(x.client())), a)
				settledAs(t, tc.reason, a, x)
			})
		}
	}
}

// The result of a call is stored even if its context is cancelled.
func TestCancelledContext(t *testing.T) {
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		client func(cancel func()) upstream.ExternalClientFns
		want   []string
	}{
		"ObserveFails": {
			reason: "The name that Observe found should be stored, although it failed.",
			object: bucket(),
			client: func(cancel func()) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					meta.SetExternalName(mg, "id-1")
					cancel()

					return ExternalObservation{}, ctx.Err()
				}}
			},
			want: []string{meta.AnnotationKeyExternalName},
		},
		"Create": {
			reason: "The name and the success of a create should be stored.",
			object: bucket(),
			client: func(cancel func()) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: absent, CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					meta.SetExternalName(mg, "id-1")
					cancel()

					return ExternalCreation{}, nil
				}}
			},
			want: []string{meta.AnnotationKeyExternalName, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()

			_, _ = newBucketReconciler(a, connects(tc.client(cancel))).Reconcile(ctx, request())

			b := get(t, a)

			var got []string
			for k := range b.GetAnnotations() {
				got = append(got, k)
			}

			slices.Sort(got)
			slices.Sort(tc.want)

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nannotations: -want, +got:\n%s", tc.reason, diff)
			}

			if meta.GetExternalName(b) != "id-1" {
				t.Errorf("\n%s\nexternal name: want id-1, got %q", tc.reason, meta.GetExternalName(b))
			}
		})
	}
}

// Nothing is stored for an object that is deleted, or replaced, while its external
// client is called. The object that has its name now is not changed.
func TestGoneMeanwhile(t *testing.T) {
	remove := func(t *testing.T, a *testkit.API) {
		t.Helper()

		b := edit(t, a, "b", finalizers())
		if err := a.Server().Delete(context.Background(), b); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	replace := func(t *testing.T, a *testkit.API) {
		t.Helper()
		remove(t, a)

		must(t, a.Server().Create(context.Background(), bucket(annotated("is", "new"))))
	}

	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": bucket(), "Finalized": bucket(finalizers(FinalizerName))} {
		for eventName, happens := range map[string]func(t *testing.T, a *testkit.API){"Deleted": remove, "Replaced": replace} {
			for _, during := range []string{"Observe", "Create", "Update"} {
				t.Run(objectName+"/"+eventName+"/"+during, func(t *testing.T) {
					object, _ := object.DeepCopyObject().(*v1alpha1.Bucket)
					a, h := testkit.NewAPI(object), &recorder{}
					replaced := ""
					act := func(mg resource.Managed) {
						meta.SetExternalName(mg, "id-1")
						mg.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						happens(t, a)
						replaced = get(t, a).GetResourceVersion()
					}

					fns := upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						o, err := absent(ctx, mg)
						if during == "Observe" {
							o, err = exists(ctx, mg)
							act(mg)
						}

						if during == "Update" {
							o.ResourceExists = true
						}

						return o, err
					}}
					fns.CreateFn = func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
						act(mg)
						return ExternalCreation{}, nil
					}
					fns.UpdateFn = func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
						act(mg)
						return ExternalUpdate{}, nil
					}

					r := newBucketReconciler(a, connects(fns), WithRecorder(h))
					_, err := r.Reconcile(context.Background(), request())

					if err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("\nWhat is gone needs nothing stored.\nReconcile: %v", err)
					}

					b := get(t, a)
					if diff := cmp.Diff([]any{replaced, ""}, []any{b.GetResourceVersion(), meta.GetExternalName(b)}); diff != "" {
						t.Errorf("\nWhat has the name now should not be touched (resource version, external name): -want, +got:\n%s", diff)
					}

					if ms := h.messages(reasonCannotStoreAnnotations); len(ms) > 0 {
						t.Errorf("\nThat the object is gone is no failure to store.\nevents: %v", ms)
					}

					if n := a.Count(testkit.Patch); n > 1 {
						t.Errorf("\nWhat is known to be gone is not patched again.\npatches: want 1, got %d", n)
					}

					if n := r.seam.Memory().Len(); n != 0 {
						t.Errorf("\nNothing should be remembered of what is gone.\nMemory.Len: want 0, got %d", n)
					}
				})
			}
		}
	}
}

// A version that is not served for a while says nothing of the managed resource.
func TestNameSurvivesUnservedVersion(t *testing.T) {
	a, unserved, created := testkit.NewAPI(bucket()), false, 0
	a.Before = func(_ context.Context, r testkit.Request) error {
		if !unserved || r.Verb == testkit.Get {
			return nil
		}

		return kerrors.NewGenericServerResponse(http.StatusNotFound, r.Verb, schema.GroupResource{Resource: "buckets"}, "b", "404 page not found", 0, true)
	}

	r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			created++
			unserved = true

			meta.SetExternalName(mg, "id-1")

			return ExternalCreation{}, nil
		},
	}))

	_, _ = r.Reconcile(context.Background(), request())
	unserved = false

	run(t, r, "b", "b")

	if b := get(t, a); meta.GetExternalName(b) != "id-1" || meta.ExternalCreateIncomplete(b) || created != 1 {
		t.Errorf("creates: %d; annotations: %v", created, b.GetAnnotations())
	}
}
