package reconciler_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A registry is a cluster with one object to release. It is the client of the release,
// which may not read.
//
// Everything that a client does to the object is watched: what may never happen
// is in broken.
type registry struct {
	*cluster

	// before is called before a request is served, with the number of those
	// before it, and after is called after. What they return is the answer.
	before, after func(n int) error

	// key of the object, target is the UID of the one that may be written to, and
	// released are the finalizers that may be removed from it.
	key      client.ObjectKey
	target   types.UID
	released []string

	was      *unstructured.Unstructured // Before the request that is served.
	requests []string
	broken   []string
}

func newRegistry(o *unstructured.Unstructured, released ...string) *registry {
	o = o.DeepCopy()
	o.SetUID("uid-1")

	r := &registry{cluster: newCluster(o), key: client.ObjectKeyFromObject(o), target: o.GetUID(), released: released}

	r.api.Before = func(ctx context.Context, q testkit.Request) error {
		if q.Verb == testkit.Get || q.Verb == testkit.List {
			return errors.New("a release doesn't read")
		}

		what := q.Verb + " " + q.Body
		if q.Verb == testkit.Update {
			what = fmt.Sprintf("update finalizers to %q", q.Object.GetFinalizers())
		}

		r.requests = append(r.requests, what)

		if r.before != nil {
			if err := r.before(len(r.requests) - 1); err != nil {
				return err
			}
		}

		r.was = r.object()

		return ctx.Err()
	}
	r.api.After = func(_ context.Context, q testkit.Request) error {
		r.inspect(q.Verb)

		if r.after == nil {
			return nil
		}

		return r.after(len(r.requests) - 1)
	}

	return r
}

// object as it is, or nil if there is none.
func (r *registry) object() *unstructured.Unstructured {
	u := of(claims, r.key.Namespace, r.key.Name)
	if err := r.server.Get(context.Background(), r.key, u); err != nil {
		return nil
	}

	return u
}

// is reports whether there is the object to release.
func (r *registry) is() bool {
	o := r.object()
	return o != nil && o.GetUID() == r.target
}

// change the object, if there is one and it stays valid, as another client does.
func (r *registry) change(fn func(o *unstructured.Unstructured)) {
	if o := r.object(); o != nil {
		fn(o)

		if err := r.server.Update(context.Background(), o); err != nil && !kerrors.IsInvalid(err) {
			panic(err)
		}
	}
}

// remove the object as another client does.
func (r *registry) remove(p metav1.DeletionPropagation) {
	_ = r.server.Delete(context.Background(), of(claims, r.key.Namespace, r.key.Name), client.PropagationPolicy(p))
}

// tear the object out, whatever holds it.
func (r *registry) tear() {
	r.remove(metav1.DeletePropagationBackground)
	r.change(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
}

// replace the object by another.
func (r *registry) replace(o *unstructured.Unstructured) {
	r.tear()

	if err := r.server.Create(context.Background(), o.DeepCopy()); err != nil {
		panic(err)
	}
}

// collect garbage.
func (r *registry) collect() {
	r.change(func(o *unstructured.Unstructured) {
		o.SetFinalizers(without(o.GetFinalizers(), metav1.FinalizerOrphanDependents))
	})
}

// inspect what a request has made of the object.
func (r *registry) inspect(verb string) {
	cur, next := r.was, r.object()

	complain := func(what string) {
		r.broken = append(r.broken, fmt.Sprintf("%s: %s", r.requests[len(r.requests)-1], what))
	}

	gone := next == nil
	if gone {
		if verb == testkit.Patch {
			complain("removes the last finalizer: the API server deletes whatever has the name then")
		}

		next = cur.DeepCopy()
		next.SetFinalizers(nil)
	}

	if reflect.DeepEqual(cur, next) {
		return
	}

	if cur.GetUID() != r.target {
		complain("changes an object that has the name, but is another")
	}

	if !meta.WasDeleted(cur) && (meta.WasDeleted(next) || gone) && (!meta.IsPaused(next) || deletesExternal(next)) {
		complain("deletes while the external resource may be deleted")
	}

	if cur, next := policies(cur), policies(next); !slices.Contains(cur, "*") && len(without(next, cur...)) > 0 {
		complain(fmt.Sprintf("allows what no client allowed: policies %v are now %v", cur, next))
	}

	gc := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

	if !slices.Equal(without(cur.GetFinalizers(), gc...), without(next.GetFinalizers(), gc...)) && !meta.WasDeleted(cur) {
		complain("removes finalizers before the deletion")
	}

	// All but what a release is for, and what the API server sets, has to stay.
	for _, o := range []*unstructured.Unstructured{cur, next} {
		o.SetFinalizers(without(o.GetFinalizers(), slices.Concat(r.released, gc)...))
		meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused)

		for _, f := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion", "managedFields"} {
			unstructured.RemoveNestedField(o.Object, "metadata", f)
		}

		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}

		for _, f := range []string{"deletionPolicy", "managementPolicies"} {
			unstructured.RemoveNestedField(o.Object, "spec", f)
		}
	}

	if !reflect.DeepEqual(cur, next) {
		complain("changes what isn't its own: -was, +is:\n" + cmp.Diff(cur, next))
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
