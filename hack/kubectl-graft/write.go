package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// A writing is a command that writes.
type writing struct {
	*plugin

	yes    bool
	dryRun string
}

func (w *writing) addFlags(c *cobra.Command) {
	c.Flags().BoolVarP(&w.yes, "yes", "y", false, "Do not ask.")
	c.Flags().StringVar(&w.dryRun, "dry-run", dryRunNone, "Write nothing: client shows what would be written, "+
		"server has the API server check it. One of: none, client, server.")
	values := []string{dryRunNone, dryRunClient, dryRunServer}
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(values, w.dryRun) {
			return errors.Errorf("--dry-run is %q: choose none, client or server", w.dryRun)
		}
		return nil
	}
}

// read refuses a kind without its group, except a core kind, if an undescribed group may have a kind of that name.
func (w *writing) read(ctx context.Context, args []string) (object, error) {
	o, err := w.plugin.read(ctx, args)
	kind, _, _ := strings.Cut(args[0], "/")
	hidden := slices.DeleteFunc(w.cluster.Hidden(), func(group string) bool { return group == o.kind.Group })
	if err == nil && len(hidden) > 0 && o.kind.Group != "" && !strings.Contains(kind, ".") {
		err = errors.Errorf("the API server cannot describe the group %s, which may have the kind %q, too: "+
			"name the kind with its group, as KIND.GROUP/NAME", hidden[0], kind)
	}
	return o, err
}

// A planner plans a write to an object. args are the arguments after the object.
type planner func(ctx context.Context, o object, args []string) (plan, error)

// verb completes the command of a verb that writes: it reads the object that the arguments
// name, plans, and carries that out. more is the number of arguments after the object.
func (w *writing) verb(c *cobra.Command, more int, planned planner) *cobra.Command {
	c.ValidArgsFunction = w.completion(more > 0)
	w.addFlags(c)
	return w.command(c, 1+more, 2+more, func(ctx context.Context, args []string) error {
		of := len(args) - more
		o, err := w.read(ctx, args[:of])
		if err != nil {
			return err
		}
		p, err := planned(ctx, o, args[of:])
		if err != nil {
			return err
		}
		return w.carryOut(ctx, o, p)
	})
}

// A plan describes a write.
type plan struct {
	says  []string       // The changes and their consequences.
	patch map[string]any // It is merged into the object.
	done  string         // The outcome.

	// write sends the requests instead of a patch, and returns the outcome.
	write func(ctx context.Context, dryRun bool) (string, error)
}

// say adds to the description.
func (p *plan) say(format string, args ...any) { p.says = append(p.says, fmt.Sprintf(format, args...)) }

// annotate is a patch of annotations.
func annotate(annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// request adds the request of a reconcile to a plan and to the annotations of its patch.
func (p *plan) request(annotations map[string]any, at time.Time) {
	annotations[diagnosis.AnnotationReconcileRequested] = text.Stamp(at)
	p.say("annotation %s: %s", diagnosis.AnnotationReconcileRequested, text.Stamp(at))
}

// carryOut shows a plan for an object, asks, and writes.
func (w *writing) carryOut(ctx context.Context, o object, p plan) error {
	out := w.streams.Out
	fmt.Fprintf(out, "%s (%s, uid %s):\n", o, o.kind, o.GetUID())
	for _, s := range p.says {
		fmt.Fprintln(out, "  "+text.Clean(s))
	}
	if w.dryRun == dryRunClient {
		fmt.Fprintln(out, "Dry run: nothing was sent to the API server.")
		return nil
	}
	if w.dryRun == dryRunNone && !w.yes {
		if err := w.ask(); err != nil {
			return err
		}
	}
	if p.write == nil {
		p.write = func(ctx context.Context, dryRun bool) (string, error) {
			_, err := w.cluster.Patch(ctx, o.kind, o.Unstructured, p.patch, dryRun)
			return p.done, err
		}
	}
	done, err := p.write(ctx, w.dryRun == dryRunServer)

	switch {
	case kerrors.IsNotFound(err):
		return errors.Errorf("%s no longer exists: nothing was written", o)
	case cluster.Changed(err):
		return errors.Errorf("%s has changed since it was read: nothing more was written, run the command again", o)
	case err != nil:
		return err
	case w.dryRun == dryRunServer:
		done = "Dry run: the API server accepts it, and has stored nothing."
	}
	fmt.Fprintln(out, done)
	return nil
}

func (w *writing) ask() error {
	if !w.terminal(w.streams.In) {
		return errors.New("the standard input is no terminal to ask on: pass --yes, after a look with --dry-run=server")
	}
	fmt.Fprint(w.streams.Out, "Continue? [y/N] ")
	answer, _ := bufio.NewReader(w.streams.In).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("you did not confirm: nothing was written")
	}
	return nil
}
