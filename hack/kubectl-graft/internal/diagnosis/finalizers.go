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
	// Crossplane and its providers: removing their finalizers orphans something.
	Crossplane Owner = "Crossplane"

	// Kubernetes and its garbage collector.
	Kubernetes Owner = "Kubernetes"

	// Other controllers.
	Other Owner = "another controller"
)

// A Finalizer holds an object.
type Finalizer struct {
	Name  string `json:"name"`
	Owner Owner  `json:"owner"`

	// Manager is the client that wrote it, as far as the API server has recorded that.
	Manager string `json:"manager,omitempty"`
}

// FinalizersOf returns the finalizers of an object.
func FinalizersOf(o metav1.Object) []Finalizer {
	out := make([]Finalizer, 0, len(o.GetFinalizers()))
	for _, f := range o.GetFinalizers() {
		out = append(out, Finalizer{Name: f, Owner: ownerOf(f), Manager: managerOf(o, f)})
	}
	return out
}

func ownerOf(finalizer string) Owner {
	domain, _, _ := strings.Cut(finalizer, "/")
	within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }

	switch {
	case within(crossplaneDomain):
		return Crossplane
	case !strings.Contains(domain, "."), within("k8s.io"), within("kubernetes.io"):
		// The garbage collector's have no domain: foregroundDeletion and orphan.
		switch domain {
		case metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents, "kubernetes":
			return Kubernetes
		}
		if strings.Contains(domain, ".") {
			return Kubernetes
		}
	}
	return Other
}

// waitsFor describes the other objects that a finalizer waits for. It is empty for finalizers
// that wait for none.
func waitsFor(fs []Finalizer) string {
	for _, f := range fs {
		switch f.Name {
		case FinalizerConfig:
			return "Managed resources use it."
		case "defined.apiextensions.crossplane.io",
			"offered.apiextensions.crossplane.io",
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
		if m.FieldsV1 == nil {
			continue
		}
		fields := struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}{}
		if json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
			continue
		}
		if _, ok := fields.Metadata.Finalizers[`v:"`+finalizer+`"`]; ok {
			return m.Manager
		}
	}
	return ""
}

// namesOf returns the names of those that belong to an owner.
func namesOf(fs []Finalizer, owner Owner) []string {
	var out []string
	for _, f := range fs {
		if f.Owner == owner {
			out = append(out, f.Name)
		}
	}
	return out
}

// has reports whether there is a finalizer of that name.
func has(fs []Finalizer, name string) bool {
	return slices.ContainsFunc(fs, func(f Finalizer) bool { return f.Name == name })
}
