// Command mutants measures how many small faults in a package its tests notice:
//
//	go run ./mutants -pkg ./pkg/internal/seam -n 100 -seed 1
//
// go-mutesting, which hack/tools pins, writes a copy of a file for each mutant. The
// command takes a random sample of them, runs the package's tests with each, and
// prints the score and the mutants that survived. The same seed and source give the same
// sample. The source itself is never written: the go command reads a mutant through
// -overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	o := options{root: "..", tool: filepath.Join("..", "bin", "go-mutesting")}
	flag.StringVar(&o.pkg, "pkg", "", "package to mutate, as in ./pkg/watch")
	flag.StringVar(&o.also, "also", "",
		"further packages whose tests to run with a mutant that survived, separated by spaces")
	flag.IntVar(&o.n, "n", 100, "size of the sample")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long the tests of one package may take")
	flag.IntVar(&o.parallel, "parallel", 2, "how many mutants to test at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags, the module's directory, and the go-mutesting command.
type options struct {
	root, pkg, also, tool string

	n, parallel int
	seed        uint64
	timeout     time.Duration
}

// run tests a sample of the package's mutants, and prints the survivors and the
// score. If ctx ends, it prints the score of the mutants tested so far.
func run(ctx context.Context, o options, w io.Writer) error {
	var err1, err2 error
	o.root, err1 = filepath.Abs(o.root)
	o.tool, err2 = filepath.Abs(o.tool)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // A leftover in the temporary directory harms nothing.
	p, err := build.ImportDir(filepath.Join(o.root, o.pkg), 0)
	if err != nil {
		return err
	}
	all, err := generate(ctx, o, p, tmp)
	if err != nil {
		return err
	}
	ms := sample(all, o.n, o.seed)
	pkgs := append([]string{o.pkg}, strings.Fields(o.also)...)
	t := tester{options: o, tmp: tmp, pkgs: pkgs, name: p.Name}
	compiled, err := t.build(ctx, ms)
	if err != nil {
		return err
	}

	// A test that fails anyway would kill every mutant.
	if killer, out, err := t.test(ctx, 0); err != nil || killer != "" {
		return fmt.Errorf("the tests of %s fail without a mutant: %w%s", killer, err, out)
	}
	fmt.Fprintf(w, "%s: %d mutants, sample of %d, seed %d\n", o.pkg, len(all), len(ms), o.seed)
	var mu sync.Mutex
	killed := map[string]int{} // By the package whose tests did it; none for survivors.
	tests, ctx := errgroup.WithContext(ctx)
	tests.SetLimit(o.parallel)
	for _, m := range compiled {
		tests.Go(func() error {
			killer, _, err := t.test(ctx, m.id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return fmt.Errorf("%s:%d: %w", m.file, m.line, err)
			case killer == "":
				fmt.Fprintf(w, "survived %s:%d\n  - %s\n  + %s\n", m.file, m.line, m.was, m.now)
			}
			killed[killer]++
			return nil
		})
	}
	err = tests.Wait()
	printScore(w, pkgs, killed, len(ms)-len(compiled))
	return err
}

// printScore prints how many mutants the tests of each package killed. Those that don't
// compile don't count.
func printScore(w io.Writer, pkgs []string, killed map[string]int, broken int) {
	total := 0
	var by []string
	for _, pkg := range pkgs {
		total += killed[pkg]
		by = append(by, fmt.Sprintf("%d by the tests of %s", killed[pkg], pkg))
	}
	fmt.Fprintf(w, "killed %d of %d (%s), survived %d; %d more don't compile\n",
		total, total+killed[""], strings.Join(by, ", "), killed[""], broken)
}
