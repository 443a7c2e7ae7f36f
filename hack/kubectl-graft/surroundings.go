package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"
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
		if ns, _ := i.look(ctx, kindNamespace, "", o.GetNamespace()); ns.deleted() {
			n.Note("Its namespace is terminating since %s: nothing can be created there.", ns.deletedAt())
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
	if crd.deleted() {
		n.Note("The definition of its kind is being deleted since %s, and all objects with it.", crd.deletedAt())
	}
	owner := metav1.GetControllerOf(crd)
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kindRevision {
		return
	}
	revision, missing := i.look(ctx, kindRevision, "", owner.Name)
	switch {
	case missing:
		n.Guessed("Its provider is not installed any more (ProviderRevision %s does not exist): nothing acts on it.",
			owner.Name)
	case revision != nil && i.diagnose(*revision).State != diagnosis.Ready:
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
	var in []cluster.Kind
	for group := o.kind.Group; group != ""; _, group, _ = strings.Cut(group, ".") {
		if k, ok := i.cluster.Of(schema.GroupKind{Group: group, Kind: kind}); ok {
			in = append(in, k)
		}
	}
	if len(in) != 1 {
		return
	}
	config, missing := i.look(ctx, in[0].GroupKind(), o.GetNamespace(), name)
	switch {
	case missing:
		n.Note("Its %s %q does not exist.", kind, name)
	case config.deleted():
		n.Note("Its %s %q is being deleted since %s.", kind, name, config.deletedAt())
	}
}

// protection notes which Usages protect an object.
func (i *inspection) protection(ctx context.Context, o object, n *node) {
	list, err := i.usages()
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

// look reads an object that explains another. It returns nil if the object is missing, or if it
// is unknown whether it exists.
func (i *inspection) look(ctx context.Context, gk schema.GroupKind, namespace, name string) (o *object, missing bool) {
	read, err := i.follow(ctx, gk, namespace, name)
	switch {
	case err == nil:
		return &read, false
	case !errors.Is(err, errNoKind):
		i.unreadable(read.kind, err)
	}
	return nil, kerrors.IsNotFound(err)
}

// readUsages returns the Usages of the cluster. An error says that some could not be read.
func (i *inspection) readUsages(ctx context.Context) (all []object, failed error) {
	for _, group := range []string{"protection.crossplane.io", "apiextensions.crossplane.io"} {
		for _, kind := range []string{"Usage", "ClusterUsage"} {
			k, ok := i.cluster.Of(schema.GroupKind{Group: group, Kind: kind})
			if !ok {
				continue
			}
			list, err := i.cluster.Objects(ctx, k, "")
			if err != nil {
				i.unreadable(k, err)
				failed = err
			}
			for n := range list {
				all = append(all, object{Unstructured: &list[n], kind: k})
			}
		}
	}
	return all, failed
}
