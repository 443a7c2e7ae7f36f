package torture

import (
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

const usage = `Usage: go test -tags torture -v ./torture -args -- [FLAGS]

Strikes a provider with a fault at every request, with
crossplane-runtime's reconciler and with Graft, and prints the results.

The test fails if a run ended badly with Graft, or if none did without.

Flags:
`

// defaultLag is how long the cloud hides new resources.
const defaultLag = 20 * time.Second

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
	o := options{stdout: stdout, stderr: stderr}
	flags.StringVar(&o.only, "only", "", "make the runs only whose names begin with this `prefix`, for instance\n"+
		"create/sync, or delete/async/token")
	flags.IntVar(&o.sample, "sample", 0, "disturb them at this `number` of points only, which the seed picks")
	flags.IntVar(&o.pairs, "pairs", 4000, "lead up to this `number` of these runs again with a second fault, at a\n"+
		"later step, which the seed picks")
	flags.StringVar(&o.fault, "fault", "", "try this `fault` only")
	flags.StringVar(&o.replay, "replay", "", "lead the run of this `name`, and show its steps. The name looks like\n"+
		"create/sync/token/crash-after/7. It may name a second fault, at a\n"+
		"later step: /reset-after/12")
	flags.StringVar(&o.side, "side", graftSide, "whose code to replay: graft or upstream")
	flags.Uint64Var(&o.seed, "seed", 1, "decides what is random")
	flags.DurationVar(&o.lag, "lag", defaultLag, "how long the cloud hides new resources, in the runs whose\n"+
		"names end in late")
	flags.BoolVar(&o.verbose, "v", false, "name every scenario of upstream's that ended badly, too")
	if status, ok := intest.Parse(flags, usage, args, stdout, stderr); !ok {
		return status
	}
	misused := func(format string, a ...any) int { return intest.Misused(flags, stderr, format, a...) }
	if o.replay != "" {
		return o.replayRun(t, misused)
	}

	selected := slices.DeleteFunc(rows(o.lag), func(r row) bool { return !strings.HasPrefix(r.name(), o.only) })
	if len(selected) == 0 {
		return misused("there is no run whose name begins with %q", o.only)
	}
	report, err := o.sweep(t, selected)
	if err != nil {
		return o.failed(err)
	}
	report.print(stdout)
	report.explain(stdout, o.verbose)
	if !report.asExpected(o.only == "" && o.fault == "" && o.sample == 0) {
		return intest.ExitFailed
	}
	return intest.ExitOK
}

func (o options) failed(err error) int {
	fmt.Fprintf(o.stderr, "torture: %v\n", err)
	return intest.ExitFailed
}

// sweep leads the runs of these rows, and reports their results.
func (o options) sweep(t *testing.T, rows []row) (*report, error) {
	r := &report{counts: map[string]count{}}
	n := 2 * len(rows)
	pairs := (o.pairs + n - 1) / n
	points := math.MaxInt
	if o.sample > 0 {
		points = (o.sample+n-1)/n + pairs
	}
	opts := []crashtest.Option{crashtest.Seed(o.seed), crashtest.Runs(points), crashtest.Pairs(pairs)}
	if o.fault != "" {
		opts = append(opts, crashtest.Only("./^"+o.fault+"$"))
	}

	for i, row := range rows {
		if i%10 == 9 {
			fmt.Fprintf(o.stderr, "torture: %d of %d rows\n", i+1, len(rows))
		}
		for _, side := range []string{upstreamSide, graftSide} {
			vs, err := o.lead(t, row, side, opts...)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				r.add(v)
			}
		}
	}
	return r, nil
}

// make the runs of a row with the reconciler of a side.
func (o options) lead(t *testing.T, r row, side string, opts ...crashtest.Option) ([]verdictOf, error) {
	results, err := crashtest.Results(t, r.provider(side, o.seed), opts...)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", side, r.name(), err)
	}
	out := make([]verdictOf, len(results))
	for i, res := range results {
		out[i] = verdictOf{row: r, side: side, seed: o.seed, result: res}
	}
	return out, nil
}

// replayRun leads one run and shows its steps.
func (o options) replayRun(t *testing.T, misused func(format string, a ...any) int) int {
	all := rows(o.lag)
	i := slices.IndexFunc(all, func(r row) bool { return strings.HasPrefix(o.replay, r.name()+"/") })
	if i < 0 || o.side != graftSide && o.side != upstreamSide {
		return misused("%q of %q doesn't name a run: it has to look like create/sync/token/crash-after/7, or "+
			"create/sync/token/undisturbed", o.replay, o.side)
	}
	r := all[i]
	only := crashtest.Only(r.scenario.Name + strings.TrimPrefix(o.replay, r.name()))
	vs, err := o.lead(t, r, o.side, crashtest.Seed(o.seed), only)
	if err != nil {
		return o.failed(err)
	}
	if len(vs) != 1 {
		return misused("%q doesn't name one run", o.replay)
	}
	v := vs[0]
	fmt.Fprintf(o.stdout, "%s\n%s: ", v.result.Timeline(), v.name())

	switch {
	case v.bad() != "":
		fmt.Fprintln(o.stdout, v.bad())
		return intest.ExitFailed
	case v.has(crashtest.Stopped):
		fmt.Fprintln(o.stdout, "stopped, and says so")
	default:
		fmt.Fprintln(o.stdout, "fine")
	}
	return intest.ExitOK
}
