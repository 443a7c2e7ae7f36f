package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

	Object   identity `json:"object"`
	InTheWay []node   `json:"inTheWay,omitempty"`

	// Others is how many further objects are not in its way.
	Others int `json:"others,omitempty"`

	// More is how many further objects are in its way, and not shown.
	More int `json:"more,omitempty"`

	// name of the object for commands, with its kind.
	name string

	missing bool
}

// An identity of an object.
type identity struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

// An inspection examines an object and those around it, as far as the user may read them.
type inspection struct {
	*plugin

	cluster *cluster.Cluster
	usages  *usages

	mu        sync.Mutex
	forbidden []string
}

// examine an object. Above are the objects that led to it.
func (i *inspection) examine(ctx context.Context, o object, above []types.UID) node {
	n := node{Diagnosis: diagnosis.Of(o.Unstructured, i.targetOf(o), i.now()), Object: identityOf(o)}
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
	cluster.Each(below, func(at int, l link) {
		found[at] = i.reached(ctx, l, deleting, append(slices.Clone(above), o.GetUID()))
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

// A link leads from an object to another.
type link struct {
	diagnosis.Reference

	// read is the object, if it was read already.
	read *object
}

// below returns the objects that may be in the way of o.
func (i *inspection) below(ctx context.Context, o object) []link {
	deleting := o.GetDeletionTimestamp() != nil

	switch gk := o.kind.GroupKind(); {
	case o.kind.In(cluster.Claim, cluster.Composite):
		return linksTo(diagnosis.ResourceReferences(o.Unstructured))
	case deleting && gk == kindNamespace:
		return i.held(ctx, i.cluster.InNamespaces(), o.GetName())
	case deleting && gk == kindCRD, deleting && gk == kindXRD:
		return i.held(ctx, i.defined(o), "")
	case deleting && slices.Contains(o.GetFinalizers(), diagnosis.FinalizerConfig):
		return i.users(ctx, o)
	default:
		return nil
	}
}

// reached returns the node at the end of a link from an object that is being deleted, or
// not.
func (i *inspection) reached(ctx context.Context, l link, deleting bool, above []types.UID) node {
	if l.read == nil {
		o, unread := i.follow(ctx, l.Reference)
		if unread != nil {
			return *unread
		}
		l.read = &o
	}
	n := i.examine(ctx, *l.read, above)
	if deleting && n.State == diagnosis.Ready {
		n.State, n.Message, n.Since = diagnosis.NotReady, "Its deletion was not requested yet.", nil
		if l.read.GetLabels()[diagnosis.LabelInUse] == "true" {
			n.State, n.Reason, n.Guess = diagnosis.Stopped, diagnosis.ReasonBlockedByProtection, true
		}
	}
	return n
}

// follow reads the object of a reference. If that fails it returns a node with the reason.
func (i *inspection) follow(ctx context.Context, r diagnosis.Reference) (object, *node) {
	n := &node{
		Object: identity{APIVersion: r.GroupVersion().String(), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name},
	}
	n.State = diagnosis.Unknown
	k, ok := i.cluster.Of(r.GroupKind())
	if !ok {
		n.Message = "The API server has no such kind. If its CRD was deleted, so was the object."
		return object{}, n
	}
	if !k.Namespaced {
		n.Object.Namespace = ""
	}
	o, err := i.cluster.Get(ctx, k, r.Namespace, r.Name)
	switch {
	case kerrors.IsNotFound(err):
		n.Message, n.missing = "It does not exist.", true
	case kerrors.IsForbidden(err):
		n.Message = "You may not read it."
	case err != nil:
		n.Message = "It cannot be read: " + sentence(err)
	default:
		return object{Unstructured: o, kind: k}, nil
	}
	return object{}, n
}

// held returns the objects of the kinds that finalizers hold although their deletion was
// requested, or that have not been deleted yet.
func (i *inspection) held(ctx context.Context, kinds []cluster.Kind, namespace string) []link {
	items, unread := i.cluster.List(ctx, kinds, namespace, nil)
	for _, u := range unread {
		i.unreadable(u.Kind, u.Err)
	}
	var out []link
	for _, it := range items {
		if len(it.Finalizers) > 0 {
			r := diagnosis.Reference{GroupVersionKind: it.Kind.GroupVersionKind, Namespace: it.Namespace, Name: it.Name}
			out = append(out, link{Reference: r})
		}
	}
	return out
}

// defined returns the kinds that a CRD or an XRD defines.
func (i *inspection) defined(o object) []cluster.Kind {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")

	var out []cluster.Kind
	for _, names := range []string{"names", "claimNames"} {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", names, "kind")
		if k, ok := i.cluster.Of(schema.GroupKind{Group: group, Kind: kind}); ok {
			out = append(out, k)
		}
	}
	return out
}

// users returns the managed resources that use a ProviderConfig.
func (i *inspection) users(ctx context.Context, config object) []link {
	var out []link
	for _, k := range i.cluster.OfGroup(config.kind.Group) {
		if !strings.HasSuffix(k.Kind, "ProviderConfigUsage") {
			continue
		}
		list, err := i.cluster.Objects(ctx, k, config.GetNamespace())
		if err != nil {
			i.unreadable(k, err)
		}
		for _, u := range list {
			to, _, _ := unstructured.NestedString(u.Object, "providerConfigRef", "name")
			kind, _, _ := unstructured.NestedString(u.Object, "providerConfigRef", "kind")
			if to != config.GetName() || kind != "" && kind != config.GetKind() {
				continue
			}
			if r, ok := diagnosis.ReferenceOf(u.Object["resourceRef"]); ok {
				r.Namespace = u.GetNamespace()
				out = append(out, link{Reference: r})
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
	i.mu.Lock()
	defer i.mu.Unlock()
	text := k.String()
	if !kerrors.IsForbidden(err) {
		text += " (" + sentence(err) + ")"
	}
	if !slices.Contains(i.forbidden, text) {
		i.forbidden = append(i.forbidden, text)
	}
}

// warn says which kinds could not be read.
func (i *inspection) warn(w io.Writer) {
	if len(i.forbidden) == 0 {
		return
	}
	slices.Sort(i.forbidden)
	fmt.Fprintf(w, "You may not read these, which may explain more: %s.\n", strings.Join(i.forbidden, ", "))
}

func linksTo(refs []diagnosis.Reference) []link {
	out := make([]link, 0, len(refs))
	for _, r := range refs {
		out = append(out, link{Reference: r})
	}
	return out
}

func identityOf(o object) identity {
	return identity{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}
