package managed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/reconciler"
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
	return withNow(func() time.Time {
		now = now.Add(time.Minute)
		return now
	})
}

func withNow(now func() time.Time) ReconcilerOption {
	return With(layer.Option{Name: "clock", Seam: func(o *seam.Options) { o.Now = now }})
}

// WithStore gives the test the values that are kept between reconciles.
func withStore(in **store.Store) ReconcilerOption {
	return With(layer.Option{Name: "store", Seam: func(o *seam.Options) { *in = o.Store }})
}

// A clock advances only when a test sets now.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) option() ReconcilerOption {
	return withNow(func() time.Time { return c.now })
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
	return With(layer.Option{Name: "wait", Seam: func(o *seam.Options) { o.Wait = fn }})
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

// collectGarbage removes the finalizer of the garbage collector.
func collectGarbage(t *testing.T, api *testkit.API) {
	t.Helper()
	b := &v1alpha1.Bucket{}
	err := api.Server().Get(t.Context(), request().NamespacedName, b)
	if kerrors.IsNotFound(err) {
		return
	}
	must(t, err)
	if i := slices.Index(b.Finalizers, metav1.FinalizerOrphanDependents); i >= 0 {
		b.Finalizers = slices.Delete(b.Finalizers, i, i+1)
		must(t, api.Server().Update(t.Context(), b))
	}
}

// A countingClient is an external client that records its calls. errs has the error of each call.
type countingClient struct {
	calls           []string
	errs            map[string]error
	absent          bool
	outdated        bool
	lateInitialized bool
}

func (c *countingClient) call(what string) error {
	c.calls = append(c.calls, what)
	return c.errs[what]
}

func (c *countingClient) count(what string) int {
	return strings.Count(strings.Join(c.calls, " "), what)
}

func (c *countingClient) connect() ReconcilerOption {
	return WithExternalConnector(ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
		if err := c.errs["connect"]; err != nil {
			return nil, err
		}
		ec := newExternalClient(ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				if err := c.call("observe"); err != nil {
					return ExternalObservation{}, err
				}
				mg.SetConditions(xpv2.Available())
				return ExternalObservation{
					ResourceExists:          !c.absent,
					ResourceUpToDate:        !c.outdated,
					ResourceLateInitialized: c.lateInitialized,
				}, nil
			},
			CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
				err := c.call("create")
				c.absent = c.absent && err != nil
				return ExternalCreation{}, err
			},
			UpdateFn: func(context.Context, resource.Managed) (ExternalUpdate, error) {
				return ExternalUpdate{}, c.call("update")
			},
			DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
				return ExternalDelete{}, c.call("delete")
			},
		})
		return &ec, nil
	}))
}

// deletionStatus returns the status that we want for the Bucket of newDeletedBucket.
func deletionStatus(r xpv2.ConditionReason, message string) status {
	return status{
		Ready: condition{
			Type:               "Ready",
			Status:             corev1.ConditionFalse,
			Reason:             "Deleting",
			Message:            message,
			ObservedGeneration: 3,
		},
		Deleting: condition{
			Type:               "Deleting",
			Status:             corev1.ConditionTrue,
			Reason:             r,
			Message:            message,
			ObservedGeneration: 3,
		},
	}
}

// A status has the two conditions that report a deletion.
type status struct {
	Ready    condition
	Deleting condition
}

var errProvider = errors.New("401 for user root with " + secret)

// A fakeFinder returns finding and err, and records the attempts that it is called with.
type fakeFinder struct {
	finding  asyncstate.Finding
	err      error
	onFind   func(ctx context.Context, mg resource.Managed)
	attempts []asyncstate.Attempt
}

func (f *fakeFinder) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	f.attempts = append(f.attempts, a)
	if f.onFind != nil {
		f.onFind(ctx, mg)
	}
	return f.finding, f.err
}

func forbiddenError() error {
	return kerrors.NewForbidden(schema.GroupResource{}, "b", errProvider)
}

func foreignCondition() xpv2.Condition {
	return xpv2.Condition{
		Type:    "Foreign",
		Status:  corev1.ConditionTrue,
		Reason:  "Because",
		Message: "of another writer",
	}
}

