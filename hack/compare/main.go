// Command compare measures crossplane-runtime's reconciler beside Graft's, and writes
// a table, plots, and the figures that the documentation quotes.
//
// Each figure has a name, a unit, and one value for each time that it was measured.
// Measurements run on a control plane (measure.go), in simulated time (throttled.go), and in
// other programs of this repository (programs.go). Page.go and plot.go present the figures,
// quotes.go updates the documents.
//
// It runs as a test, which simulated time needs: a step that fails ends it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx := ctrl.SetupSignalHandler()
	intest.Main(func(t *testing.T, args []string) int {
		if description := os.Getenv(providerVariable); description != "" {
			if err := runProvider(ctx, description, os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, "compare, as a provider:", err)
				return 1
			}
			return 0
		}
		o, err := parse(args)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		o.run(ctx, t)
		return 0
	})
}

type options struct {
	sizes             []int
	poll              time.Duration
	rounds, torture   int
	render, throttled bool
	bench             string
	out, quotes       string

	// arguments are the flags that are set, except those that name folders.
	arguments []string
}

// parse reads the arguments.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	sizes := flags.String("sizes", "10,100,1000,10000", "numbers of managed resources, in order")
	flags.DurationVar(&o.poll, "poll", 45*time.Second, "poll interval, and how long a steady state is measured")
	flags.IntVar(&o.rounds, "rounds", 2, "how often each side is measured")
	flags.IntVar(&o.torture, "torture", 1000, "the sample of torture's points; 0 to leave it out")
	flags.StringVar(&o.bench, "bench", ".", "regular expression of the benchmarks to run; empty for none")
	flags.StringVar(&o.out, "o", ".", "folder to write figures.json, README.md and plots to")
	flags.StringVar(&o.quotes, "quotes", "", "folder below which to update the figures that Markdown files quote")
	flags.BoolVar(&o.throttled, "throttled", false, "measure only a restart with a cloud that throttles, "+
		"in simulated time, and add that to the figures.json that is there")
	flags.BoolVar(&o.render, "render", false, "measure nothing: write table, plots and quotes of the figures.json "+
		"that is there")
	_ = flags.Parse(args) // It exits on an error.
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"o", "quotes", "render", "throttled"}, f.Name) {
			o.arguments = append(o.arguments, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return o, fmt.Errorf("-sizes: %q is not a number of managed resources", s)
		}
		o.sizes = append(o.sizes, n)
	}
	return o, nil
}

// run measures and writes files, as the options say.
func (o options) run(ctx context.Context, t *testing.T) {
	file := filepath.Join(o.out, "figures.json")
	if !o.render {
		o.measure(ctx, t, file).write(t, file)
	}

	r := readResults(t, file)
	text, charts := page(t, r)
	must(t, os.WriteFile(filepath.Join(o.out, "README.md"), []byte(text), 0o644))
	for _, c := range charts {
		c.save(t, r, o.out)
	}
	if o.quotes != "" {
		must(t, updateQuotes(o.quotes, r))
	}
}

// measure takes all measurements that the options select. file has the figures of an earlier
// run.
func (o options) measure(ctx context.Context, t *testing.T, file string) *results {
	r := &results{
		Machine: machine(), Arguments: o.arguments,
		Sizes: o.sizes, Poll: o.poll.String(), Rounds: o.rounds, Torture: o.torture,
	}
	if o.throttled {
		r = readResults(t, file)
		r.Figures = slices.DeleteFunc(r.Figures, func(f *figure) bool {
			return strings.HasPrefix(f.Name, "throttled/") || strings.HasPrefix(f.Name, "model/")
		})
	} else {
		o.realStates(ctx, t, r)
	}
	o.throttledRestarts(t, r) //nolint:contextcheck // Simulated time needs a context of its own.

	// The tests of the library know more than this program can measure from outside.
	if o.torture > 0 && !o.throttled {
		o.runTorture(ctx, t, r)
	}
	if o.bench != "" && !o.throttled {
		o.runBenchmarks(ctx, t, r)
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
