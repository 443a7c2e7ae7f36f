package quickstart

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Database is a managed resource. In a provider, all of this file is generated.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		xpv2.ManagedResourceSpec `json:",inline"`

		Size int `json:"size"`
	} `json:"spec"`

	Status struct {
		xpv2.ManagedResourceStatus `json:",inline"`
	} `json:"status,omitempty"`
}

func kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}
}

// GetCondition returns a condition.
func (d *Database) GetCondition(t xpv2.ConditionType) xpv2.Condition { return d.Status.GetCondition(t) }

// SetConditions sets conditions.
func (d *Database) SetConditions(c ...xpv2.Condition) { d.Status.SetConditions(c...) }

// GetManagementPolicies returns the management policies.
func (d *Database) GetManagementPolicies() xpv2.ManagementPolicies { return d.Spec.ManagementPolicies }

// SetManagementPolicies sets the management policies.
func (d *Database) SetManagementPolicies(p xpv2.ManagementPolicies) { d.Spec.ManagementPolicies = p }

// GetWriteConnectionSecretToReference returns the reference to the connection secret.
func (d *Database) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return d.Spec.WriteConnectionSecretToReference
}

// SetWriteConnectionSecretToReference sets it.
func (d *Database) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	d.Spec.WriteConnectionSecretToReference = r
}

// DeepCopyObject returns a copy.
func (d *Database) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	d.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	d.Status.ManagedResourceStatus.DeepCopyInto(&out.Status.ManagedResourceStatus)
	return &out
}
