package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
  -throttled       Measure only a restart with a cloud that throttles, in simulated time,
                   and add that to the figures.json that is there.
  -render          Measure nothing: write table, plots and quotes of the figures.json
                   that is there.
`

type options struct {
	sizes              []int
	poll               time.Duration
	rounds, torture    int
	embedded, render   bool
	throttled          bool
	bench              string
	out, root, quotes  string
	stderr             io.Writer
	workers, deletions int

	// arguments are the flags that are set, except those that name folders.
	arguments []string
}

// parse reads the arguments.
func parse(args []string) (options, error) {
	o := options{workers: 10, deletions: 5}
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
	flags.BoolVar(&o.throttled, "throttled", false, "")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("%w\n\n%s", err, usage)
	}

	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"o", "root", "quotes", "render", "throttled"}, f.Name) {
			o.arguments = append(o.arguments, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	for s := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return o, fmt.Errorf("-sizes: %q is not a number of managed resources", s)
		}
		o.sizes = append(o.sizes, n)
	}
	return o, nil
}
