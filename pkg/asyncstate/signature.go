package asyncstate

import (
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
)

// checkSignatures returns an error if an external client has a method that is meant to
// be a Finder's or a Resumer's, and is not because of its signature or its receiver. Go
// says nothing then, and the method would never be called.
func checkSignatures[M resource.Managed](c managed.TypedExternalClient[M]) error {
	typ := reflect.TypeOf(c)

	// Methods of a pointer are not those of a value.
	methods := typ
	if typ.Kind() != reflect.Pointer {
		methods = reflect.PointerTo(typ)
	}

	if m, ok := methods.MethodByName("Find"); ok && finderOf(c) == nil && ours(m.Type) {
		return errors.Errorf("cannot use %s.Find, which is %s: it must be func(context.Context, %s, asyncstate.Attempt) (asyncstate.Finding, error) of a %s, see asyncstate.Finder", typ, m.Type, reflect.TypeFor[M](), typ)
	}
	if m, ok := methods.MethodByName("Resume"); ok && resumerOf(c) == nil && ours(m.Type) {
		return errors.Errorf("cannot use %s.Resume, which is %s: it must be func(context.Context, %s, asyncstate.Attempt) error of a %s, see asyncstate.Resumer", typ, m.Type, reflect.TypeFor[M](), typ)
	}
	return nil
}

// ours reports whether a function has to do with this package.
func ours(fn reflect.Type) bool {
	for i := range fn.NumIn() {
		if in := fn.In(i); in == reflect.TypeFor[Attempt]() || in == reflect.TypeFor[*Attempt]() {
			return true
		}
	}

	for i := range fn.NumOut() {
		if out := fn.Out(i); out == reflect.TypeFor[Finding]() || out == reflect.TypeFor[*Finding]() {
			return true
		}
	}
	return false
}
