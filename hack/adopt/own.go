package main

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
)

// upstreamText has the exported names of upstream's package, one a line. make
// generate writes it.
//
//go:embed upstream.txt
var upstreamText string

// upstreamNames returns the exported names of upstream's package.
func upstreamNames() map[string]bool {
	names := map[string]bool{}
	for _, n := range strings.Fields(upstreamText) {
		names[n] = true
	}
	return names
}

// ownNames reports what a file uses of Graft that crossplane-runtime doesn't have,
// or that leaves something behind in the cluster, of which no compiler knows.
func (p *planner) ownNames(f treeFile, g *goFile) {
	for _, s := range g.ast.Imports {
		if pkg, ok := strings.CutPrefix(importOf(s), graftModule+"/"); ok && importOf(s) != graftManaged {
			p.report.leave(f.path, g.line(s), "imports Graft's "+pkg+", which crossplane-runtime has nothing like: take out what uses it")
		}
	}

	names, upstream := g.namesOf(graftManaged), upstreamNames()
	report := func(n ast.Node, qualifier, name string) {
		switch {
		case upstream[name] || isTracker(name):
		case name == "Upstream":
			p.report.leave(f.path, g.line(n), qualifier+name+" isn't in crossplane-runtime; pass its arguments as they are")
		case name == "WithUsageProtection":
			p.report.leave(f.path, g.line(n), "usages keep the finalizer that "+qualifier+name+" gave them; run the provider with "+qualifier+"WithReleaseAll before you go back")
		default:
			p.report.leave(f.path, g.line(n), qualifier+name+" is Graft's own, crossplane-runtime has no such name: take it out")
		}
	}
	ast.Inspect(g.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] && x.Obj == nil {
				report(s, x.Name+".", s.Sel.Name)
			}
		}
		return true
	})
	if names["."] {
		for _, id := range g.unresolved(p.module.file(path.Dir(f.path))) {
			report(id, "", id.Name)
		}
	}
}

// unresolved returns where the file uses exported names that its package doesn't
// declare: with a dot import, those are another package's.
func (g *goFile) unresolved(dir string) []*ast.Ident {
	declared := g.packageNames(dir)
	var ids []*ast.Ident
	for _, id := range g.ast.Unresolved {
		if id.IsExported() && !declared[id.Name] {
			ids = append(ids, id)
		}
	}
	return ids
}

// packageNames returns the names that the file's package declares, which is in dir.
func (g *goFile) packageNames(dir string) map[string]bool {
	declared := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.go")) // The pattern has no error.
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil || f.Name.Name != g.ast.Name.Name {
			continue
		}
		for n := range f.Scope.Objects {
			declared[n] = true
		}
	}
	return declared
}
