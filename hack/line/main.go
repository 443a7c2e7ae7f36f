// Command line writes Graft's source as providers on an older release of
// crossplane-runtime need it, builds it, and runs its unit tests:
//
//	go run ./line -runtime v2.2.1 -o DIR
//
// Main is written for one release of crossplane-runtime. No branch holds the source of the
// other lines: this command derives it from main, with the edits in lines.go. In each line,
// go.mod requires the same versions as that release of crossplane-runtime, and the
// pass-through of upstream's API is generated from that release.
//
// It needs git, and the network for modules. tag.sh makes the tags of a release from the tree.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

const usage = `Usage: line -runtime VERSION [-o DIR] [-version VERSION] [-write]

Writes Graft's source for a release of crossplane-runtime into DIR, builds it, and
runs its unit tests. The exit status is 1 if something failed, and 2 if an argument
is wrong.

`

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command with the given arguments, and returns the exit status.
func command(args []string, stdout, stderr io.Writer) int {
	known := strings.Join(slices.Sorted(maps.Keys(lines())), " or ")
	flags := flag.NewFlagSet("line", flag.ContinueOnError)
	runtime := flags.String("runtime", "", "The release of crossplane-runtime: "+known+".")
	dir := flags.String("o", "", "Where to write (default: bin/line/VERSION). What an earlier run wrote there\n"+
		"is replaced; any other content is an error.")
	version := flags.String("version", "", "What the modules of the tree require of each other, for a release.")
	writeOnly := flags.Bool("write", false, "Write the tree only: don't build and test it.")
	if status, ok := intest.Parse(flags, usage, args, stdout, stderr); !ok {
		return status
	}
	l, ok := lines()[*runtime]
	switch {
	case !ok:
		return intest.Misused(flags, stderr, "no line for crossplane-runtime %q: there is one for %s", *runtime, known)
	case *version != "" && semver.MajorMinor(*version) != l.graft:
		return intest.Misused(flags, stderr, "%s is no version of %s.x", *version, l.graft)
	}
	l.version = *version
	if err := makeLine(l, *dir, *writeOnly, stdout); err != nil {
		fmt.Fprintf(stderr, "line: %v\n", err)
		return intest.ExitFailed
	}
	return intest.ExitOK
}

// makeLine writes the tree of a line, and builds and tests it unless it is only to be
// written.
func makeLine(l line, dir string, writeOnly bool, out io.Writer) error {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(root, "bin", "line", l.runtime)
	}
	if dir, err = filepath.Abs(dir); err != nil {
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
	if err := t.write(dir); err != nil {
		return err
	}
	err = t.finish(out, root, dir)
	if err == nil && !writeOnly {
		err = t.check(out, dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The tree for crossplane-runtime %s (Graft %s.x) is in %s.\n", l.runtime, l.graft, dir)
	return nil
}
