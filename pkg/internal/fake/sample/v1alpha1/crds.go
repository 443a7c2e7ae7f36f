package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// CRDs returns the CustomResourceDefinitions of the sample's kinds, to install on
// an API server. The caller owns them.
func CRDs() []*extv1.CustomResourceDefinition {
	return []*extv1.CustomResourceDefinition{
		managedCRD(DatabaseKind, extv1.ClusterScoped, map[string]extv1.JSONSchemaProps{
			"deletionPolicy": withDefault(
				enum(string(xpv2.DeletionOrphan), string(xpv2.DeletionDelete)), string(xpv2.DeletionDelete),
			),
			"providerConfigRef": withDefault(
				object([]string{"name"}, map[string]extv1.JSONSchemaProps{"name": text(), "policy": referencePolicy()}),
				xpv2.Reference{Name: defaultProviderConfig},
			),
			"writeConnectionSecretToRef": object([]string{"name", "namespace"}, map[string]extv1.JSONSchemaProps{
				"name":      text(),
				"namespace": text(),
			}),
		}),
		managedCRD(BucketKind, extv1.NamespaceScoped, map[string]extv1.JSONSchemaProps{
			"providerConfigRef": withDefault(
				object([]string{"kind", "name"}, map[string]extv1.JSONSchemaProps{"kind": text(), "name": text()}),
				xpv2.ProviderConfigReference{Kind: defaultProviderConfigKind, Name: defaultProviderConfig},
			),
			"writeConnectionSecretToRef": object([]string{"name"}, map[string]extv1.JSONSchemaProps{"name": text()}),
		}),
		providerConfigCRD(ProviderConfigKind, extv1.NamespaceScoped),
		providerConfigCRD(ClusterProviderConfigKind, extv1.ClusterScoped),
		usageCRD(),
	}
}

// managedCRD returns the definition of a kind whose spec has the given properties
// beside those that all managed resources share.
func managedCRD(
	kind string, scope extv1.ResourceScope, spec map[string]extv1.JSONSchemaProps,
) *extv1.CustomResourceDefinition {
	spec["managementPolicies"] = withDefault(managementPolicies(), xpv2.ManagementPolicies{xpv2.ManagementActionAll})
	spec["forProvider"] = object([]string{"size"}, map[string]extv1.JSONSchemaProps{
		"size":   integer(),
		"region": text(),
	})

	crd := crd(kind, scope, []string{"spec"}, map[string]extv1.JSONSchemaProps{
		"spec": object([]string{"forProvider"}, spec),
		"status": object(nil, map[string]extv1.JSONSchemaProps{
			"atProvider": object(nil, map[string]extv1.JSONSchemaProps{
				"id":       text(),
				"endpoint": text(),
				"state":    text(),
			}),
			"conditions":             conditions(),
			"observedGeneration":     integer(),
			"lastHandledReconcileAt": text(),
		}),
	})

	crd.Spec.Names.Categories = append(crd.Spec.Names.Categories, "managed")
	crd.Spec.Versions[0].Subresources = &extv1.CustomResourceSubresources{
		Status: &extv1.CustomResourceSubresourceStatus{},
	}
	crd.Spec.Versions[0].AdditionalPrinterColumns = []extv1.CustomResourceColumnDefinition{
		{Name: "Ready", Type: "string", JSONPath: ".status.conditions[?(@.type=='Ready')].status"},
		{Name: "Synced", Type: "string", JSONPath: ".status.conditions[?(@.type=='Synced')].status"},
		{Name: "External-Name", Type: "string", JSONPath: `.metadata.annotations.crossplane\.io/external-name`},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}
	return crd
}

func providerConfigCRD(kind string, scope extv1.ResourceScope) *extv1.CustomResourceDefinition {
	crd := crd(kind, scope, []string{"spec"}, map[string]extv1.JSONSchemaProps{
		"spec":   object(nil, map[string]extv1.JSONSchemaProps{"token": text(), "account": text()}),
		"status": object(nil, map[string]extv1.JSONSchemaProps{"conditions": conditions(), "users": integer()}),
	})
	crd.Spec.Versions[0].Subresources = &extv1.CustomResourceSubresources{
		Status: &extv1.CustomResourceSubresourceStatus{},
	}
	return crd
}

