package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/tools/go/ast/astutil"
)

// isTracker reports whether a function makes a usage tracker. Package resource has both, and
// Graft has both beside its reconciler.
func isTracker(name string) bool {
	return name == "NewProviderConfigUsageTracker" || name == "NewLegacyProviderConfigUsageTracker"
}

// A trackerMove says between which packages the constructors move. The file imports the
// second package as name, or as alias if it declares name.
type trackerMove struct{ from, to, name, alias string }

func trackersToGraft() trackerMove {
	return trackerMove{from: upstreamResource, to: graftManaged, name: "managed", alias: "graftmanaged"}
}

func trackersBack() trackerMove {
	return trackerMove{from: graftManaged, to: upstreamResource, name: "resource", alias: "xpresource"}
}

// A tracker is a place that names a constructor. qualifier is "." for a dot import.
type tracker struct {
	ast.Node
	name      *ast.Ident
	qualifier string
}

// trackers returns where the file names a package's constructors of usage trackers. With a
// dot import, that is an unqualified name that the file does not declare.
func (g *goFile) trackers(importPath string) []tracker {
	names := g.namesOf(importPath)
	var found []tracker
	g.qualified(names, func(s *ast.SelectorExpr, qualifier string) {
		if isTracker(s.Sel.Name) {
			found = append(found, tracker{Node: s, name: s.Sel, qualifier: qualifier})
		}
	})
	for _, id := range g.ast.Unresolved {
		if names["."] && isTracker(id.Name) {
			found = append(found, tracker{Node: id, name: id, qualifier: "."})
		}
	}
	slices.SortFunc(found, func(a, b tracker) int { return int(a.Pos() - b.Pos()) })
	return found
}

// moveTrackers returns the source with one package's constructors of usage trackers replaced
// by another's, with the imports for that, formatted. dir is the directory of the file.
func (g *goFile) moveTrackers(m trackerMove, dir string) ([]byte, error) {
	name, imported := g.nameFor(m, dir)
	qualifier := name + "."
	if name == "." {
		qualifier = ""
	}
	var src []byte
	done := 0
	moved := map[string]bool{}
	for _, t := range g.trackers(m.from) {
		src = append(src, g.src[done:g.offset(t.Pos())]...)
		src = append(src, qualifier...)
		done = g.offset(t.name.Pos())
		moved[t.qualifier] = true
	}
	after, err := parseGo("", append(src, g.src[done:]...))
	if err != nil {
		return nil, err
	}

	if name == m.name {
		name = ""
	}
	for _, s := range after.imports(m.from) {
		if isKept(s) || !moved[nameOf(s)] || after.refersTo(nameOf(s)) {
			continue
		}
		if imported {
			astutil.DeleteNamedImport(after.fset, after.ast, explicitName(s), m.from)
			continue
		}
		s.Name, s.Path.Value, imported = nil, strconv.Quote(m.to), true
		if name != "" {
			s.Name = &ast.Ident{Name: name, NamePos: s.Path.Pos()}
		}
	}
	if !imported {
		astutil.AddNamedImport(after.fset, after.ast, name, m.to)
	}

	ast.SortImports(after.fset, after.ast)
	var out bytes.Buffer
	if err := format.Node(&out, after.fset, after.ast); err != nil {
		return nil, fmt.Errorf("cannot format: %w", err)
	}
	if bytes.Contains(g.src, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n")), nil
	}
	return out.Bytes(), nil
}

// explicitName returns the name that an import has in the file, or "".
func explicitName(s *ast.ImportSpec) string {
	if s.Name == nil {
		return ""
	}
	return s.Name.Name
}

// nameFor returns the name by which the file refers to the package that trackers move to,
// and whether it imports the package by that name.
func (g *goFile) nameFor(m trackerMove, dir string) (name string, imported bool) {
	for n := range g.namesOf(m.to) {
		if n != "_" && n > name {
			name, imported = n, true
		}
	}
	switch {
	case imported && !g.declares(name):
		return name, true
	case imported || g.declares(m.name) || g.packageDeclares(m.name, dir):
		return m.alias, false
	case slices.ContainsFunc(g.ast.Imports, func(s *ast.ImportSpec) bool { return nameOf(s) == m.name }):
		return m.alias, false
	default:
		return m.name, false
	}
}

// declares reports whether the file declares a name, as a parameter or a variable.
func (g *goFile) declares(name string) bool {
	found := false
	ast.Inspect(g.ast, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name && id.Obj != nil
		return true
	})
	return found
}

// packageDeclares reports whether a file of the same package in dir declares a name. No
// import can have that name.
func (g *goFile) packageDeclares(name, dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go")) // The pattern has no error.
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err == nil && f.Name.Name == g.ast.Name.Name && f.Scope.Lookup(name) != nil {
			return true
		}
	}
	return false
}

// refersTo reports whether the file uses an import's name. Any exported name may be from a
// dot import.
func (g *goFile) refersTo(name string) bool {
	found := name == "." && slices.ContainsFunc(g.ast.Unresolved, (*ast.Ident).IsExported)
	g.qualified(map[string]bool{name: true}, func(*ast.SelectorExpr, string) { found = true })
	return found
}
