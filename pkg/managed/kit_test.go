package managed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// expectEqual fails the test with reason and a diff unless want and got are equal.
func expectEqual(t testing.TB, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}

// must fails the test if the test itself gets an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A bucketModifier changes a Bucket.
type bucketModifier = func(b *v1alpha1.Bucket)

// newBucket returns a Bucket as a user creates it.
func newBucket(mod ...bucketModifier) *v1alpha1.Bucket {
	b := &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
		Spec: v1alpha1.BucketSpec{ManagedResourceSpec: xpv2.ManagedResourceSpec{
			ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionAll},
		}},
	}
	for _, m := range mod {
		m(b)
	}
	return b
}

func withExternalName(name string) bucketModifier {
	return func(b *v1alpha1.Bucket) { meta.SetExternalName(b, name) }
}

func withAnnotation(k, v string) bucketModifier {
	return func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{k: v}) }
}

func withoutAnnotation(k string) bucketModifier {
	return func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, k) }
}

func withFinalizers(f ...string) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetFinalizers(f) }
}

func withDeletionTimestamp(b *v1alpha1.Bucket) {
	b.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

func withPolicies(p ...xpv2.ManagementAction) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.Spec.ManagementPolicies = p }
}

func withPausedAnnotation(b *v1alpha1.Bucket) {
	withAnnotation(meta.AnnotationKeyReconciliationPaused, "true")(b)
}

func asBucket(mg resource.Managed) *v1alpha1.Bucket {
	b, ok := mg.(*v1alpha1.Bucket)
	if !ok {
		panic("not a Bucket")
	}
	return b
}

// observeExists is an ObserveFn for an external resource that exists and is up to date.
func observeExists(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
	if b, ok := mg.(*v1alpha1.Bucket); ok {
		b.Status.AtProvider.ID = "id-1"
	}
	mg.SetConditions(xpv2.Available())
	return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
}

// observeAbsent is an ObserveFn for an external resource that does not exist.
func observeAbsent(context.Context, resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{}, nil
}

// observeExistsIfNamed is an ObserveFn that finds the external resource by its external name.
func observeExistsIfNamed(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}, nil
}

// countCalls returns a function of an external client that counts its calls.
func countCalls[T any](n *int) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) {
		*n++
		return *new(T), nil
	}
}

// returns returns a function of an external client that returns v and err.
func returns[T any](v T, err error) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) { return v, err }
}

// newExternalClient replaces the functions that are nil: Observe finds the external resource,
// and the others do nothing.
func newExternalClient(fns ExternalClientFns) ExternalClientFns {
	if fns.ObserveFn == nil {
		fns.ObserveFn = observeExists
	}
	if fns.CreateFn == nil {
		fns.CreateFn = returns(ExternalCreation{}, nil)
	}
	if fns.UpdateFn == nil {
		fns.UpdateFn = returns(ExternalUpdate{}, nil)
	}
	if fns.DeleteFn == nil {
		fns.DeleteFn = returns(ExternalDelete{}, nil)
	}
	if fns.DisconnectFn == nil {
		fns.DisconnectFn = func(context.Context) error { return nil }
	}
	return fns
}

// withClient is an option for a connector that returns an external client with these functions.
func withClient(fns ExternalClientFns) ReconcilerOption {
	return WithExternalConnector(newConnector(fns))
}

func newConnector(fns ExternalClientFns) ExternalConnector {
	return ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
		c := newExternalClient(fns)
		return &c, nil
	})
}

// A fakeProvider is the code of a provider. It can be used for any kind and any connector.
type fakeProvider struct {
	connectErr error
	nilClient  bool
	client     ExternalClientFns
}

func newTypedClient[M resource.Managed](p fakeProvider) TypedExternalClient[M] {
	if p.nilClient {
		return nil
	}
	c := newExternalClient(p.client)
	return &TypedExternalClientFns[M]{
		ObserveFn:    func(ctx context.Context, mg M) (ExternalObservation, error) { return c.ObserveFn(ctx, mg) },
		CreateFn:     func(ctx context.Context, mg M) (ExternalCreation, error) { return c.CreateFn(ctx, mg) },
		UpdateFn:     func(ctx context.Context, mg M) (ExternalUpdate, error) { return c.UpdateFn(ctx, mg) },
		DeleteFn:     func(ctx context.Context, mg M) (ExternalDelete, error) { return c.DeleteFn(ctx, mg) },
		DisconnectFn: c.DisconnectFn,
	}
}

