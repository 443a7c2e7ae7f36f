package main

import (
	"go/ast"
	"strings"
)

// The checks of this file find code that compiles, and fails later.

// assertions returns the places where a file asserts Reconciler or ReconcilerOption. managed
// is the import path of these types in the file.
func assertions(name string, g *goFile, managed string) []finding {
	const text = "asserts a type that Graft has its own of; " +
		"on a value from another module this compiles, and fails at run time"
	names := g.namesOf(managed)
	var found []finding
	ast.Inspect(g.ast, func(n ast.Node) bool {
		var types []ast.Expr
		switch n := n.(type) {
		case *ast.TypeAssertExpr:
			types = []ast.Expr{n.Type}
		case *ast.TypeSwitchStmt:
			for _, c := range n.Body.List {
				if c, ok := c.(*ast.CaseClause); ok {
					types = append(types, c.List...)
				}
			}
		}
		for _, t := range types {
			if t != nil && hasOwnType(t, names) {
				found = append(found, finding{path: name, line: g.line(t), text: text})
			}
		}
		return true
	})
	return found
}

// hasOwnType reports whether a type contains Reconciler or ReconcilerOption. names has the
// file's names of their package.
func hasOwnType(t ast.Expr, names map[string]bool) bool {
	found := false
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && names[x.Name] && isOwnType(n.Sel.Name)
			return false
		case *ast.Ident:
			found = found || names["."] && isOwnType(n.Name)
		}
		return true
	})
	return found
}

func isOwnType(name string) bool { return name == "Reconciler" || name == "ReconcilerOption" }

// remains returns the traces of Graft that -revert does not remove: imports of its other
// packages, and finalizers in the cluster.
func remains(name string, g *goFile) []finding {
	var found []finding
	for _, s := range g.ast.Imports {
		if pkg, ok := strings.CutPrefix(importOf(s), graftModule+"/"); ok && importOf(s) != graftManaged {
			found = append(found, finding{
				path: name, line: g.line(s),
				text: "imports Graft's " + pkg + ", which crossplane-runtime has nothing like: take out what uses it",
			})
		}
	}
	report := func(n ast.Node, qualifier string) {
		found = append(found, finding{
			path: name, line: g.line(n),
			text: "usages keep the finalizer that " + qualifier + "WithUsageProtection gave them; " +
				"run the provider with " + qualifier + "NewUnconditionalUsageReleaser before you go back",
		})
	}
	names := g.namesOf(graftManaged)
	g.qualified(names, func(s *ast.SelectorExpr, qualifier string) {
		if s.Sel.Name == "WithUsageProtection" {
			report(s, qualifier+".")
		}
	})
	for _, id := range g.ast.Unresolved {
		if names["."] && id.Name == "WithUsageProtection" {
			report(id, "")
		}
	}
	return found
}
