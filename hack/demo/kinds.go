package main

import (
	"errors"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const namespace = "default"

// platformKind returns the kind of a claim, App, or of its composite resource, XApp.
func platformKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "platform.example.org", Version: "v1", Kind: kind}
}

// newScheme returns a scheme with the kinds of crds.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	check(errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s), coordinationv1.AddToScheme(s)))
	s.AddKnownTypeWithName(platformKind("App"), &unstructured.Unstructured{})
	s.AddKnownTypeWithName(platformKind("XApp"), &unstructured.Unstructured{})
	return s
}

// crds returns the CRDs of all stories that don't define kinds themselves.
func crds() []*extv1.CustomResourceDefinition {
	return append(v1alpha1.CRDs(),
		anyCRD(platformKind("App"), extv1.NamespaceScoped), anyCRD(platformKind("XApp"), extv1.ClusterScoped))
}

// anyCRD defines a kind that has status, and may have anything in it.
func anyCRD(k schema.GroupVersionKind, scope extv1.ResourceScope) *extv1.CustomResourceDefinition {
	plural := strings.ToLower(k.Kind) + "s"
	anything := &extv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	return &extv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: extv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + k.Group},
		Spec: extv1.CustomResourceDefinitionSpec{
			Group: k.Group,
			Names: extv1.CustomResourceDefinitionNames{Plural: plural, Kind: k.Kind},
			Scope: scope,
			Versions: []extv1.CustomResourceDefinitionVersion{{
				Name: k.Version, Served: true, Storage: true,
				Schema:       &extv1.CustomResourceValidation{OpenAPIV3Schema: anything},
				Subresources: &extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func objectOf(k schema.GroupVersionKind, key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

func mergePatch(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }
