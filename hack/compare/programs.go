package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tortureColumns are the names of torture's columns, in their order.
func tortureColumns() []string {
	return []string{"points", "duplicates", "leaks", "names-lost", "stuck", "stopped", "misled", "reconciles"}
}

func watchSides() []string { return []string{"ControllerRuntime", "Baseline", "Graft"} }

// runTorture runs a sample of torture, and reads the last row of its table: all runs.
func (o options) runTorture(ctx context.Context, t *testing.T, r *results) {
	fmt.Fprintf(os.Stderr, "torture, a sample of %d points\n", o.torture)
	out := goCommand(ctx, t, "hack", "test", "-tags", "torture", "-count=1", "-timeout", "1h", "-v",
		"-run", "^TestTorture$", "./torture", "-args", "--", "-sample", strconv.Itoa(o.torture),
		"-pairs", strconv.Itoa(o.torture/4))
	row := regexp.MustCompile(`(?m)^all .*$`).FindString(out)
	pairs := regexp.MustCompile(`([0-9]+) : ([0-9]+)`).FindAllStringSubmatch(row, -1)
	if len(pairs) != len(tortureColumns()) {
		t.Fatalf("torture printed no row for all runs:\n%s", out)
	}
	for i, column := range tortureColumns() {
		for j, side := range sides() {
			r.add("torture/"+side+"/"+column, "", parseNumber(t, pairs[i][1+j]))
		}
	}
}

// runBenchmarks of the library.
func (o options) runBenchmarks(ctx context.Context, t *testing.T, r *results) {
	for range o.rounds {
		fmt.Fprintf(os.Stderr, "benchmarks that match %s\n", o.bench)
		addBenchmarks(t, r, goCommand(ctx, t, ".", "test", "-run", "^$", "-bench", o.bench, "-benchmem",
			"-benchtime", "300ms", "./pkg/managed", "./pkg/reconciler", "./pkg/watch"))
	}

	// In simulated time it is the same each time. A test's name precedes its log lines.
	out := goCommand(ctx, t, ".", "test", "-count=1", "-v", "-run", "TestRequestsForKindsThatArentThere",
		"./pkg/watch")
	line := regexp.MustCompile(`=== RUN +\w+/(.*)|requests a second for .*: baseline ([0-9.]+), Graft ([0-9.]+)`)
	test := ""
	for _, m := range line.FindAllStringSubmatch(out, -1) {
		if m[1] != "" {
			test = m[1]
			continue
		}
		for i, side := range watchSides()[1:] {
			r.add("missing/"+test+"/"+side, "/s", parseNumber(t, m[2+i]))
		}
	}
}

// addBenchmarks reads lines as go test writes them: a name, a count, and pairs of a
// value and a unit.
func addBenchmarks(t *testing.T, r *results, out string) {
	line := regexp.MustCompile(`(?m)^Benchmark(\S+?)(-[0-9]+)?\s+[0-9]+\s+([0-9].*)$`)
	larger := strings.NewReplacer("ns", "µs", "heap-B", "heap-KB", "stack-B", "stack-KB")
	small := regexp.MustCompile(`^(ns|heap-B|stack-B)|-(ns|heap-B|stack-B)(/op)?$`)
	for _, m := range line.FindAllStringSubmatch(out, -1) {
		fields := strings.Fields(m[3])
		for i := 0; i+1 < len(fields); i += 2 {
			value, unit := parseNumber(t, fields[i]), fields[i+1]

			// Nanoseconds and single bytes are too small to read.
			if small.MatchString(unit) {
				unit, value = larger.Replace(unit), value/1000
			}
			r.add("bench/"+m[1]+"/"+unit, unit, value)
		}
	}
}

func parseNumber(t *testing.T, text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	must(t, err)
	return n
}

// goCommand runs the go command in a folder of the repository, and returns its output.
func goCommand(ctx context.Context, t *testing.T, dir string, args ...string) string {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join("..", "..", dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
