package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"slices"
)

// upstreamResource has the usage trackers' constructors, of which Graft has
// namesakes beside its reconciler.
const upstreamResource = upstreamModule + "/pkg/resource"

// isTracker reports whether a function makes a usage tracker.
func isTracker(name string) bool {
	return name == "NewProviderConfigUsageTracker" || name == "NewLegacyProviderConfigUsageTracker"
}

// trackers returns where a package's constructors of usage trackers are named.
// Under a dot import they can't be told from the file's own.
func (g *goFile) trackers(importPath string) []*ast.SelectorExpr {
	names := g.namesOf(importPath)
	var found []*ast.SelectorExpr
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && isTracker(s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}

// moveTrackers returns the source with upstream's constructors of usage trackers
// replaced by Graft's, and the imports that this takes.
func (g *goFile) moveTrackers() []byte {
	places := g.trackers(upstreamResource)
	if len(places) == 0 {
		return g.src
	}

	name, imported := g.graftName()
	qualifier := name + "."
	if name == "." {
		qualifier = ""
	}

	var changes []textChange
	for _, s := range places {
		changes = append(changes, textChange{start: g.offset(s.Pos()), end: g.offset(s.Sel.Pos()), text: qualifier})
	}
	changes = append(changes, g.importsOfTrackers(places, name, imported)...)

	return g.apply(changes).formatImportsAs(g)
}

// graftName returns the name by which the file imports Graft's package, or would
// if it did.
func (g *goFile) graftName() (name string, imported bool) {
	for n := range g.namesOf(graftManaged) {
		if n != "_" && n > name {
			name, imported = n, true
		}
	}
	if imported {
		return name, true
	}

	name = "managed"
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == "managed" && id != g.ast.Name {
			name = "graftmanaged"
		}
		return true
	})
	return name, false
}

// importsOfTrackers returns what changes in the imports: those of package
// resource that nothing else needs go, and Graft's package comes.
func (g *goFile) importsOfTrackers(places []*ast.SelectorExpr, name string, imported bool) []textChange {
	uses := map[string]int{}
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				uses[x.Name]++
			}
		}
		return true
	})
	moved := map[string]bool{}
	for _, s := range places {
		if x, ok := s.X.(*ast.Ident); ok {
			uses[x.Name]--
			moved[x.Name] = true
		}
	}

	graft := `"` + graftManaged + `"`
	if name != "managed" {
		graft = name + " " + graft
	}

	var changes []textChange
	for _, d := range g.ast.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.IMPORT {
			continue
		}
		for _, s := range block.Specs {
			spec, ok := s.(*ast.ImportSpec)
			if !ok || importOf(spec) != upstreamResource || isKept(spec) || !moved[nameOf(spec)] {
				continue
			}
			needed := uses[nameOf(spec)] > 0
			switch {
			case !needed && !imported:
				changes = append(changes, textChange{start: g.offset(spec.Pos()), end: g.offset(spec.Path.End()), text: graft})
				imported = true
			case !needed:
				changes = append(changes, g.without(block, spec))
			case !imported:
				changes = append(changes, g.beside(block, spec, graft))
				imported = true
			}
		}
	}
	return changes
}

// beside adds an import on the line below another.
func (g *goFile) beside(block *ast.GenDecl, spec *ast.ImportSpec, text string) textChange {
	end := g.lineEnd(g.offset(spec.Path.End()))
	if block.Lparen.IsValid() {
		text = "\t" + text
	} else {
		text = "import " + text
	}
	newline := "\n"
	if end > 0 && g.src[end-1] == '\r' {
		newline = "\r\n"
		end--
	}
	return textChange{start: end, end: end, text: newline + text}
}

// without takes an import away, with its line if it has one to itself.
func (g *goFile) without(block *ast.GenDecl, spec *ast.ImportSpec) textChange {
	start, end := g.offset(spec.Pos()), g.offset(spec.Path.End())
	if !block.Lparen.IsValid() {
		start, end = g.offset(block.Pos()), g.offset(block.End())
	}
	begin := bytes.LastIndexByte(g.src[:start], '\n') + 1
	stop := g.lineEnd(end)
	if len(bytes.TrimSpace(g.src[begin:start])) == 0 && len(bytes.TrimSpace(g.src[end:stop])) == 0 && stop < len(g.src) {
		start, end = begin, stop+1
	}
	return textChange{start: start, end: end}
}

// lineEnd returns where the line of an offset ends, without its newline.
func (g *goFile) lineEnd(offset int) int {
	if i := bytes.IndexByte(g.src[offset:], '\n'); i >= 0 {
		return offset + i
	}
	return len(g.src)
}

// A textChange replaces some of a file.
type textChange struct {
	start, end int
	text       string
}

// apply returns what becomes of the file's text.
func (g *goFile) apply(changes []textChange) changedText {
	slices.SortStableFunc(changes, func(a, b textChange) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	done := 0
	for _, c := range changes {
		out = append(out, g.src[done:c.start]...)
		out = append(out, c.text...)
		done = c.end
	}
	return append(out, g.src[done:]...)
}

// changedText is the text of a Go file after changes.
type changedText []byte

// formatImportsAs formats the imports if they were as gofmt writes them before.
func (t changedText) formatImportsAs(before *goFile) []byte {
	after, err := parseGo("", t)
	if err != nil || !slices.ContainsFunc(before.importBlocks(), before.isFormatted) || slices.ContainsFunc(before.importBlocks(), func(b *ast.GenDecl) bool { return !before.isFormatted(b) }) {
		return t
	}
	var changes []textChange
	for _, b := range after.importBlocks() {
		start, end := after.offset(b.Pos()), after.offset(b.End())
		if text, ok := formatBlock(t[start:end]); ok {
			changes = append(changes, textChange{start: start, end: end, text: string(text)})
		}
	}
	return after.apply(changes)
}

func (g *goFile) importBlocks() []*ast.GenDecl {
	var blocks []*ast.GenDecl
	for _, d := range g.ast.Decls {
		if b, ok := d.(*ast.GenDecl); ok && b.Tok == token.IMPORT {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func (g *goFile) isFormatted(block *ast.GenDecl) bool {
	text := g.src[g.offset(block.Pos()):g.offset(block.End())]
	formatted, ok := formatBlock(text)
	return ok && bytes.Equal(formatted, text)
}
