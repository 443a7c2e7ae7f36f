package managed

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
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

var wants = testkit.Wants

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bucket returns a managed resource as a user creates it.
func bucket(mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
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

func named(name string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { meta.SetExternalName(b, name) }
}

func annotated(k, v string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{k: v}) }
}

func unannotated(k string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, k) }
}

func finalizers(f ...string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.SetFinalizers(f) }
}

func deleting(b *v1alpha1.Bucket) {
	b.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

func policies(p ...xpv2.ManagementAction) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.Spec.ManagementPolicies = p }
}

func paused(b *v1alpha1.Bucket) { annotated(meta.AnnotationKeyReconciliationPaused, "true")(b) }

func bucketOf(mg resource.Managed) *v1alpha1.Bucket {
	b, ok := mg.(*v1alpha1.Bucket)
	if !ok {
		panic("not a Bucket")
	}
	return b
}

// exists is an external client's Observe of a resource that is as it should be.
func exists(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
	if b, ok := mg.(*v1alpha1.Bucket); ok {
		b.Status.AtProvider.ID = "id-1"
	}
	mg.SetConditions(xpv2.Available())
	return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
}

func absent(context.Context, resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{}, nil
}

func existsIfNamed(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}, nil
}

func counts[T any](n *int) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) {
		*n++
		return *new(T), nil
	}
}

func returns[T any](v T, err error) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) { return v, err }
}

// clientOf returns an external client. Functions that are nil do nothing.
func clientOf(fns ExternalClientFns) ExternalClientFns {
	if fns.ObserveFn == nil {
		fns.ObserveFn = exists
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

func connects(fns ExternalClientFns) ReconcilerOption {
	return WithExternalConnector(connectorTo(fns))
}

func connectorTo(fns ExternalClientFns) ExternalConnector {
	return ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
		c := clientOf(fns)
		return &c, nil
	})
}

// A provider is provider code, whatever kind and connector it is for.
type provider struct {
	connectErr error
	nilClient  bool
	client     ExternalClientFns
}

func connected[M resource.Managed](p provider) TypedExternalClient[M] {
	if p.nilClient {
		return nil
	}
	c := clientOf(p.client)
	return &TypedExternalClientFns[M]{
		ObserveFn:    func(ctx context.Context, mg M) (ExternalObservation, error) { return c.ObserveFn(ctx, mg) },
		CreateFn:     func(ctx context.Context, mg M) (ExternalCreation, error) { return c.CreateFn(ctx, mg) },
		UpdateFn:     func(ctx context.Context, mg M) (ExternalUpdate, error) { return c.UpdateFn(ctx, mg) },
		DeleteFn:     func(ctx context.Context, mg M) (ExternalDelete, error) { return c.DeleteFn(ctx, mg) },
		DisconnectFn: c.DisconnectFn,
	}
}

func connect[M resource.Managed](p provider, see func(resource.Managed)) TypedExternalConnectorFn[M] {
	return func(_ context.Context, mg M) (TypedExternalClient[M], error) {
		see(mg)
		if p.connectErr != nil {
			return nil, p.connectErr
		}
		return connected[M](p), nil
	}
}

// newWorld returns a cloud that gives names such as id-0001, and what connects to it.
func newWorld() (*cloud.Cloud, ReconcilerOption) {
	w := cloud.New(cloud.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}})
	return w, WithExternalConnector(sample.NewSync[resource.Managed](w))
}

func resources(w *cloud.Cloud) map[string]string {
	out := map[string]string{}
	for _, r := range w.Inventory() {
		out[r.ID] = r.Properties["region"]
	}
	return out
}

// An outside is one external resource, which all managed resources mean, and what each did to it.
type outside struct {
	before         func(what string, mg resource.Managed) error // Called with what is about to be done. Its error is that of the call.
	outdated, late bool                                         // What Observe says: an update is needed, it has late-initialized.
	slow           int                                          // How many calls of Delete it takes to delete.
	there          bool
	owner          types.UID
	observes       int
	acts           []string
	crimes         []string
}

func (x *outside) act(what string, mg resource.Managed, done func()) error {
	if what != "observe" {
		if x.owner != "" && x.owner != mg.GetUID() {
			x.crimes = append(x.crimes, what+" by "+string(mg.GetUID())+" of what is "+string(x.owner)+"'s")
		}
		x.acts = append(x.acts, what+" "+mg.GetName())
	}
	if x.before != nil {
		if err := x.before(what, mg); err != nil {
			return err
		}
	}
	done()
	return nil
}

func (x *outside) client() ExternalClientFns {
	return ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			x.observes++
			err := x.act("observe", mg, func() {})
			if x.there {
				_, _ = exists(ctx, mg)
			}
			return ExternalObservation{ResourceExists: x.there, ResourceUpToDate: !x.outdated, ResourceLateInitialized: x.late}, err
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			return ExternalCreation{}, x.act("create", mg, func() { x.there, x.owner = true, mg.GetUID() })
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
			return ExternalUpdate{}, x.act("update", mg, func() {})
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
			return ExternalDelete{}, x.act("delete", mg, func() {
				if x.slow--; x.slow < 0 {
					x.there, x.owner = false, ""
				}
			})
		},
	}
}

