package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
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
	c.Flags().StringVar(&w.dryRun, "dry-run", dryRunNone,
		"Write nothing: client shows what would be written, server has the API server check it. One of: none, "+
			"client, server.")
	values := []string{dryRunNone, dryRunClient, dryRunServer}
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(values, w.dryRun) {
			return errors.Errorf("--dry-run is %q: choose none, client or server", w.dryRun)
		}
		return nil
	}
}

// subject opens the cluster and reads the object that the arguments name.
func (w *writing) subject(ctx context.Context, args []string) (*cluster.Cluster, object, error) {
	c, err := w.open()
	if err != nil {
		return nil, object{}, err
	}
	o, err := w.read(ctx, c, args)
	return c, o, err
}

// A plan describes a write, and makes it.
type plan struct {
	// of is the object that is written to.
	of object

	// says is the description: the changes and their consequences.
	says []string

	// write sends the requests, and returns the outcome.
	write func(ctx context.Context, dryRun bool) (string, error)
}

// say adds to the description.
func (p *plan) say(format string, args ...any) { p.says = append(p.says, fmt.Sprintf(format, args...)) }

// carryOut shows a plan, asks, and writes.
func (w *writing) carryOut(ctx context.Context, p plan) error {
	out := w.streams.Out
	fmt.Fprintf(out, "%s (uid %s):\n", p.of, p.of.GetUID())
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
	result, err := p.write(ctx, w.dryRun == dryRunServer)
	switch {
	case kerrors.IsNotFound(err):
		return errors.Errorf("%s no longer exists: nothing was written", p.of)
	case cluster.Changed(err):
		return errors.Errorf("%s has changed since it was read: nothing more was written, run the command again", p.of)
	case err != nil:
		return err
	case w.dryRun == dryRunServer:
		result = "Dry run: the API server accepts it, and has stored nothing."
	}
	fmt.Fprintln(out, result)
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
