// Package kit has what the tests of package managed and of its options share: Buckets, providers, clocks and requests.
package kit

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
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// ExpectEqual fails the test with reason and a diff unless want and got are equal.
func ExpectEqual(t testing.TB, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	testkit.ExpectEqual(t, reason, what, want, got, o...)
}

// Must fails the test if the test itself gets an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A BucketModifier changes a Bucket.
type BucketModifier = func(b *v1alpha1.Bucket)

// NewBucket returns a Bucket as a user creates it.
func NewBucket(mod ...BucketModifier) *v1alpha1.Bucket {
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

// WithExternalName sets the external name.
func WithExternalName(name string) BucketModifier {
	return func(b *v1alpha1.Bucket) { meta.SetExternalName(b, name) }
}

// WithAnnotation sets an annotation.
func WithAnnotation(k, v string) BucketModifier {
	return func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{k: v}) }
}

// WithoutAnnotation removes an annotation.
func WithoutAnnotation(k string) BucketModifier {
	return func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, k) }
}

// WithFinalizers sets the finalizers.
func WithFinalizers(f ...string) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetFinalizers(f) }
}

// WithDeletionTimestamp lets a Bucket be deleted.
func WithDeletionTimestamp(b *v1alpha1.Bucket) {
	b.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

// WithPolicies sets the management policies.
func WithPolicies(p ...xpv2.ManagementAction) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.Spec.ManagementPolicies = p }
}

// WithPausedAnnotation pauses a Bucket.
func WithPausedAnnotation(b *v1alpha1.Bucket) {
	WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true")(b)
}

// AsBucket returns a managed resource as the Bucket that it is.
func AsBucket(mg resource.Managed) *v1alpha1.Bucket {
	b, ok := mg.(*v1alpha1.Bucket)
	if !ok {
		panic("not a Bucket")
	}
	return b
}

// ObserveExists is an ObserveFn for an external resource that exists and is up to date.
func ObserveExists(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	if b, ok := mg.(*v1alpha1.Bucket); ok {
		b.Status.AtProvider.ID = "id-1"
	}
	mg.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
}

// ObserveAbsent is an ObserveFn for an external resource that does not exist.
func ObserveAbsent(context.Context, resource.Managed) (managed.ExternalObservation, error) {
	return managed.ExternalObservation{}, nil
}

// ObserveExistsIfNamed is an ObserveFn that finds the external resource by its external name.
func ObserveExistsIfNamed(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	return managed.ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}, nil
}

// CountCalls returns a function of an external client that counts its calls.
func CountCalls[T any](n *int) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) {
		*n++
		return *new(T), nil
	}
}

// Returns returns a function of an external client that returns v and err.
func Returns[T any](v T, err error) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) { return v, err }
}

// NewExternalClient replaces the functions that are nil: Observe finds the external resource,
// and the others do nothing.
func NewExternalClient(fns managed.ExternalClientFns) managed.ExternalClientFns {
	if fns.ObserveFn == nil {
		fns.ObserveFn = ObserveExists
	}
	if fns.CreateFn == nil {
		fns.CreateFn = Returns(managed.ExternalCreation{}, nil)
	}
	if fns.UpdateFn == nil {
		fns.UpdateFn = Returns(managed.ExternalUpdate{}, nil)
	}
	if fns.DeleteFn == nil {
		fns.DeleteFn = Returns(managed.ExternalDelete{}, nil)
	}
	if fns.DisconnectFn == nil {
		fns.DisconnectFn = func(context.Context) error { return nil }
	}
	return fns
}

// WithClient is an option for a connector that returns an external client with these functions.
func WithClient(fns managed.ExternalClientFns) managed.ReconcilerOption {
	return managed.WithExternalConnector(NewConnector(fns))
}

// NewConnector returns a connector whose clients have these functions.
func NewConnector(fns managed.ExternalClientFns) managed.ExternalConnector {
	return managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		c := NewExternalClient(fns)
		return &c, nil
	})
}

// A FakeProvider is the code of a provider. It can be used for any kind and any connector.
type FakeProvider struct {
	ConnectErr error
	NilClient  bool
	Client     managed.ExternalClientFns
}