const interval = 10 * time.Second

func namespaceTerminating() error { return forbiddenBecause(corev1.NamespaceTerminatingCause) }

func forbiddenBecause(cause metav1.CauseType) error {
	err := kerrors.NewForbidden(schema.GroupResource{
		Resource: "providerconfigusages",
	}, "u", errors.New("unable to create new content in namespace default because it is being terminated"))
	if cause != "" {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

func observeFails(context.Context, resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{}, errProvider
}

func deleteFails(context.Context, resource.Managed) (ExternalDelete, error) {
	return ExternalDelete{}, errProvider
}

// onNthRequest returns a hook that calls fn for the k-th request that matches, from 1.
func onNthRequest(
	k int, match func(testkit.Request) bool, fn func(r testkit.Request) error,
) func(context.Context, testkit.Request) error {
	var mu sync.Mutex
	return func(_ context.Context, r testkit.Request) error {
		if !match(r) {
			return nil
		}
		mu.Lock()
		k--
		is := k == 0
		mu.Unlock()
		if !is {
			return nil
		}
		return fn(r)
	}
}

func failWithConflict(testkit.Request) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("another writer was first"))
}

// reasonOf returns the reason of a condition.
func reasonOf(b *v1alpha1.Bucket, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

func serverError() error { return kerrors.NewInternalError(errors.New("etcd has no leader")) }

func failWithServerError(testkit.Request) error { return serverError() }

func (e *tooManyRequests) Error() string { return "too many requests" }

func (e *tooManyRequests) HTTPResponse() *http.Response { return e.response }

func withConditions(c ...xpv2.Condition) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetConditions(c...) }
}

func withDeletionStatus(s status) bucketModifier {
	return withConditions(xpv2.Condition(s.Ready), xpv2.Condition(s.Deleting))
}

// withInterruptedCreate adds a create without a result, which started this long before the time
// of newClock.
func withInterruptedCreate(ago time.Duration) bucketModifier {
	return withAnnotation(meta.AnnotationKeyExternalCreatePending, seam.Stamp(newClock().now.Add(-ago)))
}

func withName(name string) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetName(name) }
}

func withNamespace(namespace string) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.Namespace = namespace }
}

func withProviderConfig(config string) bucketModifier {
	return func(b *v1alpha1.Bucket) {
		b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: config}
	}
}

// expectCalls fails the test unless exactly these calls were made, each for the managed
// resource that owns the external resource.
func expectCalls(t *testing.T, ext *externalResource, calls ...string) {
	t.Helper()
	const reason = "Only one managed resource should act on an external resource."
	expectEqual(t, reason, "calls", calls, ext.calls)
	expectEqual(t, reason, "calls for another managed resource", 0, len(ext.foreignCalls))
}

func (f patchingFinalizer) set(ctx context.Context, o client.Object, finalizers string) error {
	return client.IgnoreNotFound(f.c.Patch(
		ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)),
	))
}

func (f patchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if meta.FinalizerExists(o, FinalizerName) {
		return nil
	}
	return f.set(ctx, o, `["`+FinalizerName+`"]`)
}

func (f patchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.set(ctx, o, "null")
}

// withReconciledStatus sets the finalizer and the status that a reconcile of generation 1 sets.
func withReconciledStatus(b *v1alpha1.Bucket) {
	b.SetGeneration(1)
	b.SetFinalizers([]string{FinalizerName})
	ok, ready := xpv2.ReconcileSuccess(), xpv2.Available()
	ok.ObservedGeneration, ready.ObservedGeneration = 1, 1
	b.SetConditions(ok, ready)
}

func withGeneration(n int64) bucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetGeneration(n) }
}

// withDeletingReason sets the conditions of a deletion of generation 1.
func withDeletingReason(reason xpv2.ConditionReason) bucketModifier {
	return func(b *v1alpha1.Bucket) {
		for _, c := range reconciler.Deleting(time.Now(), reason, "") {
			b.SetConditions(c.WithObservedGeneration(1))
		}
	}
}

type tooManyRequests struct{ response *http.Response }

// A patchingFinalizer patches finalizers with a client of its own and without a resource version.
type patchingFinalizer struct{ c client.Client }
