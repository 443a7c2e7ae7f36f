package v1alpha1

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and version of the sample's API.
const (
	Group   = "sample.graft.crossplane.io"
	Version = "v1alpha1"
)

// Kinds of the sample's API.
const (
	DatabaseKind = "Database"
	BucketKind   = "Bucket"

	ProviderConfigKind        = "ProviderConfig"
	ClusterProviderConfigKind = "ClusterProviderConfig"
	ProviderConfigUsageKind   = "ProviderConfigUsage"
)

// What the CRDs default a provider config reference to.
const (
	defaultProviderConfig     = "default"
	defaultProviderConfigKind = ClusterProviderConfigKind
)

// GroupVersion returns the sample's API group and version.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// DatabaseManagedKind returns the kind to give to NewReconciler for Databases.
func DatabaseManagedKind() resource.ManagedKind {
	return resource.ManagedKind(GroupVersion().WithKind(DatabaseKind))
}

// BucketManagedKind returns the kind to give to NewReconciler for Buckets.
func BucketManagedKind() resource.ManagedKind {
	return resource.ManagedKind(GroupVersion().WithKind(BucketKind))
}

// ProviderConfigKinds returns the kinds to give to providerconfig.NewReconciler for
// ProviderConfigs or ClusterProviderConfigs.
func ProviderConfigKinds(config string) resource.ProviderConfigKinds {
	return resource.ProviderConfigKinds{
		Config:    GroupVersion().WithKind(config),
		Usage:     GroupVersion().WithKind(ProviderConfigUsageKind),
		UsageList: GroupVersion().WithKind(ProviderConfigUsageKind + "List"),
	}
}

// AddToScheme adds the sample's types to a scheme. It never returns an error.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Database{}, &DatabaseList{}, &Bucket{}, &BucketList{},
		&ProviderConfig{}, &ProviderConfigList{}, &ClusterProviderConfig{}, &ClusterProviderConfigList{},
		&ProviderConfigUsage{}, &ProviderConfigUsageList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
