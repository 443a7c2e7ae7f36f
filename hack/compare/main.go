// Command compare measures crossplane-runtime's reconciler beside Graft's, and writes
// a table, plots, and the figures that the documentation quotes.
//
// Each figure has a name, a unit, and one value for each time that it was measured.
// Measurements run on a control plane (measure.go), with an API server in memory
// (embedded.go), in simulated time (throttled.go), and in other programs of this repository
// (programs.go). Page.go and plot.go present the figures, quotes.go updates the documents.
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
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	intest.Main(func(t *testing.T, args []string) int {
		defer cancel()
		var err error
		if description := os.Getenv(providerVariable); description != "" {
			err = runProvider(ctx, description, os.Stdin, os.Stdout)
		} else {
			err = command(ctx, t, args, os.Stdout, os.Stderr)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			return 1
		}
		return 0
	})
}

// command measures and writes files, as the arguments say.
func command(ctx context.Context, t *testing.T, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return nil
	}
	if err != nil {
		return err
	}
	o.stderr = stderr
	file := filepath.Join(o.out, "figures.json")

	if !o.render {
		r, err := o.measure(ctx, t, file)
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
	text, err := page(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "README.md"), []byte(text), 0o644); err != nil {
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

// measure takes all measurements that the options select. file has the figures of an earlier
// run.
func (o options) measure(ctx context.Context, t *testing.T, file string) (*results, error) {
	if o.throttled {
		r, err := readResults(file)
		if err != nil {
			return nil, err
		}
		r.Figures = slices.DeleteFunc(r.Figures, func(f *figure) bool {
			return strings.HasPrefix(f.Name, "throttled/") || strings.HasPrefix(f.Name, "model/")
		})
		o.throttledRestarts(t, r) //nolint:contextcheck // Simulated time needs a context of its own.
		return r, nil
	}
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

	o.throttledRestarts(t, r) //nolint:contextcheck // Simulated time needs a context of its own.

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
