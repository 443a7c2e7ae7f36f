package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
)

// upstreamResource has the usage trackers' constructors, of which Graft has
// namesakes beside its reconciler.
const upstreamResource = upstreamModule + "/pkg/resource"

// isTracker reports whether a function makes a usage tracker.
func isTracker(name string) bool {
	return name == "NewProviderConfigUsageTracker" || name == "NewLegacyProviderConfigUsageTracker"
}

// A trackerMove says between which packages the constructors move. The names are
// those to import the second package under: the alias if the file uses the name for
// something else.
type trackerMove struct{ from, to, name, alias string }

func trackersToGraft() trackerMove {
	return trackerMove{from: upstreamResource, to: graftManaged, name: "managed", alias: "graftmanaged"}
}

func trackersBack() trackerMove {
	return trackerMove{from: graftManaged, to: upstreamResource, name: "resource", alias: "xpresource"}
}

// trackers returns where a package's constructors of usage trackers are named. With
// a dot import an unqualified name that the file doesn't declare is one.
func (g *goFile) trackers(importPath string) []ast.Expr {
	names := g.namesOf(importPath)
	var found []ast.Expr
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && isTracker(s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] && x.Obj == nil {
				found = append(found, s)
			}
		}
		return true
	})
	if names["."] {
		for _, id := range g.ast.Unresolved {
			if isTracker(id.Name) {
				found = append(found, id)
			}
		}
	}
	return found
}

// trackerName returns which constructor an expression names.
func trackerName(e ast.Expr) *ast.Ident {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel
	}
	id, _ := e.(*ast.Ident) // The other of the two that trackers returns.
	return id
}

// moveTrackers returns the source with one package's constructors of usage trackers
// replaced by another's, and the imports that this takes. The file's package is in dir.
func (g *goFile) moveTrackers(m trackerMove, dir string) []byte {
	places := g.trackers(m.from)
	if len(places) == 0 {
		return g.src
	}
	name, imported := g.nameFor(m, g.packageNames(dir))
	qualifier := name + "."
	if name == "." {
		qualifier = ""
	}
	var changes []textChange
	for _, e := range places {
		changes = append(changes, textChange{start: g.offset(e.Pos()), end: g.offset(trackerName(e).Pos()), text: qualifier})
	}
	changes = append(changes, g.importsOfTrackers(m, places, name, imported)...)
	return g.apply(changes).formatImportsAs(g)
}

// nameFor returns the name by which the file imports the package that trackers move
// to, or would if it did. An import can't have a name that the package declares.
func (g *goFile) nameFor(m trackerMove, declared map[string]bool) (name string, imported bool) {
	for n := range g.namesOf(m.to) {
		if n != "_" && n > name {
			name, imported = n, true
		}
	}
	if imported && !g.shadows(name) {
		return name, true
	}
	if imported || declared[m.name] || g.declares(m.name) {
		return m.alias, false
	}
	return m.name, false
}

// declares reports whether a name means something in the file: as an import, or as an
// identifier that isn't another's field or method.
func (g *goFile) declares(name string) bool {
	found := slices.ContainsFunc(g.ast.Imports, func(s *ast.ImportSpec) bool { return nameOf(s) == name })
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			for _, d := range n.Decls {
				ast.Inspect(d, visit)
			}
			return false // Not the package's name.
		case *ast.ImportSpec:
			return false
		case *ast.SelectorExpr:
			ast.Inspect(n.X, visit)
			return false
		case *ast.Ident:
			found = found || n.Name == name
		}
		return true
	}
	ast.Inspect(g.ast, visit)
	return found
}

// shadows reports whether the file declares an import's name for something else, as a
// parameter or a variable.
func (g *goFile) shadows(name string) bool {
	found := false
	ast.Inspect(g.ast, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name && id.Obj != nil
		return true
	})
	return found
}

// importsOfTrackers returns what changes in the imports: those of the package that
// trackers move from go if nothing else needs them, and the other package comes.
func (g *goFile) importsOfTrackers(m trackerMove, places []ast.Expr, name string, imported bool) []textChange {
	uses := map[string]int{}
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil {
				uses[x.Name]++
			}
		}
		return true
	})
	for _, id := range g.ast.Unresolved {
		if id.IsExported() {
			uses["."]++ // It may be from a dot import.
		}
	}
	moved := map[string]bool{}
	for _, e := range places {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				uses[x.Name]--
				moved[x.Name] = true
			}
			continue
		}
		uses["."]--
		moved["."] = true
	}

	text := strconv.Quote(m.to)
	if name != m.name {
		text = name + " " + text
	}
	var changes []textChange
	for _, block := range g.importBlocks() {
		for _, s := range block.Specs {
			spec, ok := s.(*ast.ImportSpec)
			if !ok || importOf(spec) != m.from || isKept(spec) || !moved[nameOf(spec)] {
				continue
			}
			needed := uses[nameOf(spec)] > 0
			switch {
			case !needed && !imported:
				changes = append(changes, textChange{start: g.offset(spec.Pos()), end: g.offset(spec.Path.End()), text: text})
				imported = true
			case !needed:
				changes = append(changes, g.without(block, spec))
			case !imported:
				changes = append(changes, g.beside(block, spec, text))
				imported = true
			}
		}
	}
	return changes
}

// beside adds an import on the line below another, or on its line if that has more
// than a comment.
func (g *goFile) beside(block *ast.GenDecl, spec *ast.ImportSpec, text string) textChange {
	start := g.offset(spec.Path.End())
	end := g.lineEnd(start)
	if rest := bytes.TrimSpace(g.src[start:end]); len(rest) > 0 && !bytes.HasPrefix(rest, []byte("//")) {
		if !block.Lparen.IsValid() {
			text = "import " + text
		}
		return textChange{start: start, end: start, text: "; " + text}
	}
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

// without takes an import away, with its line if it has one to itself, or else with all up
// to the semicolon behind it.
func (g *goFile) without(block *ast.GenDecl, spec *ast.ImportSpec) textChange {
	start, end := g.offset(spec.Pos()), g.offset(spec.Path.End())
	if !block.Lparen.IsValid() {
		start, end = g.offset(block.Pos()), g.offset(block.End())
	}
	begin := bytes.LastIndexByte(g.src[:start], '\n') + 1
	stop := g.lineEnd(end)
	if len(bytes.TrimSpace(g.src[begin:start])) == 0 && len(bytes.TrimSpace(g.src[end:stop])) == 0 && stop < len(g.src) {
		start, end = begin, stop+1
	} else if rest := regexp.MustCompile(`^(\s|/\*.*?\*/)*;[ \t]*`).Find(g.src[end:stop]); rest != nil {
		end += len(rest)
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
