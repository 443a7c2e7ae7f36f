// Command demo shows failures of crossplane-runtime's reconciler of managed
// resources, and that they don't happen with Graft: stories, each played with the
// same provider on both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

const usage = `Usage: demo [FLAGS]

Plays stories of what goes wrong with crossplane-runtime, beside the same code
with Graft, on an API server in memory: a line for each. All that is shown is
measured.

Stories:
  %s

Environment:
  NO_COLOR   Anything but empty means no colours.

The exit status is 1 if Graft fails in a story, or if upstream doesn't any more.

Flags:
`

// errFailed says that a story was not as it should be. The problems have been
// printed.
var errFailed = errors.New("the demo has failed")

func main() {
	// Managers, caches and reflectors that are stopped on purpose log errors that mean
	// nothing.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	// After the first signal the second one has its usual effect again.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	intest.Main(func(t *testing.T, args []string) int {
		return command(ctx, t, args, os.Getenv, bothSides(), os.Stdout, os.Stderr)
	})
}

// command follows the arguments and the environment variables, and returns the exit
// status.
func command(
	ctx context.Context, t *testing.T, args []string, getenv func(string) string, sd sides, stdout, stderr io.Writer,
) int {
	var names []string
	for _, s := range stories() {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	name := flags.String("story", "", "show what a user sees in the story of this `name`, with times. What is\n"+
		"before a slash names all variants")
	help := fmt.Sprintf(usage, strings.Join(names, "\n  "))
	if status, ok := intest.Parse(flags, help, args, stdout, stderr); !ok {
		return status
	}
	ss := selected(*name)
	if len(ss) == 0 {
		return intest.Misused(flags, stderr, "there is no story %q", *name)
	}
	r, err := perform(ctx, t, ss, sd)
	if err == nil {
		if out := newPrinter(stdout, getenv); *name != "" {
			out.details(r)
		} else {
			out.overview(sd.upstream.title, r)
		}
		if r.failed > 0 {
			err = errFailed
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return intest.ExitFailed
	}
	return intest.ExitOK
}

func stories() []story {
	return []story{
		lostExternalName(),
		nameCollision(),
		forgottenOperation(),
		slowDelete(),
		silentClaim(),
		undeadInformer(),
		collectedAlive(),
		finalizerRace(),
		steadyState(),
		endlessUpdate(),
	}
}

// selected returns the stories of that name, all if it's empty.
func selected(name string) []story {
	return slices.DeleteFunc(stories(), func(s story) bool {
		family, _, _ := strings.Cut(s.name, "/")
		return name != "" && name != s.name && name != family
	})
}
