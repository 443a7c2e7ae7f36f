package v1alpha1

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	_ resource.ModernManaged              = &Bucket{}
	_ resource.LocalConnectionSecretOwner = &Bucket{}
	_ resource.ManagedList                = &BucketList{}
)

// A Bucket is a namespaced managed resource of the modern shape.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BucketSpec `json:"spec"`
	Status `json:"status,omitempty"`
}

// A BucketSpec is the desired state of a Bucket.
type BucketSpec struct {
	xpv2.ManagedResourceSpec `json:",inline"`

	ForProvider Parameters `json:"forProvider"`
}

// A BucketList is a list of Buckets.
type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Bucket `json:"items"`
}

// NewBucket returns a Bucket of size 1 with the values that an API server fills
// in: all management policies and the default cluster provider config.
func NewBucket(namespace, name string) *Bucket {
	b := &Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Spec.ForProvider.Size = 1
	b.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll}
	b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{
		Kind: defaultProviderConfigKind,
		Name: defaultProviderConfig,
	}
	return b
}

// GetForProvider returns what is asked for. The caller may change it.
func (b *Bucket) GetForProvider() *Parameters { return &b.Spec.ForProvider }

// GetManagementPolicies of this Bucket.
func (b *Bucket) GetManagementPolicies() xpv2.ManagementPolicies {
	return b.Spec.ManagementPolicies
}

// SetManagementPolicies of this Bucket.
func (b *Bucket) SetManagementPolicies(p xpv2.ManagementPolicies) { b.Spec.ManagementPolicies = p }

// GetProviderConfigReference of this Bucket.
func (b *Bucket) GetProviderConfigReference() *xpv2.ProviderConfigReference {
	return b.Spec.ProviderConfigReference
}

// SetProviderConfigReference of this Bucket.
func (b *Bucket) SetProviderConfigReference(r *xpv2.ProviderConfigReference) {
	b.Spec.ProviderConfigReference = r
}

// GetWriteConnectionSecretToReference of this Bucket.
func (b *Bucket) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return b.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference of this Bucket.
func (b *Bucket) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	b.Spec.WriteConnectionSecretToReference = r
}

// DeepCopyInto copies the Bucket.
func (b *Bucket) DeepCopyInto(out *Bucket) {
	out.TypeMeta = b.TypeMeta
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	b.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	out.Spec.ForProvider = b.Spec.ForProvider
	b.Status.DeepCopyInto(&out.Status)
}

// DeepCopy returns a copy of the Bucket.
func (b *Bucket) DeepCopy() *Bucket {
	if b == nil {
		return nil
	}
	out := &Bucket{}
	b.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the Bucket.
func (b *Bucket) DeepCopyObject() runtime.Object { return b.DeepCopy() }

// GetItems returns the Buckets of the list.
func (l *BucketList) GetItems() []resource.Managed { return managed(l.Items) }

// DeepCopyObject returns a copy of the list.
func (l *BucketList) DeepCopyObject() runtime.Object {
	out := &BucketList{TypeMeta: l.TypeMeta, Items: copied(l.Items)}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	return out
}
