package reconciler_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

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
