package managed

import (
	"context"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// NewProviderConfigUsageTracker returns what the function of the same name in
// crossplane-runtime's package resource returns, but for two errors:
//
//   - A managed resource that is being deleted connects although its namespace is being
//     deleted, too. The API server creates nothing in such a namespace, so the usage can't be
//     recorded. With upstream's tracker neither the managed resource nor the namespace would
//     ever be deleted.
//   - A usage that the cache lacks is updated if it exists already. Upstream's tracker returns
//     the error of its create until the cache has the usage. This needs the permission to
//     patch usages.
//
// Any other error, and the first one for a managed resource that is not being
// deleted, is returned as upstream returns it. A usage that WithUsageProtection protects
// stays protected if the managed resource is given another ProviderConfig. The
// tracker is safe for concurrent use if c is. It panics if c or of is nil.
func NewProviderConfigUsageTracker(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker {
	return resource.NewProviderConfigUsageTracker(newUsageClient(c, of), of)
}

// NewLegacyProviderConfigUsageTracker is NewProviderConfigUsageTracker for
// legacy managed resources.
//
//nolint:staticcheck // Deprecated, and what most providers have.
func NewLegacyProviderConfigUsageTracker(c client.Client, of resource.LegacyProviderConfigUsage) *resource.LegacyProviderConfigUsageTracker {
	return resource.NewLegacyProviderConfigUsageTracker(newUsageClient(c, of), of)
}

// A usageClient is the client of a usage tracker. It changes what upstream's trackers do
// with a usage:
//
//   - Create succeeds without an effect if the managed resource is being deleted and its
//     namespace is terminating, because the API server creates no usage there.
//   - Create updates a usage that exists already, which the cache lacks.
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
	case isTerminating(err) && c.userIsDeleted(ctx, usage):
		return nil
	case kerrors.IsAlreadyExists(err):
		return c.updateExisting(ctx, desired, err)
	default:
		return err
	}
}

// updateExisting updates a usage that the cache lacks, as upstream's trackers update one that
// they find. It returns the error of the create if the usage no longer exists.
func (c *usageClient) updateExisting(ctx context.Context, usage client.Object, exists error) error {
	// The client has no live reads. The API server answers a patch that changes nothing with
	// the object that it has.
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
		return errors.Errorf("usage %q is not controlled by the managed resource: delete it if nothing needs it", usage.GetName())
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

// Update a usage, to say that another provider config is used.
func (c *usageClient) Update(ctx context.Context, usage client.Object, opts ...client.UpdateOption) error {
	had := seam.Empty(usage)
	if err := c.Get(ctx, client.ObjectKeyFromObject(usage), had); client.IgnoreNotFound(err) != nil {
		return err
	}
	return c.replace(ctx, had, usage, opts...)
}

// replace a usage that the API server had. Its finalizers stay, and with them its protection.
func (c *usageClient) replace(ctx context.Context, had, usage client.Object, opts ...client.UpdateOption) error {
	if len(had.GetFinalizers()) > 0 {
		usage.SetFinalizers(had.GetFinalizers())
		usage.SetOwnerReferences(had.GetOwnerReferences())
	}
	return c.Client.Update(ctx, usage, opts...)
}

// isTerminating reports whether an object could not be created because its namespace
// is being deleted.
func isTerminating(err error) bool {
	return kerrors.IsForbidden(err) && kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// userIsDeleted reports whether the managed resource that controls a usage is known
// to be being deleted. Trackers don't hand it down, so it is read once more, from
// the cache that the reconcile read it from.
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

// empty returns an object of a kind in the form in which the controller reads
// it: another form would be another cache.
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
