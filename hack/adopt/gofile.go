package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// keepDirective is a comment on an import that adopt does not change.
const keepDirective = "//graft:keep"

// A goFile is a parsed Go file.
type goFile struct {
	src  []byte // Its lines end with a line feed alone.
	fset *token.FileSet
	ast  *ast.File
}

func parseGo(name string, src []byte) (*goFile, error) {
	fset := token.NewFileSet()
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	return &goFile{src: src, fset: fset, ast: f}, err
}

// line returns the line on which n begins. It ignores //line comments.
func (g *goFile) line(n ast.Node) int {
	return g.fset.PositionFor(n.Pos(), false).Line
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

func importOf(s *ast.ImportSpec) string {
	p, _ := strconv.Unquote(s.Path.Value) // The parser accepts only valid strings.
	return p
}

// nameOf returns the name by which a file refers to an import. Without an alias, it takes the
// last element of the path for the package's name, as it is for the packages that adopt moves.
func nameOf(s *ast.ImportSpec) string {
	if s.Name != nil {
		return s.Name.Name
	}
	return path.Base(importOf(s))
}

// isKept reports whether an import has a keepDirective.
func isKept(s *ast.ImportSpec) bool {
	var comments []*ast.Comment
	for _, group := range []*ast.CommentGroup{s.Doc, s.Comment} {
		if group != nil {
			comments = append(comments, group.List...)
		}
	}
	return slices.ContainsFunc(comments, func(c *ast.Comment) bool {
		directive, _, _ := strings.Cut(c.Text, " ")
		return directive == keepDirective
	})
}

// replaceImport returns the source with one import path replaced by another. A file that
// gofmt has formatted stays formatted. In others only the bytes of the path change.
func (g *goFile) replaceImport(from, to string) ([]byte, error) {
	var out []byte
	done := 0
	for _, s := range g.imports(from) {
		if isKept(s) {
			continue
		}
		quote := s.Path.Value[:1]
		out = append(out, g.src[done:g.fset.PositionFor(s.Path.Pos(), false).Offset]...)
		out = append(out, quote+to+quote...)
		done = g.fset.PositionFor(s.Path.End(), false).Offset
	}
	out = append(out, g.src[done:]...)
	if formatted, err := format.Source(g.src); err != nil || !bytes.Equal(formatted, g.src) {
		return out, nil
	}
	return format.Source(out)
}
