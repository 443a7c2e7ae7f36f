package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A registry is an API server with one name to give to an object, and with what
// matters to a release: versions, preconditions, tests in patches, finalizers
// that can't be added to an object that is being deleted, and finalizers that a
// deletion adds for the garbage collector. It is a client that can't read.
//
// Everything that a client does to the object is watched: what may never happen
// is in broken.
type registry struct {
	client.Client // What isn't below must not be used.

	object  *unstructured.Unstructured // Nil if there is none.
	scheme  *runtime.Scheme
	version int
	uids    int

	// before is called before a request is served, with the number of those
	// before it, and after is called after. What they return is the answer.
	before, after func(n int) error

	// target is the UID of the object that may be written to, and released are
	// the finalizers that may be removed from it.
	target   types.UID
	released []string

	requests []string
	broken   []string
}

func newRegistry(o *unstructured.Unstructured, released ...string) *registry {
	r := &registry{scheme: runtime.NewScheme(), released: released}
	r.create(o)
	r.target = r.object.GetUID()

	return r
}

func (r *registry) Scheme() *runtime.Scheme { return r.scheme }

func (r *registry) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}

	return r.serve(ctx, "patch "+string(data), func() error {
		if r.object == nil || client.ObjectKeyFromObject(o) != client.ObjectKeyFromObject(r.object) {
			return notFound(o)
		}

		var patch any
		if err := json.Unmarshal(data, &patch); err != nil {
			return err
		}

		next := r.object.DeepCopy()

		switch p := patch.(type) {
		case map[string]any:
			merge(next.Object, p)
		case []any:
			for _, op := range p {
				if err := operate(next.Object, op); err != nil {
					return kerrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
				}
			}
		}

		if err := r.valid(next); err != nil {
			return err
		}

		r.inspect(next)

		if meta.WasDeleted(next) && len(next.GetFinalizers()) == 0 {
			r.broken = append(r.broken, "a patch removes the last finalizer: the API server deletes whatever has the name then")
		}

		r.store(next)

		return decode(next, o)
	})
}

func (r *registry) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return r.serve(ctx, fmt.Sprintf("update finalizers to %q", o.GetFinalizers()), func() error {
		if r.object == nil || client.ObjectKeyFromObject(o) != client.ObjectKeyFromObject(r.object) {
			return notFound(o)
		}

		if o.GetUID() != r.object.GetUID() || o.GetResourceVersion() != r.object.GetResourceVersion() {
			return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("the object has been modified"))
		}

		next, ok := o.DeepCopyObject().(*unstructured.Unstructured)
		if !ok {
			return errors.Errorf("cannot store %T", o)
		}

		if err := r.valid(next); err != nil {
			return err
		}

		r.inspect(next)
		r.store(next)

		return decode(next, o)
	})
}

func (r *registry) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	do := (&client.DeleteOptions{}).ApplyOptions(opts)

	return r.serve(ctx, fmt.Sprintf("delete %s", *do.PropagationPolicy), func() error {
		if r.object == nil || client.ObjectKeyFromObject(o) != client.ObjectKeyFromObject(r.object) {
			return notFound(o)
		}

		if p := do.Preconditions; p != nil && (p.UID != nil && *p.UID != r.object.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != r.object.GetResourceVersion()) {
			return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("precondition failed"))
		}

		next := r.deleted(*do.PropagationPolicy)
		r.inspect(next)
		r.store(next)

		return nil
	})
}

// serve a request of the client's.
func (r *registry) serve(ctx context.Context, what string, serve func() error) error {
	n := len(r.requests)
	r.requests = append(r.requests, what)

	if r.before != nil {
		if err := r.before(n); err != nil {
			return err
		}
	}

	if err := ctx.Err(); err != nil {
		return err
	}

	if err := serve(); err != nil || r.after == nil {
		return err
	}

	return r.after(n)
}

// create an object, if there is none.
func (r *registry) create(o *unstructured.Unstructured) {
	if r.object != nil {
		return
	}

	r.uids++

	o = o.DeepCopy()
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", r.uids)))
	r.store(o)
}

// change the object, if there is one and it stays valid, as another client does.
func (r *registry) change(fn func(o *unstructured.Unstructured)) {
	if r.object == nil {
		return
	}

	next := r.object.DeepCopy()
	fn(next)

	if r.valid(next) == nil {
		r.store(next)
	}
}

// remove the object as another client does.
func (r *registry) remove(p metav1.DeletionPropagation) {
	if r.object != nil {
		r.store(r.deleted(p))
	}
}

// collect garbage.
func (r *registry) collect() {
	r.change(func(o *unstructured.Unstructured) {
		o.SetFinalizers(without(o.GetFinalizers(), metav1.FinalizerOrphanDependents))
	})
}

