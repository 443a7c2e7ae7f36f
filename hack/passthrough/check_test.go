package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"
)

const (
	// The import paths of small packages that tests type-check in memory.
	testUpstreamPath = "example.org/runtime/managed"
	testOursPath     = "example.org/graft/managed"
)

type packageMap map[string]*types.Package

func (m packageMap) Import(path string) (*types.Package, error) {
	if p, ok := m[path]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("no package %q in this test", path)
}

func check(t *testing.T, path, src string, imports packageMap) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "test.go", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("cannot parse the test's source: %v\n%s", err, src)
	}
	cfg := types.Config{Importer: imports, IgnoreFuncBodies: true, DisableUnusedImportCheck: true}
	p, err := cfg.Check(path, fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatalf("cannot type-check %s: %v", path, err)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
