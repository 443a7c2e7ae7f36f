package embedded

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A Call is a request that a client makes.
type Call struct {
	// Verb of the request.
	Verb Verb

	// Subresource that it is for, for instance "status". Empty for the object
	// itself.
	Subresource string

	// Object that is read into or written, or a list.
	Object runtime.Object

	// Key of the object. Empty for a list.
	Key client.ObjectKey

	// Patch that is sent. Nil if it is no patch.
	Patch client.Patch

	// Propagation policy of a deletion. Empty if it has none.
	Propagation metav1.DeletionPropagation
}

// String returns the verb, after the subresource if there is one.
func (c Call) String() string { return strings.TrimSpace(c.Subresource + " " + string(c.Verb)) }

// Writes reports whether the request may change something.
func (c Call) Writes() bool { return c.Verb != VerbGet && c.Verb != VerbList }

// Intercept returns functions that hand each request of a client to fn, which may have
// it served. What fn returns is the answer.
func Intercept(fn func(ctx context.Context, c Call, serve func() error) error) interceptor.Funcs {
	of := func(v Verb, subresource string, o client.Object) Call {
		return Call{Verb: v, Subresource: subresource, Object: o, Key: client.ObjectKeyFromObject(o)}
	}
	return interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			return fn(ctx, Call{
				Verb:   VerbGet,
				Object: o,
				Key:    key,
			}, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return fn(ctx, Call{Verb: VerbList, Object: l}, func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return fn(ctx, of(VerbCreate, "", o), func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return fn(ctx, of(VerbUpdate, "", o), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
		) error {
			call := of(VerbPatch, "", o)
			call.Patch = p
			return fn(ctx, call, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			call := of(VerbDelete, "", o)
			call.Propagation = ptr.Deref((&client.DeleteOptions{}).ApplyOptions(opts).PropagationPolicy, "")
			return fn(ctx, call, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			return fn(ctx, of(VerbUpdate, sub, o), func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			call := of(VerbPatch, sub, o)
			call.Patch = p
			return fn(ctx, call, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}