// NewTypedClient returns a typed client of p.
func NewTypedClient[M resource.Managed](p FakeProvider) managed.TypedExternalClient[M] {
	if p.NilClient {
		return nil
	}
	c := NewExternalClient(p.Client)
	return &managed.TypedExternalClientFns[M]{
		ObserveFn: func(ctx context.Context, mg M) (managed.ExternalObservation, error) {
			return c.ObserveFn(ctx, mg)
		},
		CreateFn:     func(ctx context.Context, mg M) (managed.ExternalCreation, error) { return c.CreateFn(ctx, mg) },
		UpdateFn:     func(ctx context.Context, mg M) (managed.ExternalUpdate, error) { return c.UpdateFn(ctx, mg) },
		DeleteFn:     func(ctx context.Context, mg M) (managed.ExternalDelete, error) { return c.DeleteFn(ctx, mg) },
		DisconnectFn: c.DisconnectFn,
	}
}

// NewTypedConnector returns a connector to p that calls onConnect first.
func NewTypedConnector[M resource.Managed](
	p FakeProvider, onConnect func(resource.Managed),
) managed.TypedExternalConnectorFn[M] {
	return func(_ context.Context, mg M) (managed.TypedExternalClient[M], error) {
		onConnect(mg)
		if p.ConnectErr != nil {
			return nil, p.ConnectErr
		}
		return NewTypedClient[M](p), nil
	}
}

// NewCloud returns a cloud that assigns external names such as id-0001, and the option for its
// connector.
func NewCloud() (*cloud.Cloud, managed.ReconcilerOption) {
	w := cloud.New(cloud.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}})
	return w, managed.WithExternalConnector(sample.NewSync[resource.Managed](w))
}

// RegionsByID returns the region of each external resource.
func RegionsByID(w *cloud.Cloud) map[string]string {
	out := map[string]string{}
	for _, r := range w.Inventory() {
		out[r.ID] = r.Properties["region"]
	}
	return out
}

// An ExternalResource is one external resource. All managed resources of a test refer to it.
type ExternalResource struct {
	Exists          bool
	Owner           types.UID // the managed resource that created it
	Outdated        bool      // Observe returns that an update is needed
	LateInitialized bool      // Observe returns ResourceLateInitialized
	DeletesIgnored  int       // calls of Delete that do not delete it yet

	// beforeCall runs at the start of each call: observe, create, update or delete. If it
	// returns an error, the call returns that error and does nothing.
	BeforeCall func(call string, mg resource.Managed) error

	Observes     int      // calls of Observe
	Calls        []string // all other calls, such as "create b"
	ForeignCalls []string // calls for a managed resource that is not the owner
}

// Call makes a call of that name for a managed resource, and then what it does.
func (ext *ExternalResource) Call(call string, mg resource.Managed, done func()) error {
	if call != "observe" {
		if ext.Owner != "" && ext.Owner != mg.GetUID() {
			ext.ForeignCalls = append(ext.ForeignCalls, fmt.Sprintf(
				"%s by %s, owned by %s", call, mg.GetUID(), ext.Owner,
			))
		}
		ext.Calls = append(ext.Calls, call+" "+mg.GetName())
	}
	if ext.BeforeCall != nil {
		if err := ext.BeforeCall(call, mg); err != nil {
			return err
		}
	}
	done()
	return nil
}

// Client returns the functions of an external client of the external resource.
func (ext *ExternalResource) Client() managed.ExternalClientFns {
	return managed.ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			ext.Observes++
			err := ext.Call("observe", mg, func() {})
			if ext.Exists {
				_, _ = ObserveExists(ctx, mg)
			}
			return managed.ExternalObservation{
				ResourceExists:          ext.Exists,
				ResourceUpToDate:        !ext.Outdated,
				ResourceLateInitialized: ext.LateInitialized,
			}, err
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			return managed.ExternalCreation{}, ext.Call(
				"create", mg, func() { ext.Exists, ext.Owner = true, mg.GetUID() },
			)
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
			return managed.ExternalUpdate{}, ext.Call("update", mg, func() {})
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
			return managed.ExternalDelete{}, ext.Call("delete", mg, func() {
				if ext.DeletesIgnored--; ext.DeletesIgnored < 0 {
					ext.Exists, ext.Owner = false, ""
				}
			})
		},
	}
}

