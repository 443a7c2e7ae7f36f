package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the package to generate into: %w", err)
	}
	names := make(map[string]bool)
	fset := token.NewFileSet()

	for _, e := range entries {
		name := e.Name()
		handwritten := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && name != generatedFile
		if e.IsDir() || !handwritten {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("cannot tell what %s declares: %w", name, err)
		}
		for _, d := range f.Decls {
			addDeclared(names, d)
		}
	}
	return names, nil
}

func addDeclared(names map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			}
		}
	}
}
