package reconciler_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A reconciler that forgets a write: it returns early while the object is being deleted.
type forgetful struct{ client client.Client }

func (r *forgetful) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	db := newDatabase()
	if err := r.client.Get(ctx, req.NamespacedName, db); err != nil {
		return reconcile.Result{}, resource.IgnoreNotFound(err)
	}
	if meta.WasDeleted(db) {
		db.SetConditions(xpv2.Deleting())
		return reconcile.Result{RequeueAfter: time.Minute}, nil
	}
	db.SetConditions(xpv2.Available())
	return reconcile.Result{}, r.client.Status().Update(ctx, db)
}

func ExampleNew() {
	ctx := context.Background()
	orders := reconcile.Request{NamespacedName: types.NamespacedName{Name: "orders"}}

	// An API server in memory, where the object is held by a finalizer.
	held := newDatabase()
	held.SetFinalizers([]string{"example.org/backup"})
	api := newAPI(held)
	r := reconciler.New(api, kind("Database"),
		func(c client.Client) reconcile.Reconciler { return &forgetful{client: c} },
		reconciler.WithLiveReader(api),
	)
	db := newDatabase()
	show := func() {
		if _, err := r.Reconcile(ctx, orders); err != nil {
			fmt.Println(err)
		}
		if err := api.Get(ctx, orders.NamespacedName, db); err != nil {
			fmt.Println(err)
		}
		c := db.GetCondition(xpv2.TypeReady)
		fmt.Printf("Ready=%s/%s %q\n", c.Status, c.Reason, c.Message)
	}
	show()
	if err := api.Delete(ctx, db); err != nil {
		fmt.Println(err)
	}
	show()

	// Output:
	// Ready=True/Available ""
	// Ready=False/Deleting "Deletion was requested."
}

// A database waits for its backups. While they exist, its Deleting condition says how many
// are left and why.
func ExampleWithDependents() {
	// The Setup function of a provider.
	_ = func(mgr ctrl.Manager) error {
		r := reconciler.New(mgr.GetClient(), kind("Database"),
			func(c client.Client) reconcile.Reconciler { return &forgetful{client: c} },
			reconciler.WithDependents(reconciler.OwnedObjects(kind("Bucket"))),
		)
		return ctrl.NewControllerManagedBy(mgr).For(newDatabase()).Complete(r)
	}
}

// A database is orphaned: its managed resource is deleted, and the database stays. Release
// does not remove the finalizer of a backup tool.
func ExampleRelease() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	orders := newDatabase()
	orders.SetFinalizers([]string{"finalizer.managedresource.crossplane.io", "example.org/backup"})
	orders.Object["spec"] = map[string]any{"deletionPolicy": "Delete"}

	// An API server in memory that has it.
	c := newAPI(orders)
	show := func(r reconciler.Released, err error) {
		fmt.Printf("gone: %t, held by %q, error: %v\n", r.Gone, r.Holding, err)
	}
	release := []string{"finalizer.managedresource.crossplane.io"}
	show(reconciler.Release(ctx, c, orders, release))
	if err := c.Get(ctx, client.ObjectKeyFromObject(orders), orders); err != nil {
		fmt.Println(err)
	}
	policy, _, _ := unstructured.NestedString(orders.Object, "spec", "deletionPolicy")
	fmt.Printf("paused: %t, deletion policy: %s\n", meta.IsPaused(orders), policy)

	// The backup tool is done.
	orders.SetFinalizers(nil)
	if err := c.Update(ctx, orders); err != nil {
		fmt.Println(err)
	}
	show(reconciler.Release(ctx, c, orders, release))

	// Output:
	// gone: false, held by ["example.org/backup"], error: <nil>
	// paused: true, deletion policy: Orphan
	// gone: true, held by [], error: <nil>
}

// The rest is a provider's API package and the controller manager's client.

func kind(k string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: k}
}

func newDatabase() *composite.Unstructured {
	o := composite.New(composite.WithGroupVersionKind(kind("Database")))
	o.SetName("orders")
	o.SetUID("a1b2")
	return o
}

func newAPI(objects ...client.Object) client.Client {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind("Database"), &unstructured.Unstructured{})
	s.AddKnownTypeWithName(kind("DatabaseList"), &unstructured.UnstructuredList{})
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(objects...).Build()
}
