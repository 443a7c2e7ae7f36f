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
