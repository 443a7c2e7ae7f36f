package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
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

	name string // Of the object for commands, with its kind.
}

// diagnose an object, from nothing else.
func (p *plugin) diagnose(o object) node {
	kind := diagnosis.Kind{Managed: o.kind.In(cluster.Managed)}
	kind.ReportsReady = kind.Managed || o.kind.In(cluster.Composite, cluster.Claim)
	return node{
		Diagnosis: diagnosis.Of(o.Unstructured, p.targetOf(o), kind, p.now()),
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
	visits map[place]func() (*visit, error)
}

// lists returns what lists the objects that may be in the way of o, or nil.
func (i *inspection) lists(o object) func(ctx context.Context) []corev1.ObjectReference {
	switch gk := o.kind.GroupKind(); {
	case !o.deleted():
	case gk == kindNamespace:
		all := func(k cluster.Kind) bool { return k.Resource.Namespaced && k.Allows("list") && k.Allows("delete") }
		return func(ctx context.Context) []corev1.ObjectReference {
			return i.held(ctx, i.cluster.Where(all), o.GetName())
		}
	case gk == kindCRD, gk == kindXRD:
		group, kinds := diagnosis.Field(o.Object, "spec", "group"), map[schema.GroupKind]bool{}
		for _, names := range []string{"names", "claimNames"} {
			kinds[schema.GroupKind{Group: group, Kind: diagnosis.Field(o.Object, "spec", names, "kind")}] = true
		}
		return func(ctx context.Context) []corev1.ObjectReference { return i.held(ctx, i.cluster.Among(kinds), "") }
	case slices.Contains(o.GetFinalizers(), diagnosis.FinalizerConfig):
		return func(ctx context.Context) []corev1.ObjectReference { return i.users(ctx, o) }
	}
	return nil
}

// held returns the objects of the kinds that have finalizers: only those can be in the way of a deletion.
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
	name := k.String()
	if !kerrors.IsForbidden(err) {
		name += " (" + sentence(err) + ")"
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unread = append(i.unread, name)
}

// warn says which kinds could not be read.
func (i *inspection) warn() {
	if slices.Sort(i.unread); len(i.unread) > 0 {
		fmt.Fprintf(i.streams.ErrOut, "You may not read these, which may explain more: %s.\n",
			strings.Join(slices.Compact(i.unread), ", "))
	}
}

// Kinds that decide about others.
//
//nolint:gochecknoglobals // They are read only.
var (
	kindNamespace = schema.GroupKind{Kind: "Namespace"}
	kindCRD       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	kindXRD       = schema.GroupKind{Group: "apiextensions.crossplane.io", Kind: "CompositeResourceDefinition"}
	kindRevision  = schema.GroupKind{Group: "pkg.crossplane.io", Kind: "ProviderRevision"}
)

// surroundings adds to the node of an object what others tell about it.
func (i *inspection) surroundings(ctx context.Context, o object, n *node) {
	if n.State == diagnosis.Ready {
		return
	}
	if owner := metav1.GetControllerOf(o); owner != nil && o.kind.In(cluster.Managed) && n.State != diagnosis.Deleting {
		n.Note("%s/%s composes it, and creates it again if it is deleted.", owner.Kind, owner.Name)
	}
	if n.State == diagnosis.Deleting && o.GetNamespace() != "" {
		if ns, _ := i.look(ctx, kindNamespace, "", o.GetNamespace()); ns != nil && ns.deleted != nil {
			n.Note("Its namespace is terminating since %s: nothing can be created there.", text.Stamp(ns.deleted.Time))
		}
	}
	if o.kind.In(cluster.Managed) {
		i.provider(ctx, o, n)
		i.config(ctx, o, n)
	}
}

// provider notes that the definition of a kind is being deleted, or that its provider does not run.
func (i *inspection) provider(ctx context.Context, o object, n *node) {
	crd, _ := i.look(ctx, kindCRD, "", o.kind.String())
	if crd == nil {
		return
	}
	if crd.deleted != nil {
		n.Note("The definition of its kind is being deleted since %s, and all objects with it.",
			text.Stamp(crd.deleted.Time))
	}
	owner := crd.controller
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kindRevision {
		return
	}
	revision, missing := i.look(ctx, kindRevision, "", owner.Name)
	switch {
	case missing:
		n.Guessed("Its provider is not installed any more (ProviderRevision %s does not exist): nothing acts on it.",
			owner.Name)
	case revision != nil && revision.State != diagnosis.Ready:
		n.Guessed("Its provider does not run: ProviderRevision %s is not healthy.", owner.Name)
	}
}

// config notes that the ProviderConfig of a managed resource does not exist, or is being deleted.
func (i *inspection) config(ctx context.Context, o object, n *node) {
	name := diagnosis.Field(o.Object, "spec", "providerConfigRef", "name")
	kind := cmp.Or(diagnosis.Field(o.Object, "spec", "providerConfigRef", "kind"), "ProviderConfig")
	if name == "" {
		return
	}

	// The reference has no group. It is the provider's, and usually the end of the managed resource's group.
	in := i.cluster.Where(func(k cluster.Kind) bool {
		return k.Kind == kind && strings.HasSuffix("."+o.kind.Group, "."+k.Group)
	})
	if len(in) != 1 {
		return
	}
	config, missing := i.look(ctx, in[0].GroupKind(), o.GetNamespace(), name)
	switch {
	case missing:
		n.Note("Its %s %q does not exist.", kind, name)
	case config != nil && config.deleted != nil:
		n.Note("Its %s %q is being deleted since %s.", kind, name, text.Stamp(config.deleted.Time))
	}
}

// protection notes which Usages protect an object. With deleted it also advises to delete them.
func (i *inspection) protection(n *node, deleted bool) {
	list, err := i.usages()
	found := false
	for _, u := range list {
		of, _, _ := unstructured.NestedMap(u.Object, "spec", "of")
		if !concerns(of, u.GetNamespace(), n.Object) {
			continue
		}
		reason := cmp.Or(diagnosis.Field(u.Object, "spec", "reason"), "it gives no reason")
		if by, _, _ := unstructured.NestedMap(u.Object, "spec", "by"); by != nil {
			reason = fmt.Sprintf("%v/%s uses it", by["kind"], diagnosis.Field(by, "resourceRef", "name"))
		}
		n.Note("%s protects it: %s.", u, reason)
		if deleted {
			n.Advise("Delete what uses it, or the Usage.", "kubectl delete "+i.targetOf(u))
		}
		found = true
	}
	if !found && err == nil {
		n.Guessed("Its label %s says that a Usage protects it, but none names it.", diagnosis.LabelInUse)
	}
}

// concerns reports whether a reference of a Usage in a namespace names o.
func concerns(of map[string]any, namespace string, o corev1.ObjectReference) bool {
	gvk := schema.FromAPIVersionAndKind(diagnosis.Field(of, "apiVersion"), diagnosis.Field(of, "kind"))
	in := cmp.Or(diagnosis.Field(of, "resourceRef", "namespace"), namespace)
	return gvk.GroupKind() == o.GroupVersionKind().GroupKind() &&
		diagnosis.Field(of, "resourceRef", "name") == o.Name && (o.Namespace == "" || in == "" || in == o.Namespace)
}

// look visits an object that explains others. It returns nil if the object is missing or can't be read.
func (i *inspection) look(ctx context.Context, gk schema.GroupKind, namespace, name string) (v *visit, missing bool) {
	v, err := i.visit(ctx, place{gk, namespace, name})
	switch {
	case err == nil:
		return v, false
	case !errors.Is(err, errNoKind):
		k, ok := i.cluster.Of(gk)
		if !ok {
			k = undescribed(gk).Kind
		}
		i.unreadable(k, err)
	}
	return nil, kerrors.IsNotFound(err)
}

// readUsages returns the Usages of the cluster. An error says that some could not be read.
func (i *inspection) readUsages(ctx context.Context) (all []object, failed error) {
	for _, k := range i.cluster.Where(func(k cluster.Kind) bool {
		return (k.Group == "protection.crossplane.io" || k.Group == "apiextensions.crossplane.io") &&
			(k.Kind == "Usage" || k.Kind == "ClusterUsage")
	}) {
		list, err := i.cluster.Objects(ctx, k, "")
		if err != nil {
			i.unreadable(k, err)
			failed = err
		}
		for n := range list {
			all = append(all, object{Unstructured: &list[n], kind: k})
		}
	}
	return all, failed
}