// newTypedConnector returns a connector to p that calls onConnect first.
func newTypedConnector[M resource.Managed](
	p fakeProvider, onConnect func(resource.Managed),
) TypedExternalConnectorFn[M] {
	return func(_ context.Context, mg M) (TypedExternalClient[M], error) {
		onConnect(mg)
		if p.connectErr != nil {
			return nil, p.connectErr
		}
		return newTypedClient[M](p), nil
	}
}

// newCloud returns a cloud that assigns external names such as id-0001, and the option for its
// connector.
func newCloud() (*cloud.Cloud, ReconcilerOption) {
	w := cloud.New(cloud.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}})
	return w, WithExternalConnector(sample.NewSync[resource.Managed](w))
}

// regionsByID returns the region of each external resource.
func regionsByID(w *cloud.Cloud) map[string]string {
	out := map[string]string{}
	for _, r := range w.Inventory() {
		out[r.ID] = r.Properties["region"]
	}
	return out
}

// An externalResource is one external resource. All managed resources of a test refer to it.
type externalResource struct {
	exists          bool
	owner           types.UID // the managed resource that created it
	outdated        bool      // Observe returns that an update is needed
	lateInitialized bool      // Observe returns ResourceLateInitialized
	deletesIgnored  int       // calls of Delete that do not delete it yet

	// beforeCall runs at the start of each call: observe, create, update or delete. If it
	// returns an error, the call returns that error and does nothing.
	beforeCall func(call string, mg resource.Managed) error

	observes     int      // calls of Observe
	calls        []string // all other calls, such as "create b"
	foreignCalls []string // calls for a managed resource that is not the owner
}

func (ext *externalResource) call(call string, mg resource.Managed, done func()) error {
	if call != "observe" {
		if ext.owner != "" && ext.owner != mg.GetUID() {
			ext.foreignCalls = append(ext.foreignCalls, fmt.Sprintf(
				"%s by %s, owned by %s", call, mg.GetUID(), ext.owner,
			))
		}
		ext.calls = append(ext.calls, call+" "+mg.GetName())
	}
	if ext.beforeCall != nil {
		if err := ext.beforeCall(call, mg); err != nil {
			return err
		}
	}
	done()
	return nil
}

func (ext *externalResource) client() ExternalClientFns {
	return ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			ext.observes++
			err := ext.call("observe", mg, func() {})
			if ext.exists {
				_, _ = observeExists(ctx, mg)
			}
			return ExternalObservation{
				ResourceExists:          ext.exists,
				ResourceUpToDate:        !ext.outdated,
				ResourceLateInitialized: ext.lateInitialized,
			}, err
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			return ExternalCreation{}, ext.call("create", mg, func() { ext.exists, ext.owner = true, mg.GetUID() })
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
			return ExternalUpdate{}, ext.call("update", mg, func() {})
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
			return ExternalDelete{}, ext.call("delete", mg, func() {
				if ext.deletesIgnored--; ext.deletesIgnored < 0 {
					ext.exists, ext.owner = false, ""
				}
			})
		},
	}
}

// onCall runs fn at the start of each call of that name. The call returns fn's error.
func (ext *externalResource) onCall(name string, fn func(b *v1alpha1.Bucket) error) *externalResource {
	ext.beforeCall = func(call string, mg resource.Managed) error {
		if call != name {
			return nil
		}
		return fn(asBucket(mg))
	}
	return ext
}

// count returns how many calls start with a name, such as "create".
func (ext *externalResource) count(name string) int {
	return len(slices.DeleteFunc(slices.Clone(ext.calls), func(c string) bool { return !strings.HasPrefix(c, name) }))
}

// newDeletedBucket returns a Bucket of generation 3 that is being deleted.
func newDeletedBucket(mod ...bucketModifier) *v1alpha1.Bucket {
	b := newBucket(append([]bucketModifier{withDeletionTimestamp, withFinalizers(FinalizerName)}, mod...)...)
	b.SetGeneration(3)
	b.Status.AtProvider.ID = "id-1" // observeExists sets the same ID
	return b
}

// newReconcilerWithProvider returns a reconciler that calls onConnect when it connects to p.
func newReconcilerWithProvider(api *testkit.API, p fakeProvider, onConnect func(), o ...ReconcilerOption) *Reconciler {
	return newBucketReconciler(api, append([]ReconcilerOption{
		withTickingClock(),
		WithExternalConnector(newTypedConnector[resource.Managed](p, func(resource.Managed) { onConnect() })),
	}, o...)...)
}

