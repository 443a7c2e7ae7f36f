package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// Kinds that decide about others.
//
//nolint:gochecknoglobals // They are read only.
var (
	kindNamespace = schema.GroupKind{Kind: "Namespace"}
	kindCRD       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	kindXRD       = schema.GroupKind{Group: "apiextensions.crossplane.io", Kind: "CompositeResourceDefinition"}
	kindRevision  = schema.GroupKind{Group: "pkg.crossplane.io", Kind: "ProviderRevision"}
)

// surroundings adds to a node what other objects tell about it.
func (i *inspection) surroundings(ctx context.Context, o object, n *node) {
	if o.GetLabels()[diagnosis.LabelInUse] == "true" {
		i.protection(ctx, o, n)
	}
	if n.State == diagnosis.Ready {
		return
	}
	if owner := metav1.GetControllerOf(o); owner != nil && o.kind.In(cluster.Managed) && n.State != diagnosis.Deleting {
		n.Note("%s/%s composes it, and creates it again if it is deleted.", owner.Kind, owner.Name)
	}
	if n.State == diagnosis.Deleting && o.GetNamespace() != "" {
		i.namespace(ctx, o, n)
	}
	if o.kind.In(cluster.Managed) {
		i.provider(ctx, o, n)
		i.config(ctx, o, n)
	}
}

// namespace notes that the namespace of an object is terminating.
func (i *inspection) namespace(ctx context.Context, o object, n *node) {
	ns, ok := i.look(ctx, kindNamespace, "", o.GetNamespace())
	if ok && ns != nil && ns.GetDeletionTimestamp() != nil {
		n.Note("Its namespace is terminating since %s: nothing can be created there.",
			stamp(ns.GetDeletionTimestamp().Time))
	}
}

// provider notes that the definition of a kind is being deleted, or that its provider does
// not run.
func (i *inspection) provider(ctx context.Context, o object, n *node) {
	crd, ok := i.look(ctx, kindCRD, "", o.kind.String())
	if !ok || crd == nil {
		return
	}
	if at := crd.GetDeletionTimestamp(); at != nil {
		n.Note("The definition of its kind is being deleted since %s, and all objects with it.", stamp(at.Time))
	}
	for _, r := range crd.GetOwnerReferences() {
		of := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
		if of != kindRevision || r.Controller == nil || !*r.Controller {
			continue
		}
		revision, ok := i.look(ctx, kindRevision, "", r.Name)
		if !ok {
			continue
		}
		switch {
		case revision == nil:
			n.Guessed(
				"Its provider is not installed any more (ProviderRevision %s does not exist): nothing acts on it.",
				r.Name,
			)
		case diagnosis.Of(revision.Unstructured, "", i.now()).State != diagnosis.Ready:
			n.Guessed("Its provider does not run: ProviderRevision %s is not healthy.", r.Name)
		}
	}
}

// config notes that the ProviderConfig of a managed resource does not exist, or is being
// deleted.
func (i *inspection) config(ctx context.Context, o object, n *node) {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "providerConfigRef", "name")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "providerConfigRef", "kind")
	if kind == "" {
		kind = "ProviderConfig"
	}
	if name == "" {
		return
	}

	// The reference has no group. It is the provider's, and usually the end of the managed
	// resource's group.
	var in []cluster.Kind
	for group := o.kind.Group; group != ""; _, group, _ = strings.Cut(group, ".") {
		if k, ok := i.cluster.Of(schema.GroupKind{Group: group, Kind: kind}); ok {
			in = append(in, k)
		}
	}
	if len(in) != 1 {
		return
	}
	config, ok := i.look(ctx, in[0].GroupKind(), o.GetNamespace(), name)
	switch {
	case !ok:
	case config == nil:
		n.Note("Its %s %q does not exist.", kind, name)
	case config.GetDeletionTimestamp() != nil:
		n.Note("Its %s %q is being deleted since %s.", kind, name, stamp(config.GetDeletionTimestamp().Time))
	}
}

// protection notes which Usages protect an object.
func (i *inspection) protection(ctx context.Context, o object, n *node) {
	list, err := i.usages.of(ctx, i, o)
	for _, u := range list {
		n.Note("%s protects it: %s.", u.name, u.reason)
		n.Advise("Delete what uses it, or the Usage.", "kubectl delete "+u.target)
	}
	if len(list) == 0 && err == nil {
		n.Guessed("Its label %s says that a Usage protects it, but none names it.", diagnosis.LabelInUse)
	}
}

// look reads an object that explains another. ok is false if it is unknown whether it
// exists.
func (i *inspection) look(ctx context.Context, gk schema.GroupKind, namespace, name string) (o *object, ok bool) {
	k, ok := i.cluster.Of(gk)
	if !ok {
		return nil, false
	}
	u, err := i.cluster.Get(ctx, k, namespace, name)
	switch {
	case kerrors.IsNotFound(err):
		return nil, true
	case err != nil:
		i.unreadable(k, err)
		return nil, false
	}
	return &object{Unstructured: u, kind: k}, true
}

// usages are the Usages of the cluster, which are read once.
type usages struct {
	kinds []cluster.Kind

	once sync.Once
	all  []object
	err  error
}

func newUsages(c *cluster.Cluster) *usages {
	u := &usages{}
	for _, group := range []string{"protection.crossplane.io", "apiextensions.crossplane.io"} {
		for _, kind := range []string{"Usage", "ClusterUsage"} {
			if k, ok := c.Of(schema.GroupKind{Group: group, Kind: kind}); ok {
				u.kinds = append(u.kinds, k)
			}
		}
	}
	return u
}

// A usage protects an object.
type usage struct{ name, target, reason string }

// of returns the Usages that protect an object. An error says that some could not be read.
func (us *usages) of(ctx context.Context, i *inspection, o object) ([]usage, error) {
	us.once.Do(func() {
		for _, k := range us.kinds {
			list, err := i.cluster.Objects(ctx, k, "")
			if err != nil {
				i.unreadable(k, err)
				us.err = err
			}
			for n := range list {
				us.all = append(us.all, object{Unstructured: &list[n], kind: k})
			}
		}
	})

	var out []usage
	for _, u := range us.all {
		of, _, _ := unstructured.NestedMap(u.Object, "spec", "of")
		if !concerns(of, u.GetNamespace(), o) {
			continue
		}
		reason, _, _ := unstructured.NestedString(u.Object, "spec", "reason")
		if by, _, _ := unstructured.NestedMap(u.Object, "spec", "by"); by != nil {
			reason = fmt.Sprintf("%v/%s uses it", by["kind"], nameIn(by))
		}
		if reason == "" {
			reason = "it gives no reason"
		}
		out = append(out, usage{name: u.String(), target: i.targetOf(u), reason: reason})
	}
	return out, us.err
}

// concerns reports whether a reference of a Usage in a namespace names o.
func concerns(of map[string]any, namespace string, o object) bool {
	version, _ := of["apiVersion"].(string)
	kind, _ := of["kind"].(string)
	in, _, _ := unstructured.NestedString(of, "resourceRef", "namespace")
	if in == "" {
		in = namespace
	}
	return schema.FromAPIVersionAndKind(version, kind).GroupKind() == o.kind.GroupKind() && nameIn(of) == o.GetName() &&
		(o.GetNamespace() == "" || in == "" || in == o.GetNamespace())
}

func nameIn(reference map[string]any) string {
	name, _, _ := unstructured.NestedString(reference, "resourceRef", "name")
	return name
}
