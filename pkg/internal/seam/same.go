package seam

import (
	"maps"
	"reflect"
)

// same reports whether a and b are known to be the same. It may not know: false
// does not mean that they differ. It is what makes a reconcile in which nothing
// changed cheap: comparing semantically needs several allocations for each
// entry of each map.
func same(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return a.Uint() == b.Uint()
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	case reflect.String:
		return a.String() == b.String()
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() || a.CanInterface() && same(a.Elem(), b.Elem())
	case reflect.Interface:
		return same(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		return sameElements(a, b)
	case reflect.Map:
		return sameEntries(a, b)
	default:
		return false
	}
}

func sameElements(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func sameEntries(a, b reflect.Value) bool {
	if a.Len() != b.Len() || !a.CanInterface() {
		return false
	}
	if m, ok := a.Interface().(map[string]string); ok {
		n, ok := b.Interface().(map[string]string)
		return ok && maps.Equal(m, n)
	}
	for i := a.MapRange(); i.Next(); {
		if v := b.MapIndex(i.Key()); !v.IsValid() || !same(i.Value(), v) {
			return false
		}
	}
	return true
}
