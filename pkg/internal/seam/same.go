package seam

import (
	"maps"
	"reflect"
)

// same reports whether a and b are known to be the same: false does not mean that they differ. It
// makes a reconcile in which nothing changed cheap, because reflect.DeepEqual allocates for each
// entry of each map.
func same(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() { //nolint:exhaustive // The others are comparable.
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
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Map:
		return sameEntries(a, b)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return false
	default:
		return a.Equal(b)
	}
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
