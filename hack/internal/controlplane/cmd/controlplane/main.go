// Command controlplane builds and runs a Kubernetes control plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

func main() {
	// What envtest has to say is in the errors. Without a logger it complains of
	// that, with a stack trace.
	ctrllog.SetLogger(logr.Discard())

	// After the first signal the second one has its usual effect again, and
	// ends a stop that takes too long.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	flags := flag.NewFlagSet("controlplane", flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	logs := flags.String("logs", "", "")
	command := append(os.Args, "")[1]
	_ = flags.Parse(os.Args[min(2, len(os.Args)):])
	var err error
	switch {
	case command == "build" && flags.NArg() == 0 && *logs == "":
		err = build(ctx)
	case command == "run" && flags.NArg() == 0:
		err = run(ctx, *logs)
	default:
		flags.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// build prints the folder with the programs.
func build(ctx context.Context) error {
	dir, err := controlplane.Binaries(ctx, os.Stderr)
	if err == nil {
		_, err = fmt.Println(dir)
	}
	return err
}

// run a control plane until ctx ends or it does.
func run(ctx context.Context, logs string) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{Progress: os.Stderr, LogDir: logs})
	if err != nil {
		return err
	}
	if _, err := fmt.Println(plane.Kubeconfig()); err != nil {
		return errors.Join(err, plane.Stop())
	}
	fmt.Fprintf(os.Stderr, "control plane: running until Ctrl-C; in another terminal:\n\texport KUBECONFIG=%s\n",
		plane.Kubeconfig())
	select {
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "control plane: stopping")
	case <-plane.Done():
	}
	return plane.Stop()
}
