package main

import (
	"context"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = 5 * time.Second

// between checks the number of arguments.
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.Errorf("wrong number of arguments: write kubectl graft %s", c.Use)
		}
		return nil
	}
}

// An object that an argument names, as it was read.
type object struct {
	*unstructured.Unstructured

	kind cluster.Kind
}

// read the object that KIND/NAME, or KIND NAME, names.
func (p *plugin) read(ctx context.Context, args []string) (object, error) {
	kind, name, slash := strings.Cut(args[0], "/")
	rest := args[1:]
	if !slash && len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	switch {
	case kind == "" || name == "" || strings.Contains(name, "/"):
		return object{}, errors.Errorf("%q does not name an object: write KIND/NAME", args[0])
	case len(rest) > 0:
		return object{}, errors.Errorf("unexpected argument %q", rest[0])
	}
	k, err := p.cluster.Named(kind)
	if err != nil {
		return object{}, err
	}
	o, err := p.cluster.Get(ctx, k, p.cluster.Namespace, name)
	switch {
	case kerrors.IsNotFound(err) && k.Resource.Namespaced:
		err = errors.Errorf("there is no %s %q in namespace %q: choose another with -n", k, name, p.cluster.Namespace)
	case kerrors.IsNotFound(err):
		err = errors.Errorf("there is no %s %q", k, name)
	}
	return object{Unstructured: o, kind: k}, err
}

// errNoKind says that an object can't be read because its kind is not served.
var errNoKind = errors.New("the API server has no such kind")

// follow reads the object that another refers to, in whichever version its kind is served.
func (p *plugin) follow(ctx context.Context, gk schema.GroupKind, namespace, name string) (object, error) {
	k, ok := p.cluster.Of(gk)
	switch {
	case !ok && p.cluster.Undescribed(gk.Group):
		u := undescribed(gk)
		return object{kind: u.Kind}, u.Err
	case !ok:
		return object{}, errNoKind
	}
	o, err := p.cluster.Get(ctx, k, namespace, name)
	return object{Unstructured: o, kind: k}, err
}

// undescribed returns a kind, as far as it is known, whose group the API server cannot describe.
func undescribed(gk schema.GroupKind) cluster.Unread {
	k := cluster.Kind{GroupVersionKind: gk.WithVersion("")}
	k.Resource.Name, k.Resource.Namespaced = strings.ToLower(gk.Kind), true
	return cluster.Unread{Kind: k, Err: errors.Errorf("the API server cannot describe the group %s", gk.Group)}
}

func (p *plugin) targetOf(o object) string { return p.target(o.kind, o.GetNamespace(), o.GetName()) }

// deleted reports whether the deletion of an object was requested.
func (o object) deleted() bool { return o.GetDeletionTimestamp() != nil }

// String names the object for a person.
func (o object) String() string { return nameOf(o.reference()) }

// reference returns what identifies the object.
func (o object) reference() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}

// nameOf names an object for a person.
func nameOf(r corev1.ObjectReference) string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Name + " in " + r.Namespace
}

// A place is where at most one object is at a time, in whichever version it is read.
type place struct {
	schema.GroupKind

	namespace, name string
}

func placeOf(r corev1.ObjectReference) place {
	return place{GroupKind: r.GroupVersionKind().GroupKind(), namespace: r.Namespace, name: r.Name}
}

// completion completes KIND/NAME, and with finalizers the argument after it.
func (p *plugin) completion(finalizers bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (out []string, then cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		then = cobra.ShellCompDirectiveNoFileComp
		kind, _, slash := strings.Cut(prefix, "/")
		var err error
		p.cluster, err = cluster.Open(p.flags, p.clock)

		switch {
		case err != nil:
		case len(args) > 0 && finalizers:
			if o, err := p.read(ctx, args); err == nil {
				out = o.GetFinalizers()
			}
		case len(args) > 0:
		case !slash:
			for _, k := range p.cluster.InCategories(cluster.Managed, cluster.Composite, cluster.Claim) {
				out = append(out, k.String()+"/")
			}
			then |= cobra.ShellCompDirectiveNoSpace
		default:
			k, err := p.cluster.Named(kind)
			if err != nil {
				break
			}
			items, _ := p.cluster.List(ctx, []cluster.Kind{k}, p.cluster.Namespace, nil)
			for _, i := range items {
				out = append(out, kind+"/"+i.Name)
			}
		}
		return out, then
	}
}
