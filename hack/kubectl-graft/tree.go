package main

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// A visit has the results of reading one object, without the objects in its way.
type visit struct {
	node

	inUse   bool // A Usage protects it.
	deleted *metav1.Time

	// The owners that the object names: its controller, and the claim of a composite.
	controller *metav1.OwnerReference
	claim      corev1.ObjectReference

	// Objects that may be in its way: those that it names in its spec, which a user may write, or else a list.
	named []corev1.ObjectReference
	lists func(ctx context.Context) []corev1.ObjectReference
}

// owns reports whether an object that v names is its own, and not another's.
func (v *visit) owns(other *visit) bool {
	return other.controller != nil && other.controller.UID == v.Object.UID ||
		placeOf(other.claim) == placeOf(v.Object) && cmp.Or(other.claim.UID, v.Object.UID) == v.Object.UID
}

// visit the object of a place, which is read once.
func (i *inspection) visit(ctx context.Context, at place) (*visit, error) {
	if k, ok := i.cluster.Of(at.GroupKind); ok && !k.Resource.Namespaced {
		at.namespace = ""
	}
	i.mu.Lock()
	read := i.visits[at]
	if read == nil {
		read = sync.OnceValues(func() (*visit, error) {
			o, err := i.follow(ctx, at.GroupKind, at.namespace, at.name)
			if err != nil {
				return nil, err
			}
			return i.see(ctx, o), nil
		})
		i.visits[at] = read
	}
	i.mu.Unlock()
	return read()
}

// root examines the object at the root of a tree.
func (i *inspection) root(ctx context.Context, o object) node {
	i.usages = sync.OnceValues(func() ([]object, error) { return i.readUsages(ctx) })
	i.visits = map[place]func() (*visit, error){}
	v := i.see(ctx, o)
	i.visits[placeOf(v.Object)] = func() (*visit, error) { return v, nil } //nolint:unparam // Others fail.
	return i.examine(ctx, v, nil)
}

// see returns the visit of an object that was read.
func (i *inspection) see(ctx context.Context, o object) *visit {
	v := &visit{
		node: i.diagnose(o), inUse: o.GetLabels()[diagnosis.LabelInUse] == "true", deleted: o.GetDeletionTimestamp(),
		controller: metav1.GetControllerOf(o), claim: diagnosis.ClaimOf(o.Unstructured),
	}
	if o.kind.In(cluster.Claim, cluster.Composite) {
		v.named = diagnosis.ResourceReferences(o.Unstructured)
	} else if v.State != diagnosis.Ready {
		v.lists = i.lists(o)
	}
	i.surroundings(ctx, o, &v.node)
	return v
}

// examine the object of a visit and those that may be in its way. Above are the visits that led to it.
func (i *inspection) examine(ctx context.Context, v *visit, above []*visit) node {
	n := v.node
	n.Notes, n.Advice = slices.Clip(n.Notes), slices.Clip(n.Advice)
	if slices.Contains(above, v) {
		n.Note("It is shown above: the references are circular.")
		return n
	}
	above = append(slices.Clip(above), v)
	if v.inUse {
		i.protection(&n, slices.ContainsFunc(above, func(a *visit) bool { return a.deleted != nil }))
	}
	references := v.named
	if v.lists != nil {
		references = v.lists(ctx)
	}
	found := make([]reached, len(references))
	cluster.Each(references, func(at int, r corev1.ObjectReference) { found[at] = i.reach(ctx, r, above) })
	for _, c := range found {
		switch {
		case c.missing && v.deleted != nil:
		case c.foreign:
			n.Note("It refers to %s, which it does not control.", nameOf(c.Object))
		case c.State == diagnosis.Ready:
			n.Others++
		case len(n.InTheWay) == maxInTheWay:
			n.More++
		default:
			n.InTheWay = append(n.InTheWay, c.node)
		}
	}
	return n
}

// A reached node is at the end of a reference. If its object can't be read, it says why.
type reached struct {
	node

	missing bool
	foreign bool // The object that refers to it does not own it. Nothing else is told of it.
}

// reach the object of a reference of the last of the visits.
func (i *inspection) reach(ctx context.Context, r corev1.ObjectReference, above []*visit) reached {
	from := above[len(above)-1]
	v, err := i.visit(ctx, placeOf(r))
	if err == nil && from.lists == nil && !from.owns(v) {
		return reached{node: node{Object: v.Object}, foreign: true}
	}
	if err == nil {
		n := i.examine(ctx, v, above)
		silent := n.State == diagnosis.NotReady && n.Reason == ""
		if from.deleted != nil && (n.State == diagnosis.Ready || silent) {
			n.State, n.Message, n.Since = diagnosis.NotReady, "Its deletion was not requested yet.", nil
			n.Guess = false
			if v.inUse {
				n.State, n.Reason, n.Guess = diagnosis.Stopped, diagnosis.ReasonBlockedByProtection, true
			}
		}
		return reached{node: n}
	}

	n := node{Object: corev1.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name}}
	if k, ok := i.cluster.Of(r.GroupVersionKind().GroupKind()); !ok || k.Resource.Namespaced {
		n.Object.Namespace = r.Namespace
	}
	n.State = diagnosis.Unknown
	switch {
	case errors.Is(err, errNoKind):
		n.Message = "The API server has no such kind. If its CRD was deleted, so was the object."
	case kerrors.IsNotFound(err):
		n.Message = "It does not exist."
	case kerrors.IsForbidden(err):
		n.Message = "You may not read it."
	default:
		n.Message = "It cannot be read: " + sentence(err)
	}
	return reached{node: n, missing: kerrors.IsNotFound(err)}
}
