package asyncstate

import (
	"context"
	stderrors "errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
)

// A Resumer is an external client that can resume an operation of another process.
type Resumer = TypedResumer[resource.Managed]

// A TypedResumer is a Resumer for one type of managed resource.
type TypedResumer[M resource.Managed] interface {
	// Resume waits for the end of the operation that a.Handle identifies. It is called in
	// the background, as Create, Update and Delete are, and may call the same functions of
	// this package. It is called only if the operation had set a handle.
	//
	// An error means the same as an error of the call that is resumed. In Create and Resume, after
	// SetHandle, an error is about a request that polls if its answer was lost, the connection was not
	// made, credentials were refused, the request was throttled, or it has an HTTP status 401, 403, 404,
	// 407, 410 or 429 or gRPC's Unauthenticated, PermissionDenied, NotFound or ResourceExhausted: the
	// create is resumed again. If the operation itself failed with one of these, return an error that
	// neither wraps nor quotes such an error, or ratelimit.Terminal. When the operation has had its time,
	// the Finder or the name is asked before it is resumed, and a person may settle it.
	Resume(ctx context.Context, mg M, a Attempt) error
}

// A Finder is an external client that can look up the external resource of a create that was
// interrupted, or that failed after it had created the resource.
//
// Any external client may also have a method SearchHint(mg resource.Managed, a Attempt) string.
// It returns a tag or another text to search for in the external system, for the condition of a
// create whose outcome a person has to determine. It makes no request, and the text must not
// hold a secret.
type Finder = TypedFinder[resource.Managed]

// A TypedFinder is a Finder for one type of managed resource. Its SearchHint takes that type,
// or resource.Managed.
type TypedFinder[M resource.Managed] interface {
	// Find the external resource that attempt a created for mg: by the token, by a tag
	// that Create sets, or by anything else that no other resource has. mg is a copy:
	// changes are lost.
	//
	// Absent means that the external system shows none. It may lag by the creation grace period: an absence counts
	// when the create must have ended and that period has passed, or at once after a create that failed with an
	// answer. Return the zero Finding or an error if the external system cannot tell. Find is called again after a
	// second at first, and after five minutes at the latest.
	Find(ctx context.Context, mg M, a Attempt) (Finding, error)
}

// FinderFn is a function that is a Finder.
type FinderFn func(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error)

// Find calls the function.
func (fn FinderFn) Find(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error) {
	return fn(ctx, mg, a)
}

// A Finding is the result of a Finder. The zero Finding means that it cannot tell.
type Finding struct {
	// Known is false if the Finder cannot tell.
	Known bool

	// ExternalName of the external resource. Empty if there is none.
	ExternalName string
}

// Found means that there is an external resource with this name. An empty name cannot be
// stored: it gives the zero Finding.
func Found(externalName string) Finding {
	return Finding{Known: externalName != "", ExternalName: externalName}
}

// Absent means that the external system shows no external resource.
func Absent() Finding { return Finding{Known: true} }

// Found reports whether there is an external resource.
func (f Finding) Found() bool { return f.Known && f.ExternalName != "" }

// Absent reports whether the external system shows none.
func (f Finding) Absent() bool { return f.Known && f.ExternalName == "" }

// optional has the optional methods of an external client. Those that it lacks are nil.
type optional struct {
	find   func(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error)
	resume func(ctx context.Context, mg resource.Managed, a Attempt) error
	hint   func(mg resource.Managed, a Attempt) string
}

// optionalOf returns the optional methods of the external client of mg. It returns an error if one has a wrong
// signature or receiver: it would never be called.
func optionalOf(client any, mg resource.Managed) (optional, error) {
	var o optional
	err := stderrors.Join(
		setMethod(&o.find, client, "Find", mg), setMethod(&o.resume, client, "Resume", mg),
		setMethod(&o.hint, client, "SearchHint", mg),
	)
	return o, err
}

// setMethod sets fn to a method of an external client, which may take the type of mg, or another interface, in place of
// resource.Managed. A method without types of this package is another one.
func setMethod[F any](fn *F, client any, name string, mg resource.Managed) error {
	typ := reflect.TypeOf(client)
	method := reflect.ValueOf(client).MethodByName(name)
	if !method.IsValid() {
		// A value does not have the methods of its pointer.
		if m, ok := reflect.PointerTo(typ).MethodByName(name); ok && mentionsPackage(m.Type) {
			return errors.Errorf("cannot use %s.%s: return a *%s from Connect, which has that method", typ, name, typ)
		}
		return nil
	}
	if same, ok := method.Interface().(F); ok {
		*fn = same
		return nil
	}

	want, at := reflect.TypeFor[F](), -1
	for i := range want.NumIn() {
		if want.In(i) == reflect.TypeFor[resource.Managed]() {
			at = i
		}
	}
	got := method.Type()
	if got.NumIn() == want.NumIn() && reflect.TypeOf(mg).AssignableTo(got.In(at)) &&
		signature(got, at) == signature(want, at) {
		*fn, _ = reflect.MakeFunc(want, func(args []reflect.Value) []reflect.Value {
			args[at] = args[at].Elem()
			return method.Call(args)
		}).Interface().(F)
		return nil
	}
	if !mentionsPackage(got) {
		return nil
	}
	return errors.Errorf("cannot use %s.%s, which is %s: it must be %s, or take a %T", typ, name, got, want, mg)
}

// signature returns the types of a function, except for the parameter at an index.
func signature(fn reflect.Type, except int) string {
	var types []reflect.Type
	for i := range fn.NumIn() {
		if i != except {
			types = append(types, fn.In(i))
		}
	}
	for i := range fn.NumOut() {
		types = append(types, fn.Out(i))
	}
	return fmt.Sprint(fn.NumIn(), fn.IsVariadic(), types)
}

// mentionsPackage reports whether a function has a parameter or a result of this package.
func mentionsPackage(fn reflect.Type) bool {
	return strings.Contains(fn.String(), "asyncstate.")
}

// copyOf returns a copy of a managed resource.
func copyOf(mg resource.Managed) resource.Managed {
	c, _ := mg.DeepCopyObject().(resource.Managed)
	return c
}
