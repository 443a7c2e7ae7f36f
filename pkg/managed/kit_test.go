package managed

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

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

// bucketOf returns mg, which is a Bucket in these tests.
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

// absent is an external client's Observe of a resource that is not there.
func absent(context.Context, resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{}, nil
}

// clientOf returns an external client. Functions that are nil do nothing.
func clientOf(fns upstream.ExternalClientFns) upstream.ExternalClientFns {
	if fns.ObserveFn == nil {
		fns.ObserveFn = exists
	}

	if fns.CreateFn == nil {
		fns.CreateFn = func(context.Context, resource.Managed) (ExternalCreation, error) { return ExternalCreation{}, nil }
	}

	if fns.UpdateFn == nil {
		fns.UpdateFn = func(context.Context, resource.Managed) (ExternalUpdate, error) { return ExternalUpdate{}, nil }
	}

	if fns.DeleteFn == nil {
		fns.DeleteFn = func(context.Context, resource.Managed) (ExternalDelete, error) { return ExternalDelete{}, nil }
	}

	if fns.DisconnectFn == nil {
		fns.DisconnectFn = func(context.Context) error { return nil }
	}

	return fns
}

// connects returns an option for a connector to an external client.
func connects(fns upstream.ExternalClientFns) ReconcilerOption {
	return WithExternalConnector(connectorTo(fns))
}

func connectorTo(fns upstream.ExternalClientFns) ExternalConnector {
	return ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
		c := clientOf(fns)
		return &c, nil
	})
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

// waits returns an option that makes the seams wait with fn.
func waits(fn func(ctx context.Context, d time.Duration) error) ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.Wait = fn }
}

// noWait returns as soon as it is called.
func noWait(context.Context, time.Duration) error { return nil }

func request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "b"}}
}

func get(t *testing.T, a *testkit.API) *v1alpha1.Bucket {
	t.Helper()

	return bucketNamed(t, a, "b")
}

// edit a managed resource as another writer does.
func edit(t *testing.T, a *testkit.API, name string, mods ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	t.Helper()

	b := bucketNamed(t, a, name)
	for _, m := range mods {
		m(b)
	}

	must(t, a.Server().Update(context.Background(), b))

	return b
}

// spies returns an option that shows the layer in a slot, as it is around the external
// client.
func spies[T external](slot int, out *T) ReconcilerOption {
	return func(r *Reconciler) {
		build := r.config.layers[slot]

		r.config.layers[slot] = func(p parts) layer {
			l := build(p)
			decorate := l.external

			l.external = func(next external) external {
				e := decorate(next)
				*out, _ = e.(T)

				return e
			}

			return l
		}
	}
}

// counts returns a method of an external client that succeeds, and adds one to n.
func counts[T any](n *int) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) {
		*n++
		return *new(T), nil
	}
}

// returns returns a method of an external client that returns v and err.
func returns[T any](v T, err error) func(context.Context, resource.Managed) (T, error) {
	return func(context.Context, resource.Managed) (T, error) { return v, err }
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func requestIn(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// runIn reconciles a managed resource of another namespace than run does.
func runIn(t *testing.T, r reconcile.Reconciler, namespace, name string) {
	t.Helper()

	if _, err := r.Reconcile(context.Background(), requestIn(namespace, name)); err != nil {
		t.Fatalf("Reconcile %s/%s: %v", namespace, name, err)
	}
}
