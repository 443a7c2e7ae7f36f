package reconciler

import (
	"context"
	stderrors "errors"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/fieldpath"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Dependent is an object that must be deleted before the object that depends on
// it can be.
type Dependent struct {
	schema.GroupVersionKind
	types.NamespacedName

	// Owner is the UID that the controller of the dependent must have. Set it for
	// an object that a user's reference names: one that has another controller, or
	// none, is then treated as if it did not exist, and its kind is read from a
	// cache only if WithWatchedKinds reports that the cache watches it.
	//
	// Without an Owner the dependent counts with any controller. Its conditions,
	// finalizers and annotations are quoted only if the reconciled object does.
	Owner types.UID
}

// A DependentLister lists the objects that the deletion of an object waits for,
// including those that no longer exist. The reader is the reconciler's client, and
// reads from its cache.
//
// An error is part of the report. It never fails the reconcile.
type DependentLister interface {
	ListDependents(ctx context.Context, c client.Reader, o client.Object) ([]Dependent, error)
}

// A DependentListerFn is a function that satisfies DependentLister.
type DependentListerFn func(ctx context.Context, c client.Reader, o client.Object) ([]Dependent, error)

// ListDependents calls the function.
func (fn DependentListerFn) ListDependents(ctx context.Context, c client.Reader, o client.Object) ([]Dependent, error) {
	return fn(ctx, c, o)
}

// ComposedResources lists the composed resources that a composite resource
// refers to, in the layout of Crossplane v2 (spec.crossplane.resourceRefs) or the
// legacy one (spec.resourceRefs). It makes no requests.
//
// Users write these references, so they give no access to another tenant's objects:
// the composed resources of a namespaced composite resource are in its own
// namespace, even if the reference names another one, and only an object that the composite
// resource controls counts.
func ComposedResources() DependentLister {
	return DependentListerFn(func(_ context.Context, _ client.Reader, o client.Object) ([]Dependent, error) {
		content, err := contentOf(o)
		if err != nil {
			return nil, err
		}
		var out []Dependent

		for _, path := range []string{"spec.crossplane.resourceRefs", "spec.resourceRefs"} {
			var refs []corev1.ObjectReference
			if err := fieldpath.Pave(content).GetValueInto(path, &refs); fieldpath.IsNotFound(err) {
				continue
			} else if err != nil {
				return out, errors.Wrapf(err, "cannot read %s", path)
			}

			for _, ref := range refs {
				if ref.Name == "" {
					continue
				}
				d := dependentOf(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name)
				d.Owner = o.GetUID()

				// A namespaced composite resource composes only in its own
				// namespace. Its references need not say so, and must not
				// say otherwise.
				if o.GetNamespace() != "" {
					d.Namespace = o.GetNamespace()
				}
				out = append(out, d)
			}
		}
		return out, nil
	})
}

// CompositeOfClaim lists the composite resource that a claim refers to, if it is
// of one of the supplied kinds: pass the kind that the claim's XRD defines. It makes
// no requests.
//
// A user writes the claim, so its reference gives no access to another claim's
// composite resource. The report quotes only one whose spec.claimRef names this
// very claim. It says "not bound" of any other, and of one of another kind.
//
// It panics without a kind, and if one is empty.
func CompositeOfClaim(of ...schema.GroupVersionKind) DependentLister {
	mustBeKinds(of, "reconciler.CompositeOfClaim")
	return compositeOfClaim{kinds: of}
}

func mustBeKinds(kinds []schema.GroupVersionKind, option string) {
	if len(kinds) == 0 || slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == "" }) {
		panic(errors.Errorf("%s was given no kind, or an empty one: pass group, version and kind of each", option))
	}
}

// errNotBound means that a claim refers to a composite resource that can't be its
// own.
var errNotBound = errors.New("not bound to this claim")

type compositeOfClaim struct {
	kinds []schema.GroupVersionKind
}

// ListDependents of a claim.
func (l compositeOfClaim) ListDependents(_ context.Context, _ client.Reader, o client.Object) ([]Dependent, error) {
	content, err := contentOf(o)
	if err != nil {
		return nil, err
	}
	ref := corev1.ObjectReference{}
	if err := fieldpath.Pave(content).GetValueInto("spec.resourceRef", &ref); fieldpath.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, errors.Wrap(err, "cannot read spec.resourceRef")
	}

	if ref.Name == "" {
		return nil, nil
	}
	d := dependentOf(ref.APIVersion, ref.Kind, "", ref.Name)
	// The version is the configured one: reading another would start a watch.
	i := slices.IndexFunc(l.kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == d.GroupKind() })
	if i < 0 {
		return nil, errNotBound
	}
	d.GroupVersionKind = l.kinds[i]
	return []Dependent{d}, nil
}

// binds reports whether the composite resource u is bound to the claim o.
func (l compositeOfClaim) binds(o client.Object, u *unstructured.Unstructured) bool {
	ref := corev1.ObjectReference{}
	if err := fieldpath.Pave(u.Object).GetValueInto("spec.claimRef", &ref); err != nil {
		return false
	}
	return u.GetNamespace() == "" &&
		ref.GroupVersionKind().GroupKind() == o.GetObjectKind().GroupVersionKind().GroupKind() &&
		ref.Namespace == o.GetNamespace() && ref.Name == o.GetName() &&
		(ref.UID == "" || ref.UID == o.GetUID())
}

// OwnedObjects lists the objects of the supplied kinds that have an owner
// reference to the object: in its namespace, or in all if it has none. It lists
// each kind once. Objects that no longer exist can't be listed, so the report
// counts from those that it saw first. It describes those that the object controls,
// and only names the others. It panics without a kind, and if one is empty.
func OwnedObjects(kinds ...schema.GroupVersionKind) DependentLister {
	mustBeKinds(kinds, "reconciler.OwnedObjects")
	return DependentListerFn(func(ctx context.Context, c client.Reader, o client.Object) ([]Dependent, error) {
		var (
			out  []Dependent
			errs []error
		)

		for _, gvk := range kinds {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))

			if err := c.List(ctx, l, client.InNamespace(o.GetNamespace())); err != nil {
				errs = append(errs, errors.Wrapf(err, "cannot list %s", gvk.Kind))
				continue
			}
			for i := range l.Items {
				for _, ref := range l.Items[i].GetOwnerReferences() {
					if ref.UID == o.GetUID() {
						out = append(out, Dependent{
							GroupVersionKind: gvk,
							NamespacedName:   client.ObjectKeyFromObject(&l.Items[i]),
						})
						break
					}
				}
			}
		}
		return out, stderrors.Join(errs...)
	})
}

func dependentOf(apiVersion, kind, namespace, name string) Dependent {
	return Dependent{
		GroupVersionKind: schema.FromAPIVersionAndKind(apiVersion, kind),
		NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
	}
}

// contentOf returns the content of an object of any type.
func contentOf(o client.Object) (map[string]any, error) {
	if u, ok := o.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}
