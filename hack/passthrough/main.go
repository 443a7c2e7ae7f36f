// Command passthrough writes the part of Graft's pkg/managed that only passes
// upstream's API through: aliases for its types, its constants, and functions
// that call their namesakes.
//
// It reads upstream's exported API with go/types, at the version that Graft's
// go.mod selects, and leaves out every name that pkg/managed declares by hand.
// Run it from the hack directory after a bump of crossplane-runtime and after a
// name is added to or removed from the hand-written files:
//
//	go run ./passthrough -names adopt/upstream.txt -api api
//
// With -names it also writes upstream's exported names, for a program that has to
// tell them from Graft's. With -api it also writes a golden file for each of Graft's
// packages, with what the package exports.
//
// A construct that can't be passed through faithfully stops it with a sentence
// that names the symbol; such a symbol has to be written by hand.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/token"
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
	names := flag.String("names", "", "file to write upstream's exported names to, one a line")
	api := flag.String("api", "", "directory to write the exported API of Graft's packages to")
	flag.Parse()
	if err := run(*dir, *names, *api); err != nil {
		fmt.Fprintf(os.Stderr, "passthrough: %v\n", err)
		os.Exit(1)
	}
}

// run generates the pass-through file of the package in dir, and the file of names and
// the golden files unless those are empty. If upstream can't be read, all are left as
// they are.
func run(dir, names, api string) error {
	up, err := upstreamOf(dir)
	if err != nil {
		return err
	}
	src, err := generateFor(dir, up)
	if err != nil {
		return err
	}
	if names != "" {
		if err := os.WriteFile(names, exportedNames(up), 0o644); err != nil {
			return err
		}
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

// exportedNames returns the exported names of a package, one a line.
func exportedNames(up api) []byte {
	var b bytes.Buffer
	for _, name := range up.types.Scope().Names() {
		if token.IsExported(name) {
			fmt.Fprintln(&b, name)
		}
	}
	return b.Bytes()
}
