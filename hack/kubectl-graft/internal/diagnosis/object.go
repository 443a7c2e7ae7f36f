package diagnosis

import (
	"bytes"
	"cmp"
	"encoding/json"
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

// IsPaused reports whether the reconciliation of an object is paused. managed reports whether it is a managed resource.
func IsPaused(o *unstructured.Unstructured, managed bool) bool {
	return AnnotatedPaused(o) || managed && NoPolicies(o)
}

// AnnotatedPaused reports whether an annotation pauses an object.
func AnnotatedPaused(o metav1.Object) bool { return o.GetAnnotations()[AnnotationPaused] == "true" }

// NoPolicies reports whether the management policies of a managed resource are empty, which pauses it too. The field
// may have another meaning in other objects.
func NoPolicies(o *unstructured.Unstructured) bool {
	list, found, _ := unstructured.NestedSlice(o.Object, "spec", "managementPolicies")
	return found && len(list) == 0
}

// Field returns the text of a field, or an empty one.
func Field(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// ClaimOf returns the claim of a composite, or an empty reference.
func ClaimOf(o *unstructured.Unstructured) corev1.ObjectReference {
	claim, _, _ := unstructured.NestedMap(o.Object, "spec", "claimRef")
	r, whole := ReferenceOf(claim)
	if !whole {
		return corev1.ObjectReference{}
	}
	return r
}

// ResourceReferences returns the composite of a claim, or a composite's composed resources, in Crossplane v1 or v2. A
// namespaced composite has them in its own namespace, even if it names another one.
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
			r.Namespace = cmp.Or(o.GetNamespace(), r.Namespace)
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

// An Owner is the software that removes a finalizer.
type Owner string

// Owners of finalizers.
const (
	Crossplane Owner = "Crossplane" // And crossplane-runtime, Graft: removing their finalizers orphans something.
	Kubernetes Owner = "Kubernetes" // And its garbage collector.
	Other      Owner = "another controller"
)

// A Finalizer holds an object.
type Finalizer struct {
	Name    string `json:"name"`
	Owner   Owner  `json:"owner"`
	Manager string `json:"manager,omitempty"` // The client that wrote it, if the API server has recorded that.
}

// Finalizers of the definitions of composites and claims.
const (
	finalizerDefined = "defined.apiextensions.crossplane.io"
	finalizerOffered = "offered.apiextensions.crossplane.io"
)

// Finalizers of one object.
type Finalizers []Finalizer

// FinalizersOf returns the finalizers of an object.
func FinalizersOf(o metav1.Object) Finalizers {
	var out Finalizers
	for _, f := range o.GetFinalizers() {
		out = append(out, Finalizer{Name: f, Owner: ownerOf(f), Manager: managerOf(o, f)})
	}
	return out
}

// By returns those that belong to an owner.
func (fs Finalizers) By(owner Owner) Finalizers {
	return slices.DeleteFunc(slices.Clone(fs), func(f Finalizer) bool { return f.Owner != owner })
}

// Names returns their names.
func (fs Finalizers) Names() []string {
	names := make([]string, 0, len(fs))
	for _, f := range fs {
		names = append(names, f.Name)
	}
	return names
}

func (fs Finalizers) String() string { return strings.Join(fs.Names(), ", ") }

// besides returns the finalizers that the reconcilers of managed resources, composites and claims don't remove.
func (fs Finalizers) besides() Finalizers {
	own := []string{FinalizerManaged, FinalizerComposite, FinalizerClaim}
	return slices.DeleteFunc(slices.Clone(fs), func(f Finalizer) bool { return slices.Contains(own, f.Name) })
}

// ownerOf knows the names of Crossplane, of crossplane-runtime and of Graft. Any other name in Crossplane's domain is
// of one provider, which may be uninstalled, and nothing else removes it then.
func ownerOf(finalizer string) Owner {
	switch finalizer {
	case FinalizerManaged, FinalizerComposite, FinalizerClaim, FinalizerConfig, FinalizerUsage,
		"finalizer.providerconfigusage.crossplane.io", "usage.apiextensions.crossplane.io",
		finalizerDefined, finalizerOffered,
		"revision.pkg.crossplane.io", "lock.pkg.crossplane.io", "watchoperation.ops.crossplane.io":
		return Crossplane
	}

	domain, _, _ := strings.Cut(finalizer, "/")
	within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }

	switch {
	case within("k8s.io"), within("kubernetes.io"), domain == "kubernetes",
		domain == metav1.FinalizerDeleteDependents, domain == metav1.FinalizerOrphanDependents:
		return Kubernetes
	default:
		return Other
	}
}

// waitsFor describes the other objects that the finalizers wait for, if they wait for any.
func (fs Finalizers) waitsFor() string {
	for _, f := range fs {
		switch f.Name {
		case FinalizerConfig:
			return "Managed resources use it."
		case finalizerDefined, finalizerOffered, "customresourcecleanup.apiextensions.k8s.io":
			return "The objects that it defines are deleted first."
		case metav1.FinalizerDeleteDependents:
			return "The garbage collector deletes the objects that it owns first."
		case metav1.FinalizerOrphanDependents:
			return "The garbage collector releases the objects that it owns first."
		}
	}
	return ""
}

// managerOf returns the client that wrote a finalizer.
func managerOf(o metav1.Object, finalizer string) string {
	for _, m := range o.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Finalizers map[string]any `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if m.FieldsV1 != nil && json.Unmarshal(m.FieldsV1.Raw, &fields) == nil &&
			fields.Metadata.Finalizers[`v:"`+finalizer+`"`] != nil {
			return m.Manager
		}
	}
	return ""
}
