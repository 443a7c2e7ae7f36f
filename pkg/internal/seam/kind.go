package seam

import (
	"reflect"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Kind recognises objects of the reconciled kind, and reads and writes their
// status for any Go type.
type Kind struct {
	gvk    schema.GroupVersionKind
	goType reflect.Type

	// status is the index of the field of the Go type that is its status. It is nil if
	// there is none.
	status []int

	conditions Conditions
}

// Conditions returns the conditions of an object of the kind, or false if it cannot have any.
type Conditions func(o client.Object) (resource.Conditioned, bool)

// NewKind returns the Kind of gvk. If the scheme knows a Go type for it,
// objects of that type are recognised; unstructured objects of the kind always
// are.
func NewKind(gvk schema.GroupVersionKind, s *runtime.Scheme) Kind {
	k := Kind{gvk: gvk}
	o, err := s.New(gvk)
	if err != nil {
		return k
	}
	k.goType = reflect.TypeOf(o)
	k.status = statusIn(k.goType.Elem())
	return k
}

// WithConditions returns the kind with another way to the conditions of its objects. By default these have to be
// resource.Conditioned.
func (k Kind) WithConditions(c Conditions) Kind {
	k.conditions = c
	return k
}

// Conditioned returns the conditions of o, which is of this kind, or false if it cannot have any.
func (k Kind) Conditioned(o client.Object) (resource.Conditioned, bool) {
	if k.conditions != nil {
		return k.conditions(o)
	}
	c, ok := o.(resource.Conditioned)
	return c, ok
}

// ConditionOf returns the condition of that type of o, which is of this kind, or the
// zero condition if o has no conditions.
func (k Kind) ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	if c, ok := k.Conditioned(o); ok {
		return c.GetCondition(t)
	}
	return xpv2.Condition{}
}

// ConditionOf returns the condition of that type of o, or the zero condition if o is no resource.Conditioned.
func ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	return Kind{}.ConditionOf(o, t)
}

// statusIn returns the index of the field that is the status of a struct, also if that is
// a field of an inlined struct.
func statusIn(of reflect.Type) []int {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "status" {
			return f.Index
		}
		if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			if in := statusIn(f.Type); in != nil {
				return append(f.Index, in...)
			}
		}
	}
	return nil
}

// Has reports whether o is of this kind, in a form that carries the whole object.
func (k Kind) Has(o client.Object) bool {
	if _, ok := o.(runtime.Unstructured); ok {
		return o.GetObjectKind().GroupVersionKind() == k.gvk
	}
	return k.goType != nil && reflect.TypeOf(o) == k.goType
}

// statusOf returns a pointer to the status of o, or a value to the same effect,
// for comparison. It is false if objects of this type have no status.
func (k Kind) statusOf(o client.Object) (any, bool) {
	if u, ok := o.(runtime.Unstructured); ok {
		return u.UnstructuredContent()["status"], true
	}
	if k.status == nil {
		return nil, false
	}
	return reflect.ValueOf(o).Elem().FieldByIndex(k.status).Addr().Interface(), true
}

// statusEqual reports whether a and b are known to have the same status, as it would
// be stored. Empty and absent lists and maps are the same; it is false if there is no
// status to compare.
func (k Kind) statusEqual(a, b client.Object) bool {
	as, ok := k.statusOf(a)
	if !ok {
		return false
	}
	bs, ok := k.statusOf(b)
	return ok && (same(reflect.ValueOf(as), reflect.ValueOf(bs)) || storedEqual(as, bs))
}

// keepStatus returns an object with the status of o, which a client is about to decode an
// answer into. An unstructured object then gets other content. Its own may have what JSON
// takes and a deep copy doesn't, such as an int.
func (k Kind) keepStatus(o client.Object) client.Object {
	if _, ok := o.(runtime.Unstructured); !ok {
		return clone(o)
	}
	kept := Empty(o)
	k.moveStatus(kept, o)
	return kept
}

// moveStatus gives dst the status of src. The caller must not use src afterwards: they
// share memory.
func (k Kind) moveStatus(dst, src client.Object) {
	if d, ok := dst.(runtime.Unstructured); ok {
		s, ok := src.(runtime.Unstructured)
		if !ok {
			return
		}
		content := d.UnstructuredContent()
		if v, ok := s.UnstructuredContent()["status"]; ok {
			content["status"] = v
		} else {
			delete(content, "status")
		}

		d.SetUnstructuredContent(content)
		return
	}

	if k.status != nil {
		reflect.ValueOf(dst).Elem().FieldByIndex(k.status).Set(reflect.ValueOf(src).Elem().FieldByIndex(k.status))
	}
}

// move replaces the whole of dst by src, which must not be used afterwards:
// they share memory.
func move(dst, src client.Object) {
	if d, ok := dst.(runtime.Unstructured); ok {
		if s, ok := src.(runtime.Unstructured); ok {
			d.SetUnstructuredContent(s.UnstructuredContent())
		}
		return
	}

	kind := dst.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())

	// A cache sets the kind of typed objects, an API server does not.
	dst.GetObjectKind().SetGroupVersionKind(kind)
}

// Empty returns a new object of o's type that has nothing but o's name and
// namespace (and its kind, where the Go type doesn't say it).
func Empty(o client.Object) client.Object {
	e, _ := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if u, ok := e.(runtime.Unstructured); ok {
		u.SetUnstructuredContent(map[string]any{})
		e.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	}
	e.SetName(o.GetName())
	e.SetNamespace(o.GetNamespace())
	return e
}

// clone returns a deep copy of o.
func clone(o client.Object) client.Object {
	c, _ := o.DeepCopyObject().(client.Object)
	return c
}
