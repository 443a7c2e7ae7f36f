package managed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	// Was github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed.
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// A cloud names its buckets itself, some time after it was asked for one. They have tags
// with the UID of the managed resource, so that they can be told from all others.
type cloud struct {
	asked bool
	byTag map[types.UID]string
}

func (c *cloud) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return c, nil
}

func (c *cloud) Observe(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	if !c.asked {
		return managed.ExternalObservation{}, nil
	}

	// The cloud has a name for it by now.
	meta.SetExternalName(mg, "bucket-42")
	mg.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true, ResourceLateInitialized: true}, nil
}

func (c *cloud) Create(context.Context, resource.Managed) (managed.ExternalCreation, error) {
	c.asked = true
	return managed.ExternalCreation{}, nil
}

func (c *cloud) Update(context.Context, resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, nil
}

func (c *cloud) Delete(context.Context, resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, nil
}

func (c *cloud) Disconnect(context.Context) error { return nil }

// reconcileOnce reconciles the bucket, and returns it as the API server has it then.
func reconcileOnce(r *managed.Reconciler, api client.Client) *Bucket {
	b := newBucket()
	photos := client.ObjectKeyFromObject(b)
	if _, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: photos}); err != nil {
		fmt.Println(err)
	}
	if err := api.Get(context.Background(), photos, b); err != nil {
		fmt.Println(err)
	}
	return b
}

// A provider whose code is unchanged, except for the import.
func ExampleNewReconciler() {
	ctx := context.Background()

	// An API server in memory. A provider passes its controller manager.
	api := newAPI(newBucket())
	r := managed.NewReconciler(newManager(api), resource.ManagedKind(bucketKind()),
		managed.WithExternalConnector(&cloud{}),
		managed.WithInitializers(),
		managed.WithManagementPolicies(),
		managed.WithPollInterval(time.Minute),
	)
	b := reconcileOnce(r, api)
	fmt.Printf("asked for:    name %q\n", meta.GetExternalName(b))
	b = reconcileOnce(r, api)
	fmt.Printf("observed:     name %q, Ready %s\n", meta.GetExternalName(b), b.GetCondition(xpv2.TypeReady).Status)
	version := b.GetResourceVersion()
	b = reconcileOnce(r, api)
	fmt.Printf("steady state: written %t\n", b.GetResourceVersion() != version)

	// Another controller's finalizer blocks the deletion of the bucket.
	meta.AddFinalizer(b, "example.org/backup")
	if err := api.Update(ctx, b); err != nil {
		fmt.Println(err)
	}
	if err := api.Delete(ctx, b); err != nil {
		fmt.Println(err)
	}
	ready := reconcileOnce(r, api).GetCondition(xpv2.TypeReady)
	fmt.Printf("deleted:      Ready %s, %s: %s\n", ready.Status, ready.Reason, ready.Message)

	// Output:
	// asked for:    name ""
	// observed:     name "bucket-42", Ready True
	// steady state: written false
	// deleted:      Ready False, Deleting: Waiting for other controllers to remove their finalizers: example.org/backup
}

// Find makes the external client an asyncstate.Finder.
func (c *cloud) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	if name, ok := c.byTag[mg.GetUID()]; ok {
		return asyncstate.Found(name), nil
	}
	return asyncstate.Absent(), nil
}

// The provider was killed between the answer of the cloud and the write that would
// have stored the bucket's name. Upstream stops. With a resolver the bucket is found.
func Example_interruptedCreate() {
	b := newBucket()
	meta.SetExternalCreatePending(b, time.Now().Add(-time.Hour))
	c := &cloud{asked: true, byTag: map[types.UID]string{"6f1c": "bucket-42"}}
	api := newAPI(b)
	reconcileWith := func(o ...managed.ReconcilerOption) {
		got := reconcileOnce(managed.NewReconciler(newManager(api), resource.ManagedKind(bucketKind()),
			append(
				o, managed.WithExternalConnector(c), managed.WithInitializers(), managed.WithManagementPolicies(),
			)...), api)
		fmt.Printf(
			"name %q, Synced %s %s\n", meta.GetExternalName(got), got.GetCondition(xpv2.TypeSynced).Status,
			got.GetCondition(xpv2.TypeSynced).Message,
		)
	}
	reconcileWith()
	reconcileWith(resolve.With(resolve.FindWithConnector(c)))

	// Output:
	// name "", Synced False cannot determine creation result - remove the crossplane.io/external-create-pending annotation if it is safe to proceed
	// name "bucket-42", Synced True
}

// The rest is generated in a provider, or is the controller manager.

func bucketKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Bucket"}
}

func newAPI(b *Bucket) client.Client {
	s := runtime.NewScheme()
	s.AddKnownTypes(bucketKind().GroupVersion(), &Bucket{})
	metav1.AddToGroupVersion(s, bucketKind().GroupVersion())
	return clientfake.NewClientBuilder().WithScheme(s).WithObjects(b).WithStatusSubresource(b).Build()
}

func newManager(c client.Client) *fake.Manager {
	return &fake.Manager{Client: c, Scheme: c.Scheme(), Config: &rest.Config{}, RESTMapper: c.RESTMapper()}
}

// newBucket returns a managed resource whose policies don't let a provider
// late-initialize it, so that upstream would never store its name.
func newBucket() *Bucket {
	b := &Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "photos", UID: "6f1c"}}
	b.SetManagementPolicies(xpv2.ManagementPolicies{
		xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
		xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
	})
	return b
}

// A Bucket is a managed resource.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		xpv2.ManagedResourceSpec `json:",inline"`
	} `json:"spec"`

	Status struct {
		xpv2.ManagedResourceStatus `json:",inline"`
	} `json:"status,omitempty"`
}

func (b *Bucket) GetCondition(t xpv2.ConditionType) xpv2.Condition { return b.Status.GetCondition(t) }

func (b *Bucket) SetConditions(c ...xpv2.Condition) { b.Status.SetConditions(c...) }

func (b *Bucket) GetManagementPolicies() xpv2.ManagementPolicies { return b.Spec.ManagementPolicies }

func (b *Bucket) SetManagementPolicies(p xpv2.ManagementPolicies) { b.Spec.ManagementPolicies = p }

func (b *Bucket) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return b.Spec.WriteConnectionSecretToReference
}

func (b *Bucket) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	b.Spec.WriteConnectionSecretToReference = r
}

func (b *Bucket) DeepCopyObject() runtime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	b.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	b.Status.ManagedResourceStatus.DeepCopyInto(&out.Status.ManagedResourceStatus)
	return &out
}
