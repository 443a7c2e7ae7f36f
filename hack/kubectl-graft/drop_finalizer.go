package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

func newDropFinalizer(p *plugin) *cobra.Command {
	w := &writing{plugin: p}
	c := &cobra.Command{
		Use:   "drop-finalizer KIND/NAME FINALIZER",
		Short: "Remove the finalizer of a controller that no longer exists",
		Long: `Remove the finalizer of a controller that no longer exists from an object that is
being deleted.

What the finalizer stands for is not cleaned up. Crossplane's own finalizers are
refused, since the external resource would be left behind without a word: that is
"kubectl graft orphan". So are those of Kubernetes.`,
		Example: `  # The backup operator was uninstalled.
  kubectl graft drop-finalizer bucket/photos -n team-a backup.example.org/hold

  # What would be written, checked by the API server.
  kubectl graft drop-finalizer bucket/photos backup.example.org/hold --dry-run=server`,
		Args:              between(2, 3),
		ValidArgsFunction: p.completeFinalizers,
		RunE: func(c *cobra.Command, args []string) error {
			return w.dropFinalizer(c.Context(), args[:len(args)-1], args[len(args)-1])
		},
	}
	w.addFlags(c)
	return c
}

func (w *writing) dropFinalizer(ctx context.Context, args []string, finalizer string) error {
	c, o, err := w.subject(ctx, args)
	if err != nil {
		return err
	}
	f, err := w.droppable(ctx, c, o, finalizer)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(s string) bool { return s == finalizer })
	by := "it is not known which client wrote it"
	if f.Manager != "" {
		by = "written by " + f.Manager
	}
	p := plan{of: o}
	p.say("finalizer %s: removed (%s)", finalizer, by)
	after := fmt.Sprintf("%s is held by %s.", o, strings.Join(left, ", "))
	if len(left) == 0 {
		p.say("It is the last one: the object is removed at once.")
		if name := diagnosis.ExternalName(o); name != "" && o.kind.In(cluster.Managed) {
			p.say("Its provider does not hold it: external resource %q is left as it is.", name)
		}
		after = o.String() + " is removed."
	}
	p.write = func(ctx context.Context, dryRun bool) (string, error) {
		_, err := c.PatchMetadata(ctx, o.kind, o.Unstructured, "finalizers", anySlice(left), dryRun)
		return after, err
	}
	return w.carryOut(ctx, p)
}

// droppable returns the finalizer, or an error if it must not be removed.
func (w *writing) droppable(
	ctx context.Context, c *cluster.Cluster, o object, name string,
) (f diagnosis.Finalizer, err error) {
	all := diagnosis.FinalizersOf(o)
	i := slices.IndexFunc(all, func(f diagnosis.Finalizer) bool { return f.Name == name })
	if i < 0 {
		return f, errors.Errorf("%s has no finalizer %q, but these: "+
			"[%s]", o, name, strings.Join(o.GetFinalizers(), ", "))
	}
	f = all[i]
	if f.Name == diagnosis.FinalizerUsage {
		if err := w.needed(ctx, c, o); err != nil {
			return f, err
		}
		f.Owner = diagnosis.Other
	}
	switch {
	case f.Owner == diagnosis.Crossplane:
		return f, errors.Errorf("%s is Crossplane's own: without it the external resource is left behind; if you want "+
			"that, use kubectl graft orphan %s", name, w.targetOf(o))
	case f.Owner == diagnosis.Kubernetes:
		return f, errors.Errorf("%s is Kubernetes' own: it goes when the objects that depend on this one do, which "+
			"kubectl graft why %s shows", name, w.targetOf(o))
	case o.GetDeletionTimestamp() == nil:
		return f, errors.Errorf("%s is not being deleted, and its controller could add the finalizer again: delete "+
			"the "+
			"object first", o)
	}
	return f, nil
}

// needed returns an error unless the managed resource of a ProviderConfigUsage no longer
// exists: then nothing removes Graft's finalizer any more.
func (w *writing) needed(ctx context.Context, c *cluster.Cluster, usage object) error {
	r, ok := diagnosis.ReferenceOf(usage.Object["resourceRef"])
	k, served := c.Of(r.GroupKind())
	unknown := "cannot find out whether the managed resource of " + usage.String() +
		" still exists, which needs this finalizer"
	if !ok || !served {
		return errors.New(unknown)
	}
	uid, _, _ := unstructured.NestedString(usage.Object, "resourceRef", "uid")
	mg, err := c.Get(ctx, k, usage.GetNamespace(), r.Name)
	switch {
	case kerrors.IsNotFound(err), err == nil && uid != "" && uid != string(mg.GetUID()):
		return nil
	case err != nil:
		return errors.Wrap(err, unknown)
	}
	return errors.Errorf("%s needs the ProviderConfig: its provider removes this finalizer when it removes the "+
		"managed "+
		"resource", nameOf(r.Kind, mg.GetNamespace(), r.Name))
}

// completeFinalizers completes KIND/NAME, then a finalizer.
func (p *plugin) completeFinalizers(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return p.completeObjects(cmd, args, prefix)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := cluster.Open(p.flags)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	o, err := p.read(ctx, c, args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.GetFinalizers(), cobra.ShellCompDirectiveNoFileComp
}

func anySlice(list []string) []any {
	out := make([]any, 0, len(list))
	for _, s := range list {
		out = append(out, s)
	}
	return out
}
