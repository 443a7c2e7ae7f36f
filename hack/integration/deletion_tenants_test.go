//go:build integration

package integration

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// The references of a tenant's objects name objects of another tenant, and of a kind
// that no controller watches. The reconciler may read them all, through a cache. What it
// writes for the tenant says nothing of them, and its cache doesn't start to watch.
func TestReferencesToAnotherTenant(t *testing.T) {
	const victim = "victim"

	s := newPlatform(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: victim}}
	must(t, "Create()", s.Create(t.Context(), ns))

	bucket := v1alpha1.NewBucket(victim, "hidden")
	bucket.SetFinalizers([]string{otherFinalizer})
	s.create(t, bucket)
	s.remove(t, bucket)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hidden", Finalizers: []string{otherFinalizer}}}
	s.createFor(t, secret)

	// The composite resource of another tenant's claim.
	other := object(xappKind(), "", "hidden")
	other.SetFinalizers([]string{otherFinalizer})
	setField(t, other, map[string]any{"apiVersion": appKind().GroupVersion().String(), "kind": appKind().Kind, "namespace": victim, "name": "c"}, "spec", "claimRef")

	stack := object(stackKind(), namespace, "a")
	stack.SetFinalizers([]string{otherFinalizer})
	setField(t, stack, []any{
		map[string]any{"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.BucketKind, "namespace": victim, "name": "hidden"},
		map[string]any{"apiVersion": "v1", "kind": "Secret", "name": "hidden"},
		// The namespace of an object without one is ignored.
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": victim},
	}, "spec", "crossplane", "resourceRefs")

	claim := object(appKind(), namespace, "c")
	claim.SetFinalizers([]string{otherFinalizer})
	setField(t, claim, referenceTo(other), "spec", "resourceRef")

	for _, o := range []*unstructured.Unstructured{other, stack, claim} {
		must(t, "Create()", s.Create(t.Context(), o))
		must(t, "Patch()", s.Status().Patch(t.Context(), o, mergePatch(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Available","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)))
		must(t, "Delete()", s.Delete(t.Context(), o))
	}

	var lists atomic.Int64

	cfg := plane.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/secrets") || strings.HasSuffix(r.URL.Path, "/buckets") || strings.HasSuffix(r.URL.Path, "/namespaces") {
				lists.Add(1)
			}

			return next.RoundTrip(r)
		})
	})

	cached, live := cachedClient(t, cfg)

	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		lister reconciler.DependentLister
		want   said
	}{
		"Composite": {
			reason: "Objects that a composite resource does not control are treated as if they did not exist.",
			object: stack,
			lister: reconciler.ComposedResources(),
			want:   said{"True", "DeletionRequested", "3 of 3 dependents deleted, 100%. Deletion was requested."},
		},
		"Claim": {
			reason: "Nothing is said of a composite resource that is bound to another claim.",
			object: claim,
			lister: reconciler.CompositeOfClaim(xappKind()),
			want:   said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. XApp/hidden: not bound to this claim."},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := reconciler.New(cached, tc.object.GroupVersionKind(), func(c client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{}, c.Get(ctx, req.NamespacedName, object(tc.object.GroupVersionKind(), "", ""))
				})
			}, reconciler.WithDependents(tc.lister), reconciler.WithLiveReader(live))

			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(tc.object)})
			must(t, "Reconcile()", err)

			got := read(t, s, tc.object)
			if diff := cmp.Diff(tc.want, saysOf(got, reconciler.TypeDeleting)); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}

			if diff := cmp.Diff(tc.want.Message, saysOf(got, xpv2.TypeReady).Message); diff != "" {
				t.Errorf("\n%s\nReady: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}

	if n := lists.Load(); n != 0 {
		t.Errorf("want no watch of a kind that only a reference names, got %d requests", n)
	}
}

// cachedClient returns a client that reads everything through a cache, as
// Crossplane's controllers have, and one without. The cache is stopped at the
// test's end.
func cachedClient(t *testing.T, cfg *rest.Config) (cached, live client.Client) {
	t.Helper()

	scheme := newScheme(t)

	live, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, "client.New()", err)

	ca, err := cache.New(cfg, cache.Options{Scheme: scheme, Mapper: live.RESTMapper()})
	must(t, "cache.New()", err)

	cached, err = client.New(cfg, client.Options{Scheme: scheme, Mapper: live.RESTMapper(), Cache: &client.CacheOptions{Reader: ca, Unstructured: true}})
	must(t, "client.New()", err)

	background(t, ca.Start)

	if !ca.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache doesn't start")
	}

	return cached, live
}
