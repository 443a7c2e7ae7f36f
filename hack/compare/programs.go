package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// tortureColumns are the names of torture's columns, in their order.
func tortureColumns() []string {
	return []string{"points", "duplicates", "leaks", "names-lost", "stuck", "stopped", "misled", "reconciles"}
}

// A named thing has a name in figures and a label in pages.
type named struct{ Name, Label string }

func readTroubles() []named {
	return []named{{"Nothing", "is fine"}, {"NeverSyncs", "never syncs"}, {"IsLookedUpSlowly", "is looked up slowly"}}
}

func stopTroubles() []named {
	return []named{
		{"Healthy", "healthy"},
		{"Refusing", "refuses"},
		{"Hanging", "hangs"},
		{"HangingWhileOneMoreIsStarted", "hangs for 500 ms while one more is started"},
	}
}

func watchSides() []string { return []string{"ControllerRuntime", "Baseline", "Graft"} }

// runTorture runs a sample of torture.
func (o options) runTorture(ctx context.Context, r *results) error {
	fmt.Fprintf(o.stderr, "torture, a sample of %d points\n", o.torture)
	out, err := o.goCommand(ctx, "hack", "run", "./torture",
		"-sample", strconv.Itoa(o.torture), "-pairs", strconv.Itoa(o.torture/4))
	if err != nil {
		return err
	}
	return addTorture(r, out)
}

// addTorture reads the last row of torture's table: all lives.
func addTorture(r *results, out []byte) error {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, cells, _ := strings.Cut(lines.Text(), " ")
		if name != "all" {
			continue
		}
		pairs := regexp.MustCompile(`([0-9]+) : ([0-9]+)`).FindAllStringSubmatch(cells, -1)
		if len(pairs) != len(tortureColumns()) {
			break
		}
		for i, column := range tortureColumns() {
			for j, side := range sides() {
				n, err := strconv.Atoi(pairs[i][1+j])
				if err != nil {
					return err
				}
				r.add("torture/"+side+"/"+column, "", float64(n))
			}
		}
		return nil
	}
	return fmt.Errorf("torture printed no row for all lives:\n%s", out)
}

// runBenchmarks of the library.
func (o options) runBenchmarks(ctx context.Context, r *results) error {
	for range o.rounds {
		fmt.Fprintf(o.stderr, "benchmarks that match %s\n", o.bench)
		out, err := o.goCommand(ctx, ".", "test", "-run", "^$", "-bench", o.bench, "-benchmem", "-benchtime", "300ms",
			"./pkg/managed", "./pkg/reconciler", "./pkg/watch")
		if err != nil {
			return err
		}
		addBenchmarks(r, out)
	}

	// In simulated time it is the same each time.
	out, err := o.goCommand(ctx, ".", "test", "-count=1", "-v", "-run", "TestRequestsForKindsThatArentThere",
		"./pkg/watch")
	if err != nil {
		return err
	}
	addMissing(r, out)
	return nil
}

// addMissing reads the requests a second for kinds that don't exist. A test's name precedes
// its log lines.
func addMissing(r *results, out []byte) {
	line := regexp.MustCompile(`requests a second for .*: baseline ([0-9.]+), Graft ([0-9.]+)`)
	test := ""

	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "=== RUN"); ok {
			_, test, _ = strings.Cut(strings.TrimSpace(name), "/")
		}
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		for i, side := range watchSides()[1:] {
			if n, err := strconv.ParseFloat(m[1+i], 64); err == nil {
				r.add("missing/"+test+"/"+side, "/s", n)
			}
		}
	}
}

// addBenchmarks reads lines as go test writes them: a name, a count, and pairs of a
// value and a unit.
func addBenchmarks(r *results, out []byte) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := regexp.MustCompile(`-[0-9]+$`).ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")

		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				continue
			}
			unit := fields[i+1]

			// Nanoseconds and single bytes are too small to read.
			for was, is := range map[string]string{"ns": "µs", "heap-B": "heap-KB", "stack-B": "stack-KB"} {
				last := strings.HasSuffix(unit, "-"+was) || strings.HasSuffix(unit, "-"+was+"/op")
				if last || strings.HasPrefix(unit, was) {
					unit, value = strings.Replace(unit, was, is, 1), value/1000
				}
			}

			r.add("bench/"+name+"/"+unit, unit, value)
		}
	}
}

// goCommand runs the go command in a folder of the repository, and returns its output.
func (o options) goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(o.root, dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return out.Bytes(), nil
}
