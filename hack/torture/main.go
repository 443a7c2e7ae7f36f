package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const usage = `Usage: torture [FLAGS]

Disturbs a provider at every step of a managed resource's life, with
crossplane-runtime's reconciler and with Graft, and prints the results.

Flags:
  -only PREFIX    Lead the lives only whose names begin so, for instance
                  create/sync, or delete/async/token.
  -sample N       Disturb them at N points only, which the seed picks.
  -pairs N        Lead up to N of these lives again with a second fault, at a later
                  step, which the seed picks. 4000 by default.
  -fault FAULT    Try this fault only. The fault stall is tried only if it is
                  asked for: a process does nothing for minutes, and then continues.
                  No reconciler can be entirely safe from that.
  -replay NAME    Lead one life and show its steps. NAME looks like
                  create/sync/token/crash-after/7. It may go on with a second
                  fault, at a later step: /api-lost/12.
  -side SIDE      Whose code to replay: graft (the default) or upstream.
  -seed N         Decides what is random. 1 by default.
  -lag DURATION   How long the cloud doesn't show what it has made. 0 by default.
  -v              Name every life of upstream's that ended badly, too.
  -h              Print this.

The exit status is 1 if a life ended badly with Graft, or if none did without.
`

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// main runs the command as if it were a test, because only a test can have a bubble
// in which time is simulated.
func main() {
	args := os.Args[1:]
	os.Args = os.Args[:1]

	// Lives are short, and each leaves a whole API server behind.
	debug.SetGCPercent(400)
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "torture", F: func(t *testing.T) { os.Exit(command(t, args, os.Stdout, os.Stderr)) }}},
		nil, nil,
	)
}

type options struct {
	only, replay, side string
	fault              string
	environment        environment
	sample, pairs      int
	verbose            bool
}

// command does what the arguments say, and returns the exit status.
func command(t *testing.T, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o options
	flags.StringVar(&o.only, "only", "", "")
	flags.StringVar(&o.replay, "replay", "", "")
	flags.StringVar(&o.side, "side", graftSide, "")
	flags.Uint64Var(&o.environment.seed, "seed", 1, "")
	flags.DurationVar(&o.environment.lag, "lag", 0, "")
	flags.IntVar(&o.sample, "sample", 0, "")
	flags.IntVar(&o.pairs, "pairs", 4000, "")
	flags.StringVar(&o.fault, "fault", "", "")
	flags.BoolVar(&o.verbose, "v", false, "")

	misused := func(format string, a ...any) int {
		fmt.Fprintf(stderr, "torture: "+format+"\n\n%s", append(a, usage)...)
		return exitUsage
	}

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		return misused("%v", err)
	case flags.NArg() > 0:
		return misused("there is no argument %q", flags.Arg(0))
	}

	if o.replay != "" {
		p, err := parse(o.replay, o.side, columns())
		if err != nil {
			return misused("%v", err)
		}
		return replay(t, p, o.environment, stdout)
	}

	fs := slices.DeleteFunc(faults(), func(f fault) bool { return f.name != o.fault && (o.fault != "" || f.optional) })
	if len(fs) == 0 {
		return misused("there is no fault %q", o.fault)
	}
	s := sweep{columns: columns(), faults: fs, environment: o.environment, sample: o.sample, pairs: o.pairs, progress: stderr}
	if o.only != "" {
		s.only = func(p point) bool { return strings.HasPrefix(p.name(), o.only) }
	}
	vs := s.run(t)
	if len(vs) == 0 {
		return misused("there is no life whose name begins with %q", o.only)
	}
	report := tally(vs)
	report.print(stdout)
	report.explain(stdout, o.environment, o.verbose)
	if !report.asExpected(o.only == "" && o.fault == "" && o.sample == 0) {
		return exitFailed
	}
	return exitOK
}

// replay leads one life and shows its steps.
func replay(t *testing.T, p point, e environment, out io.Writer) int {
	f := p.lead(t, e, out)

	switch {
	case f.err != nil:
		fmt.Fprintf(out, "\n%s: %v\n", p.name(), f.err)
		return exitFailed
	case violates(p, f) != "":
		fmt.Fprintf(out, "\n%s: %s\n", p.name(), violates(p, f))
		return exitFailed
	case f.stopped:
		fmt.Fprintf(out, "\n%s: stopped, and says so\n", p.name())
	default:
		fmt.Fprintf(out, "\n%s: fine after %d reconciles\n", p.name(), f.reconciles)
	}
	return exitOK
}
