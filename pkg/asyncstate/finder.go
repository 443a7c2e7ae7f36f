package asyncstate

import (
	"context"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
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

// resumerOf returns the Resume of an external client, or nil if it has none.
func resumerOf[M resource.Managed](c managed.TypedExternalClient[M]) func(ctx context.Context, mg M, a Attempt) error {
	switch r := c.(type) {
	case TypedResumer[M]:
		return r.Resume
	case Resumer:
		return func(ctx context.Context, mg M, a Attempt) error { return r.Resume(ctx, mg, a) }
	default:
		return nil
	}
}

// finderOf returns the Find of an external client, or nil if it has none.
func finderOf[M resource.Managed](
	c managed.TypedExternalClient[M],
) func(ctx context.Context, mg M, a Attempt) (Finding, error) {
	switch f := c.(type) {
	case TypedFinder[M]:
		return func(ctx context.Context, mg M, a Attempt) (Finding, error) { return f.Find(ctx, copyOf(mg), a) }
	case Finder:
		return func(ctx context.Context, mg M, a Attempt) (Finding, error) { return f.Find(ctx, copyOf(mg), a) }
	default:
		return nil
	}
}

// A searchHinter returns a text to search for in the external system.
type searchHinter[M resource.Managed] interface {
	SearchHint(mg M, a Attempt) string
}

// searchHintOf returns the SearchHint of an external client. It is empty if the client has none.
func searchHintOf[M resource.Managed](c managed.TypedExternalClient[M], mg M, a Attempt) string {
	switch h := c.(type) {
	case searchHinter[M]:
		return h.SearchHint(copyOf(mg), a)
	case searchHinter[resource.Managed]:
		return h.SearchHint(copyOf(mg), a)
	default:
		return ""
	}
}

func copyOf[M resource.Managed](mg M) M {
	c, _ := mg.DeepCopyObject().(M)
	return c
}

// checkSignatures returns an error if an external client has an optional method of this
// package with a wrong signature or receiver. It would never be called.
func checkSignatures[M resource.Managed](c managed.TypedExternalClient[M]) error {
	typ := reflect.TypeOf(c)

	// A value does not have the methods of its pointer.
	methods := typ
	if typ.Kind() != reflect.Pointer {
		methods = reflect.PointerTo(typ)
	}
	_, hints := c.(searchHinter[M])
	_, hintsAny := c.(searchHinter[resource.Managed])

	for _, m := range []struct {
		name, signature, of string
		has                 bool
	}{
		{
			"Find", "func(context.Context, %s, asyncstate.Attempt) (asyncstate.Finding, error)", "Finder",
			finderOf(c) != nil,
		},
		{"Resume", "func(context.Context, %s, asyncstate.Attempt) error", "Resumer", resumerOf(c) != nil},
		{"SearchHint", "func(%s, asyncstate.Attempt) string", "Finder", hints || hintsAny},
	} {
		if got, ok := methods.MethodByName(m.name); ok && !m.has && mentionsPackage(got.Type) {
			return errors.Errorf(
				"cannot use %s.%s, which is %s: it must be "+m.signature+" of a %s, see asyncstate.%s", typ, m.name,
				got.Type, reflect.TypeFor[M](), typ, m.of,
			)
		}
	}
	return nil
}

// mentionsPackage reports whether a function has a parameter or a result of this package.
func mentionsPackage(fn reflect.Type) bool {
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
