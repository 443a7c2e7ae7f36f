package seam

import "reflect"

// IsNil reports whether v can't be used since it is nil, or an interface to a pointer or
// function that is. A slice or map that is nil is an empty one.
func IsNil(v any) bool {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Interface, reflect.Pointer:
		return rv.IsNil()
	default:
		return false
	}
}
