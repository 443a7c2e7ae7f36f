package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Exit statuses; doc.go says when.
const (
	exitDone   = 0
	exitFound  = 1
	exitFailed = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	build := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		build = info.Main.Version
	}
	os.Exit(run(ctx, &plugin{
		flags:   genericclioptions.NewConfigFlags(true),
		streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		now:     time.Now,
		build:   build,
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
