// Command compare measures crossplane-runtime's reconciler beside Graft's, and writes
// a table, plots, and the figures that the documentation quotes.
//
// Each figure has a name, a unit, and one value for each time that it was measured.
// What the files hold: main.go the command, load.go a provider in a process of its
// own and what it manages, measure.go what is measured on the control plane,
// embedded.go what can be counted in memory, programs.go what other programs of this
// repository measure, figures.go the figures, table.go and plot.go how they are
// shown, quotes.go where they are quoted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

const usage = `Usage: compare [FLAGS]

Measures crossplane-runtime's reconciler beside Graft's, and writes figures.json,
README.md and plots.

Flags:
  -sizes N,N,...   Numbers of managed resources, in order. 10,100,1000,10000 by default.
  -poll DURATION   Poll interval, and how long a steady state is measured. 45s by default.
  -rounds N        How often each side is measured. 2 by default.
  -embedded        Only count requests, with an API server in memory: seconds.
  -torture N       The sample of torture's points; 0 to leave it out. 1000 by default.
  -bench REGEXP    The benchmarks to run; empty for none. All by default.
  -o DIR           Where to write. The current folder by default.
  -root DIR        The root of the repository. Two folders up by default.
  -quotes DIR      Update the figures that Markdown files below DIR quote.
  -render          Measure nothing: write table, plots and quotes of the figures.json
                   that is there.
`

type options struct {
	sizes              []int
	poll               time.Duration
	rounds, torture    int
	embedded, render   bool
	bench              string
	out, root, quotes  string
	stdout, stderr     io.Writer
	workers, deletions int

	// arguments that are not the defaults, and are not about folders.
	arguments []string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if description := os.Getenv(providerVariable); description != "" {
		err = runProvider(ctx, description, os.Stdin, os.Stdout)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}

	cancel()

	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// command does what the arguments say.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{stdout: stdout, stderr: stderr, workers: 10, deletions: 5}
	sizes := ""
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&sizes, "sizes", "10,100,1000,10000", "")
	flags.DurationVar(&o.poll, "poll", 45*time.Second, "")
	flags.IntVar(&o.rounds, "rounds", 2, "")
	flags.BoolVar(&o.embedded, "embedded", false, "")
	flags.IntVar(&o.torture, "torture", 1000, "")
	flags.StringVar(&o.bench, "bench", ".", "")
	flags.StringVar(&o.out, "o", ".", "")
	flags.StringVar(&o.root, "root", filepath.Join("..", ".."), "")
	flags.StringVar(&o.quotes, "quotes", "", "")
	flags.BoolVar(&o.render, "render", false, "")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return nil
	case err != nil:
		return fmt.Errorf("%w\n\n%s", err, usage)
	}

	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"o", "root", "quotes", "render"}, f.Name) {
			o.arguments = append(o.arguments, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})

	for s := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return fmt.Errorf("-sizes: %q is not a number of managed resources", s)
		}
		o.sizes = append(o.sizes, n)
	}

	file := filepath.Join(o.out, "figures.json")

	if !o.render {
		r, err := o.measure(ctx)
		if err != nil {
			return err
		}
		if err := r.write(file); err != nil {
			return err
		}
	}

	r, err := readResults(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "README.md"), []byte(table(r)), 0o644); err != nil {
		return err
	}
	for _, c := range charts(r) {
		if err := c.save(o.out, ".svg"); err != nil {
			return fmt.Errorf("cannot plot %s: %w", c.file, err)
		}
	}

	if o.quotes != "" {
		return updateQuotes(o.quotes, r)
	}
	return nil
}

// measure everything that is asked for.
func (o options) measure(ctx context.Context) (*results, error) {
	r := &results{
		Machine: machine(), Arguments: o.arguments,
		Sizes: o.sizes, Poll: o.poll.String(), Rounds: o.rounds, Torture: o.torture,
	}

	if o.embedded {
		return r, o.embeddedStates(ctx, r)
	}
	if err := o.realStates(ctx, r); err != nil {
		return nil, err
	}

	// The tests of the library know more than this program can measure from outside.
	if o.torture > 0 {
		if err := o.runTorture(ctx, r); err != nil {
			return nil, err
		}
	}

	if o.bench != "" {
		if err := o.runBenchmarks(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}
