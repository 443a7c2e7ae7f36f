package usage

import (
	"context"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// NewProviderConfigUsageTracker returns a tracker of crossplane-runtime's package resource
// that handles two errors:
//
//   - A managed resource that is being deleted connects although its namespace is being
//     deleted, too. The API server creates nothing in such a namespace, so the usage can't be
//     recorded. With upstream's tracker, neither the managed resource nor the namespace would
//     ever be deleted.
//   - A usage that exists, but is not in the cache, is updated. Upstream's tracker returns
//     "already exists" until the cache has the usage. This needs the permission to patch
//     usages.
//
// Other errors are returned as upstream returns them, and so is the first error for a managed
// resource that is not being deleted. A usage that WithProtection protects stays
// protected if the ProviderConfig of the managed resource changes. The tracker is safe for
// concurrent use if c is. It panics if c or of is nil.
func NewProviderConfigUsageTracker(
	c client.Client, of resource.TypedProviderConfigUsage,
) *resource.ProviderConfigUsageTracker {
	return resource.NewProviderConfigUsageTracker(newUsageClient(c, of), of)
}

// NewLegacyProviderConfigUsageTracker is NewProviderConfigUsageTracker for
// legacy managed resources.
//
//nolint:staticcheck // Deprecated, but most providers use it.
func NewLegacyProviderConfigUsageTracker(
	c client.Client, of resource.LegacyProviderConfigUsage,
) *resource.LegacyProviderConfigUsageTracker {
	return resource.NewLegacyProviderConfigUsageTracker(newUsageClient(c, of), of)
}

// A usageClient is the client of a usage tracker. It changes writes of usages:
//
//   - Create succeeds without an effect if the managed resource is being deleted and its
//     namespace is terminating, because the API server creates no usage there.
//   - Create updates a usage that exists, but is not in the cache.
//   - Update keeps finalizers, because upstream's trackers replace the whole usage.
type usageClient struct {
	client.Client
}

func newUsageClient(c client.Client, of client.Object) *usageClient {
	if is.Nil(c) || is.Nil(of) {
		panic(errors.New("cannot create a usage tracker without a client and a usage: pass the manager's client, and an empty ProviderConfigUsage of the provider's"))
	}
	return &usageClient{Client: c}
}

// Create a usage.
func (c *usageClient) Create(ctx context.Context, usage client.Object, opts ...client.CreateOption) error {
	desired, _ := usage.DeepCopyObject().(client.Object)
	err := c.Client.Create(ctx, usage, opts...)

	switch {
	case seam.IsTerminating(err) && c.userIsDeleted(ctx, usage):
		return nil
	case kerrors.IsAlreadyExists(err):
		return c.updateExisting(ctx, desired, err)
	default:
		return err
	}
}

// updateExisting updates a usage that is not in the cache, as upstream's trackers update a
// usage in the cache. It returns the error of the create if the usage no longer exists.
func (c *usageClient) updateExisting(ctx context.Context, usage client.Object, exists error) error {
	// The client reads from the cache only. The API server answers an empty patch with the
	// current object.
	had := seam.Empty(usage)
	err := c.Patch(ctx, had, client.RawPatch(types.MergePatchType, []byte("{}")))
	if seam.IsGone(err) {
		return exists
	}
	if err != nil {
		return errors.Wrap(err, "cannot read a usage that the cache lacks")
	}

	user := metav1.GetControllerOf(usage)
	if by := metav1.GetControllerOf(had); by != nil && (user == nil || by.UID != user.UID) {
		return errors.Errorf(
			"usage %q is not controlled by the managed resource: delete it if nothing needs it", usage.GetName(),
		)
	}
	if reflect.DeepEqual(providerConfigIn(had), providerConfigIn(usage)) {
		return nil
	}
	usage.SetResourceVersion(had.GetResourceVersion())
	return c.replace(ctx, had, usage)
}

// providerConfigIn returns the reference of a usage to its provider config.
func providerConfigIn(usage client.Object) any {
	switch u := usage.(type) {
	case interface {
		GetProviderConfigReference() xpv2.ProviderConfigReference
	}:
		return u.GetProviderConfigReference()
	case interface{ GetProviderConfigReference() xpv2.Reference }:
		return u.GetProviderConfigReference()
	default:
		return nil
	}
}

// Update the provider config of a usage.
func (c *usageClient) Update(ctx context.Context, usage client.Object, opts ...client.UpdateOption) error {
	had := seam.Empty(usage)
	if err := c.Get(ctx, client.ObjectKeyFromObject(usage), had); client.IgnoreNotFound(err) != nil {
		return err
	}
	return c.replace(ctx, had, usage, opts...)
}

// replace a usage. Its finalizers stay, and with them its protection.
func (c *usageClient) replace(ctx context.Context, had, usage client.Object, opts ...client.UpdateOption) error {
	if len(had.GetFinalizers()) > 0 {
		usage.SetFinalizers(had.GetFinalizers())
		usage.SetOwnerReferences(had.GetOwnerReferences())
	}
	return c.Client.Update(ctx, usage, opts...)
}

// userIsDeleted reports whether the managed resource that controls a usage is being deleted.
// Trackers don't pass it to the client, so it is read again, from the cache of the reconcile.
func (c *usageClient) userIsDeleted(ctx context.Context, usage client.Object) bool {
	user := metav1.GetControllerOf(usage)
	if user == nil {
		return false
	}
	mg := c.empty(schema.FromAPIVersionAndKind(user.APIVersion, user.Kind))
	if err := c.Get(ctx, client.ObjectKey{Namespace: usage.GetNamespace(), Name: user.Name}, mg); err != nil {
		return false
	}
	return mg.GetUID() == user.UID && meta.WasDeleted(mg)
}

// empty returns an empty object of a kind. It has the type that the controller reads, because
// each type has its own cache.
func (c *usageClient) empty(gvk schema.GroupVersionKind) client.Object {
	if o, err := c.Scheme().New(gvk); err == nil {
		if co, ok := o.(client.Object); ok {
			return co
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}