// OnCall runs fn at the start of each call of that name. The call returns fn's error.
func (ext *ExternalResource) OnCall(name string, fn func(b *v1alpha1.Bucket) error) *ExternalResource {
	ext.BeforeCall = func(call string, mg resource.Managed) error {
		if call != name {
			return nil
		}
		return fn(AsBucket(mg))
	}
	return ext
}

// Count returns how many calls start with a name, such as "create".
func (ext *ExternalResource) Count(name string) int {
	return len(slices.DeleteFunc(slices.Clone(ext.Calls), func(c string) bool { return !strings.HasPrefix(c, name) }))
}

// NewDeletedBucket returns a Bucket of generation 3 that is being deleted.
func NewDeletedBucket(mod ...BucketModifier) *v1alpha1.Bucket {
	b := NewBucket(append([]BucketModifier{WithDeletionTimestamp, WithFinalizers(managed.FinalizerName)}, mod...)...)
	b.SetGeneration(3)
	b.Status.AtProvider.ID = "id-1" // observeExists sets the same ID
	return b
}

// NewReconcilerWithProvider returns a reconciler that calls onConnect when it connects to p.
func NewReconcilerWithProvider(
	api *testkit.API, p FakeProvider, onConnect func(), o ...managed.ReconcilerOption,
) *managed.Reconciler {
	return NewBucketReconciler(api, append([]managed.ReconcilerOption{
		WithTickingClock(),
		managed.WithExternalConnector(NewTypedConnector[resource.Managed](p, func(resource.Managed) { onConnect() })),
	}, o...)...)
}

// WithTickingClock is an option for a clock that advances by a minute at each reading.
func WithTickingClock() managed.ReconcilerOption {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return WithNow(func() time.Time {
		now = now.Add(time.Minute)
		return now
	})
}

// WithNow is an option for a clock.
func WithNow(now func() time.Time) managed.ReconcilerOption {
	return managed.With(layer.Option{Name: "clock", Seam: func(o *seam.Options) { o.Now = now }})
}

// WithStore gives the test the values that are kept between reconciles.
func WithStore(in **store.Store) managed.ReconcilerOption {
	return managed.With(layer.Option{Name: "store", Seam: func(o *seam.Options) { *in = o.Store }})
}

// A Clock advances only when a test sets now.
type Clock struct{ Now time.Time }

// NewClock returns a clock that stands at a fixed time.
func NewClock() *Clock { return &Clock{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

// Option is the option for this clock.
func (c *Clock) Option() managed.ReconcilerOption {
	return WithNow(func() time.Time { return c.Now })
}

// NewBucketReconciler returns a reconciler of Buckets, whose names the external system assigns.
func NewBucketReconciler(api *testkit.API, o ...managed.ReconcilerOption) *managed.Reconciler {
	return managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
		append([]managed.ReconcilerOption{
			managed.WithManagementPolicies(),
			managed.WithCreationGracePeriod(0),
			// The external system assigns the external name.
			managed.WithInitializers(),
			WithWait(NoWait),
		}, o...)...)
}

// WithWait is an option for what waits between attempts.
func WithWait(fn func(ctx context.Context, d time.Duration) error) managed.ReconcilerOption {
	return managed.With(layer.Option{Name: "wait", Seam: func(o *seam.Options) { o.Wait = fn }})
}

// NoWait waits for nothing.
func NoWait(context.Context, time.Duration) error { return nil }

// RequestFor returns the request for a name, with its namespace unless that is default.
func RequestFor(name string) reconcile.Request {
	namespace, n, ok := strings.Cut(name, "/")
	if !ok {
		namespace, n = "default", name
	}
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: n}}
}

// Request returns the request for b.
func Request() reconcile.Request { return RequestFor("b") }

// MustReconcile reconciles each name once. A reconcile that returns an error fails the test.
func MustReconcile(t *testing.T, r reconcile.Reconciler, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := r.Reconcile(context.Background(), RequestFor(n)); err != nil {
			t.Fatalf("Reconcile %s: %v", n, err)
		}
	}
}

// MustReconcileTimes calls mustReconcile n times for the names, or for b if there are none.
func MustReconcileTimes(t *testing.T, r reconcile.Reconciler, n int, names ...string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"b"}
	}
	MustReconcile(t, r, slices.Repeat(names, n)...)
}

