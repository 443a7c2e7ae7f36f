package diagnosis

import (
	"bytes"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A condition of an object.
type condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	ObservedGeneration int64       `json:"observedGeneration"`
}

// conditionOf returns a condition of o, or an empty one.
func conditionOf(o *unstructured.Unstructured, typ string) condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, v := range list {
		m, _ := v.(map[string]any)
		if m["type"] != typ {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		c := condition{Type: typ, Status: text("status"), Reason: text("reason"), Message: text("message")}
		c.ObservedGeneration, _ = m["observedGeneration"].(int64)
		if at, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
			c.LastTransitionTime = metav1.NewTime(at.UTC())
		}
		return c
	}
	return condition{}
}

// Conflict reports whether managed fields, as JSON, name the condition ConflictingWrites. Lists have no conditions.
type Conflict bool

// UnmarshalJSON reads managed fields.
func (c *Conflict) UnmarshalJSON(managedFields []byte) error {
	*c = Conflict(bytes.Contains(managedFields, []byte(typeConflict)))
	return nil
}

// ExternalName returns the external name of a managed resource.
func ExternalName(o metav1.Object) string { return o.GetAnnotations()[AnnotationExternalName] }

// IsPaused reports whether the reconciliation of an object is paused.
func IsPaused(o *unstructured.Unstructured) bool { return AnnotatedPaused(o) || NoPolicies(o) }

// AnnotatedPaused reports whether an annotation pauses an object.
func AnnotatedPaused(o metav1.Object) bool { return o.GetAnnotations()[AnnotationPaused] == "true" }

// NoPolicies reports whether the management policies of a managed resource are empty, which
// pauses it too.
func NoPolicies(o *unstructured.Unstructured) bool {
	list, found, _ := unstructured.NestedSlice(o.Object, "spec", "managementPolicies")
	return found && len(list) == 0
}

// A Reference of one object to another.
type Reference struct {
	schema.GroupVersionKind

	Namespace, Name string
}

// ResourceReferences returns the composite of a claim, or the composed resources of a
// composite, in the layout of Crossplane v1 or v2.
func ResourceReferences(o *unstructured.Unstructured) []Reference {
	var out []Reference
	for _, path := range []string{"spec.resourceRef", "spec.resourceRefs", "spec.crossplane.resourceRefs"} {
		v, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			r, ok := ReferenceOf(v)
			if ok && r.Namespace == "" {
				r.Namespace = o.GetNamespace()
			}
			if ok && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// ReferenceOf returns the reference that a field holds, if it is whole.
func ReferenceOf(field any) (Reference, bool) {
	m, _ := field.(map[string]any)
	text := func(key string) string { s, _ := m[key].(string); return s }
	r := Reference{
		GroupVersionKind: schema.FromAPIVersionAndKind(text("apiVersion"), text("kind")),
		Namespace:        text("namespace"),
		Name:             text("name"),
	}
	return r, r.Kind != "" && r.Name != ""
}
