// Command passthrough writes the part of Graft's pkg/managed that only passes
// upstream's API through: aliases for its types, its constants, and functions
// that call their namesakes.
//
// It reads upstream's exported API with go/types, at the version that Graft's
// go.mod selects, and leaves out every name that pkg/managed declares by hand.
// Run it from the hack directory after a bump of crossplane-runtime and after a
// name is added to or removed from the hand-written files:
//
//	go run ./passthrough -api api
//
// With -api it also writes a golden file with the exported API of each of Graft's packages.
//
// The compiler, or a test, names a symbol that can't be passed through; it has to be written by hand.
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
	managed := filepath.Join("..", "pkg", "managed")
	dir := flag.String("dir", managed, "directory of the package to generate "+generatedFile+" into")
	api := flag.String("api", "", "directory to write the exported API of Graft's packages to")
	flag.Parse()
	if err := run(*dir, *api); err != nil {
		fmt.Fprintf(os.Stderr, "passthrough: %v\n", err)
		os.Exit(1)
	}
}

// run generates the pass-through file of the package in dir, and the golden files unless api
// is empty. The package need not compile.
func run(dir, api string) error {
	pkgs, err := load(dir, upstreamPath)
	if err != nil {
		return err
	}
	own, err := declared(dir)
	if err != nil {
		return err
	}
	src, err := generate(pkgs[upstreamPath], own)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, generatedFile), src, 0o644); err != nil || api == "" {
		return err
	}
	return writeSurfaces(dir, api)
}