func usageCRD() *extv1.CustomResourceDefinition {
	return crd(ProviderConfigUsageKind, extv1.NamespaceScoped, []string{
		"providerConfigRef", "resourceRef",
	}, map[string]extv1.JSONSchemaProps{
		"providerConfigRef": object([]string{"kind", "name"}, map[string]extv1.JSONSchemaProps{
			"kind": text(),
			"name": text(),
		}),
		"resourceRef": object([]string{"apiVersion", "kind", "name"}, map[string]extv1.JSONSchemaProps{
			"apiVersion": text(), "kind": text(), "name": text(), "uid": text(),
		}),
	})
}

// crd returns the definition of a kind with the given properties beside those that
// all objects share.
func crd(
	kind string, scope extv1.ResourceScope, required []string, properties map[string]extv1.JSONSchemaProps,
) *extv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	plural := singular + "s"
	properties["apiVersion"] = text()
	properties["kind"] = text()
	properties["metadata"] = extv1.JSONSchemaProps{Type: "object"}
	schema := object(required, properties)
	return &extv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: extv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + Group},
		Spec: extv1.CustomResourceDefinitionSpec{
			Group: Group,
			Scope: scope,
			Names: extv1.CustomResourceDefinitionNames{
				Kind:       kind,
				ListKind:   kind + "List",
				Plural:     plural,
				Singular:   singular,
				Categories: []string{"crossplane", "sample"},
			},
			Versions: []extv1.CustomResourceDefinitionVersion{{
				Name:    Version,
				Served:  true,
				Storage: true,
				Schema:  &extv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
			}},
		},
	}
}

func conditions() extv1.JSONSchemaProps {
	c := object([]string{"lastTransitionTime", "reason", "status", "type"}, map[string]extv1.JSONSchemaProps{
		"lastTransitionTime": {Type: "string", Format: "date-time"},
		"message":            text(),
		"observedGeneration": integer(),
		"reason":             text(),
		"status":             text(),
		"type":               text(),
	})
	return extv1.JSONSchemaProps{
		Type:         "array",
		Items:        &extv1.JSONSchemaPropsOrArray{Schema: &c},
		XListType:    ptr.To("map"),
		XListMapKeys: []string{"type"},
	}
}

func managementPolicies() extv1.JSONSchemaProps {
	action := enum(
		string(xpv2.ManagementActionObserve),
		string(xpv2.ManagementActionCreate),
		string(xpv2.ManagementActionUpdate),
		string(xpv2.ManagementActionDelete),
		string(xpv2.ManagementActionLateInitialize),
		string(xpv2.ManagementActionAll),
	)
	return extv1.JSONSchemaProps{Type: "array", Items: &extv1.JSONSchemaPropsOrArray{Schema: &action}}
}

func referencePolicy() extv1.JSONSchemaProps {
	return object(nil, map[string]extv1.JSONSchemaProps{
		"resolve": enum(string(xpv2.ResolvePolicyAlways), "IfNotPresent"),
		"resolution": withDefault(
			enum(string(xpv2.ResolutionPolicyRequired), string(xpv2.ResolutionPolicyOptional)),
			string(xpv2.ResolutionPolicyRequired),
		),
	})
}

func object(required []string, properties map[string]extv1.JSONSchemaProps) extv1.JSONSchemaProps {
	return extv1.JSONSchemaProps{Type: "object", Required: required, Properties: properties}
}

func text() extv1.JSONSchemaProps { return extv1.JSONSchemaProps{Type: "string"} }

func integer() extv1.JSONSchemaProps {
	return extv1.JSONSchemaProps{Type: "integer", Format: "int64"}
}

func enum(values ...string) extv1.JSONSchemaProps {
	p := text()
	for _, v := range values {
		p.Enum = append(p.Enum, raw(v))
	}
	return p
}

func withDefault(p extv1.JSONSchemaProps, value any) extv1.JSONSchemaProps {
	p.Default = ptr.To(raw(value))
	return p
}

// raw encodes a value of this package, which can't fail.
func raw(value any) extv1.JSON {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("v1alpha1: cannot encode %v for a CRD: %v", value, err))
	}
	return extv1.JSON{Raw: b}
}