// TryReconcile reconciles b n times and ignores errors and panics, as a controller does.
func TryReconcile(r reconcile.Reconciler, n int) {
	for range n {
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Reconcile(context.Background(), Request())
		}()
	}
}

// GetBucket returns the Bucket b from the API server. It is empty if there is none.
func GetBucket(t *testing.T, api *testkit.API) *v1alpha1.Bucket {
	t.Helper()
	return GetBucketNamed(t, api, "b")
}

// GetBucketNamed returns a Bucket from the API server. It is empty if there is none.
func GetBucketNamed(t *testing.T, api *testkit.API, name string) *v1alpha1.Bucket {
	t.Helper()
	b := &v1alpha1.Bucket{}
	Must(t, client.IgnoreNotFound(api.Server().Get(context.Background(), RequestFor(name).NamespacedName, b)))
	return b
}

// UpdateBucket changes a Bucket on the API server.
func UpdateBucket(t *testing.T, api *testkit.API, name string, mods ...BucketModifier) *v1alpha1.Bucket {
	t.Helper()
	b := GetBucketNamed(t, api, name)
	for _, m := range mods {
		m(b)
	}
	Must(t, api.Server().Update(context.Background(), b))
	return b
}

// DeleteBucket deletes a Bucket.
func DeleteBucket(t *testing.T, api *testkit.API, name string) {
	t.Helper()
	Must(t, api.Server().Delete(context.Background(), GetBucketNamed(t, api, name)))
}

// RemoveBucket removes the finalizers of a Bucket and deletes it, so that its reconciler does
// not see the deletion.
func RemoveBucket(t *testing.T, api *testkit.API, name string) {
	t.Helper()
	if b := UpdateBucket(t, api, name, WithFinalizers()); b.DeletionTimestamp == nil {
		Must(t, client.IgnoreNotFound(api.Server().Delete(context.Background(), b)))
	}
}

// FailRequests returns a hook that fails the requests that match with err.
func FailRequests(match func(testkit.Request) bool, err error) func(context.Context, testkit.Request) error {
	return func(_ context.Context, r testkit.Request) error {
		if match(r) {
			return err
		}
		return nil
	}
}

// IsVerb matches requests of a verb.
func IsVerb(v string) func(testkit.Request) bool {
	return func(r testkit.Request) bool { return r.Verb == v }
}

// IsWrite reports whether a request writes.
func IsWrite(r testkit.Request) bool { return r.Verb != testkit.Get && r.Verb != testkit.LiveGet }

// IsStatusWrite reports whether a request writes status.
func IsStatusWrite(r testkit.Request) bool { return strings.HasPrefix(r.Verb, "status ") }

// CollectGarbage removes the finalizer of the garbage collector.
func CollectGarbage(t *testing.T, api *testkit.API) {
	t.Helper()
	b := &v1alpha1.Bucket{}
	err := api.Server().Get(t.Context(), Request().NamespacedName, b)
	if kerrors.IsNotFound(err) {
		return
	}
	Must(t, err)
	if i := slices.Index(b.Finalizers, metav1.FinalizerOrphanDependents); i >= 0 {
		b.Finalizers = slices.Delete(b.Finalizers, i, i+1)
		Must(t, api.Server().Update(t.Context(), b))
	}
}

// A CountingClient is an external client that records its calls. errs has the error of each call.
type CountingClient struct {
	Calls           []string
	Errs            map[string]error
	Absent          bool
	Outdated        bool
	LateInitialized bool
}

// Call records a call, and returns its error.
func (c *CountingClient) Call(what string) error {
	c.Calls = append(c.Calls, what)
	return c.Errs[what]
}

// Count returns how often a call was made.
func (c *CountingClient) Count(what string) int {
	return strings.Count(strings.Join(c.Calls, " "), what)
}

