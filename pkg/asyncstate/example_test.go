package asyncstate_test

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A cloud gives its own names to the buckets that it creates, and takes its time. It
// creates one bucket for a token, however often it is called.
type cloud struct {
	buckets map[string]string // By token.
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
func (c *cloud) Create(ctx context.Context, _ resource.Managed) (managed.ExternalCreation, error) {
	name := "bucket-42"
	c.buckets[asyncstate.Token(ctx)] = name

	// The bucket has a name long before it is ready. The name is on the API server while
	// Create is still running.
	return managed.ExternalCreation{}, asyncstate.SetExternalName(ctx, name)
}

func (c *cloud) Update(context.Context, resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, nil
}

func (c *cloud) Delete(context.Context, resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, nil
}

func (c *cloud) Disconnect(context.Context) error { return nil }

// One option makes a provider's synchronous connector asynchronous.
func Example() {
	// The Setup function of a provider.
	_ = func(mgr ctrl.Manager) error {
		tracker := asyncstate.NewTracker(asyncstate.WithIdempotentTokens())
		r := managed.NewReconciler(mgr, resource.ManagedKind(bucketKind()),
			managed.WithInitializers(),
			managed.WithManagementPolicies(),
			managed.WithExternalConnector(&cloud{buckets: map[string]string{}}),
			asyncstate.With(tracker))

		// The end of an operation triggers a reconcile of its object.
		return ctrl.NewControllerManagedBy(mgr).
			For(newBucket()).
			WatchesRawSource(tracker.Source()).
			Complete(r)
	}
}

// In a provider these are the types of its API.

func bucketKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Bucket"}
}

func newBucket() *unstructured.Unstructured {
	b := &unstructured.Unstructured{}
	b.SetGroupVersionKind(bucketKind())
	return b
}
