// Command controlplane builds and runs a Kubernetes control plane.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
)

const usage = `Usage: controlplane build | run

Builds and runs a real Kubernetes control plane: etcd, kube-apiserver, and
kube-controller-manager with the garbage collector and the namespace controller.

build builds what isn't in the cache, and prints the folder with the programs. It can
be used as KUBEBUILDER_ASSETS by every envtest suite. The first build takes 11 minutes
on two busy cores after make demo, else up to 14, and needs 3 GB of disk.

run builds if need be, starts, prints the path of a kubeconfig, which has the output of
the programs beside it, and runs until interrupted.

If KUBEBUILDER_ASSETS is set, etcd and kube-apiserver of that folder are used.
`

func main() {
	// What envtest has to say is in the errors. Without a logger it complains of
	// that, with a stack trace.
	ctrllog.SetLogger(logr.Discard())

	// After the first signal the second one has its usual effect again, and
	// ends a stop that takes too long.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "build":
		var dir string
		if dir, err = controlplane.Build(ctx, os.Stderr); err == nil {
			_, err = fmt.Println(dir)
		}
	case len(os.Args) == 2 && os.Args[1] == "run":
		err = run(ctx)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// run a control plane until ctx ends.
func run(ctx context.Context) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	if _, err := fmt.Println(plane.Kubeconfig()); err != nil {
		return errors.Join(err, plane.Stop())
	}
	fmt.Fprintf(os.Stderr, "control plane: running until Ctrl-C; in another terminal:\n\texport KUBECONFIG=%s\n",
		plane.Kubeconfig())
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "control plane: stopping")
	return plane.Stop()
}
