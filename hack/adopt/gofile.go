package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// keepDirective is a comment on an import that adopt does not change.
const keepDirective = "//graft:keep"

// A goFile is a parsed Go file.
type goFile struct {
	src  []byte
	fset *token.FileSet
	ast  *ast.File
}

func parseGo(name string, src []byte) (*goFile, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &goFile{src: src, fset: fset, ast: f}, nil
}

// line returns the line on which n begins. It ignores //line comments.
func (g *goFile) line(n ast.Node) int {
	return g.fset.PositionFor(n.Pos(), false).Line
}

func (g *goFile) offset(p token.Pos) int {
	return g.fset.PositionFor(p, false).Offset
}

// qualified calls visit for each selector whose qualifier is one of names and an import, not
// a variable.
func (g *goFile) qualified(names map[string]bool, visit func(s *ast.SelectorExpr, qualifier string)) {
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] && x.Obj == nil {
				visit(s, x.Name)
			}
		}
		return true
	})
}

// imports returns the file's imports of a package.
func (g *goFile) imports(importPath string) []*ast.ImportSpec {
	var specs []*ast.ImportSpec
	for _, s := range g.ast.Imports {
		if importOf(s) == importPath {
			specs = append(specs, s)
		}
	}
	return specs
}

// namesOf returns the names by which the file refers to a package. The name of
// a dot import is ".".
func (g *goFile) namesOf(importPath string) map[string]bool {
	names := map[string]bool{}
	for _, s := range g.imports(importPath) {
		if !isKept(s) {
			names[nameOf(s)] = true
		}
	}
	return names
}

func importOf(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		return "" // The parser lets none through.
	}
	return p
}

// nameOf returns the name by which a file refers to an import. Without an alias that is the
// package's name, which nameOf guesses from the path: the last element that is not a major
// version.
func nameOf(s *ast.ImportSpec) string {
	if s.Name != nil {
		return s.Name.Name
	}
	p := importOf(s)
	name := path.Base(p)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(p))
	}
	name, _, _ = strings.Cut(name, ".")
	return strings.TrimPrefix(name, "go-")
}

// isKept reports whether an import has a keepDirective.
func isKept(s *ast.ImportSpec) bool {
	for _, group := range []*ast.CommentGroup{s.Doc, s.Comment} {
		if group == nil {
			continue
		}
		for _, c := range group.List {
			if c.Text == keepDirective || strings.HasPrefix(c.Text, keepDirective+" ") {
				return true
			}
		}
	}
	return false
}

// replaceImport returns the source with one import path replaced by another. It changes only
// the bytes of the path, and formats blocks of imports that were formatted by gofmt.
func (g *goFile) replaceImport(from, to string) []byte {
	var out []byte
	done := 0
	for _, d := range g.ast.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.IMPORT {
			continue
		}
		start, end := g.offset(block.Pos()), g.offset(block.End())
		before := g.src[start:end]
		after := g.replaceInBlock(block, from, to)
		if bytes.Equal(before, after) {
			continue
		}
		if formatted, ok := formatBlock(before); ok && bytes.Equal(formatted, before) {
			if formatted, ok := formatBlock(after); ok {
				after = formatted
			}
		}
		out = append(out, g.src[done:start]...)
		out = append(out, after...)
		done = end
	}
	return append(out, g.src[done:]...)
}

// replaceInBlock returns the text of an import declaration with the path replaced.
func (g *goFile) replaceInBlock(block *ast.GenDecl, from, to string) []byte {
	var out []byte
	done := g.offset(block.Pos())
	for _, s := range block.Specs {
		spec, ok := s.(*ast.ImportSpec)
		if !ok || importOf(spec) != from || isKept(spec) {
			continue
		}
		quote := spec.Path.Value[:1]
		out = append(out, g.src[done:g.offset(spec.Path.Pos())]...)
		out = append(out, quote+to+quote...)
		done = g.offset(spec.Path.End())
	}
	return append(out, g.src[done:g.offset(block.End())]...)
}

// formatBlock returns an import declaration as gofmt writes it, with the line
// endings that it had.
func formatBlock(block []byte) ([]byte, bool) {
	const header = "package p\n\n"
	crlf := bytes.Contains(block, []byte("\r\n"))
	out, err := format.Source(append([]byte(header), bytes.ReplaceAll(block, []byte("\r\n"), []byte("\n"))...))
	if err != nil {
		return nil, false
	}
	out = bytes.TrimSuffix(bytes.TrimPrefix(out, []byte(header)), []byte("\n"))
	if crlf {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n"))
	}
	return out, true
}

// syntaxError returns the line of the first syntax error, and its text without a position.
func syntaxError(err error) (line int, text string) {
	var list scanner.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		return list[0].Pos.Line, list[0].Msg
	}
	return 0, err.Error()
}
