package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// maxInTheWay is how many objects are shown below one.
const maxInTheWay = 100

// A node is an object, how it is, and the objects in its way.
type node struct {
	diagnosis.Diagnosis

	Object   corev1.ObjectReference `json:"object"`
	InTheWay []node                 `json:"inTheWay,omitempty"`
	Others   int                    `json:"others,omitempty"` // Further objects that are not in its way.
	More     int                    `json:"more,omitempty"`   // Further objects in its way that are not shown.

	name    string // Of the object for commands, with its kind.
	missing bool
}

// diagnose an object, from nothing else.
func (p *plugin) diagnose(o object) node {
	return node{
		Diagnosis: diagnosis.Of(o.Unstructured, p.targetOf(o), p.now()),
		Object:    o.reference(),
		name:      o.kind.String() + "/" + o.GetName(),
	}
}

// An inspection examines an object and those around it, as far as the user may read them.
type inspection struct {
	*plugin

	usages func() ([]object, error) // The Usages of the cluster, which are read once.

	mu     sync.Mutex
	unread []string
}

// examine an object. Above are the objects that led to it.
func (i *inspection) examine(ctx context.Context, o object, above []types.UID) node {
	n := i.diagnose(o)
	if slices.Contains(above, o.GetUID()) {
		n.Note("It is shown above: the references are circular.")
		return n
	}
	i.surroundings(ctx, o, &n)
	if n.State == diagnosis.Ready && !o.kind.In(cluster.Composite, cluster.Claim) {
		return n
	}

	below := i.below(ctx, o)
	deleting := o.GetDeletionTimestamp() != nil
	found := make([]node, len(below))
	cluster.Each(below, func(at int, r corev1.ObjectReference) {
		found[at] = i.reached(ctx, r, deleting, append(slices.Clone(above), o.GetUID()))
	})
	for _, c := range found {
		switch {
		case c.missing && deleting:
		case c.State == diagnosis.Ready:
			n.Others++
		case len(n.InTheWay) == maxInTheWay:
			n.More++
		default:
			n.InTheWay = append(n.InTheWay, c)
		}
	}
	return n
}

// below returns the objects that may be in the way of o.
func (i *inspection) below(ctx context.Context, o object) []corev1.ObjectReference {
	deleting := o.GetDeletionTimestamp() != nil

	switch gk := o.kind.GroupKind(); {
	case o.kind.In(cluster.Claim, cluster.Composite):
		return diagnosis.ResourceReferences(o.Unstructured)
	case deleting && gk == kindNamespace:
		all := func(k cluster.Kind) bool { return k.Resource.Namespaced && k.Allows("list") && k.Allows("delete") }
		return i.held(ctx, i.cluster.Where(all), o.GetName())
	case deleting && gk == kindCRD, deleting && gk == kindXRD:
		group, kinds := diagnosis.Field(o.Object, "spec", "group"), map[schema.GroupKind]bool{}
		for _, names := range []string{"names", "claimNames"} {
			kinds[schema.GroupKind{Group: group, Kind: diagnosis.Field(o.Object, "spec", names, "kind")}] = true
		}
		return i.held(ctx, i.cluster.Among(kinds), "")
	case deleting && slices.Contains(o.GetFinalizers(), diagnosis.FinalizerConfig):
		return i.users(ctx, o)
	default:
		return nil
	}
}

// reached returns the node at the end of a reference from an object that is being deleted, or
// not. If the object can't be read, the node has the reason.
func (i *inspection) reached(ctx context.Context, r corev1.ObjectReference, deleting bool, above []types.UID) node {
	o, err := i.follow(ctx, r.GroupVersionKind().GroupKind(), r.Namespace, r.Name)
	if err == nil {
		n := i.examine(ctx, o, above)
		if deleting && n.State == diagnosis.Ready {
			n.State, n.Message, n.Since = diagnosis.NotReady, "Its deletion was not requested yet.", nil
			if o.GetLabels()[diagnosis.LabelInUse] == "true" {
				n.State, n.Reason, n.Guess = diagnosis.Stopped, diagnosis.ReasonBlockedByProtection, true
			}
		}
		return n
	}

	n := node{Object: corev1.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name}}
	if o.kind.Resource.Namespaced || errors.Is(err, errNoKind) {
		n.Object.Namespace = r.Namespace
	}
	n.State = diagnosis.Unknown
	switch {
	case errors.Is(err, errNoKind):
		n.Message = "The API server has no such kind. If its CRD was deleted, so was the object."
	case kerrors.IsNotFound(err):
		n.Message, n.missing = "It does not exist.", true
	case kerrors.IsForbidden(err):
		n.Message = "You may not read it."
	default:
		n.Message = "It cannot be read: " + sentence(err)
	}
	return n
}

// held returns the objects of the kinds that finalizers hold although their deletion was
// requested, or that have not been deleted yet.
func (i *inspection) held(ctx context.Context, kinds []cluster.Kind, namespace string) []corev1.ObjectReference {
	items, unread := i.cluster.List(ctx, kinds, namespace, nil)
	for _, u := range unread {
		i.unreadable(u.Kind, u.Err)
	}
	var out []corev1.ObjectReference
	for _, it := range items {
		if len(it.Finalizers) > 0 {
			out = append(out, it.Reference())
		}
	}
	return out
}

// users returns the managed resources that use a ProviderConfig.
func (i *inspection) users(ctx context.Context, config object) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, k := range i.cluster.Where(func(k cluster.Kind) bool {
		return k.Group == config.kind.Group && strings.HasSuffix(k.Kind, "ProviderConfigUsage") && k.Allows("list")
	}) {
		list, err := i.cluster.Objects(ctx, k, config.GetNamespace())
		if err != nil {
			i.unreadable(k, err)
		}
		for _, u := range list {
			kind := diagnosis.Field(u.Object, "providerConfigRef", "kind")
			if diagnosis.Field(u.Object, "providerConfigRef", "name") != config.GetName() ||
				kind != "" && kind != config.GetKind() {
				continue
			}
			if r, ok := diagnosis.ReferenceOf(u.Object["resourceRef"]); ok {
				r.Namespace = u.GetNamespace()
				out = append(out, r)
			}
		}
	}
	return out
}

// unreadable notes that a kind can't be read.
func (i *inspection) unreadable(k cluster.Kind, err error) {
	if kerrors.IsNotFound(err) || kerrors.IsMethodNotSupported(err) {
		return
	}
	text := k.String()
	if !kerrors.IsForbidden(err) {
		text += " (" + sentence(err) + ")"
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unread = append(i.unread, text)
}

// warn says which kinds could not be read.
func (i *inspection) warn() {
	if slices.Sort(i.unread); len(i.unread) > 0 {
		fmt.Fprintf(i.streams.ErrOut, "You may not read these, which may explain more: %s.\n",
			strings.Join(slices.Compact(i.unread), ", "))
	}
}
