package v1alpha1

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	_ resource.ProviderConfig           = &ProviderConfig{}
	_ resource.ProviderConfig           = &ClusterProviderConfig{}
	_ resource.TypedProviderConfigUsage = &ProviderConfigUsage{}
	_ resource.ProviderConfigUsageList  = &ProviderConfigUsageList{}
)

// A ProviderConfig says how to log in to the cloud, for Buckets of its namespace.
type ProviderConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProviderConfigSpec        `json:"spec"`
	Status xpv2.ProviderConfigStatus `json:"status,omitempty"`
}

// A ProviderConfigSpec is what it takes to log in to the cloud.
type ProviderConfigSpec struct {
	// Token to log in with. Real providers refer to a Secret.
	Token string `json:"token,omitempty"`

	// Account to log in to.
	Account string `json:"account,omitempty"`
}

// A ProviderConfigList is a list of ProviderConfigs.
type ProviderConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProviderConfig `json:"items"`
}

// A ClusterProviderConfig is a ProviderConfig for Buckets of all namespaces.
type ClusterProviderConfig struct {
	ProviderConfig `json:",inline"`
}

// A ClusterProviderConfigList is a list of ClusterProviderConfigs.
type ClusterProviderConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProviderConfig `json:"items"`
}

// A ProviderConfigUsage says that a Bucket of its namespace uses a ProviderConfig
// or a ClusterProviderConfig.
type ProviderConfigUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	xpv2.TypedProviderConfigUsage `json:",inline"`
}

// A ProviderConfigUsageList is a list of ProviderConfigUsages.
type ProviderConfigUsageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProviderConfigUsage `json:"items"`
}

// GetCondition of this ProviderConfig.
func (p *ProviderConfig) GetCondition(ct xpv2.ConditionType) xpv2.Condition {
	return p.Status.GetCondition(ct)
}

// SetConditions of this ProviderConfig.
func (p *ProviderConfig) SetConditions(c ...xpv2.Condition) { p.Status.SetConditions(c...) }

// GetUsers returns how many usages this ProviderConfig was last seen to have.
func (p *ProviderConfig) GetUsers() int64 { return p.Status.Users }

// SetUsers sets how many usages this ProviderConfig has.
func (p *ProviderConfig) SetUsers(n int64) { p.Status.Users = n }

// DeepCopyInto copies the ProviderConfig.
func (p *ProviderConfig) DeepCopyInto(out *ProviderConfig) {
	*out = *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	p.Status.DeepCopyInto(&out.Status)
}

// DeepCopyObject returns a copy of the ProviderConfig.
func (p *ProviderConfig) DeepCopyObject() runtime.Object {
	out := &ProviderConfig{}
	p.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the list.
func (l *ProviderConfigList) DeepCopyObject() runtime.Object {
	out := &ProviderConfigList{TypeMeta: l.TypeMeta, Items: copied(l.Items)}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	return out
}

// DeepCopyObject returns a copy of the ClusterProviderConfig.
func (p *ClusterProviderConfig) DeepCopyObject() runtime.Object {
	out := &ClusterProviderConfig{}
	p.DeepCopyInto(&out.ProviderConfig)
	return out
}

// DeepCopyObject returns a copy of the list.
func (l *ClusterProviderConfigList) DeepCopyObject() runtime.Object {
	out := &ClusterProviderConfigList{TypeMeta: l.TypeMeta, Items: make([]ClusterProviderConfig, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i].ProviderConfig)
	}
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

// DeepCopyInto copies the ProviderConfigUsage.
func (u *ProviderConfigUsage) DeepCopyInto(out *ProviderConfigUsage) {
	*out = *u
	u.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	u.TypedProviderConfigUsage.DeepCopyInto(&out.TypedProviderConfigUsage)
}

// DeepCopyObject returns a copy of the ProviderConfigUsage.
func (u *ProviderConfigUsage) DeepCopyObject() runtime.Object {
	out := &ProviderConfigUsage{}
	u.DeepCopyInto(out)
	return out
}

// GetItems returns the ProviderConfigUsages of the list.
func (l *ProviderConfigUsageList) GetItems() []resource.ProviderConfigUsage {
	items := make([]resource.ProviderConfigUsage, len(l.Items))
	for i := range l.Items {
		items[i] = &l.Items[i]
	}
	return items
}

// DeepCopyObject returns a copy of the list.
func (l *ProviderConfigUsageList) DeepCopyObject() runtime.Object {
	out := &ProviderConfigUsageList{TypeMeta: l.TypeMeta, Items: copied(l.Items)}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	return out
}
