// Command line writes Graft's source as providers on an older release of
// crossplane-runtime need it, builds it, and runs its unit tests:
//
//	go run ./line -runtime v2.2.1 -o DIR
//
// Main is written for one release of crossplane-runtime. No branch holds the source of the
// other lines: this command derives it from main, with the table in lines.go. In each line,
// go.mod requires the same versions as that release of crossplane-runtime, and the
// pass-through of upstream's API is generated from that release.
//
// In tests, a table case that uses a name the release lacks is left out, and so is
// a test function. The command prints each.
//
// It needs git, and the network for modules. tag.sh makes the tags of a release from the tree.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

const usage = `Usage: line -runtime VERSION [-o DIR] [-version VERSION] [-write]

Writes Graft's source for a release of crossplane-runtime into DIR, builds it, and
runs its unit tests.

Flags:
  -runtime VERSION  The release of crossplane-runtime: %s.
  -o DIR            Where to write (default: bin/line/VERSION). What an earlier run
                    wrote there is replaced; any other content is an error.
  -version VERSION  What the modules of the tree require of each other, for a release.
  -write            Write the tree only: don't build and test it.

The exit status is 1 if something failed, and 2 if an argument is wrong.
`

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command with the given arguments, and returns the exit status.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("line", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	runtime := flags.String("runtime", "", "")
	dir := flags.String("o", "", "")
	version := flags.String("version", "", "")
	writeOnly := flags.Bool("write", false, "")
	known := slices.Sorted(maps.Keys(lines()))
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, usage, strings.Join(known, " or "))
		return exitOK
	}
	l, ok := lines()[*runtime]
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("no line for crossplane-runtime %q: there is one for %s",
			*runtime, strings.Join(known, " and "))
	case *version != "" && semver.MajorMinor(*version) != l.graft:
		err = fmt.Errorf("%s is no version of %s.x", *version, l.graft)
	default:
		l.version = *version
	}

	if err != nil {
		fmt.Fprintf(stderr, "line: %v\n\n"+usage, err, strings.Join(known, " or "))
		return exitUsage
	}
	if err := run(l, *dir, *writeOnly, stdout); err != nil {
		fmt.Fprintf(stderr, "line: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// run writes the tree of a line, and builds and tests it unless it is only to be
// written.
func run(l line, dir string, writeOnly bool, out io.Writer) error {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(root, "bin", "line", l.runtime)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	files, err := readFiles(root)
	if err != nil {
		return err
	}
	runtime, err := runtimeModFile(l.runtime)
	if err != nil {
		return err
	}
	t, err := newTree(l, runtime, files)
	if err != nil {
		return err
	}
	for _, c := range t.leftOut {
		fmt.Fprintf(out, "left out: %s\n", c)
	}

	if err := t.write(dir); err != nil {
		return err
	}
	steps := t.finish(root, dir)
	if !writeOnly {
		steps = append(steps, t.check(dir)...)
	}

	for _, s := range steps {
		if err := s.run(out); err != nil {
			return err
		}
	}

	fmt.Fprintf(out, "The tree for crossplane-runtime %s (Graft %s.x) is in %s.\n", l.runtime, l.graft, dir)
	return nil
}
