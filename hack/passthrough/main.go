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
// is empty. If upstream can't be read, it changes no file.
func run(dir, api string) error {
	up, err := upstreamOf(dir)
	if err != nil {
		return err
	}
	src, err := generateFor(dir, up)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, generatedFile), src, 0o644); err != nil || api == "" {
		return err
	}
	return writeSurfaces(dir, api)
}

// upstreamOf returns upstream's package as the package in dir sees it.
func upstreamOf(dir string) (api, error) {
	pkgs, err := load(dir, upstreamPath)
	if err != nil {
		return api{}, err
	}
	up := pkgs[upstreamPath]
	return api{types: up.Types, syntax: up.Syntax}, nil
}

// generateFor returns the content of the pass-through file of the package in
// dir. That package need not compile.
func generateFor(dir string, up api) ([]byte, error) {
	own, err := declared(dir)
	if err != nil {
		return nil, err
	}
	return generate(up, own)
}
