// Package is has what all packages ask about a value.
package is

import "reflect"

// Nil reports whether v can't be used since it is nil, or an interface to a pointer or
// function that is. A slice or map that is nil is an empty one.
func Nil(v any) bool {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Interface, reflect.Pointer:
		return rv.IsNil()
	default:
		return false
	}
}
