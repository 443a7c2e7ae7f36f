// Command demo shows failures of crossplane-runtime's reconciler of managed
// resources, and that they don't happen with Graft: stories, each played with the
// same provider on both.
package main

import (
	"context"
	"encoding/json"
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
with Graft: a line for each. All that is shown is measured.

Stories:
  %s

Environment:
  CONTROL_PLANE   "real" plays the stories on a real control plane, which takes
                  11 to 14 minutes to build the first time. Otherwise they are
                  played on an API server in memory.
  NO_COLOR        Anything but empty means no colours.

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
	format := flags.String("format", "", "json prints everything in this `format`")
	help := fmt.Sprintf(usage, strings.Join(names, "\n  "))
	if status, ok := intest.Parse(flags, help, args, stdout, stderr); !ok {
		return status
	}
	ss := selected(*name)
	start, ok := map[string]func() environment{
		"":         func() environment { return inMemory(t) },
		"embedded": func() environment { return inMemory(t) },
		"real":     func() environment { return startReal(ctx, stderr) },
	}[getenv("CONTROL_PLANE")]

	switch {
	case *format != "" && *format != "json":
		return intest.Misused(flags, stderr, "there is no format %q", *format)
	case len(ss) == 0:
		return intest.Misused(flags, stderr, "there is no story %q", *name)
	case !ok:
		return intest.Misused(flags, stderr, "CONTROL_PLANE is %q: set it to \"real\", or not at all",
			getenv("CONTROL_PLANE"))
	}

	r, err := perform(ctx, start, ss, sd)
	if err == nil {
		switch out := newPrinter(stdout, getenv); {
		case *format != "":
			enc := json.NewEncoder(stdout)
			enc.SetIndent("", "  ")
			err = enc.Encode(r)
		case *name != "":
			out.details(r)
		default:
			out.overview(sd.upstream.title, r)
		}
		if r.Failed > 0 {
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
