package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

func newDropFinalizer(p *plugin) *cobra.Command {
	w := &writing{plugin: p}
	return w.verb(&cobra.Command{
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
	}, 1, w.dropFinalizer)
}

func (w *writing) dropFinalizer(ctx context.Context, o object, args []string) (plan, error) {
	all := diagnosis.FinalizersOf(o)
	i := slices.IndexFunc(all, func(f diagnosis.Finalizer) bool { return f.Name == args[0] })
	if i < 0 {
		return plan{}, errors.Errorf("%s has no finalizer %q, but these: [%s]", o, args[0], all)
	}
	f := all[i]
	if err := w.droppable(ctx, o, f); err != nil {
		return plan{}, err
	}
	rest := slices.Delete(all, i, i+1)
	by := "it is not known which client wrote it"
	if f.Manager != "" {
		by = "written by " + f.Manager
	}
	done := fmt.Sprintf("%s is held by %s.", o, rest)
	p := plan{write: func(ctx context.Context, dryRun bool) (string, error) {
		return done, w.cluster.SetFinalizers(ctx, o.kind, o.Unstructured, rest.Names(), dryRun)
	}}
	p.say("finalizer %s: removed (%s)", f.Name, by)
	if slices.Equal(rest.Names(), []string{diagnosis.FinalizerManaged}) {
		p.say("Nothing else holds it: its provider then deletes the external resource, unless its policies keep it.")
	}
	if len(rest) == 0 {
		done = o.String() + " is removed."
		p.say("It is the last one: the object is removed at once.")
		if name := diagnosis.ExternalName(o); name != "" && o.kind.In(cluster.Managed) {
			p.say("Its provider does not hold it: external resource %q is left as it is.", name)
		}
	}
	return p, nil
}

// droppable returns an error if a finalizer must not be removed.
func (w *writing) droppable(ctx context.Context, o object, f diagnosis.Finalizer) error {
	if f.Name == diagnosis.FinalizerUsage {
		if err := w.needed(ctx, o); err != nil {
			return err
		}
		f.Owner = diagnosis.Other
	}
	switch {
	case f.Owner == diagnosis.Crossplane:
		return errors.Errorf("%s is Crossplane's own: without it the external resource is left behind; "+
			"if you want that, use kubectl graft orphan %s", f.Name, w.targetOf(o))
	case f.Owner == diagnosis.Kubernetes:
		return errors.Errorf("%s is Kubernetes' own: it goes when the objects that depend on this one do, "+
			"which kubectl graft why %s shows", f.Name, w.targetOf(o))
	case o.GetDeletionTimestamp() == nil:
		return errors.Errorf("%s is not being deleted, and its controller could add the finalizer again: "+
			"delete the object first", o)
	}
	return nil
}

// needed returns an error unless the managed resource of a ProviderConfigUsage no longer
// exists: then nothing removes Graft's finalizer any more.
func (w *writing) needed(ctx context.Context, usage object) error {
	r, whole := diagnosis.ReferenceOf(usage.Object["resourceRef"])
	mg, err := w.follow(ctx, r.GroupVersionKind().GroupKind(), usage.GetNamespace(), r.Name)
	switch {
	case kerrors.IsNotFound(err), err == nil && r.UID != "" && r.UID != mg.GetUID():
		return nil
	case errors.Is(err, errNoKind) && whole && r.APIVersion != "":
		return nil // Its objects were deleted with the definition.
	case err != nil:
		return errors.Wrapf(err, "cannot find out whether the managed resource of %s still exists, which needs this "+
			"finalizer", usage)
	}
	return errors.Errorf("%s needs the ProviderConfig: its provider removes this finalizer when it removes the "+
		"managed resource", mg)
}
