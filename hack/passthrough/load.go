package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
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
	if err != nil {
		return nil, fmt.Errorf("cannot load %s: %w", strings.Join(paths, " and "), err)
	}
	byPath := make(map[string]*packages.Package, len(loaded))

	for _, p := range loaded {
		errs := make([]error, 0, len(p.Errors))
		for _, e := range p.Errors {
			errs = append(errs, e)
		}

		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("cannot load %s: %w", p.PkgPath, err)
		}
		byPath[p.PkgPath] = p
	}

	for _, path := range paths {
		if byPath[path] == nil {
			return nil, fmt.Errorf("cannot load %s: no such package", path)
		}
	}
	return byPath, nil
}

// declared returns the names that the hand-written files of the package in dir
// declare at package level. It only parses them, so that it works for a package
// that doesn't compile because its generated file is missing or out of date.
func declared(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the package to generate into: %w", err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == generatedFile {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot tell what %s declares: %w", file, err)
		}
		for name := range f.Scope.Objects {
			names[name] = true
		}
	}
	return names, nil
}
