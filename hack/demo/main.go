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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

const usage = `Usage: demo [FLAGS]

Plays stories of what goes wrong with crossplane-runtime, beside the same code
with Graft: a line for each. All that is shown is measured.

Flags:
  -story NAME   Show what a user sees in this story, with times. What is before
                a slash names all variants.
  -format json  Print everything as JSON.
  -h            Print this.

Stories:
  %s

Environment:
  CONTROL_PLANE   "real" plays the stories on a real control plane, which takes
                  11 to 14 minutes to build the first time. Otherwise they are
                  played on an API server in memory.
  NO_COLOR        Anything but empty means no colours.

The exit status is 1 if Graft fails in a story, or if upstream doesn't any more.
`

// errFailed says that a story was not as it should be. The problems have been
// printed.
var errFailed = errors.New("the demo has failed")

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

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
	help := fmt.Sprintf(usage, strings.Join(names, "\n  "))
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("story", "", "")
	format := flags.String("format", "", "")

	misused := func(format string, a ...any) int {
		fmt.Fprintf(stderr, "demo: "+format+"\n\n%s", append(a, help)...)
		return exitUsage
	}

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return exitOK
	case err != nil:
		return misused("%v", err)
	case *format != "" && *format != "json":
		return misused("there is no format %q", *format)
	case flags.NArg() > 0:
		return misused("there is no argument %q", flags.Arg(0))
	}

	ss := selected(*name)
	if len(ss) == 0 {
		return misused("there is no story %q", *name)
	}
	var start func() environment

	switch plane := getenv("CONTROL_PLANE"); plane {
	case "", "embedded":
		start = func() environment { return inMemory(t) }
	case "real":
		start = func() environment { return startReal(ctx, stderr) }
	default:
		return misused("CONTROL_PLANE is %q: set it to \"real\", or not at all", plane)
	}

	began := time.Now()
	where, rs, err := perform(ctx, start, ss, sd)
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitFailed
	}
	out := newPrinter(stdout, getenv)

	switch {
	case *format != "":
		err = asJSON(stdout, where, rs, time.Since(began))
	case *name != "":
		for _, r := range rs {
			out.detail(r)
		}
		out.verdict(rs, time.Since(began))
	default:
		out.overview(sd.upstream.title, where, rs)
		out.verdict(rs, time.Since(began))
	}

	if failed(rs) > 0 {
		err = errFailed
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// perform plays the stories in an environment that is started for them.
func perform(
	ctx context.Context, start func() environment, ss []story, sd sides,
) (where string, rs []result, err error) {
	var env environment
	if err := try(func() { env = start() }); err != nil {
		return "", nil, err
	}
	rs, err = (&demo{env: env, sides: sd}).run(ctx, ss)
	return env.title, rs, errors.Join(err, env.close())
}

func stories() []story {
	return []story{
		lostExternalName(),
		nameCollision(),
		forgottenOperation(),
		slowDelete(),
		otherFinalizer(),
		brokenCredentials(),
		silentClaim(),
		undeadInformer(),
		collectedAlive(),
		finalizerRace(),
		steadyState(),
		endlessUpdate(),
		firstStatus(),
	}
}

// selected returns the stories of that name, all if it's empty.
func selected(name string) []story {
	return slices.DeleteFunc(stories(), func(s story) bool {
		family, _, _ := strings.Cut(s.name, "/")
		return name != "" && name != s.name && name != family
	})
}
