package asyncstate_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A cloud gives its own names to the buckets it makes, and takes its time. It makes
// one for a token, however often it is asked.
type cloud struct {
	buckets map[string]string // by token
	told    func(step string)
}

func (c *cloud) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return c, nil
}

func (c *cloud) Observe(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	for _, name := range c.buckets {
		if name == meta.GetExternalName(mg) {
			mg.SetConditions(xpv2.Available())
			return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
		}
	}
	return managed.ExternalObservation{}, nil
}

// Create runs in the background, and is written as if it were synchronous.
func (c *cloud) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	name := "bucket-42"
	c.buckets[asyncstate.Token(ctx)] = name

	// The bucket has a name long before it is ready.
	if err := asyncstate.SetExternalName(ctx, name); err != nil {
		return managed.ExternalCreation{}, err
	}
	c.told("named")
	return managed.ExternalCreation{}, nil
}

func (c *cloud) Update(context.Context, resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, nil
}

func (c *cloud) Delete(context.Context, resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, nil
}

func (c *cloud) Disconnect(context.Context) error { return nil }

// One option makes a provider's synchronous connector asynchronous. The external
// name is on the API server while Create is still running.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bucket := photos()

	// A provider has its manager, with its client and API reader, instead.
	api := testkit.NewAPI(bucket)
	c := &cloud{buckets: map[string]string{}}
	c.told = func(step string) { show(ctx, api, step) }
	tracker := asyncstate.NewTracker(api.Client(),
		asyncstate.WithLiveReader(api.Live()),
		asyncstate.WithIdempotentTokens())
	r := managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
		managed.WithInitializers(),
		managed.WithManagementPolicies(),
		managed.WithExternalConnector(c),
		managed.WithAsync(tracker))

	// A provider passes tracker.Source() to WatchesRawSource, and its controller
	// does all that follows.
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := tracker.Source().Start(ctx, queue); err != nil {
		fmt.Println(err)
	}
	reconciled := func(req reconcile.Request) {
		if _, err := r.Reconcile(ctx, req); err != nil {
			fmt.Println(err)
		}
	}
	reconciled(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(bucket)})

	// The end of the create triggers a reconcile of the object.
	req, _ := queue.Get()
	reconciled(req)
	show(ctx, api, "observed")

	// Output:
	// named: bucket-42, Ready=Creating, OperationRunning=Running
	// observed: bucket-42, Ready=Available, OperationRunning=Finished
}

func photos() *v1alpha1.Bucket {
	b := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "photos"}}
	b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
	return b
}

// show the bucket as a user sees it.
func show(ctx context.Context, api *testkit.API, step string) {
	b := photos()
	if err := api.Server().Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s: %s, Ready=%s, OperationRunning=%s\n", step, meta.GetExternalName(b), b.GetCondition(xpv2.TypeReady).Reason, b.GetCondition(asyncstate.TypeOperation).Reason)
}

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
	bucket := photos()
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
