package testkit

import (
	"context"
	"reflect"
	"strconv"
	"sync"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// versionsEach is by how much the first resource versions of two objects of the
// same name differ.
const versionsEach = 10_000

// A server makes the fake client do what an API server does and matters here:
//
//   - a write that changes nothing leaves the resource version;
//   - an update of another UID is a conflict, a patch of another UID is
//     invalid, and a patch of status looks at nothing but status;
//   - an object that is created again has newer resource versions than the old
//     one ever had;
//   - spec has a generation.
//
// It looks at what is there and then writes, which must be one step for who else
// reads or writes at the same time: requests are served one after the other.
type server struct {
	tracker   clienttesting.ObjectTracker
	assignUID func(client.Object)

	// subresource is whether kinds have the status subresource.
	subresource bool

	// mu is held while a request is served. created counts objects.
	mu      sync.Mutex
	created uint64
}

func (s *server) over(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return s.serve(func() error { return c.Get(ctx, k, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return s.serve(func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return s.serve(func() error { return s.create(ctx, c, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return s.serve(func() error { return s.update(ctx, c, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return s.serve(func() error { return s.patch(ctx, c, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return s.serve(func() error { return c.Delete(ctx, o, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return s.serve(func() error { return c.DeleteAllOf(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return s.serve(func() error { return s.updateStatus(ctx, c, sub, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return s.serve(func() error { return s.patchStatus(ctx, c, sub, o, p, opts...) })
		},
	})
}

func (s *server) serve(request func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	return request()
}

func (s *server) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	s.assignUID(o)
	o.SetGeneration(1)

	if err := c.Create(ctx, o, opts...); err != nil {
		return err
	}

	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return err
	}

	s.created++
	o.SetResourceVersion(strconv.FormatUint(s.created*versionsEach, 10))

	gvr, _ := meta.UnsafeGuessKindToResource(gvk)

	return s.tracker.Update(gvr, o.DeepCopyObject(), o.GetNamespace())
}

func (s *server) update(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	cur, is, err := current(ctx, c, o)
	if err != nil {
		return err
	}

	if o.GetUID() != "" && o.GetUID() != cur.GetUID() {
		return conflict(o)
	}

	if v := o.GetResourceVersion(); v == "" || v == cur.GetResourceVersion() {
		want, err := content(o)
		if err != nil {
			return err
		}

		if s.subresource {
			delete(want, "status")

			if v, ok := is["status"]; ok {
				want["status"] = v
			}
		}

		for _, k := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(inMetadata(want), k)

			if v, ok := inMetadata(is)[k]; ok {
				inMetadata(want)[k] = v
			}
		}

		if same(want, is) {
			return into(cur, o)
		}

		o.SetGeneration(cur.GetGeneration())

		if !same(want["spec"], is["spec"]) {
			o.SetGeneration(cur.GetGeneration() + 1)
		}
	}

	return c.Update(ctx, o, opts...)
}

func (s *server) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if p.Type() != types.MergePatchType {
		return c.Patch(ctx, o, p, opts...)
	}

	cur, is, err := current(ctx, c, o)
	if err != nil {
		return err
	}

	b, err := decoded(o, p)
	if err != nil {
		return err
	}

	if s.subresource {
		delete(b, "status")
	}

	if v, ok := inMetadata(b)["resourceVersion"]; ok && v != cur.GetResourceVersion() {
		return conflict(o)
	}

	if uid, ok := inMetadata(b)["uid"]; ok && uid != string(cur.GetUID()) {
		return kerrors.NewInvalid(cur.GetObjectKind().GroupVersionKind().GroupKind(), o.GetName(), nil)
	}

	want := merged(is, b)
	if same(want, is) {
		return into(cur, o)
	}

	if !same(want["spec"], is["spec"]) {
		b = merged(b, map[string]any{"metadata": map[string]any{"generation": cur.GetGeneration() + 1}})
	}

	return send(b, func(p client.Patch) error { return c.Patch(ctx, o, p, opts...) })
}

func (s *server) updateStatus(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if !s.subresource {
		return c.SubResource(sub).Update(ctx, o, opts...)
	}

	cur, is, err := current(ctx, c, o)
	if err != nil {
		return err
	}

	if o.GetUID() != "" && o.GetUID() != cur.GetUID() {
		return conflict(o)
	}

	want, err := content(o)
	if err != nil {
		return err
	}

	if v := o.GetResourceVersion(); (v == "" || v == cur.GetResourceVersion()) && same(want["status"], is["status"]) {
		return into(cur, o)
	}

	return c.SubResource(sub).Update(ctx, o, opts...)
}

func (s *server) patchStatus(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if !s.subresource || p.Type() != types.MergePatchType {
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}

	cur, is, err := current(ctx, c, o)
	if err != nil {
		return err
	}

	b, err := decoded(o, p)
	if err != nil {
		return err
	}

	if v, ok := inMetadata(b)["resourceVersion"]; ok && v != cur.GetResourceVersion() {
		return conflict(o)
	}

	b = map[string]any{"status": b["status"]}
	if same(merged(is, b), is) {
		return into(cur, o)
	}

	return send(b, func(p client.Patch) error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
}

// current returns what the fake has, in two forms.
func current(ctx context.Context, c client.Client, o client.Object) (client.Object, map[string]any, error) {
	cur, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if !ok {
		return nil, nil, errors.Errorf("%T is no object", o)
	}

	cur.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())

	if err := c.Get(ctx, client.ObjectKeyFromObject(o), cur); err != nil {
		return nil, nil, err
	}

	is, err := content(cur)

	return cur, is, err
}

func content(o client.Object) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.DeepCopyObject())
	delete(m, "apiVersion")
	delete(m, "kind")

	return m, err
}

func inMetadata(m map[string]any) map[string]any {
	md, _ := m["metadata"].(map[string]any)
	if md == nil {
		md = map[string]any{}
	}

	return md
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

func conflict(o client.Object) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "testkit"}, o.GetName(), errors.New("the object has been modified"))
}

func decoded(o client.Object, p client.Patch) (map[string]any, error) {
	data, err := p.Data(o)
	if err != nil {
		return nil, err
	}

	b := map[string]any{}

	err = json.Unmarshal(data, &b)

	return b, err
}

func send(b map[string]any, patch func(client.Patch) error) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}

	return patch(client.RawPatch(types.MergePatchType, data))
}

// merged returns what a JSON merge patch makes of m.
func merged(m, patch map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(m)

	for k, v := range patch {
		sub, isMap := v.(map[string]any)

		switch {
		case v == nil:
			delete(out, k)
		case isMap:
			had, _ := out[k].(map[string]any)
			if had == nil {
				had = map[string]any{}
			}

			out[k] = merged(had, sub)
		default:
			out[k] = v
		}
	}

	return out
}
