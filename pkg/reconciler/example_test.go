package reconciler_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A reconciler that forgets to write what it knows: it returns early while what
// it waits for is being deleted.
type forgetful struct{ client client.Client }

func (r *forgetful) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	db := &v1alpha1.Database{}
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
	api := testkit.NewAPI(&v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", Finalizers: []string{"example.org/backup"}}})
	r := reconciler.New(api.Client(), testkit.DatabaseKind(),
		func(c client.Client) reconcile.Reconciler { return &forgetful{client: c} },
		reconciler.WithLiveReader(api.Live()),
	)
	db := &v1alpha1.Database{}
	show := func() {
		if _, err := r.Reconcile(ctx, orders); err != nil {
			fmt.Println(err)
		}
		if err := api.Server().Get(ctx, orders.NamespacedName, db); err != nil {
			fmt.Println(err)
		}
		c := db.GetCondition(xpv2.TypeReady)
		fmt.Printf("Ready=%s/%s %q\n", c.Status, c.Reason, c.Message)
	}
	show()
	if err := api.Server().Delete(ctx, db); err != nil {
		fmt.Println(err)
	}
	show()

	// Output:
	// Ready=True/Available ""
	// Ready=False/Deleting "Deletion was requested."
}

// A database waits for its two backups. One is paused, and says nothing about it.
func ExampleWithDependents() {
	ctx := context.Background()
	controls := true
	owner := []metav1.OwnerReference{{APIVersion: testkit.DatabaseKind().GroupVersion().String(), Kind: "Database", Name: "orders", UID: "a1b2", Controller: &controls}}
	backup := func(name string) *v1alpha1.Bucket {
		return &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "backups", OwnerReferences: owner, Finalizers: []string{"example.org/bucket"}}}
	}
	paused, other := backup("monday"), backup("tuesday")
	meta.AddAnnotations(paused, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
	orders := &v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", UID: "a1b2", Finalizers: []string{metav1.FinalizerDeleteDependents}}}

	// An API server in memory.
	api := testkit.NewAPI(orders, paused, other)
	r := reconciler.New(api.Client(), testkit.DatabaseKind(),
		func(c client.Client) reconcile.Reconciler { return &forgetful{client: c} },
		reconciler.WithDependents(reconciler.OwnedObjects(testkit.BucketKind())),
	)
	show := func() {
		for range 2 {
			if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "orders"}}); err != nil {
				fmt.Println(err)
			}
		}
		if err := api.Server().Get(ctx, client.ObjectKeyFromObject(orders), orders); err != nil {
			fmt.Println(err)
		}
		c := orders.GetCondition(reconciler.TypeDeleting)
		fmt.Println(c.Reason)
		fmt.Println(timestamps.ReplaceAllString(orders.GetCondition(xpv2.TypeReady).Message, "2026-01-02T03:04:05Z"))
	}
	for _, o := range []client.Object{orders, paused, other} {
		if err := api.Server().Delete(ctx, o); err != nil {
			fmt.Println(err)
		}
	}
	show()

	// One backup goes.
	if err := api.Server().Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
		fmt.Println(err)
	}
	other.SetFinalizers(nil)
	if err := api.Server().Update(ctx, other); err != nil {
		fmt.Println(err)
	}
	show()

	// Output:
	// WaitingForDependents
	// 0 of 2 dependents deleted, 0%. Bucket/monday in backups since 2026-01-02T03:04:05Z: its reconciliation is paused. Bucket/tuesday in backups since 2026-01-02T03:04:05Z: held by example.org/bucket.
	// WaitingForDependents
	// 1 of 2 dependents deleted, 50%. Bucket/monday in backups since 2026-01-02T03:04:05Z: its reconciliation is paused.
}

// A database is orphaned: its managed resource goes, and the database stays. A
// backup tool has a finalizer of its own, which is not ours to remove. So has the
// garbage collector.
func ExampleRelease() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	orders := &v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{
		Name:       "orders",
		Finalizers: []string{"finalizer.managedresource.crossplane.io", "example.org/backup"},
	}}
	orders.SetDeletionPolicy(xpv2.DeletionDelete)

	// An API server in memory that has it.
	c := testkit.NewAPI(orders).Live()
	show := func(r reconciler.Released, err error) {
		fmt.Printf("gone: %t, held by %q, error: %v\n", r.Gone, r.Holding, err)
	}
	release := []string{"finalizer.managedresource.crossplane.io"}
	show(reconciler.Release(ctx, c, orders, release))
	if err := c.Get(ctx, client.ObjectKeyFromObject(orders), orders); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("paused: %t, deletion policy: %s\n", meta.IsPaused(orders), orders.GetDeletionPolicy())

	// The backup tool and the garbage collector are done.
	orders.SetFinalizers(nil)
	if err := c.Update(ctx, orders); err != nil {
		fmt.Println(err)
	}
	show(reconciler.Release(ctx, c, orders, release))

	// Output:
	// gone: false, held by ["example.org/backup" "orphan"], error: <nil>
	// paused: true, deletion policy: Orphan
	// gone: true, held by [], error: <nil>
}
