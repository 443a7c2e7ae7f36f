package sample

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The kinds of the sample provider are those of v1alpha1.
type (
	Database                  = v1alpha1.Database
	DatabaseList              = v1alpha1.DatabaseList
	Bucket                    = v1alpha1.Bucket
	BucketList                = v1alpha1.BucketList
	ProviderConfig            = v1alpha1.ProviderConfig
	ProviderConfigList        = v1alpha1.ProviderConfigList
	ClusterProviderConfig     = v1alpha1.ClusterProviderConfig
	ClusterProviderConfigList = v1alpha1.ClusterProviderConfigList
	ProviderConfigUsage       = v1alpha1.ProviderConfigUsage
	ProviderConfigUsageList   = v1alpha1.ProviderConfigUsageList
	Parameters                = v1alpha1.Parameters
	Observation               = v1alpha1.Observation
)

// Their names.
const (
	Group                     = v1alpha1.Group
	Version                   = v1alpha1.Version
	DatabaseKind              = v1alpha1.DatabaseKind
	BucketKind                = v1alpha1.BucketKind
	ProviderConfigKind        = v1alpha1.ProviderConfigKind
	ClusterProviderConfigKind = v1alpha1.ClusterProviderConfigKind
	ProviderConfigUsageKind   = v1alpha1.ProviderConfigUsageKind
)

// NewBucket calls v1alpha1.NewBucket.
func NewBucket(namespace, name string) *Bucket { return v1alpha1.NewBucket(namespace, name) }

// NewDatabase calls v1alpha1.NewDatabase.
func NewDatabase(name string) *Database { return v1alpha1.NewDatabase(name) }

// CRDs calls v1alpha1.CRDs.
func CRDs() []*extv1.CustomResourceDefinition { return v1alpha1.CRDs() }

// AddToScheme calls v1alpha1.AddToScheme.
func AddToScheme(s *runtime.Scheme) error { return v1alpha1.AddToScheme(s) }

// GroupVersion calls v1alpha1.GroupVersion.
func GroupVersion() schema.GroupVersion { return v1alpha1.GroupVersion() }

// DatabaseManagedKind calls v1alpha1.DatabaseManagedKind.
func DatabaseManagedKind() resource.ManagedKind { return v1alpha1.DatabaseManagedKind() }

// BucketManagedKind calls v1alpha1.BucketManagedKind.
func BucketManagedKind() resource.ManagedKind { return v1alpha1.BucketManagedKind() }

// ProviderConfigKinds calls v1alpha1.ProviderConfigKinds.
func ProviderConfigKinds(config string) resource.ProviderConfigKinds {
	return v1alpha1.ProviderConfigKinds(config)
}
