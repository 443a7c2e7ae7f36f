package testkit

import (
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// BucketKind is the kind of a Bucket.
func BucketKind() schema.GroupVersionKind { return kind(v1alpha1.BucketKind) }

// DatabaseKind is the kind of a Database.
func DatabaseKind() schema.GroupVersionKind { return kind(v1alpha1.DatabaseKind) }

// ProviderConfigUsageKind is the kind of a ProviderConfigUsage.
func ProviderConfigUsageKind() schema.GroupVersionKind { return kind(v1alpha1.ProviderConfigUsageKind) }

// LegacyProviderConfigUsageKind is the kind of a LegacyProviderConfigUsage.
func LegacyProviderConfigUsageKind() schema.GroupVersionKind {
	return kind("LegacyProviderConfigUsage")
}

// Scheme returns a scheme of the sample provider's kinds, LegacyProviderConfigUsage and
// Secret.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1alpha1.GroupVersion(), &LegacyProviderConfigUsage{})
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	if err := v1alpha1.AddToScheme(s); err != nil {
		panic(errors.Wrap(err, "cannot add the sample's kinds to a scheme"))
	}
	return s
}

func kind(k string) schema.GroupVersionKind { return v1alpha1.GroupVersion().WithKind(k) }
