package reconciler

import (
	"context"
	stderrors "errors"

	"github.com/crossplane/crossplane-runtime/v2/pkg/fieldpath"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Dependent is an object that has to go before the one that depends on it can.
type Dependent struct {
	schema.GroupVersionKind
	types.NamespacedName

	// Owner is the UID that the controlling owner of the dependent must have
	// for it to count, if it has one. An object that somebody else controls has
	// taken the name. Empty: it counts whoever controls it.
	Owner types.UID
}

// A DependentLister lists what the deletion of an object waits for, whether it
// still exists or not. The reader is the client's, and reads from its cache.
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
				// namespace, and its references need not say so.
				if d.Namespace == "" {
					d.Namespace = o.GetNamespace()
				}

				out = append(out, d)
			}
		}

		return out, nil
	})
}

// CompositeOfClaim lists the composite resource that a claim refers to. It makes
// no requests.
func CompositeOfClaim() DependentLister {
	return DependentListerFn(func(_ context.Context, _ client.Reader, o client.Object) ([]Dependent, error) {
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

		return []Dependent{dependentOf(ref.APIVersion, ref.Kind, "", ref.Name)}, nil
	})
}

// OwnedObjects lists the objects of the supplied kinds that have an owner
// reference to the object: in its namespace, or in all if it has none. It lists
// each kind once. Objects that are gone can't be listed, so that the report
// counts from those it saw first.
func OwnedObjects(kinds ...schema.GroupVersionKind) DependentLister {
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
						out = append(out, Dependent{GroupVersionKind: gvk, NamespacedName: client.ObjectKeyFromObject(&l.Items[i])})
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

// contentOf returns the content of an object of whatever type.
func contentOf(o client.Object) (map[string]any, error) {
	if u, ok := o.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}

	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}
