package managed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A taggedCloud names its buckets itself. Its Create tags them with the UID of the
// managed resource, so that they can be told from all others.
type taggedCloud struct {
	cloud

	byTag map[types.UID]string
}

func (c *taggedCloud) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return c, nil
}

// Find makes the external client an asyncstate.Finder.
func (c *taggedCloud) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	if name, ok := c.byTag[mg.GetUID()]; ok {
		return asyncstate.Found(name), nil
	}
	return asyncstate.Absent(), nil
}

// The provider was killed between the answer of the cloud and the write that would
// have stored the bucket's name. Upstream stops. With a resolver the bucket is found.
func ExampleWithCreateResolver() {
	b := newBucket()
	b.SetUID("6f1c")
	meta.SetExternalCreatePending(b, time.Now().Add(-time.Hour))
	c := &taggedCloud{cloud: cloud{asked: true}, byTag: map[types.UID]string{"6f1c": "bucket-42"}}
	api := testkit.NewAPI(b)
	reconcileWith := func(o ...managed.ReconcilerOption) {
		r := managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
			append(o, managed.WithExternalConnector(c), managed.WithInitializers(), managed.WithManagementPolicies())...)
		if _, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "photos"}}); err != nil {
			fmt.Println(err)
		}
		got := &v1alpha1.Bucket{}
		if err := api.Server().Get(context.Background(), types.NamespacedName{Namespace: "default", Name: "photos"}, got); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("name %q, Synced %s %s\n", meta.GetExternalName(got), got.GetCondition(xpv2.TypeSynced).Status, got.GetCondition(xpv2.TypeSynced).Message)
	}
	reconcileWith()
	reconcileWith(managed.WithCreateResolver(managed.FindWithConnector(c)))

	// Output:
	// name "", Synced False cannot determine creation result - remove the crossplane.io/external-create-pending annotation if it is safe to proceed
	// name "bucket-42", Synced True
}
