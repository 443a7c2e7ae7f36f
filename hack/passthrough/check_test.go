package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"
)

const (
	// The paths of the small packages that tests type-check in memory. Their
	// names are those of the real packages.
	testUpstreamPath = "example.org/runtime/managed"
	testOursPath     = "example.org/graft/managed"
)

// packageMap imports the packages it holds, by their path.
type packageMap map[string]*types.Package

func (m packageMap) Import(path string) (*types.Package, error) {
	if p, ok := m[path]; ok {
		return p, nil
	}

	return nil, fmt.Errorf("no package %q in this test", path)
}

// check type-checks files as the package with the given path.
func check(t *testing.T, fset *token.FileSet, path string, imports packageMap, files ...*ast.File) *types.Package {
	t.Helper()

	cfg := types.Config{Importer: imports, IgnoreFuncBodies: true, DisableUnusedImportCheck: true}

	p, err := cfg.Check(path, fset, files, nil)
	if err != nil {
		t.Fatalf("cannot type-check %s: %v", path, err)
	}

	return p
}

func parse(t *testing.T, fset *token.FileSet, src string) *ast.File {
	t.Helper()

	f, err := parser.ParseFile(fset, "test.go", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("cannot parse the test's source: %v\n%s", err, src)
	}

	return f
}

// checkUpstream type-checks src as a package in upstream's place.
func checkUpstream(t *testing.T, src string) api {
	t.Helper()

	fset := token.NewFileSet()
	f := parse(t, fset, "package managed\n"+src)

	return api{types: check(t, fset, testUpstreamPath, stdlib(t), f), syntax: []*ast.File{f}}
}

// checkOurs type-checks files as a package in Graft's place that imports up.
func checkOurs(t *testing.T, up *types.Package, sources ...string) *types.Package {
	t.Helper()

	fset := token.NewFileSet()
	files := make([]*ast.File, 0, len(sources))

	for _, src := range sources {
		files = append(files, parse(t, fset, src))
	}

	imports := stdlib(t)
	imports[testUpstreamPath] = up

	return check(t, fset, testOursPath, imports, files...)
}

// stdlib returns the few standard packages that tests import.
func stdlib(t *testing.T) packageMap {
	t.Helper()

	m := packageMap{}

	for _, path := range []string{"context", "time"} {
		p, err := importer.Default().Import(path)
		if err != nil {
			t.Fatalf("cannot import %s: %v", path, err)
		}

		m[path] = p
	}

	return m
}
