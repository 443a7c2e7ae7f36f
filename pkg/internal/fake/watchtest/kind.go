package watchtest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Kind is a kind of resource that an API may serve.
type Kind struct {
	// GVK of the kind.
	GVK schema.GroupVersionKind

	// Plural is the resource's name in paths. NewKind sets it to the kind in
	// lower case with an s.
	Plural string

	// Cluster says that objects of the kind are in no namespace.
	Cluster bool
}

// NewKind returns a namespaced kind of group <lower kind>.example.org, version
// v1. Each kind has a group of its own, so that a fault in the discovery of one
// group touches one kind.
func NewKind(kind string) Kind {
	lower := strings.ToLower(kind)
	return Kind{
		GVK:    schema.GroupVersionKind{Group: lower + ".example.org", Version: "v1", Kind: kind},
		Plural: lower + "s",
	}
}

// ClusterScoped returns the kind with cluster scope.
func (k Kind) ClusterScoped() Kind {
	k.Cluster = true
	return k
}

// Named returns the kind with another plural.
func (k Kind) Named(plural string) Kind {
	k.Plural = plural
	return k
}

// GVR returns the resource that the kind is served as.
func (k Kind) GVR() schema.GroupVersionResource {
	return k.GVK.GroupVersion().WithResource(k.Plural)
}

// CRDName returns the name of the definition of the kind.
func (k Kind) CRDName() string { return k.Plural + "." + k.GVK.Group }

// New returns an empty object of the kind, as informers and readers take it.
func (k Kind) New() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.GVK)
	return u
}

// NewList returns an empty list of the kind.
func (k Kind) NewList() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(k.GVK.GroupVersion().WithKind(k.GVK.Kind + "List"))
	return l
}

// Object returns an object of the kind with the given name. Namespaced ones are
// in the namespace default.
func (k Kind) Object(name string) *unstructured.Unstructured {
	u := k.New()
	u.SetName(name)
	if !k.Cluster {
		u.SetNamespace("default")
	}
	return u
}

// Key returns the key of the object that [Kind.Object] returns for the name.
func (k Kind) Key(name string) client.ObjectKey {
	return client.ObjectKeyFromObject(k.Object(name))
}

// CRD is the kind of definitions. Every API serves it.
func CRD() Kind {
	return Kind{
		GVK: schema.GroupVersionKind{
			Group:   "apiextensions.k8s.io",
			Version: "v1",
			Kind:    "CustomResourceDefinition",
		},
		Plural:  "customresourcedefinitions",
		Cluster: true,
	}
}

// ConfigMap is a kind without a definition. Every API serves it.
func ConfigMap() Kind {
	return Kind{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps"}
}

// kindOf returns the kind that a definition defines.
func kindOf(crd *unstructured.Unstructured) Kind {
	text := func(path ...string) string {
		out, _, _ := unstructured.NestedString(crd.Object, path...)
		return out
	}
	k := Kind{Plural: text("spec", "names", "plural"), Cluster: text("spec", "scope") == "Cluster"}
	k.GVK = schema.GroupVersionKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok {
			k.GVK.Version, _ = v["name"].(string)
		}
	}
	return k
}

// Definition returns the definition of the kind, as an API server returns it
// when it has accepted its names.
func (k Kind) Definition(established, served bool) *unstructured.Unstructured {
	scope := "Namespaced"
	if k.Cluster {
		scope = "Cluster"
	}
	state := "False"
	if established {
		state = "True"
	}
	names := func() map[string]any {
		return map[string]any{
			"plural":   k.Plural,
			"singular": strings.ToLower(k.GVK.Kind),
			"kind":     k.GVK.Kind,
			"listKind": k.GVK.Kind + "List",
		}
	}
	u := CRD().New()
	u.SetName(k.CRDName())
	u.Object["spec"] = map[string]any{
		"group": k.GVK.Group,
		"scope": scope,
		"names": names(),
		"versions": []any{map[string]any{
			"name": k.GVK.Version, "served": served, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		}},
	}
	u.Object["status"] = map[string]any{
		"acceptedNames":  names(),
		"storedVersions": []any{k.GVK.Version},
		"conditions": []any{
			map[string]any{
				"type":               "NamesAccepted",
				"status":             "True",
				"reason":             "NoConflicts",
				"message":            "",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			},
			map[string]any{
				"type":               "Established",
				"status":             state,
				"reason":             "InitialNamesAccepted",
				"message":            "",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			},
		},
	}
	return u
}
