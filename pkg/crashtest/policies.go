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

// allActions is the management policy that allows every action.
const allActions = "*"

// contentOf returns the JSON form of an object.
func contentOf(o client.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return content
}

// limitedTo returns the actions that the management policies of an object allow, or nil if they
// allow all, or the kind has none.
func limitedTo(content map[string]any) []string {
	policies, _, err := unstructured.NestedStringSlice(content, "spec", "managementPolicies")
	if err != nil || slices.Contains(policies, allActions) {
		return nil
	}
	return policies
}

// mayUpdate reports whether the policies of an object allow to update its external resource.
func mayUpdate(content map[string]any) bool {
	policies := limitedTo(content)
	return len(policies) == 0 || slices.Contains(policies, "Update")
}

// orphans reports whether an object's external resource has to stay when it is deleted.
func orphans(content map[string]any) bool {
	if policies := limitedTo(content); len(policies) > 0 {
		return !slices.Contains(policies, "Delete")
	}
	deletion, _, err := unstructured.NestedString(content, "spec", "deletionPolicy")
	return err == nil && deletion == "Orphan"
}

// withoutDeletionPolicy reports whether an object's kind has a deletion policy that is not set.
func withoutDeletionPolicy(o client.Object) bool {
	legacy, ok := o.(interface{ GetDeletionPolicy() xpv2.DeletionPolicy })
	return ok && legacy.GetDeletionPolicy() == ""
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

// decode replaces an object by its content.
func decode(content map[string]any, o client.Object) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = content
		return nil
	}
	reflect.ValueOf(o).Elem().SetZero()
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, o)
}
