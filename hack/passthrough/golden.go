package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// surface returns the declarations that the package in dir exports, without comments
// and function bodies, in an order that depends on names alone. A golden file of it
// shows each change of the API in review.
func surface(dir, path string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("cannot find the files of %s: %w", path, err)
	}
	fset := token.NewFileSet()
	var files []*ast.File

	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("cannot read the API of %s: %w", path, err)
		}
		files = append(files, f)
	}

	p, err := doc.NewFromFiles(fset, files, path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the API of %s: %w", path, err)
	}
	w := &declarations{fset: fset}
	fmt.Fprintf(w, "package %s // import %q\n", p.Name, path)
	w.values(p.Consts, p.Vars)
	w.functions(p.Funcs)

	for _, t := range p.Types {
		w.declare(t.Decl)
		w.values(t.Consts, t.Vars)
		w.functions(t.Funcs, t.Methods)
	}
	return w.Bytes(), w.err
}

// declarations are source code.
type declarations struct {
	bytes.Buffer

	fset *token.FileSet
	err  error
}

func (w *declarations) values(lists ...[]*doc.Value) {
	for _, vs := range lists {
		for _, v := range vs {
			w.declare(v.Decl)
		}
	}
}

func (w *declarations) functions(lists ...[]*doc.Func) {
	for _, fs := range lists {
		for _, f := range fs {
			w.declare(f.Decl)
		}
	}
}

// declare writes a declaration without alignment, empty lines and line breaks in signatures,
// which depend on the length of names and on comments.
func (w *declarations) declare(d ast.Decl) {
	var b strings.Builder
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, w.fset, d); err != nil && w.err == nil {
		w.err = err
	}
	fmt.Fprintln(w)
	text := b.String()
	if _, ok := d.(*ast.FuncDecl); ok {
		text = strings.NewReplacer("( ", "(", ", )", ")").Replace(strings.Join(strings.Fields(text), " "))
	}

	for line := range strings.Lines(text + "\n") {
		if line != "\n" {
			w.WriteString(line)
		}
	}
}

// writeSurfaces writes the API of each of Graft's packages to a file in dir. The
// packages are next to that in own.
func writeSurfaces(own, dir string) error {
	for _, name := range []string{"asyncstate", "managed", "reconciler", "watch"} {
		text, err := surface(filepath.Join(own, "..", name), "github.com/crossplane-graft/graft/pkg/"+name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