// on returns an outside that calls fn before one of the calls, whose error fn's is.
func (x *outside) on(call string, fn func(b *v1alpha1.Bucket) error) *outside {
	x.before = func(what string, mg resource.Managed) error {
		if what != call {
			return nil
		}
		return fn(bucketOf(mg))
	}
	return x
}

func (x *outside) did(what string) int {
	return len(slices.DeleteFunc(slices.Clone(x.acts), func(a string) bool { return !strings.HasPrefix(a, what) }))
}

// deleted returns a managed resource of generation 3 that is being deleted.
func deleted(mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	b := bucket(append([]func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}, mod...)...)
	b.SetGeneration(3)
	b.Status.AtProvider.ID = "id-1" // As exists observes it.
	return b
}

// connectingReconciler returns a reconciler that calls see when it connects to p.
func connectingReconciler(a *testkit.API, p provider, see func(), o ...ReconcilerOption) *Reconciler {
	return newBucketReconciler(a, append([]ReconcilerOption{ticks(), WithExternalConnector(connect[resource.Managed](p, func(resource.Managed) { see() }))}, o...)...)
}

// ticks returns an option for a clock that is a minute later at each reading.
func ticks() ReconcilerOption {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return func(r *Reconciler) {
		r.config.seams.Now = func() time.Time {
			now = now.Add(time.Minute)
			return now
		}
	}
}

// A clock stands still until it is moved.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) option() ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.Now = func() time.Time { return c.now } }
}

func newBucketReconciler(a *testkit.API, o ...ReconcilerOption) *Reconciler {
	return NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), append([]ReconcilerOption{
		WithManagementPolicies(),
		WithCreationGracePeriod(0),
		// Names are the external system's to give.
		WithInitializers(),
		waits(noWait),
	}, o...)...)
}

func newTracker(a *testkit.API, o ...asyncstate.TrackerOption) *asyncstate.Tracker {
	return asyncstate.NewTracker(a.Client(), append(o, asyncstate.WithLiveReader(a.Live()))...)
}

func waits(fn func(ctx context.Context, d time.Duration) error) ReconcilerOption {
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

func run(t *testing.T, r reconcile.Reconciler, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := r.Reconcile(context.Background(), requestFor(n)); err != nil {
			t.Fatalf("Reconcile %s: %v", n, err)
		}
	}
}

// repeat reconciles n times, without an error: b, or what is named.
func repeat(t *testing.T, r reconcile.Reconciler, n int, names ...string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"b"}
	}
	run(t, r, slices.Repeat(names, n)...)
}

// try reconciles n times as a controller does, which survives errors and panics.
func try(r reconcile.Reconciler, n int) {
	for range n {
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Reconcile(context.Background(), request())
		}()
	}
}

func get(t *testing.T, a *testkit.API) *v1alpha1.Bucket {
	t.Helper()
	return bucketNamed(t, a, "b")
}

// bucketNamed returns what the server has, which is empty if it has nothing.
func bucketNamed(t *testing.T, a *testkit.API, name string) *v1alpha1.Bucket {
	t.Helper()
	b := &v1alpha1.Bucket{}
	must(t, client.IgnoreNotFound(a.Server().Get(context.Background(), requestFor(name).NamespacedName, b)))
	return b
}

func edit(t *testing.T, a *testkit.API, name string, mods ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	t.Helper()
	b := bucketNamed(t, a, name)
	for _, m := range mods {
		m(b)
	}
	must(t, a.Server().Update(context.Background(), b))
	return b
}

func remove(t *testing.T, a *testkit.API, name string) {
	t.Helper()
	must(t, a.Server().Delete(context.Background(), bucketNamed(t, a, name)))
}

// kill removes an object without a deletion that its reconciler sees.
func kill(t *testing.T, a *testkit.API, name string) {
	t.Helper()
	if b := edit(t, a, name, finalizers()); b.DeletionTimestamp == nil {
		must(t, client.IgnoreNotFound(a.Server().Delete(context.Background(), b)))
	}
}

func failing(match func(testkit.Request) bool, err error) func(context.Context, testkit.Request) error {
	return func(_ context.Context, r testkit.Request) error {
		if match(r) {
			return err
		}
		return nil
	}
}

func verb(v string) func(testkit.Request) bool {
	return func(r testkit.Request) bool { return r.Verb == v }
}

func isWrite(r testkit.Request) bool { return r.Verb != testkit.Get && r.Verb != testkit.LiveGet }

func statusWrite(r testkit.Request) bool { return strings.HasPrefix(r.Verb, "status ") }
