package testkit

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

//nolint:staticcheck // Deprecated, and what most providers have.
var _ resource.LegacyProviderConfigUsage = &LegacyProviderConfigUsage{}

// A LegacyProviderConfigUsage says that a Database uses a provider config.
type LegacyProviderConfigUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	xpv2.ProviderConfigUsage `json:",inline"`
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
