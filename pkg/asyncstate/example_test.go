package asyncstate_test

import (
	"context"
	"errors"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// tagging sets the UID as a tag of each external resource, by which it looks the resource up after a crash.
type tagging struct {
	cloud

	byTag map[types.UID]string
}

func (c *tagging) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	c.byTag[mg.GetUID()] = "bucket-42"
	return managed.ExternalCreation{}, asyncstate.SetExternalName(ctx, "bucket-42")
}

// Find is called if the process died before the name was stored.
func (c *tagging) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	if name := c.byTag[mg.GetUID()]; name != "" {
		return asyncstate.Found(name), nil
	}
	return asyncstate.Absent(), nil // The list may lag: Graft waits until an absence is certain.
}

// A client that can look up its external resources implements Finder.
func ExampleFinder() {
	var _ asyncstate.Finder = &tagging{}
}

// An accepting client calls an API that answers 202, with the ID of an operation that can be polled.
type accepting struct {
	cloud

	start func(ctx context.Context) (operation string, err error)
	poll  func(ctx context.Context, operation string) (name string, done bool, err error)
}

func (c *accepting) Create(ctx context.Context, _ resource.Managed) (managed.ExternalCreation, error) {
	operation, err := c.start(ctx)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	// The ID is on the API server when this returns. It is the handle: any process can resume the operation.
	if err := asyncstate.SetHandle(ctx, operation); err != nil {
		return managed.ExternalCreation{}, err
	}
	return managed.ExternalCreation{}, c.wait(ctx, operation)
}

// Resume is called after a crash, with the handle.
func (c *accepting) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	return c.wait(ctx, a.Handle)
}

func (c *accepting) wait(ctx context.Context, operation string) error {
	for {
		switch name, done, err := c.poll(ctx, operation); {
		case err != nil:
			return err
		case done:
			return asyncstate.SetExternalName(ctx, name)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), asyncstate.ErrOutcomeUnknown)
		case <-time.After(10 * time.Second):
		}
	}
}

// A client whose operations can be polled implements Resumer.
func ExampleResumer() {
	var _ asyncstate.Resumer = &accepting{}
}
