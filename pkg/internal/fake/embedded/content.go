package embedded

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// edit changes an object in place, in its JSON form.
func edit(obj runtime.Object, change func(content map[string]any)) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("cannot encode %T: %w", obj, err)
	}
	change(content)

	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = content
		return nil
	}

	// What was removed from the content has to go from the object too.
	v := reflect.ValueOf(obj).Elem()
	v.SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return fmt.Errorf("cannot decode %T: %w", obj, err)
	}
	return nil
}

// contents returns what two versions of an object store: everything but what
// changes with every write.
func contents(before, after runtime.Object) (b, a map[string]any, err error) {
	out := make([]map[string]any, 0, 2)

	for _, obj := range []runtime.Object{before, after} {
		// The content of an unstructured object is not a copy.
		c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
		if err != nil {
			return nil, nil, fmt.Errorf("cannot encode %T: %w", obj, err)
		}
		unstructured.RemoveNestedField(c, "metadata", "resourceVersion")
		unstructured.RemoveNestedField(c, "metadata", "managedFields")

		// A typed object may or may not tell its own kind.
		out = append(out, without(c, "apiVersion", "kind"))
	}
	return out[0], out[1], nil
}

func without(content map[string]any, keys ...string) map[string]any {
	out := maps.Clone(content)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

func equal(a, b map[string]any) bool { return equality.Semantic.DeepEqual(a, b) }
