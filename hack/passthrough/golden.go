package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// surface returns the declarations that the package in dir exports, without comments
// and function bodies, in an order that depends on names alone. A golden file of it
// shows each change of the API in review.
func surface(dir, path string) ([]byte, error) {
	names, err := sources(dir)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, path)
	if err != nil {
		return nil, err
	}

	var decls []ast.Decl
	add := func(values [][]*doc.Value, funcs ...[]*doc.Func) {
		for _, v := range slices.Concat(values...) {
			decls = append(decls, v.Decl)
		}
		for _, f := range slices.Concat(funcs...) {
			decls = append(decls, f.Decl)
		}
	}
	add([][]*doc.Value{p.Consts, p.Vars}, p.Funcs)
	for _, t := range p.Types {
		decls = append(decls, t.Decl)
		add([][]*doc.Value{t.Consts, t.Vars}, t.Funcs, t.Methods)
	}
	out := fmt.Appendf(nil, "package %s // import %q\n", p.Name, path)
	for _, d := range decls {
		text, err := declaration(fset, d)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "\n%s", text)
	}
	return out, nil
}

// declaration returns the source of a declaration without alignment, empty lines and line breaks in
// signatures, which depend on the length of names and on comments.
func declaration(fset *token.FileSet, d ast.Decl) (string, error) {
	var b strings.Builder
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, fset, d); err != nil {
		return "", err
	}
	text := b.String()
	if _, ok := d.(*ast.FuncDecl); ok {
		text = strings.NewReplacer("( ", "(", ", )", ")").Replace(strings.Join(strings.Fields(text), " "))
	}
	return regexp.MustCompile("\n+").ReplaceAllString(text, "\n") + "\n", nil
}

// writeSurfaces writes the API of each of Graft's packages to a file in dir. The
// packages are next to that in own, or below it.
func writeSurfaces(own, dir string) error {
	options, err := filepath.Glob(filepath.Join(own, "*", "doc.go"))
	if err != nil {
		return err
	}
	names := []string{"asyncstate", "managed", "reconciler", "watch"}
	for _, doc := range options {
		names = append(names, "managed/"+filepath.Base(filepath.Dir(doc)))
	}
	for _, name := range names {
		text, err := surface(filepath.Join(own, "..", name), "github.com/crossplane-graft/graft/pkg/"+name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".txt"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
