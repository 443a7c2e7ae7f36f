// Package v1 has the kinds of the provider.
//
// +kubebuilder:object:generate=true
// +groupName=example.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0 object crd:maxDescLen=80 paths=. output:crd:dir=../../deploy/crds

// GroupVersion of all kinds of the provider.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "example.org", Version: "v1"}
}

// AddToScheme adds all kinds of the provider to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Database{}, &DatabaseList{}, &ProviderConfig{}, &ProviderConfigList{},
		&ClusterProviderConfig{}, &ClusterProviderConfigList{}, &ProviderConfigUsage{}, &ProviderConfigUsageList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
