package testkit

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	_ resource.TypedProviderConfigUsage  = &ProviderConfigUsage{}
	_ resource.LegacyProviderConfigUsage = &LegacyProviderConfigUsage{} //nolint:staticcheck // Deprecated, and what most providers have.
)

// A ProviderConfigUsage says that a Bucket uses a provider config.
type ProviderConfigUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	xpv2.TypedProviderConfigUsage `json:",inline"`
}

// ProviderConfigUsageKind is the kind of a ProviderConfigUsage.
func ProviderConfigUsageKind() schema.GroupVersionKind { return kind("ProviderConfigUsage") }

// DeepCopyObject returns a deep copy.
func (u *ProviderConfigUsage) DeepCopyObject() runtime.Object {
	out := &ProviderConfigUsage{TypeMeta: u.TypeMeta}
	u.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	u.TypedProviderConfigUsage.DeepCopyInto(&out.TypedProviderConfigUsage)

	return out
}

// GetProviderConfigReference says which provider config is used.
func (u *ProviderConfigUsage) GetProviderConfigReference() xpv2.ProviderConfigReference {
	return u.ProviderConfigReference
}

// SetProviderConfigReference sets which provider config is used.
func (u *ProviderConfigUsage) SetProviderConfigReference(r xpv2.ProviderConfigReference) {
	u.ProviderConfigReference = r
}

// GetResourceReference says who uses the provider config.
func (u *ProviderConfigUsage) GetResourceReference() xpv2.TypedReference { return u.ResourceReference }

// SetResourceReference sets who uses the provider config.
func (u *ProviderConfigUsage) SetResourceReference(r xpv2.TypedReference) { u.ResourceReference = r }

// A LegacyProviderConfigUsage says that a Database uses a provider config.
type LegacyProviderConfigUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	xpv2.ProviderConfigUsage `json:",inline"`
}

// LegacyProviderConfigUsageKind is the kind of a LegacyProviderConfigUsage.
func LegacyProviderConfigUsageKind() schema.GroupVersionKind {
	return kind("LegacyProviderConfigUsage")
}

// DeepCopyObject returns a deep copy.
func (u *LegacyProviderConfigUsage) DeepCopyObject() runtime.Object {
	out := &LegacyProviderConfigUsage{TypeMeta: u.TypeMeta}
	u.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	u.ProviderConfigUsage.DeepCopyInto(&out.ProviderConfigUsage)

	return out
}

// GetProviderConfigReference says which provider config is used.
func (u *LegacyProviderConfigUsage) GetProviderConfigReference() xpv2.Reference {
	return u.ProviderConfigReference
}

// SetProviderConfigReference sets which provider config is used.
func (u *LegacyProviderConfigUsage) SetProviderConfigReference(r xpv2.Reference) {
	u.ProviderConfigReference = r
}

// GetResourceReference says who uses the provider config.
func (u *LegacyProviderConfigUsage) GetResourceReference() xpv2.TypedReference {
	return u.ResourceReference
}

// SetResourceReference sets who uses the provider config.
func (u *LegacyProviderConfigUsage) SetResourceReference(r xpv2.TypedReference) {
	u.ResourceReference = r
}
