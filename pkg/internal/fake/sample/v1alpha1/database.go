package v1alpha1

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	_ resource.LegacyManaged         = &Database{} //nolint:staticcheck // The legacy shape is the point.
	_ resource.ConnectionSecretOwner = &Database{}
	_ resource.ManagedList           = &DatabaseList{}
)

// A Database is a cluster scoped managed resource of the legacy shape.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec `json:"spec"`
	Status `json:"status,omitempty"`
}

// A DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	xpv2.ClusterManagedResourceSpec `json:",inline"`

	ForProvider Parameters `json:"forProvider"`
}

// A DatabaseList is a list of Databases.
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

// NewDatabase returns a Database of size 1 with the values that an API server
// fills in: all management policies, deletion policy Delete, the default
// provider config.
func NewDatabase(name string) *Database {
	d := &Database{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.ForProvider.Size = 1
	d.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll}
	d.Spec.DeletionPolicy = xpv2.DeletionDelete
	d.Spec.ProviderConfigReference = &xpv2.Reference{Name: defaultProviderConfig}
	return d
}

// GetForProvider returns what is asked for. The caller may change it.
func (d *Database) GetForProvider() *Parameters { return &d.Spec.ForProvider }

// GetManagementPolicies of this Database.
func (d *Database) GetManagementPolicies() xpv2.ManagementPolicies {
	return d.Spec.ManagementPolicies
}

// SetManagementPolicies of this Database.
func (d *Database) SetManagementPolicies(p xpv2.ManagementPolicies) { d.Spec.ManagementPolicies = p }

// GetDeletionPolicy of this Database.
func (d *Database) GetDeletionPolicy() xpv2.DeletionPolicy { return d.Spec.DeletionPolicy }

// SetDeletionPolicy of this Database.
func (d *Database) SetDeletionPolicy(p xpv2.DeletionPolicy) { d.Spec.DeletionPolicy = p }

// GetProviderConfigReference of this Database.
func (d *Database) GetProviderConfigReference() *xpv2.Reference {
	return d.Spec.ProviderConfigReference
}

// SetProviderConfigReference of this Database.
func (d *Database) SetProviderConfigReference(r *xpv2.Reference) { d.Spec.ProviderConfigReference = r }

// GetWriteConnectionSecretToReference of this Database.
func (d *Database) GetWriteConnectionSecretToReference() *xpv2.SecretReference {
	return d.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference of this Database.
func (d *Database) SetWriteConnectionSecretToReference(r *xpv2.SecretReference) {
	d.Spec.WriteConnectionSecretToReference = r
}

// DeepCopyInto copies the Database.
func (d *Database) DeepCopyInto(out *Database) {
	out.TypeMeta = d.TypeMeta
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	d.Spec.ClusterManagedResourceSpec.DeepCopyInto(&out.Spec.ClusterManagedResourceSpec)
	out.Spec.ForProvider = d.Spec.ForProvider
	d.Status.DeepCopyInto(&out.Status)
}

// DeepCopy returns a copy of the Database.
func (d *Database) DeepCopy() *Database {
	if d == nil {
		return nil
	}
	out := &Database{}
	d.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the Database.
func (d *Database) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// GetItems returns the Databases of the list.
func (l *DatabaseList) GetItems() []resource.Managed { return managed(l.Items) }

// DeepCopyObject returns a copy of the list.
func (l *DatabaseList) DeepCopyObject() runtime.Object {
	out := &DatabaseList{TypeMeta: l.TypeMeta, Items: copied(l.Items)}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	return out
}