// Connect is the option for a connector to this client.
func (c *CountingClient) Connect() managed.ReconcilerOption {
	return managed.WithExternalConnector(managed.ExternalConnectorFn(func(
		context.Context, resource.Managed,
	) (managed.ExternalClient, error) {
		if err := c.Errs["connect"]; err != nil {
			return nil, err
		}
		ec := NewExternalClient(managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				if err := c.Call("observe"); err != nil {
					return managed.ExternalObservation{}, err
				}
				mg.SetConditions(xpv2.Available())
				return managed.ExternalObservation{
					ResourceExists:          !c.Absent,
					ResourceUpToDate:        !c.Outdated,
					ResourceLateInitialized: c.LateInitialized,
				}, nil
			},
			CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
				err := c.Call("create")
				c.Absent = c.Absent && err != nil
				return managed.ExternalCreation{}, err
			},
			UpdateFn: func(context.Context, resource.Managed) (managed.ExternalUpdate, error) {
				return managed.ExternalUpdate{}, c.Call("update")
			},
			DeleteFn: func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
				return managed.ExternalDelete{}, c.Call("delete")
			},
		})
		return &ec, nil
	}))
}

// DeletionStatus returns the status that we want for the Bucket of newDeletedBucket.
func DeletionStatus(r xpv2.ConditionReason, message string) Status {
	return Status{
		Ready: Condition{
			Type:               "Ready",
			Status:             corev1.ConditionFalse,
			Reason:             "Deleting",
			Message:            message,
			ObservedGeneration: 3,
		},
		Deleting: Condition{
			Type:               "Deleting",
			Status:             corev1.ConditionTrue,
			Reason:             r,
			Message:            message,
			ObservedGeneration: 3,
		},
	}
}

// A Status has the two conditions that report a deletion.
type Status struct {
	Ready    Condition
	Deleting Condition
}

// ErrProvider is an error of the external system, with a secret in its text.
var ErrProvider = errors.New("401 for user root with " + Secret)

// A FakeFinder returns finding and err, and records the attempts that it is called with.
type FakeFinder struct {
	Finding  asyncstate.Finding
	Err      error
	OnFind   func(ctx context.Context, mg resource.Managed)
	Attempts []asyncstate.Attempt
}

// Find records the attempt, and returns the finding.
func (f *FakeFinder) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	f.Attempts = append(f.Attempts, a)
	if f.OnFind != nil {
		f.OnFind(ctx, mg)
	}
	return f.Finding, f.Err
}

// ForbiddenError returns the refusal of an API server.
func ForbiddenError() error {
	return kerrors.NewForbidden(schema.GroupResource{}, "b", ErrProvider)
}

// ForeignCondition returns a condition of another writer's.
func ForeignCondition() xpv2.Condition {
	return xpv2.Condition{
		Type:    "Foreign",
		Status:  corev1.ConditionTrue,
		Reason:  "Because",
		Message: "of another writer",
	}
}

// Interval is the time between two observations.
const Interval = 10 * time.Second

// NamespaceTerminating returns the refusal of an API server while the namespace is being deleted.
func NamespaceTerminating() error { return ForbiddenBecause(corev1.NamespaceTerminatingCause) }

// ForbiddenBecause returns the refusal of an API server for a cause.
func ForbiddenBecause(cause metav1.CauseType) error {
	err := kerrors.NewForbidden(schema.GroupResource{
		Resource: "providerconfigusages",
	}, "u", errors.New("unable to create new content in namespace default because it is being terminated"))
	if cause != "" {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// ObserveFails is an ObserveFn that fails.
func ObserveFails(context.Context, resource.Managed) (managed.ExternalObservation, error) {
	return managed.ExternalObservation{}, ErrProvider
}

// DeleteFails is a DeleteFn that fails.
func DeleteFails(context.Context, resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, ErrProvider
}

// OnNthRequest returns a hook that calls fn for the k-th request that matches, from 1.
func OnNthRequest(
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

// FailWithConflict is the answer to a write after that of another writer.
func FailWithConflict(testkit.Request) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("another writer was first"))
}

// ReasonOf returns the reason of a condition.
func ReasonOf(b *v1alpha1.Bucket, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

// ServerError returns an API server's internal error.
func ServerError() error { return kerrors.NewInternalError(errors.New("etcd has no leader")) }

// FailWithServerError is the answer of an API server that fails.
func FailWithServerError(testkit.Request) error { return ServerError() }

// Error returns the text.
func (e *TooManyRequests) Error() string { return "too many requests" }

// HTTPResponse returns the response.
func (e *TooManyRequests) HTTPResponse() *http.Response { return e.Response }

// WithConditions sets conditions.
func WithConditions(c ...xpv2.Condition) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetConditions(c...) }
}

