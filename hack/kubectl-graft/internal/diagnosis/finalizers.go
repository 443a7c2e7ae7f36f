package diagnosis

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Owner is the software that removes a finalizer.
type Owner string

// Owners of finalizers.
const (
	Crossplane Owner = "Crossplane" // And its providers: removing their finalizers orphans something.
	Kubernetes Owner = "Kubernetes" // And its garbage collector.
	Other      Owner = "another controller"
)

// A Finalizer holds an object.
type Finalizer struct {
	Name    string `json:"name"`
	Owner   Owner  `json:"owner"`
	Manager string `json:"manager,omitempty"` // The client that wrote it, if the API server has recorded that.
}

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

func ownerOf(finalizer string) Owner {
	domain, _, _ := strings.Cut(finalizer, "/")
	within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }

	switch {
	case within(crossplaneDomain):
		return Crossplane
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
		case "defined.apiextensions.crossplane.io", "offered.apiextensions.crossplane.io",
			"customresourcecleanup.apiextensions.k8s.io":
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