func (r *registry) deleted(p metav1.DeletionPropagation) *unstructured.Unstructured {
	o := r.object.DeepCopy()
	fs := without(o.GetFinalizers(), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents)

	switch p {
	case metav1.DeletePropagationOrphan:
		fs = append(fs, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		fs = append(fs, metav1.FinalizerDeleteDependents)
	}

	o.SetFinalizers(fs)

	if !meta.WasDeleted(o) {
		dying(o)
	}

	return o
}

func (r *registry) valid(next *unstructured.Unstructured) error {
	var errs field.ErrorList

	if next.GetUID() != r.object.GetUID() {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "uid"), next.GetUID(), "field is immutable"))
	}

	if meta.WasDeleted(next) && slices.ContainsFunc(next.GetFinalizers(), func(f string) bool { return !slices.Contains(r.object.GetFinalizers(), f) }) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted"))
	}

	if len(errs) > 0 {
		return kerrors.NewInvalid(schema.GroupKind{}, next.GetName(), errs)
	}

	return nil
}

func (r *registry) store(next *unstructured.Unstructured) {
	if len(next.GetFinalizers()) == 0 {
		next.SetFinalizers(nil)
	}

	switch {
	case meta.WasDeleted(next) && len(next.GetFinalizers()) == 0 && ptr.Deref(next.GetDeletionGracePeriodSeconds(), 0) == 0:
		r.object = nil
	case r.object == nil || !reflect.DeepEqual(r.object, next):
		r.version++
		next.SetResourceVersion(strconv.Itoa(r.version))
		r.object = next
	}
}

// inspect what the client is about to make of the object.
func (r *registry) inspect(next *unstructured.Unstructured) {
	cur := r.object
	if reflect.DeepEqual(cur, next) {
		return
	}

	complain := func(what string) {
		r.broken = append(r.broken, fmt.Sprintf("%s: %s", r.requests[len(r.requests)-1], what))
	}

	if cur.GetUID() != r.target {
		complain("changes an object that has the name, but is another")
	}

	if !meta.WasDeleted(cur) && meta.WasDeleted(next) && (!meta.IsPaused(next) || deletesExternal(next)) {
		complain("deletes while the external resource may be deleted")
	}

	if cur, next := policies(cur), policies(next); !slices.Contains(cur, "*") && len(without(next, cur...)) > 0 {
		complain(fmt.Sprintf("allows what no client allowed: policies %v are now %v", cur, next))
	}

	gc := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

	if !slices.Equal(without(cur.GetFinalizers(), gc...), without(next.GetFinalizers(), gc...)) && !meta.WasDeleted(cur) {
		complain("removes finalizers before the deletion")
	}

	// All but what a release is for has to stay.
	c, n := cur.DeepCopy(), next.DeepCopy()

	for _, o := range []*unstructured.Unstructured{c, n} {
		o.SetFinalizers(without(o.GetFinalizers(), slices.Concat(r.released, gc)...))
		meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused)
		o.SetDeletionTimestamp(nil)

		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}

		for _, f := range []string{"deletionPolicy", "managementPolicies"} {
			unstructured.RemoveNestedField(o.Object, "spec", f)
		}
	}

	if !reflect.DeepEqual(c, n) {
		complain(fmt.Sprintf("changes what isn't its own: %v is now %v", c, n))
	}
}

func deletesExternal(o *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(o.Object, "spec", "deletionPolicy")

	return policy == "Delete" || slices.Contains(policies(o), "*") || slices.Contains(policies(o), "Delete")
}

func policies(o *unstructured.Unstructured) []string {
	out, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "managementPolicies")

	return out
}

// without returns the rest of the list, which is nil if nothing is left: so are
// finalizers.
func without(list []string, drop ...string) []string {
	var out []string

	for _, s := range list {
		if !slices.Contains(drop, s) {
			out = append(out, s)
		}
	}

	return out
}

func notFound(o client.Object) error {
	return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
}

func decode(from *unstructured.Unstructured, to client.Object) error {
	u, ok := to.(*unstructured.Unstructured)
	if !ok {
		return errors.Errorf("cannot decode into %T", to)
	}

	from.DeepCopyInto(u)

	return nil
}

// merge a JSON merge patch into m.
func merge(m, patch map[string]any) {
	for k, v := range patch {
		sub, ok := v.(map[string]any)

		switch {
		case v == nil:
			delete(m, k)
		case ok:
			had, _ := m[k].(map[string]any)
			if had == nil {
				had = map[string]any{}
			}

			merge(had, sub)
			m[k] = had
		default:
			m[k] = v
		}
	}
}

// operate does an operation of a JSON patch to m.
func operate(m map[string]any, op any) error {
	o, _ := op.(map[string]any)
	path := strings.Split(strings.TrimPrefix(fmt.Sprint(o["path"]), "/"), "/")

	switch is, found, err := unstructured.NestedFieldNoCopy(m, path...); {
	case err != nil || !found:
		return errors.Errorf("nothing is at %s", path)
	case o["op"] == "test" && !reflect.DeepEqual(is, o["value"]):
		return errors.Errorf("testing value %s failed", path)
	case o["op"] == "replace":
		return unstructured.SetNestedField(m, o["value"], path...)
	default:
		return nil
	}
}
