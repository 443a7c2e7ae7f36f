package reconciler_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

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
