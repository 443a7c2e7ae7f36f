package main

import (
	"cmp"
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
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
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
			text.Stamp(ns.GetDeletionTimestamp().Time))
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
		n.Note("The definition of its kind is being deleted since %s, and all objects with it.", text.Stamp(at.Time))
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
			n.Guessed("Its provider is not installed any more (ProviderRevision %s does not exist): nothing acts on it.", r.Name)
		case diagnosis.Of(revision.Unstructured, "", i.now()).State != diagnosis.Ready:
			n.Guessed("Its provider does not run: ProviderRevision %s is not healthy.", r.Name)
		}
	}
}

// config notes that the ProviderConfig of a managed resource does not exist, or is being
// deleted.
func (i *inspection) config(ctx context.Context, o object, n *node) {
	name := diagnosis.Field(o.Object, "spec", "providerConfigRef", "name")
	kind := cmp.Or(diagnosis.Field(o.Object, "spec", "providerConfigRef", "kind"), "ProviderConfig")
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
		n.Note("Its %s %q is being deleted since %s.", kind, name, text.Stamp(config.GetDeletionTimestamp().Time))
	}
}

// protection notes which Usages protect an object.
func (i *inspection) protection(ctx context.Context, o object, n *node) {
	list, err := i.usages.read(ctx, i)
	found := false
	for _, u := range list {
		of, _, _ := unstructured.NestedMap(u.Object, "spec", "of")
		if !concerns(of, u.GetNamespace(), o) {
			continue
		}
		reason := cmp.Or(diagnosis.Field(u.Object, "spec", "reason"), "it gives no reason")
		if by, _, _ := unstructured.NestedMap(u.Object, "spec", "by"); by != nil {
			reason = fmt.Sprintf("%v/%s uses it", by["kind"], diagnosis.Field(by, "resourceRef", "name"))
		}
		n.Note("%s protects it: %s.", u, reason)
		n.Advise("Delete what uses it, or the Usage.", "kubectl delete "+i.targetOf(u))
		found = true
	}
	if !found && err == nil {
		n.Guessed("Its label %s says that a Usage protects it, but none names it.", diagnosis.LabelInUse)
	}
}

// concerns reports whether a reference of a Usage in a namespace names o.
func concerns(of map[string]any, namespace string, o object) bool {
	gvk := schema.FromAPIVersionAndKind(diagnosis.Field(of, "apiVersion"), diagnosis.Field(of, "kind"))
	in := cmp.Or(diagnosis.Field(of, "resourceRef", "namespace"), namespace)
	return gvk.GroupKind() == o.kind.GroupKind() && diagnosis.Field(of, "resourceRef", "name") == o.GetName() &&
		(o.GetNamespace() == "" || in == "" || in == o.GetNamespace())
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

// read returns the Usages. An error says that some could not be read.
func (us *usages) read(ctx context.Context, i *inspection) ([]object, error) {
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
	return us.all, us.err
}
