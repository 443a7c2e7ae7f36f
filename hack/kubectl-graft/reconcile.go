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
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// maxConflicts is how often a request to reconcile an object is made again because another
// client wrote to it. It changes nothing else, so that no person needs to look.
const maxConflicts = 5

func newReconcile(p *plugin) *cobra.Command {
	w := &reconcile{writing: writing{plugin: p}}
	c := p.command(&cobra.Command{
		Use:   "reconcile KIND/NAME...",
		Short: "Have objects reconciled now, after a repair",
		Long: `Have objects reconciled now, after a repair. Otherwise they wait for their backoff
or poll. An asynchronous delete that failed is tried again. Objects whose
reconciliation is paused are refused, unless --unpause ends the pause.`,
		Example: `  kubectl graft reconcile bucket/photos -n team-a

  # Two objects.
  kubectl graft reconcile bucket/photos bucket/videos -n team-a

  # End its pause.
  kubectl graft reconcile bucket/photos -n team-a --unpause`,
		ValidArgsFunction: p.completion(false),
	}, 1, math.MaxInt, w.run)
	w.addFlags(c)
	c.Flags().BoolVar(&w.unpause, "unpause", false, "End the pause of an object: remove the annotation "+
		diagnosis.AnnotationPaused+", and allow all management policies if it has none.")
	return c
}

type reconcile struct {
	writing

	unpause bool
}

func (w *reconcile) run(ctx context.Context, args []string) error {
	if !strings.Contains(args[0], "/") && len(args) > 1 {
		for i := 1; i < len(args); i++ {
			args[i] = args[0] + "/" + args[i]
		}
		args = args[1:]
	}
	failed := 0
	for _, a := range args {
		if err := w.request(ctx, a); err != nil {
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
func (w *reconcile) request(ctx context.Context, arg string) error {
	for range maxConflicts {
		o, err := w.read(ctx, []string{arg})
		if err != nil {
			return err
		}
		if !o.kind.In(cluster.Managed, cluster.Composite, cluster.Claim, cluster.Crossplane) {
			return errors.Errorf("%s is not one of Crossplane's objects: nothing would act on the request", o)
		}
		if diagnosis.IsPaused(o.Unstructured, o.kind.In(cluster.Managed)) {
			if !w.unpause {
				return errors.Errorf("the reconciliation of %s is paused: end the pause with --unpause", o)
			}
			return w.endPause(ctx, o)
		}
		annotations := map[string]any{diagnosis.AnnotationReconcileRequested: text.Stamp(w.now())}
		done := o.String() + ": a reconcile is requested"
		s := diagnosis.StateOf(o.Unstructured, w.now())
		if op := s.Operation; op != nil && op.Type == asyncstate.Delete && op.Phase == asyncstate.PhaseFailed &&
			s.Run.Type == "" {
			// Its record has the time of the next attempt.
			annotations[diagnosis.AnnotationOperation] = nil
			done += ", which tries the delete again"
		}
		done += "."
		if w.dryRun != dryRunNone {
			done += " (dry run)"
		}
		if w.dryRun != dryRunClient {
			_, err = w.cluster.Patch(ctx, o.kind, o.Unstructured, annotate(annotations), w.dryRun == dryRunServer)
		}
		if cluster.Changed(err) || kerrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			fmt.Fprintln(w.streams.Out, done)
		}
		return err
	}
	return errors.Errorf("%s is written to all the time: try again", arg)
}

// endPause ends the pause of an object, and requests a reconcile.
func (w *reconcile) endPause(ctx context.Context, o object) error {
	annotations := map[string]any{}
	p := plan{patch: annotate(annotations), done: o.String() + ": the pause is ended."}
	if diagnosis.AnnotatedPaused(o) {
		annotations[diagnosis.AnnotationPaused] = nil
		p.say("annotation %s: removed", diagnosis.AnnotationPaused)
	}
	if o.kind.In(cluster.Managed) && diagnosis.NoPolicies(o.Unstructured) {
		p.patch["spec"] = map[string]any{"managementPolicies": []any{"*"}}
		p.say(`managementPolicies: ["*"] (was [])`)
	}
	p.request(annotations, w.now())
	if o.GetDeletionTimestamp() != nil {
		p.say("It is being deleted: the deletion goes on, and unless its policies keep it, " +
			"its external resource is deleted.")
	}
	return w.carryOut(ctx, o, p)
}
