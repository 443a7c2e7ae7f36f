package testkit

import (
	"maps"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	_ resource.ModernManaged = &Bucket{}
	_ resource.LegacyManaged = &Database{} //nolint:staticcheck // Deprecated, and what most providers have.
)

// Parameters are what a user may want of an external resource.
type Parameters struct {
	Region string   `json:"region,omitempty"`
	Tags   []string `json:"tags,omitempty"`
}

// Observation is what an external resource is like.
type Observation struct {
	ID    string            `json:"id,omitempty"`
	Facts map[string]string `json:"facts,omitempty"`

	// Created and Manifest are stored otherwise than Go has them.
	Created  *metav1.Time         `json:"created,omitempty"`
	Manifest runtime.RawExtension `json:"manifest,omitempty"`
}

// A BucketSpec is the desired state of a Bucket.
type BucketSpec struct {
	xpv2.ManagedResourceSpec `json:",inline"`

	ForProvider Parameters `json:"forProvider"`
}

// A Status is the observed state of a managed resource.
type Status struct {
	xpv2.ManagedResourceStatus `json:",inline"`

	AtProvider Observation `json:"atProvider,omitempty"`
}

// A Bucket is a namespaced managed resource.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BucketSpec `json:"spec"`
	Status Status     `json:"status,omitempty"`
}

// BucketKind is the kind of a Bucket.
func BucketKind() schema.GroupVersionKind { return kind("Bucket") }

// DeepCopyObject returns a deep copy.
func (b *Bucket) DeepCopyObject() runtime.Object {
	out := &Bucket{TypeMeta: b.TypeMeta}
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	b.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	out.Spec.ForProvider = b.Spec.ForProvider
	out.Spec.ForProvider.Tags = slices.Clone(b.Spec.ForProvider.Tags)
	b.Status.DeepCopyInto(&out.Status)

	return out
}

// GetCondition of this Bucket.
func (b *Bucket) GetCondition(t xpv2.ConditionType) xpv2.Condition { return b.Status.GetCondition(t) }

// SetConditions of this Bucket.
func (b *Bucket) SetConditions(c ...xpv2.Condition) { b.Status.SetConditions(c...) }

// GetManagementPolicies of this Bucket.
func (b *Bucket) GetManagementPolicies() xpv2.ManagementPolicies { return b.Spec.ManagementPolicies }

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

// GetLastHandledReconcileAt of this Bucket.
func (b *Bucket) GetLastHandledReconcileAt() string { return b.Status.GetLastHandledReconcileAt() }

// SetLastHandledReconcileAt of this Bucket.
func (b *Bucket) SetLastHandledReconcileAt(token string) { b.Status.SetLastHandledReconcileAt(token) }

// A BucketList is a list of Buckets.
type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Bucket `json:"items"`
}

// DeepCopyObject returns a deep copy.
func (l *BucketList) DeepCopyObject() runtime.Object {
	out := &BucketList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)

	for i := range l.Items {
		if c, ok := l.Items[i].DeepCopyObject().(*Bucket); ok {
			out.Items = append(out.Items, *c)
		}
	}

	return out
}

// A DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	xpv2.ClusterManagedResourceSpec `json:",inline"`

	ForProvider Parameters `json:"forProvider"`
}

// A Database is a cluster-scoped managed resource.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec `json:"spec"`
	Status Status       `json:"status,omitempty"`
}

// DatabaseKind is the kind of a Database.
func DatabaseKind() schema.GroupVersionKind { return kind("Database") }

// DeepCopyObject returns a deep copy.
func (d *Database) DeepCopyObject() runtime.Object {
	out := &Database{TypeMeta: d.TypeMeta}
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	d.Spec.ClusterManagedResourceSpec.DeepCopyInto(&out.Spec.ClusterManagedResourceSpec)
	out.Spec.ForProvider = d.Spec.ForProvider
	out.Spec.ForProvider.Tags = slices.Clone(d.Spec.ForProvider.Tags)
	d.Status.DeepCopyInto(&out.Status)

	return out
}

// GetCondition of this Database.
func (d *Database) GetCondition(t xpv2.ConditionType) xpv2.Condition { return d.Status.GetCondition(t) }

// SetConditions of this Database.
func (d *Database) SetConditions(c ...xpv2.Condition) { d.Status.SetConditions(c...) }

// GetManagementPolicies of this Database.
func (d *Database) GetManagementPolicies() xpv2.ManagementPolicies { return d.Spec.ManagementPolicies }

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

// A DatabaseList is a list of Databases.
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

// DeepCopyObject returns a deep copy.
func (l *DatabaseList) DeepCopyObject() runtime.Object {
	out := &DatabaseList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)

	for i := range l.Items {
		if c, ok := l.Items[i].DeepCopyObject().(*Database); ok {
			out.Items = append(out.Items, *c)
		}
	}

	return out
}

// Scheme returns a scheme that knows the kinds of this package.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(BucketKind().GroupVersion(), &Bucket{}, &BucketList{}, &Database{}, &DatabaseList{},
		&ProviderConfigUsage{}, &LegacyProviderConfigUsage{})
	metav1.AddToGroupVersion(s, BucketKind().GroupVersion())

	return s
}

func kind(k string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "testkit.graft.crossplane.io", Version: "v1", Kind: k}
}

// DeepCopyInto copies this into out.
func (s *Status) DeepCopyInto(out *Status) {
	s.ManagedResourceStatus.DeepCopyInto(&out.ManagedResourceStatus)
	out.AtProvider = s.AtProvider
	out.AtProvider.Facts = maps.Clone(s.AtProvider.Facts)
	out.AtProvider.Created = s.AtProvider.Created.DeepCopy()
	s.AtProvider.Manifest.DeepCopyInto(&out.AtProvider.Manifest)
}
