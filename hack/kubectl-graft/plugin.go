package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// errFound ends a command that has found something to look at.
var errFound = errors.New("there is something to look at")

// A plugin holds the flags, the streams and the clock of all commands.
type plugin struct {
	flags   *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	now     func() time.Time

	// build is the version of the plugin.
	build string

	// wait for a while, or until the context ends, which is an error.
	wait func(ctx context.Context, d time.Duration) error

	// terminal reports whether a stream is one.
	terminal func(stream any) bool
}

func newCommand(p *plugin) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-graft",
		Short: "Say why Crossplane's objects are stuck, and repair them",
		Long: `Say why Crossplane's objects are stuck, and repair them.

It works on objects of providers with Graft, and on those of plain
crossplane-runtime as far as they tell: what is concluded is marked as a guess.

Exit status: 0 nothing to do, or done; 1 something to look at; 2 failed, refused,
or not all could be read.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl graft"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(p.streams.In)
	root.SetOut(p.streams.Out)
	root.SetErr(p.streams.ErrOut)
	p.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newWhy(p), newStuck(p), newResolve(p), newDropFinalizer(p), newOrphan(p), newReconcile(p),
		newNames(p), newReservations(p), newVersion(p))
	return root
}

func (p *plugin) open() (*cluster.Cluster, error) {
	c, err := cluster.Open(p.flags)
	if err != nil {
		return nil, err
	}
	for _, g := range c.Undiscovered {
		fmt.Fprintf(p.streams.ErrOut, "warning: the API server cannot describe the group %s: its objects are missing\n",
			g)
	}
	return c, nil
}

// style of the standard output: colours are for terminals.
func (p *plugin) style() text.Style {
	return text.Style{Coloured: os.Getenv("NO_COLOR") == "" && p.terminal(p.streams.Out)}
}

// target names an object for a command line: with its namespace, and the cluster if flags
// choose one.
func (p *plugin) target(k cluster.Kind, namespace, name string) string {
	s := text.ShellQuote(k.String() + "/" + name)
	if k.Namespaced {
		s += " -n " + text.ShellQuote(namespace)
	}
	for _, f := range []struct {
		name  string
		value *string
	}{{"--kubeconfig", p.flags.KubeConfig}, {"--context", p.flags.Context}} {
		if f.value != nil && *f.value != "" {
			s += " " + f.name + " " + text.ShellQuote(*f.value)
		}
	}
	return s
}

// sentence puts an error into one line.
func sentence(err error) string {
	var request *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &request):
		return fmt.Sprintf(
			"cannot reach the API server (%v): choose another cluster with --context or --kubeconfig, or try again",
			request.Err,
		)
	case clientcmd.IsEmptyConfig(err):
		return "there is no kubeconfig: set KUBECONFIG, or choose one with --kubeconfig"
	case kerrors.IsUnauthorized(err):
		return "the API server does not accept your credentials: log in again"
	}
	return text.Clean(strings.Join(strings.Fields(err.Error()), " "))
}
