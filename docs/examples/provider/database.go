package main

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind returns the managed resource's. deploy/crd.yaml defines it.
func kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}
}

var _ resource.ModernManaged = &Database{}

// A Database is a managed resource. In your provider most of this file is generated,
// by controller-gen and angryjet.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		xpv2.ManagedResourceSpec `json:",inline"`

		ForProvider struct {
			Size int64 `json:"size"`
		} `json:"forProvider"`
	} `json:"spec"`

	Status struct {
		xpv2.ManagedResourceStatus `json:",inline"`
	} `json:"status,omitempty"`
}

// A DatabaseList is a list of Databases.
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

func addToScheme(s *runtime.Scheme) {
	s.AddKnownTypes(kind().GroupVersion(), &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(s, kind().GroupVersion())
}

func (d *Database) GetCondition(t xpv2.ConditionType) xpv2.Condition { return d.Status.GetCondition(t) }
func (d *Database) SetConditions(c ...xpv2.Condition)                { d.Status.SetConditions(c...) }

func (d *Database) GetManagementPolicies() xpv2.ManagementPolicies {
	return d.Spec.ManagementPolicies
}

func (d *Database) SetManagementPolicies(p xpv2.ManagementPolicies) { d.Spec.ManagementPolicies = p }

func (d *Database) GetProviderConfigReference() *xpv2.ProviderConfigReference {
	return d.Spec.ProviderConfigReference
}

func (d *Database) SetProviderConfigReference(r *xpv2.ProviderConfigReference) {
	d.Spec.ProviderConfigReference = r
}

func (d *Database) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return d.Spec.WriteConnectionSecretToReference
}

func (d *Database) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	d.Spec.WriteConnectionSecretToReference = r
}

func (d *Database) DeepCopyInto(out *Database) {
	*out = *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	d.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	d.Status.ManagedResourceStatus.DeepCopyInto(&out.Status.ManagedResourceStatus)
}

func (d *Database) DeepCopyObject() runtime.Object {
	out := &Database{}
	d.DeepCopyInto(out)
	return out
}

func (l *DatabaseList) DeepCopyObject() runtime.Object {
	out := &DatabaseList{TypeMeta: l.TypeMeta, Items: make([]Database, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
