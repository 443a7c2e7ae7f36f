package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// rewrite returns the Go file at path as it is in a line, and marks the edits that have a match. A file that doesn't
// differ is returned as it is.
func (l line) rewrite(path string, text []byte, made map[edit]bool) ([]byte, error) {
	changed := text
	for _, e := range l.edits {
		from := regexp.MustCompile(e.from)
		if (e.file == "" || e.file == path) && from.Match(changed) {
			changed = from.ReplaceAll(changed, []byte(e.to))
			made[e] = true
		}
	}
	if bytes.Equal(changed, text) {
		return text, nil
	}
	return withoutUnused(path, text, changed)
}

// withoutUnused returns the changed text of a file, formatted, without the imports that it does not use: those that the
// text before used, and the two for the core types.
func withoutUnused(path string, before, changed []byte) ([]byte, error) {
	was, err := parser.ParseFile(token.NewFileSet(), path, before, 0)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, changed, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, spec := range append([]*ast.ImportSpec{}, f.Imports...) {
		name := ""
		if spec.Name != nil {
			name = spec.Name.Name
		}
		p, _ := strconv.Unquote(spec.Path.Value) // The parser accepts only valid strings.
		had := astutil.UsesImport(was, p) || strings.HasPrefix(p, runtimeModule+"/apis/common/")
		if had && !astutil.UsesImport(f, p) {
			astutil.DeleteNamedImport(fset, f, name, p)
		}
	}
	ast.SortImports(fset, f)
	var out bytes.Buffer
	err = format.Node(&out, fset, f)
	return out.Bytes(), err
}
