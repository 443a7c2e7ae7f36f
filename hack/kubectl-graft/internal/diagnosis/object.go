package diagnosis

import (
	"bytes"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// conditionOf returns a condition of o, or an empty one.
func conditionOf(o *unstructured.Unstructured, typ string) metav1.Condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, v := range list {
		if m, _ := v.(map[string]any); m["type"] == typ {
			c := metav1.Condition{}
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(m, &c)
			return c
		}
	}
	return metav1.Condition{}
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

// NoPolicies reports whether the management policies of a managed resource are empty, which pauses it too.
func NoPolicies(o *unstructured.Unstructured) bool {
	list, found, _ := unstructured.NestedSlice(o.Object, "spec", "managementPolicies")
	return found && len(list) == 0
}

// Field returns the text of a field, or an empty one.
func Field(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// ResourceReferences returns the composite of a claim, or the composed resources of a
// composite, in the layout of Crossplane v1 or v2.
func ResourceReferences(o *unstructured.Unstructured) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, path := range []string{"spec.resourceRef", "spec.resourceRefs", "spec.crossplane.resourceRefs"} {
		v, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			r, ok := ReferenceOf(v)
			if r.Namespace == "" {
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
func ReferenceOf(field any) (corev1.ObjectReference, bool) {
	m, _ := field.(map[string]any)
	r := corev1.ObjectReference{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &r)
	return r, err == nil && r.Kind != "" && r.Name != ""
}