// WithDeletionStatus sets the conditions of a deletion.
func WithDeletionStatus(s Status) BucketModifier {
	return WithConditions(xpv2.Condition(s.Ready), xpv2.Condition(s.Deleting))
}

// WithInterruptedCreate adds a create without a result, which started this long before the time
// of newClock.
func WithInterruptedCreate(ago time.Duration) BucketModifier {
	return WithAnnotation(meta.AnnotationKeyExternalCreatePending, seam.Stamp(NewClock().Now.Add(-ago)))
}

// WithName sets the name.
func WithName(name string) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetName(name) }
}

// WithNamespace sets the namespace.
func WithNamespace(namespace string) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.Namespace = namespace }
}

// WithProviderConfig sets the provider config.
func WithProviderConfig(config string) BucketModifier {
	return func(b *v1alpha1.Bucket) {
		b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: config}
	}
}

// ExpectCalls fails the test unless exactly these calls were made, each for the managed
// resource that owns the external resource.
func ExpectCalls(t *testing.T, ext *ExternalResource, calls ...string) {
	t.Helper()
	const reason = "Only one managed resource should act on an external resource."
	ExpectEqual(t, reason, "calls", calls, ext.Calls)
	ExpectEqual(t, reason, "calls for another managed resource", 0, len(ext.ForeignCalls))
}

// Set patches the finalizers.
func (f PatchingFinalizer) Set(ctx context.Context, o client.Object, finalizers string) error {
	return client.IgnoreNotFound(f.C.Patch(
		ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)),
	))
}

// AddFinalizer to o.
func (f PatchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if meta.FinalizerExists(o, managed.FinalizerName) {
		return nil
	}
	return f.Set(ctx, o, `["`+managed.FinalizerName+`"]`)
}

// RemoveFinalizer from o.
func (f PatchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.Set(ctx, o, "null")
}

// WithReconciledStatus sets the finalizer and the status that a reconcile of generation 1 sets.
func WithReconciledStatus(b *v1alpha1.Bucket) {
	b.SetGeneration(1)
	b.SetFinalizers([]string{managed.FinalizerName})
	ok, ready := xpv2.ReconcileSuccess(), xpv2.Available()
	ok.ObservedGeneration, ready.ObservedGeneration = 1, 1
	b.SetConditions(ok, ready)
}

// WithGeneration sets the generation.
func WithGeneration(n int64) BucketModifier {
	return func(b *v1alpha1.Bucket) { b.SetGeneration(n) }
}

// WithDeletingReason sets the conditions of a deletion of generation 1.
func WithDeletingReason(reason xpv2.ConditionReason) BucketModifier {
	return func(b *v1alpha1.Bucket) {
		for _, c := range reconciler.Deleting(time.Now(), reason, "") {
			b.SetConditions(c.WithObservedGeneration(1))
		}
	}
}

// TooManyRequests is the error of a client that keeps the response.
type TooManyRequests struct{ Response *http.Response }

// A PatchingFinalizer patches finalizers with a client of its own and without a resource version.
type PatchingFinalizer struct{ C client.Client }

// A Condition is compared field by field, because Equal of an xpv2.Condition ignores some.
type Condition xpv2.Condition

// Secret is a part of errProvider, which must not reach conditions other than Synced.
const Secret = "p4ssw0rd" //nolint:gosec // Not a credential.

// ReconcileOnce returns the result of a reconcile that succeeds.
func ReconcileOnce(t *testing.T, r reconcile.Reconciler, name string) reconcile.Result {
	t.Helper()
	res, err := r.Reconcile(context.Background(), RequestFor(name))
	Must(t, err)
	return res
}

// ChangedBeforeSecondObserve returns an external resource that calls then at the start of the
// second Observe, which is the one right before Create.
func ChangedBeforeSecondObserve(then func(ext *ExternalResource, mg resource.Managed) error) *ExternalResource {
	ext := &ExternalResource{Outdated: true}
	ext.BeforeCall = func(what string, mg resource.Managed) error {
		var err error
		if what == "observe" && ext.Observes == 2 {
			err = then(ext, mg)
		}
		if ext.Exists {
			AsBucket(mg).Spec.ForProvider.Region = "eu"
		}
		return err
	}
	return ext
}
