package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"slices"
	"strconv"

	"golang.org/x/tools/go/ast/astutil"
)

// trackerFault returns the fault of a usage tracker of package resource, by the name of its
// constructor. Graft's tracker of that name doesn't have it. It is empty for other names.
func trackerFault(constructor string) string {
	switch constructor {
	case "NewProviderConfigUsageTracker":
		return "keeps managed resources in a terminating namespace for ever; " +
			"-trackers replaces it by Graft's tracker, which lets them be deleted"
	case "NewLegacyProviderConfigUsageTracker": // It makes no object in a namespace.
		return "fails while the cache lacks a usage that exists; " +
			"-trackers replaces it by Graft's tracker, which does not"
	default:
		return ""
	}
}

// A trackerMove says between which packages the constructors move. The file imports the
// second package as name, or as alias if it declares name.
type trackerMove struct{ from, to, name, alias string }

func trackersToGraft() trackerMove {
	return trackerMove{from: upstreamResource, to: graftUsage, name: "usage", alias: "graftusage"}
}

func trackersBack() trackerMove {
	return trackerMove{from: graftUsage, to: upstreamResource, name: "resource", alias: "xpresource"}
}

// trackers returns where the file names a package's constructors of usage trackers.
func (g *goFile) trackers(importPath string) []*ast.SelectorExpr {
	var found []*ast.SelectorExpr
	for _, spec := range g.imports(importPath) {
		if isKept(spec) {
			continue
		}
		for _, s := range g.selectors(nameOf(spec)) {
			if trackerFault(s.Sel.Name) != "" {
				found = append(found, s)
			}
		}
	}
	return found
}

// selectors returns the selectors whose qualifier is an import with that name, not a variable.
func (g *goFile) selectors(name string) []*ast.SelectorExpr {
	var found []*ast.SelectorExpr
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name && x.Obj == nil {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}

// moveTrackers returns the source with one package's constructors of usage trackers replaced
// by another's, with the imports for that, formatted.
func (g *goFile) moveTrackers(m trackerMove) ([]byte, error) {
	name, alias := g.nameFor(m), ""
	if name != m.name {
		alias = name
	}
	for _, s := range g.trackers(m.from) {
		s.X = &ast.Ident{Name: name, NamePos: s.Pos()}
	}

	imported := slices.ContainsFunc(g.imports(m.to), func(s *ast.ImportSpec) bool { return nameOf(s) == name })
	for _, s := range g.imports(m.from) {
		switch {
		case isKept(s) || astutil.UsesImport(g.ast, m.from):
		case imported && s.Name == nil:
			astutil.DeleteImport(g.fset, g.ast, m.from)
		case imported:
			astutil.DeleteNamedImport(g.fset, g.ast, s.Name.Name, m.from)
		default:
			s.Name, s.Path.Value, imported = nil, strconv.Quote(m.to), true
			if alias != "" {
				s.Name = &ast.Ident{Name: alias, NamePos: s.Path.Pos()}
			}
		}
	}
	if !imported {
		astutil.AddNamedImport(g.fset, g.ast, alias, m.to)
	}

	ast.SortImports(g.fset, g.ast)
	var out bytes.Buffer
	err := format.Node(&out, g.fset, g.ast)
	return out.Bytes(), err
}

// nameFor returns the name by which the file refers, or can refer, to the package that
// trackers move to.
func (g *goFile) nameFor(m trackerMove) string {
	for _, s := range g.imports(m.to) {
		if name := nameOf(s); name != "." && name != "_" && !g.declares(name) {
			return name
		}
	}
	taken := func(s *ast.ImportSpec) bool { return nameOf(s) == m.name }
	if g.declares(m.name) || slices.ContainsFunc(g.ast.Imports, taken) {
		return m.alias
	}
	return m.name
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
