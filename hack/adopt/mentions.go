package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// maxText is the size, in bytes, of the largest file that isn't Go in which
// adopt looks for the import path. Templates and linter settings are smaller.
const maxText = 1 << 20

// mentionsInText notes where a file that isn't compiled names upstream's
// package: templates that write Go files, linter settings, golden files.
func (p *planner) mentionsInText(f treeFile, src []byte) {
	if isProse(f.path) || len(src) > maxText || bytes.IndexByte(src, 0) >= 0 {
		return
	}
	for i, line := range bytes.Split(src, []byte("\n")) {
		if bytes.Contains(line, []byte(upstreamManaged)) {
			p.report.names = true
			p.report.note(f.path, i+1, "names upstream's package, not changed; if Go code is generated or checked from it, change it by hand")
		}
	}
}

// isProse reports whether a file is for people to read: that it speaks of
// upstream's package breaks nothing.
func isProse(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".txt", ".rst", ".adoc", ".html":
		return true
	default:
		return false
	}
}

// mentionsInGo notes where Go code names upstream's package other than by
// importing it: in strings, as code generators do, and in go:generate comments.
func (p *planner) mentionsInGo(f treeFile, g *goFile) {
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, upstreamManaged) {
			p.report.names = true
			p.report.note(f.path, g.line(lit), "names upstream's package in a string, not changed; if Go code is generated from it, change it by hand")
		}
		return true
	})
	for _, group := range g.ast.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:generate ") && strings.Contains(c.Text, upstreamManaged) {
				p.report.names = true
				p.report.note(f.path, g.line(c), "go:generate names upstream's package, not changed; change it by hand if what it writes is to use Graft")
			}
		}
	}
}
