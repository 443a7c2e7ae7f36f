// Command passthrough writes the part of Graft's pkg/managed that only passes
// upstream's API through: aliases for its types, its constants, and functions
// that call their namesakes.
//
// It reads upstream's exported API with go/types, at the version that Graft's
// go.mod selects, and leaves out every name that pkg/managed declares by hand.
// Run it from the hack directory after a bump of crossplane-runtime and after a
// name is added to or removed from the hand-written files:
//
//	go run ./passthrough
//
// A construct that can't be passed through faithfully stops it with a sentence
// that names the symbol; such a symbol has to be written by hand.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// upstreamPath is the package whose API is passed through.
	upstreamPath = "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"

	// generatedFile is the name of the file this command writes.
	generatedFile = "zz_upstream.go"
)

func main() {
	dir := flag.String("dir", filepath.Join("..", "pkg", "managed"), "directory of the package to generate "+generatedFile+" into")
	flag.Parse()

	if err := run(*dir); err != nil {
		fmt.Fprintf(os.Stderr, "passthrough: %v\n", err)
		os.Exit(1)
	}
}

// run generates the pass-through file of the package in dir. The file is left
// as it is if anything fails.
func run(dir string) error {
	src, err := generateFor(dir)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, generatedFile), src, 0o644)
}

// generateFor returns the content of the pass-through file of the package in
// dir. That package need not compile.
func generateFor(dir string) ([]byte, error) {
	own, err := declared(dir)
	if err != nil {
		return nil, err
	}

	pkgs, err := load(dir, upstreamPath)
	if err != nil {
		return nil, err
	}

	up := pkgs[upstreamPath]

	return generate(api{types: up.Types, syntax: up.Syntax}, own)
}
