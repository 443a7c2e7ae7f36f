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
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
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
  -fault FAULT    Try this fault only.
  -replay NAME    Lead one life and show its steps. NAME looks like
                  create/sync/token/crash-after/7. It may go on with a second
                  fault, at a later step: /reset-after/12.
  -side SIDE      Whose code to replay: graft (the default) or upstream.
  -seed N         Decides what is random. 1 by default.
  -lag DURATION   How long the cloud hides new resources, in the lives whose names end
                  in late. 20s by default.
  -v              Name every life of upstream's that ended badly, too.
  -h              Print this.

The exit status is 1 if a life ended badly with Graft, or if none did without.
`

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// defaultLag is how long the cloud hides new resources.
const defaultLag = 20 * time.Second

// allPoints is more than any life has.
const allPoints = 1 << 20

func main() {
	// Lives are short, and each leaves a whole API server behind.
	debug.SetGCPercent(400)
	intest.Main(func(t *testing.T, args []string) int { return command(t, args, os.Stdout, os.Stderr) })
}

type options struct {
	only, replay, side, fault string

	seed          uint64
	lag           time.Duration
	sample, pairs int
	verbose       bool

	stdout, stderr io.Writer
}

// command runs with these arguments, and returns the exit status.
func command(t *testing.T, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o := options{stdout: stdout, stderr: stderr}
	flags.StringVar(&o.only, "only", "", "")
	flags.StringVar(&o.replay, "replay", "", "")
	flags.StringVar(&o.side, "side", graftSide, "")
	flags.Uint64Var(&o.seed, "seed", 1, "")
	flags.DurationVar(&o.lag, "lag", defaultLag, "")
	flags.IntVar(&o.sample, "sample", 0, "")
	flags.IntVar(&o.pairs, "pairs", 4000, "")
	flags.StringVar(&o.fault, "fault", "", "")
	flags.BoolVar(&o.verbose, "v", false, "")

	misused := func(format string, a ...any) int {
		fmt.Fprintf(stderr, "torture: "+format+"\n\n%s", append(a, usage)...)
		return exitUsage
	}

	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		return misused("%v", err)
	case flags.NArg() > 0:
		return misused("there is no argument %q", flags.Arg(0))
	}

	if o.replay != "" {
		return o.replayLife(t, misused)
	}
	selected := slices.DeleteFunc(rows(o.lag), func(r row) bool { return !strings.HasPrefix(r.name(), o.only) })
	if len(selected) == 0 {
		return misused("there is no life whose name begins with %q", o.only)
	}
	report, err := o.sweep(t, selected)
	if err != nil {
		fmt.Fprintf(stderr, "torture: %v\n", err)
		return exitFailed
	}
	report.print(stdout)
	report.explain(stdout, o.verbose)
	if !report.asExpected(o.only == "" && o.fault == "" && o.sample == 0) {
		return exitFailed
	}
	return exitOK
}

// sweep leads the lives of these rows, and reports their results.
func (o options) sweep(t *testing.T, rows []row) (*report, error) {
	report := newReport()
	n := 2 * len(rows)
	pairs := (o.pairs + n - 1) / n
	opts := []crashtest.Option{crashtest.Seed(o.seed), crashtest.Points(allPoints), crashtest.Pairs(pairs)}
	if o.sample > 0 {
		opts = append(opts, crashtest.Points((o.sample+n-1)/n+pairs))
	}
	if o.fault != "" {
		opts = append(opts, crashtest.Only("./^"+o.fault+"$"))
	}

	for i, r := range rows {
		if i%10 == 9 {
			fmt.Fprintf(o.stderr, "torture: %d of %d rows\n", i+1, len(rows))
		}
		for _, c := range columns() {
			if c.mode != r.mode {
				continue
			}
			vs, err := o.lead(t, r, c, opts...)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				report.add(v)
			}
		}
	}
	return report, nil
}

// lead the lives of a row with the reconciler of a column.
func (o options) lead(t *testing.T, r row, c column, opts ...crashtest.Option) ([]verdictOf, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	results, err := crashtest.Lead(t, r.provider(c, scheme, o.seed), opts...)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.side, r.name(), err)
	}
	var out []verdictOf
	for _, res := range results {
		out = append(out, verdictOf{row: r, column: c, seed: o.seed, result: res})
	}
	return out, nil
}

// replayLife leads one life and shows its steps.
func (o options) replayLife(t *testing.T, misused func(format string, a ...any) int) int {
	all := rows(o.lag)
	i := slices.IndexFunc(all, func(r row) bool { return strings.HasPrefix(o.replay, r.name()+"/") })
	j := slices.IndexFunc(columns(), func(c column) bool { return i >= 0 && c.side == o.side && c.mode == all[i].mode })
	if i < 0 || j < 0 {
		return misused(
			"%q of %q doesn't name a life: it has to look like create/sync/token/crash-after/7, or "+
				"create/sync/token/undisturbed",
			o.replay,
			o.side,
		)
	}
	r := all[i]
	vs, err := o.lead(
		t, r, columns()[j], crashtest.Seed(o.seed), crashtest.Only(r.life.Name+strings.TrimPrefix(o.replay, r.name())),
	)
	switch {
	case err != nil:
		fmt.Fprintf(o.stderr, "torture: %v\n", err)
		return exitFailed
	case len(vs) != 1:
		return misused("%q doesn't name one life", o.replay)
	}
	v := vs[0]
	fmt.Fprint(o.stdout, v.result.Timeline())

	switch {
	case v.bad() != "":
		fmt.Fprintf(o.stdout, "\n%s: %s\n", v.name(), v.bad())
		return exitFailed
	case v.has(crashtest.Stopped):
		fmt.Fprintf(o.stdout, "\n%s: stopped, and says so\n", v.name())
	default:
		fmt.Fprintf(o.stdout, "\n%s: fine after %d reconciles\n", v.name(), v.result.Reconciles)
	}
	return exitOK
}
