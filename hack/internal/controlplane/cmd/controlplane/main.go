// Command controlplane builds and runs a Kubernetes control plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
)

const usage = `Usage: controlplane COMMAND [FLAGS]

Builds and runs a real Kubernetes control plane: etcd, kube-apiserver, and
kube-controller-manager with the garbage collector and the namespace controller.

Commands:
  build   Build what isn't in the cache, and print the folder with the programs.
          It can be used as KUBEBUILDER_ASSETS by every envtest suite.
  run     Build if need be, start, print the path of a kubeconfig, and run until
          interrupted.
  help    Print this.

Flags of run:
  -logs DIR   Keep the output of the three programs in DIR.

Environment:
  KUBEBUILDER_ASSETS         A folder with etcd and kube-apiserver to use instead
                             of building them. A kube-controller-manager is
                             taken from there if there is one.
  GRAFT_CONTROLPLANE_CACHE   The folder to keep the built programs in, instead of
                             graft/controlplane in the user's cache folder.

The first build takes 11 minutes on two busy cores after make demo, else up to 14, and
needs 3 GB of disk.
Progress goes to standard error.
`

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	// What envtest has to say is in the errors. Without a logger it complains of
	// that, with a stack trace.
	ctrllog.SetLogger(logr.Discard())

	// After the first signal the second one has its usual effect again, and
	// ends a stop that takes too long.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	logs := new(string)
	var do func() error
	switch command {
	case "build":
		do = func() error { return build(ctx, stdout, stderr) }
	case "run":
		logs = flags.String("logs", "", "")
		do = func() error { return serve(ctx, *logs, stdout, stderr) }
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprintf(stderr, "controlplane: there is no command %q\n\n%s", command, usage)
		return exitUsage
	}

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "controlplane: %v\n\n%s", err, usage)
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "controlplane: %s takes no argument %q\n\n%s", command, flags.Arg(0), usage)
		return exitUsage
	}
	if err := do(); err != nil {
		fmt.Fprintf(stderr, "controlplane: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// build prints the folder with the programs.
func build(ctx context.Context, stdout, stderr io.Writer) error {
	dir, err := controlplane.Binaries(ctx, stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, dir)
	return err
}

// serve runs a control plane until ctx ends or it does.
func serve(ctx context.Context, logs string, stdout, stderr io.Writer) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{Progress: stderr, LogDir: logs})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, plane.Kubeconfig()); err != nil {
		return errors.Join(err, plane.Stop())
	}
	fmt.Fprintf(stderr, "control plane: running until Ctrl-C; in another terminal:\n\texport KUBECONFIG=%s\n",
		plane.Kubeconfig())
	select {
	case <-ctx.Done():
		fmt.Fprintln(stderr, "control plane: stopping")
	case <-plane.Done():
	}
	return plane.Stop()
}
