package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// NewProviderConfigUsageTracker returns what the function of the same name in
// crossplane-runtime's package resource returns, but for one thing: a managed
// resource that is being deleted is not kept from connecting because its
// namespace is being deleted too. The API server creates nothing in such a
// namespace, so the usage can't be recorded, and with upstream's tracker the
// managed resource would never be deleted, nor would the namespace.
//
// Any other error, and that one for a managed resource that is not being
// deleted, is returned as upstream returns it. What WithUsageProtection protects
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

// A usageClient is the client of a usage tracker. Create succeeds without an effect
// if the managed resource is being deleted and its namespace is terminating, because
// the API server creates no usage there.
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
	err := c.Client.Create(ctx, usage, opts...)
	if isTerminating(err) && c.userIsDeleted(ctx, usage) {
		return nil
	}
	return err
}

// Update a usage, to say that another provider config is used. Upstream's trackers
// replace the whole of it, and would so end its protection.
func (c *usageClient) Update(ctx context.Context, usage client.Object, opts ...client.UpdateOption) error {
	had := seam.Empty(usage)
	if err := c.Get(ctx, client.ObjectKeyFromObject(usage), had); client.IgnoreNotFound(err) != nil {
		return err
	}
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
