package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// Exit statuses; doc.go says when.
const (
	exitDone   = 0
	exitFound  = 1
	exitFailed = 2
)

// release is set by the linker for the archives of a release. It is empty if the go command built the plugin.
//
//nolint:gochecknoglobals // The linker sets no other variable.
var release string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	build := release
	if info, ok := debug.ReadBuildInfo(); ok && build == "" {
		build = info.Main.Version
	}
	os.Exit(run(ctx, &plugin{
		flags:   genericclioptions.NewConfigFlags(true),
		streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		clock:   time.Now,
		build:   cmp.Or(build, "(unknown)"),
		wait: func(ctx context.Context, d time.Duration) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		terminal: func(stream any) bool {
			f, ok := stream.(*os.File)
			return ok && term.IsTerminal(int(f.Fd()))
		},
	}, os.Args[1:]))
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, p *plugin, args []string) int {
	root := newCommand(p) //nolint:contextcheck // Cobra passes the context.
	root.SetArgs(args)

	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitFound
	default:
		fmt.Fprintln(p.streams.ErrOut, "error: "+sentence(err))
		return exitFailed
	}
}

var (
	// errFound ends a command that has found something to look at.
	errFound = errors.New("there is something to look at")

	// errGap ends a command that has found nothing, but could not read all.
	errGap = errors.New("not all could be read")
)

// A plugin holds the flags, the streams and the clock of all commands.
type plugin struct {
	flags    *genericclioptions.ConfigFlags
	streams  genericiooptions.IOStreams
	clock    func() time.Time
	wait     func(ctx context.Context, d time.Duration) error // It ends with the context, which is an error.
	terminal func(stream any) bool                            // Reports whether a stream is one.
	build    string                                           // The version of the plugin.
	cluster  *cluster.Cluster                                 // Set by open.
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

// command completes a command: it takes so many arguments, and runs with the cluster open.
func (p *plugin) command(
	c *cobra.Command, least, most int, run func(ctx context.Context, args []string) error,
) *cobra.Command {
	c.Args = between(least, most)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := p.open(); err != nil {
			return err
		}
		return run(c.Context(), args)
	}
	return c
}

// now returns the time of the API server.
func (p *plugin) now() time.Time { return p.cluster.Now() }

// open connects to the cluster.
func (p *plugin) open() (err error) {
	if p.cluster, err = cluster.Open(p.flags, p.clock); err != nil {
		return err
	}
	for _, g := range p.cluster.Undiscovered {
		fmt.Fprintf(p.streams.ErrOut,
			"warning: the API server cannot describe the group %s: its objects are missing\n", g)
	}
	return nil
}

// watch calls look, and shows the result. With again it repeats that until look returns no error, and shows only
// results that differ. A nil result ends it.
func (p *plugin) watch(
	ctx context.Context, again bool, interval time.Duration, look func() (any, error), show func(any) error,
) error {
	var shown any
	for before := error(nil); ; {
		seen, found := look()
		switch {
		case ctx.Err() != nil:
			return cmp.Or(before, ctx.Err())
		case seen == nil:
			return found
		case !reflect.DeepEqual(seen, shown):
			if err := show(seen); err != nil {
				return err
			}
		}
		if found == nil || !again || p.wait(ctx, interval) != nil {
			return found
		}
		shown, before = seen, found
	}
}

// colour returns a text for the standard output: colours are for terminals.
func (p *plugin) colour(c text.Colour, s string) string {
	if os.Getenv("NO_COLOR") != "" || !p.terminal(p.streams.Out) {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// target names an object for a command line: with its namespace, and the cluster and the user if flags choose them.
func (p *plugin) target(k cluster.Kind, namespace, name string) string {
	s := text.ShellQuote(k.String() + "/" + name)
	if k.Resource.Namespaced {
		s += " -n " + text.ShellQuote(namespace)
	}
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"--kubeconfig", p.flags.KubeConfig},
		{"--context", p.flags.Context},
		{"--cluster", p.flags.ClusterName},
		{"--user", p.flags.AuthInfoName},
		{"--server", p.flags.APIServer},
		{"--as", p.flags.Impersonate},
	} {
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
		return fmt.Sprintf("cannot reach the API server (%v): choose another cluster with --context or --kubeconfig, "+
			"or try again", request.Err)
	case clientcmd.IsEmptyConfig(err):
		return "there is no kubeconfig: set KUBECONFIG, or choose one with --kubeconfig"
	case kerrors.IsUnauthorized(err):
		return "the API server does not accept your credentials: log in again"
	}
	return text.Clean(strings.Join(strings.Fields(err.Error()), " "))
}
