package embedded

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// counting returns what counts a client's requests and passes them on.
func (s *Server) counting() interceptor.Funcs { //nolint:funlen // One line for every kind of request.
	count := func(v Verb, subresource string, o runtime.Object) {
		s.counter.add(Request{Verb: v, Subresource: subresource, Kind: s.kindOf(o)})
	}
	countApply := func(subresource string, ac runtime.ApplyConfiguration) {
		s.counter.add(Request{Verb: VerbApply, Subresource: subresource, Kind: kindOfApply(ac)})
	}

	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count(VerbGet, "", o)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			count(VerbList, "", l)
			return c.List(ctx, l, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			count(VerbWatch, "", l)
			return c.Watch(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count(VerbCreate, "", o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			count(VerbUpdate, "", o)
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count(VerbPatch, "", o)
			return c.Patch(ctx, o, p, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			countApply("", ac)
			return c.Apply(ctx, ac, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count(VerbDelete, "", o)
			return c.Delete(ctx, o, opts...)
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			count(VerbDeleteCollection, "", o)
			return c.DeleteAllOf(ctx, o, opts...)
		},
		SubResourceGet: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceGetOption) error {
			count(VerbGet, name, o)
			return c.SubResource(name).Get(ctx, o, sub, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			count(VerbCreate, name, o)
			return c.SubResource(name).Create(ctx, o, sub, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			count(VerbUpdate, name, o)
			return c.SubResource(name).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			count(VerbPatch, name, o)
			return c.SubResource(name).Patch(ctx, o, p, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			countApply(name, ac)
			return c.SubResource(name).Apply(ctx, ac, opts...)
		},
	}
}

func (s *Server) kindOf(o runtime.Object) string {
	gvk, err := s.base.GroupVersionKindFor(o)
	if err != nil {
		// The request is going to fail for the same reason.
		return ""
	}

	return strings.TrimSuffix(gvk.Kind, "List")
}

func kindOfApply(ac runtime.ApplyConfiguration) string {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ac)
	if err != nil {
		return ""
	}

	kind, _ := u["kind"].(string)

	return kind
}
