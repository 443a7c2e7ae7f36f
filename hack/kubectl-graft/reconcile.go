package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// maxConflicts is how often a request to reconcile an object is made again because another
// client wrote to it. It changes nothing else, so that no person needs to look.
const maxConflicts = 5

func newReconcile(p *plugin) *cobra.Command {
	w := &writing{plugin: p}
	c := &cobra.Command{
		Use:   "reconcile KIND/NAME...",
		Short: "Have objects reconciled now, after a repair",
		Long: `Have objects reconciled now, after a repair. Otherwise they wait for their backoff
or poll. Objects whose reconciliation is paused are refused.`,
		Example: `  kubectl graft reconcile bucket/photos -n team-a

  # All that fails.
  kubectl graft reconcile $(kubectl get managed -o name)`,
		Args:              between(1, math.MaxInt),
		ValidArgsFunction: p.completeObjects,
		RunE:              func(c *cobra.Command, args []string) error { return w.reconcile(c.Context(), args) },
	}
	w.addFlags(c, false)
	return c
}

func (w *writing) reconcile(ctx context.Context, args []string) error {
	c, err := w.open()
	if err != nil {
		return err
	}
	if !strings.Contains(args[0], "/") && len(args) > 1 {
		for i := 1; i < len(args); i++ {
			args[i] = args[0] + "/" + args[i]
		}
		args = args[1:]
	}
	failed := 0
	for _, a := range args {
		if err := w.request(ctx, c, a); err != nil {
			if len(args) == 1 {
				return err
			}
			fmt.Fprintf(w.streams.ErrOut, "%s: %s\n", a, sentence(err))
			failed++
		}
	}
	if failed > 0 {
		return errors.Errorf("%d of %d objects could not be reconciled", failed, len(args))
	}
	return nil
}

// request a reconcile of one object.
func (w *writing) request(ctx context.Context, c *cluster.Cluster, arg string) error {
	for range maxConflicts {
		o, err := w.read(ctx, c, []string{arg})
		if err != nil {
			return err
		}
		if !o.kind.In(cluster.Managed, cluster.Composite, cluster.Claim, cluster.Crossplane) {
			return errors.Errorf("%s is not one of Crossplane's objects: nothing would act on the request", o)
		}
		if diagnosis.IsPaused(o.Unstructured) {
			return errors.Errorf("the reconciliation of %s is paused: end the pause instead", o)
		}
		said := o.String() + ": a reconcile is requested."
		if w.dryRun == dryRunClient {
			fmt.Fprintln(w.streams.Out, said+" (dry run)")
			return nil
		}
		now := map[string]any{diagnosis.AnnotationReconcileRequested: stamp(w.now())}
		_, err = c.PatchMetadata(ctx, o.kind, o.Unstructured, "annotations", now, w.dryRun == dryRunServer)
		switch {
		case cluster.Changed(err), kerrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		if w.dryRun == dryRunServer {
			said += " (dry run)"
		}
		fmt.Fprintln(w.streams.Out, said)
		return nil
	}
	return errors.Errorf("%s is written to all the time: try again", arg)
}