// withTickingClock is an option for a clock that advances by a minute at each reading.
func withTickingClock() ReconcilerOption {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return func(r *Reconciler) {
		r.config.seams.Now = func() time.Time {
			now = now.Add(time.Minute)
			return now
		}
	}
}

// A clock advances only when a test sets now.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) option() ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.Now = func() time.Time { return c.now } }
}

func newBucketReconciler(api *testkit.API, o ...ReconcilerOption) *Reconciler {
	return NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()), append([]ReconcilerOption{
		WithManagementPolicies(),
		WithCreationGracePeriod(0),
		// The external system assigns the external name.
		WithInitializers(),
		withWait(noWait),
	}, o...)...)
}

func newTracker(api *testkit.API, o ...asyncstate.TrackerOption) *asyncstate.Tracker {
	return asyncstate.NewTracker(api.Client(), append(o, asyncstate.WithLiveReader(api.Live()))...)
}

func withWait(fn func(ctx context.Context, d time.Duration) error) ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.Wait = fn }
}

func noWait(context.Context, time.Duration) error { return nil }

// requestFor returns the request for a name, with its namespace unless that is default.
func requestFor(name string) reconcile.Request {
	namespace, n, ok := strings.Cut(name, "/")
	if !ok {
		namespace, n = "default", name
	}
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: n}}
}

func request() reconcile.Request { return requestFor("b") }

// mustReconcile reconciles each name once. A reconcile that returns an error fails the test.
func mustReconcile(t *testing.T, r reconcile.Reconciler, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := r.Reconcile(context.Background(), requestFor(n)); err != nil {
			t.Fatalf("Reconcile %s: %v", n, err)
		}
	}
}

// mustReconcileTimes calls mustReconcile n times for the names, or for b if there are none.
func mustReconcileTimes(t *testing.T, r reconcile.Reconciler, n int, names ...string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"b"}
	}
	mustReconcile(t, r, slices.Repeat(names, n)...)
}

// tryReconcile reconciles b n times and ignores errors and panics, as a controller does.
func tryReconcile(r reconcile.Reconciler, n int) {
	for range n {
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Reconcile(context.Background(), request())
		}()
	}
}

// getBucket returns the Bucket b from the API server. It is empty if there is none.
func getBucket(t *testing.T, api *testkit.API) *v1alpha1.Bucket {
	t.Helper()
	return getBucketNamed(t, api, "b")
}

// getBucketNamed returns a Bucket from the API server. It is empty if there is none.
func getBucketNamed(t *testing.T, api *testkit.API, name string) *v1alpha1.Bucket {
	t.Helper()
	b := &v1alpha1.Bucket{}
	must(t, client.IgnoreNotFound(api.Server().Get(context.Background(), requestFor(name).NamespacedName, b)))
	return b
}

func updateBucket(t *testing.T, api *testkit.API, name string, mods ...bucketModifier) *v1alpha1.Bucket {
	t.Helper()
	b := getBucketNamed(t, api, name)
	for _, m := range mods {
		m(b)
	}
	must(t, api.Server().Update(context.Background(), b))
	return b
}

func deleteBucket(t *testing.T, api *testkit.API, name string) {
	t.Helper()
	must(t, api.Server().Delete(context.Background(), getBucketNamed(t, api, name)))
}

// removeBucket removes the finalizers of a Bucket and deletes it, so that its reconciler does
// not see the deletion.
func removeBucket(t *testing.T, api *testkit.API, name string) {
	t.Helper()
	if b := updateBucket(t, api, name, withFinalizers()); b.DeletionTimestamp == nil {
		must(t, client.IgnoreNotFound(api.Server().Delete(context.Background(), b)))
	}
}

// failRequests returns a hook that fails the requests that match with err.
func failRequests(match func(testkit.Request) bool, err error) func(context.Context, testkit.Request) error {
	return func(_ context.Context, r testkit.Request) error {
		if match(r) {
			return err
		}
		return nil
	}
}

func isVerb(v string) func(testkit.Request) bool {
	return func(r testkit.Request) bool { return r.Verb == v }
}

func isWrite(r testkit.Request) bool { return r.Verb != testkit.Get && r.Verb != testkit.LiveGet }

func isStatusWrite(r testkit.Request) bool { return strings.HasPrefix(r.Verb, "status ") }
