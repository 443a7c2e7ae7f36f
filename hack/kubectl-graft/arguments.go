package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
func (p *plugin) read(ctx context.Context, c *cluster.Cluster, args []string) (object, error) {
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
	k, err := c.Named(kind)
	if err != nil {
		return object{}, err
	}
	return p.get(ctx, c, k, c.Namespace, name)
}

func (p *plugin) get(ctx context.Context, c *cluster.Cluster, k cluster.Kind, namespace, name string) (object, error) {
	o, err := c.Get(ctx, k, namespace, name)
	switch {
	case kerrors.IsNotFound(err) && k.Namespaced:
		return object{}, errors.Errorf("there is no %s %q in namespace %q: choose another with -n", k, name, namespace)
	case kerrors.IsNotFound(err):
		return object{}, errors.Errorf("there is no %s %q", k, name)
	case err != nil:
		return object{}, err
	}
	return object{Unstructured: o, kind: k}, nil
}

func (p *plugin) targetOf(o object) string { return p.target(o.kind, o.GetNamespace(), o.GetName()) }

// String names the object for a person.
func (o object) String() string { return nameOf(o.GetKind(), o.GetNamespace(), o.GetName()) }

func nameOf(kind, namespace, name string) string {
	if namespace == "" {
		return kind + "/" + name
	}
	return kind + "/" + name + " in " + namespace
}

// completeObjects completes KIND/NAME.
func (p *plugin) completeObjects(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := cluster.Open(p.flags)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, _, slash := strings.Cut(prefix, "/")

	var out []string
	if !slash {
		for _, k := range c.InCategories(cluster.Managed, cluster.Composite, cluster.Claim) {
			out = append(out, k.String()+"/")
		}
		slices.Sort(out)
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	k, err := c.Named(kind)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	items, _ := c.List(ctx, []cluster.Kind{k}, c.Namespace, nil)
	for _, i := range items {
		out = append(out, kind+"/"+i.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
