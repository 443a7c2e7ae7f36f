package crashtest

import (
	"maps"
	"reflect"
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manageable objects have management policies, orphanable ones a deletion policy.
type (
	manageable interface {
		GetManagementPolicies() xpv2.ManagementPolicies
		SetManagementPolicies(p xpv2.ManagementPolicies)
	}
	orphanable interface{ GetDeletionPolicy() xpv2.DeletionPolicy }
)

// policiesOf returns the actions that the management policies of an object allow, or nil if they
// allow all, or the kind has none.
func policiesOf(o client.Object) xpv2.ManagementPolicies {
	m, ok := o.(manageable)
	if !ok || slices.Contains(m.GetManagementPolicies(), xpv2.ManagementActionAll) {
		return nil
	}
	return m.GetManagementPolicies()
}

// forbids reports whether the policies of an object forbid an action.
func forbids(o client.Object, a xpv2.ManagementAction) bool {
	p := policiesOf(o)
	return len(p) > 0 && !slices.Contains(p, a)
}

// orphans reports whether an object's external resource has to stay when it is deleted.
func orphans(o client.Object) bool {
	if len(policiesOf(o)) > 0 {
		return forbids(o, xpv2.ManagementActionDelete)
	}
	legacy, ok := o.(orphanable)
	return ok && legacy.GetDeletionPolicy() == xpv2.DeletionOrphan
}

// contentOf returns the JSON form of an object.
func contentOf(o client.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return content
}

// decode replaces an object by its content.
func decode(content map[string]any, o client.Object) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = content
		return nil
	}
	reflect.ValueOf(o).Elem().SetZero()
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, o)
}

// specOf returns the fields of an object that its external resource may depend on. Some fields of
// spec only say how the object is reconciled.
func specOf(o client.Object) map[string]any {
	out := runtime.DeepCopyJSON(contentOf(o))
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(out, name)
	}
	if spec, ok := out["spec"].(map[string]any); ok {
		maps.DeleteFunc(spec, func(name string, _ any) bool {
			return slices.Contains([]string{
				"deletionPolicy", "managementPolicies", "providerConfigRef", "writeConnectionSecretToRef",
			}, name)
		})
	}
	return out
}
