//go:build integration

package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// An object that is being deleted has three dependents: one that its reconciler may
// not read, one of a kind that isn't served, and one that exists. The reconciler
// reads through controller-runtime's cache, which waits for ever for a kind that it
// may not list. All three must be reported, and the reconcile must not fail.
func TestReportOfWhatCannotBeRead(t *testing.T) {
	const user = "reader-of-buckets"

	s := newServer(t)
	s.allow(t, user,
		rbacv1.PolicyRule{APIGroups: []string{sample.Group}, Resources: []string{"buckets"}, Verbs: []string{"get", "list", "watch", "patch", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{sample.Group}, Resources: []string{"buckets/status"}, Verbs: []string{"patch", "update"}})

	b, there := sample.NewBucket(namespace, "top"), sample.NewBucket(namespace, "there")
	b.SetFinalizers([]string{otherFinalizer})
	s.create(t, b)
	there.SetOwnerReferences([]metav1.OwnerReference{meta.AsController(&xpv2.TypedReference{APIVersion: sample.GroupVersion().String(), Kind: sample.BucketKind, Name: b.GetName(), UID: b.GetUID()})})
	s.create(t, there)
	b.SetConditions(xpv2.Available())
	must(t, "Update()", s.Status().Update(t.Context(), b))
	s.remove(t, b)

	dependent := func(gvk schema.GroupVersionKind, name string) reconciler.Dependent {
		return reconciler.Dependent{GroupVersionKind: gvk, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	list := reconciler.DependentListerFn(func(context.Context, client.Reader, client.Object) ([]reconciler.Dependent, error) {
		return []reconciler.Dependent{
			dependent(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "hidden"),
			dependent(sample.GroupVersion().WithKind("Nothing"), "none"),
			dependent(schema.GroupVersionKind(sample.BucketManagedKind()), "there"),
		}, nil
	})

	cfg := plane.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}

	cached, live := cachedClient(t, cfg)
	r := reconciler.New(cached, schema.GroupVersionKind(sample.BucketManagedKind()), func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, c.Get(ctx, req.NamespacedName, &sample.Bucket{})
		})
	}, reconciler.WithDependents(list), reconciler.WithLiveReader(live))

	want := strings.Join([]string{
		"0 of 3 dependents deleted, 0%.",
		"Nothing/none in default: unknown: no such kind.",
		"Secret/hidden in default: unknown: forbidden.",
		"Bucket/there in default: its deletion was not requested yet.",
	}, " ")

	for range 2 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
			t.Errorf("Reconcile(): %v", err)
		}

		if diff := cmp.Diff(want, read(t, s, b).GetCondition(reconciler.TypeDeleting).Message); diff != "" {
			t.Errorf("Deleting: -want, +got:\n%s", diff)
		}
	}
}

// allow a user to do what rules say, until the test's end.
func (s server) allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	must(t, "AddToScheme()", rbacv1.AddToScheme(s.Scheme()))

	named := metav1.ObjectMeta{Name: user}

	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: named, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		},
	} {
		must(t, "Create()", s.Create(t.Context(), o))
		t.Cleanup(func() { must(t, "Delete()", s.Delete(context.WithoutCancel(t.Context()), o)) })
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

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)

	go func() { ended <- ca.Start(ctx) }()

	t.Cleanup(func() {
		cancel()
		must(t, "the cache ended", <-ended)
	})

	if !ca.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache doesn't start")
	}

	return cached, live
}
