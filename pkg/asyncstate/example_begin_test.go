package asyncstate_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A starter is an external client that has goroutines of its own, as upjet's has:
// its Create returns at once.
type starter struct {
	cloud

	tracker *asyncstate.Tracker
	jobs    chan func()
}

func (c *starter) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return c, nil
}

func (c *starter) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	op, err := c.tracker.Begin(ctx, mg, asyncstate.Create)
	if err != nil {
		return managed.ExternalCreation{}, err
	}

	c.jobs <- func() {
		_, err := c.cloud.Create(op.Context(), mg)
		op.End(err)
	}

	return managed.ExternalCreation{}, nil
}

// Providers that run operations themselves say when one begins and ends.
func ExampleTracker_Begin() {
	ctx := context.Background()

	bucket := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "photos"}}
	bucket.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})

	api := testkit.NewAPI(bucket)

	tracker := asyncstate.NewTracker(api.Client(),
		asyncstate.WithLiveReader(api.Live()),
		asyncstate.WithOwnGoroutines(),
		asyncstate.WithIdempotentTokens())

	c := &starter{tracker: tracker, jobs: make(chan func(), 1)}
	c.buckets = map[string]string{}
	c.told = func(step string) { show(ctx, api, step) }

	r := managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
		managed.WithInitializers(),
		managed.WithManagementPolicies(),
		managed.WithExternalConnector(c),
		managed.WithAsync(tracker))

	req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(bucket)}

	if _, err := r.Reconcile(ctx, req); err != nil {
		fmt.Println(err)
	}

	show(ctx, api, "begun")

	s, running := tracker.Lookup(bucket.GetUID())
	fmt.Printf("running: %t, %s, attempt %d\n", running, s.Type, s.Number)

	// The provider's own goroutine.
	job := <-c.jobs
	job()

	// Output:
	// begun: , Ready=Creating, OperationRunning=Running
	// running: true, create, attempt 1
	// named: bucket-42, Ready=Creating, OperationRunning=Running
}
