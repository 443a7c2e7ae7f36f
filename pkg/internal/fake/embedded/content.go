package embedded

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A revision is an object as it is stored, and its JSON form. It never changes once it is
// stored.
type revision struct {
	object  client.Object
	content map[string]any
}

// setVersion sets the resourceVersion and the generation of a revision that isn't stored yet.
func (r revision) setVersion(version string, generation int64) {
	for _, m := range []metav1.Object{r.object, &unstructured.Unstructured{Object: r.content}} {
		m.SetResourceVersion(version)
		m.SetGeneration(generation)
	}
}

// revisionOf returns the revision of a content, which it keeps. A kind of the scheme is stored
// as its Go type: fields that the type doesn't have are dropped.
func (s *objects) revisionOf(gvk schema.GroupVersionKind, content map[string]any) (revision, error) {
	made, err := s.scheme.New(gvk)
	if err != nil {
		made = &unstructured.Unstructured{} // The kind is only used unstructured.
	}
	o, ok := made.(client.Object)
	if !ok {
		return revision{}, fmt.Errorf("embedded: %s is registered as %T, which has no metadata", gvk, made)
	}
	if err := decode(content, o, gvk); err != nil {
		return revision{}, err
	}
	if _, untyped := o.(runtime.Unstructured); untyped {
		return revision{o, content}, nil
	}
	content, err = contentOf(o)
	return revision{o, content}, err
}

// contentOf returns the JSON form of an object. Of an unstructured one it is a copy.
func contentOf(o runtime.Object) (map[string]any, error) {
	if u, ok := o.(runtime.Unstructured); ok {
		return runtime.DeepCopyJSON(u.UnstructuredContent()), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return content, errors.Wrapf(err, "cannot encode %T", o)
}

// decode replaces an object by a content, which it may keep. A typed object doesn't have
// its kind.
func decode(content map[string]any, o runtime.Object, gvk schema.GroupVersionKind) error {
	if u, ok := o.(runtime.Unstructured); ok {
		u.SetUnstructuredContent(content)
		o.GetObjectKind().SetGroupVersionKind(gvk)
		return nil
	}
	reflect.ValueOf(o).Elem().SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, o); err != nil {
		return errors.Wrapf(err, "cannot decode %T", o)
	}
	if _, partial := o.(*metav1.PartialObjectMetadata); !partial {
		gvk = schema.GroupVersionKind{}
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// read a revision into an object.
func (r revision) read(o runtime.Object, gvk schema.GroupVersionKind) error {
	if reflect.TypeOf(o) == reflect.TypeOf(r.object) {
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(r.object.DeepCopyObject()).Elem())
		return nil
	}
	return decode(runtime.DeepCopyJSON(r.content), o, gvk)
}

func without(content map[string]any, keys ...string) map[string]any {
	out := maps.Clone(content)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

func equal(a, b map[string]any) bool { return equality.Semantic.DeepEqual(a, b) }

// patched returns the content of a revision after a patch.
func (r revision) patched(t types.PatchType, data []byte) (map[string]any, error) {
	switch t {
	case types.MergePatchType:
		patch := map[string]any{}
		if err := utiljson.Unmarshal(data, &patch); err != nil {
			return nil, kerrors.NewBadRequest(err.Error())
		}
		return merge(runtime.DeepCopyJSON(r.content), patch), nil
	case types.StrategicMergePatchType, types.JSONPatchType:
		if !json.Valid(data) {
			return nil, kerrors.NewBadRequest("the patch is no JSON")
		}
		action := testing.NewPatchAction(schema.GroupVersionResource{}, "", "", t, data)
		_, o, err := testing.ObjectReaction(&patching{object: r.object})(action)
		if err != nil {
			// One operation of a JSON patch may be a test that fails.
			return nil, kerrors.NewGenericServerResponse(
				http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false,
			)
		}
		return contentOf(o)
	default:
		return nil, errApply
	}
}

// merge a JSON merge patch into a content (RFC 7386).
func merge(into, patch map[string]any) map[string]any {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			had, ok := into[k].(map[string]any)
			if !ok {
				had = map[string]any{}
			}
			into[k] = merge(had, v)
		default:
			into[k] = v
		}
	}
	return into
}

// patching has client-go apply a patch to an object without storing it.
type patching struct {
	testing.ObjectTracker // Nil: nothing else is used.

	object runtime.Object
}

func (p *patching) Get(
	schema.GroupVersionResource, string, string, ...metav1.GetOptions,
) (runtime.Object, error) {
	return p.object.DeepCopyObject(), nil
}

func (p *patching) Patch(schema.GroupVersionResource, runtime.Object, string, ...metav1.PatchOptions) error {
	return nil
}
