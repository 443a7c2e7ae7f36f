package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// load type-checks the packages with the given import paths, as seen from dir's
// module, and returns them by path. Only these are checked from source; what
// they depend on comes from compiled export data, which keeps this quick.
func load(dir string, paths ...string) (map[string]*packages.Package, error) {
	cfg := &packages.Config{
		Dir: dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedExportFile,
	}
	loaded, err := packages.Load(cfg, paths...)
	if err == nil && packages.PrintErrors(loaded) > 0 {
		err = errors.New("see the errors above")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot load %s: %w", strings.Join(paths, " and "), err)
	}
	byPath := map[string]*packages.Package{}
	for _, p := range loaded {
		byPath[p.PkgPath] = p
	}
	return byPath, nil
}

// declared returns the names that the hand-written files of the package in dir
// declare at package level. It only parses them, so that it works for a package
// that doesn't compile because its generated file is missing or out of date.
func declared(dir string) (map[string]bool, error) {
	files, err := sources(dir)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		if filepath.Base(file) == generatedFile {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return nil, err
		}
		for name := range f.Scope.Objects {
			names[name] = true
		}
	}
	return names, nil
}

// sources returns the paths of the Go files in dir that are not tests.
func sources(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") }), err
}
