package v1

// What crossplane-runtime calls. With more kinds, generate it with angryjet of
// crossplane-tools.

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

var (
	_ resource.ModernManaged            = &Database{}
	_ resource.ProviderConfig           = &ProviderConfig{}
	_ resource.ProviderConfig           = &ClusterProviderConfig{}
	_ resource.TypedProviderConfigUsage = &ProviderConfigUsage{}
	_ resource.ProviderConfigUsageList  = &ProviderConfigUsageList{}
)

// GetCondition of this Database.
func (d *Database) GetCondition(t xpv2.ConditionType) xpv2.Condition { return d.Status.GetCondition(t) }

// SetConditions of this Database.
func (d *Database) SetConditions(c ...xpv2.Condition) { d.Status.SetConditions(c...) }

// GetManagementPolicies of this Database.
func (d *Database) GetManagementPolicies() xpv2.ManagementPolicies {
	return d.Spec.ManagementPolicies
}

// SetManagementPolicies of this Database.
func (d *Database) SetManagementPolicies(p xpv2.ManagementPolicies) { d.Spec.ManagementPolicies = p }

// GetProviderConfigReference of this Database.
func (d *Database) GetProviderConfigReference() *xpv2.ProviderConfigReference {
	return d.Spec.ProviderConfigReference
}

// SetProviderConfigReference of this Database.
func (d *Database) SetProviderConfigReference(r *xpv2.ProviderConfigReference) {
	d.Spec.ProviderConfigReference = r
}

// GetWriteConnectionSecretToReference of this Database.
func (d *Database) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return d.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference of this Database.
func (d *Database) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	d.Spec.WriteConnectionSecretToReference = r
}

// GetCondition of this ProviderConfig.
func (p *ProviderConfig) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	return p.Status.GetCondition(t)
}

// SetConditions of this ProviderConfig.
func (p *ProviderConfig) SetConditions(c ...xpv2.Condition) { p.Status.SetConditions(c...) }

// GetUsers of this ProviderConfig.
func (p *ProviderConfig) GetUsers() int64 { return p.Status.Users }

// SetUsers of this ProviderConfig.
func (p *ProviderConfig) SetUsers(n int64) { p.Status.Users = n }

// GetCondition of this ClusterProviderConfig.
func (p *ClusterProviderConfig) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	return p.Status.GetCondition(t)
}

// SetConditions of this ClusterProviderConfig.
func (p *ClusterProviderConfig) SetConditions(c ...xpv2.Condition) { p.Status.SetConditions(c...) }

// GetUsers of this ClusterProviderConfig.
func (p *ClusterProviderConfig) GetUsers() int64 { return p.Status.Users }

// SetUsers of this ClusterProviderConfig.
func (p *ClusterProviderConfig) SetUsers(n int64) { p.Status.Users = n }

// GetProviderConfigReference of this ProviderConfigUsage.
func (u *ProviderConfigUsage) GetProviderConfigReference() xpv2.ProviderConfigReference {
	return u.ProviderConfigReference
}

// SetProviderConfigReference of this ProviderConfigUsage.
func (u *ProviderConfigUsage) SetProviderConfigReference(r xpv2.ProviderConfigReference) {
	u.ProviderConfigReference = r
}

// GetResourceReference of this ProviderConfigUsage.
func (u *ProviderConfigUsage) GetResourceReference() xpv2.TypedReference { return u.ResourceReference }

// SetResourceReference of this ProviderConfigUsage.
func (u *ProviderConfigUsage) SetResourceReference(r xpv2.TypedReference) { u.ResourceReference = r }

// GetItems returns the usages.
func (l *ProviderConfigUsageList) GetItems() []resource.ProviderConfigUsage {
	out := make([]resource.ProviderConfigUsage, len(l.Items))
	for i := range l.Items {
		out[i] = &l.Items[i]
	}
	return out
}

// GetItems returns the databases.
func (l *DatabaseList) GetItems() []resource.Managed {
	out := make([]resource.Managed, len(l.Items))
	for i := range l.Items {
		out[i] = &l.Items[i]
	}
	return out
}
