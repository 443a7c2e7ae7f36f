package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// A gonePackage is a package of crossplane-runtime that later releases don't have.
type gonePackage struct {
	path  string
	since string // The first release without it.
	now   string // Where its names are since then.
}

func gonePackages() []gonePackage {
	const core = "github.com/crossplane/crossplane/apis/v2/core/v2"
	return []gonePackage{
		{path: upstreamModule + "/apis/common", since: "v2.3.0", now: core},
		{path: upstreamModule + "/apis/common/v1", since: "v2.3.0", now: core},
		{path: upstreamModule + "/apis/common/v2", since: "v2.3.0", now: core},
		{path: upstreamModule + "/pkg/parser", since: "v2.3.0", now: upstreamModule + "/pkg/xpkg/parser"},
	}
}

// gone returns the package of an import if a release of crossplane-runtime doesn't
// have it.
func gone(importPath, runtime string) (gonePackage, bool) {
	for _, g := range gonePackages() {
		if g.path == importPath && semver.Compare(runtime, g.since) >= 0 {
			return g, true
		}
	}
	return gonePackage{}, false
}

// targetRuntime returns the release of crossplane-runtime that the provider has
// after go mod tidy.
func (p *planner) targetRuntime() string {
	v, _ := runtimeRequired(p.module.gomod)
	if semver.Compare(v, p.line.runtime) > 0 || v != "" && isPinned(p.module.gomod) {
		return v
	}
	return p.line.runtime
}

// noteImports collects what decides whether go mod tidy will work: imports of
// packages that are gone, and of other modules' packages.
func (p *planner) noteImports(f treeFile, src []byte) {
	fset := token.NewFileSet()
	for _, s := range importsIn(fset, f.path, src) {
		path := importOf(s)
		at := fset.PositionFor(s.Pos(), false).Line
		if pkg, ok := gone(path, p.targetRuntime()); ok {
			p.gone = append(p.gone, finding{path: f.path, line: at, text: fmt.Sprintf("imports %s, which crossplane-runtime %s doesn't have: go mod tidy will fail; its names are in %s", path, p.targetRuntime(), pkg.now)})
		}
		p.imports[path] = true
	}
}

// importsIn returns the imports of a file that go mod tidy reads: none of one that does
// not parse, or that it ignores. The source is read from disk if src is nil.
func importsIn(fset *token.FileSet, name string, src any) []*ast.ImportSpec {
	f, err := parser.ParseFile(fset, name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil || isIgnored(filepath.Base(name), f) {
		return nil
	}
	return f.Imports
}

// isIgnored reports whether go mod tidy ignores a file: it takes all build tags for
// set but ignore.
func isIgnored(name string, g *ast.File) bool {
	if name[0] == '_' || name[0] == '.' {
		return true
	}
	for _, group := range g.Comments {
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil && c.Pos() < g.Package && constraint.IsGoBuild(c.Text) {
				return !x.Eval(func(tag string) bool { return tag != "ignore" })
			}
		}
	}
	return false
}

// tidyFails reports why go mod tidy will fail. No other module's requirement can be
// seen from go.mod alone, so packages of dependencies are read where they are on
// disk.
func (p *planner) tidyFails() {
	p.report.left = append(p.report.left, p.gone...)
	seen := map[string]bool{}
	paths := make([]string, 0, len(p.imports))
	for path := range p.imports {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	named := map[string]bool{}
	for _, path := range paths {
		mod := p.sources.requirement(path)
		if mod.Mod.Path == "" || named[mod.Mod.Path] {
			continue
		}
		if in, pkg := p.goneBelow(path, seen); pkg != "" {
			named[mod.Mod.Path] = true
			p.report.leave("go.mod", mod.Syntax.Start.Line, fmt.Sprintf("%s %s doesn't work with crossplane-runtime %s, which has no %s (imported by %s): go mod tidy will fail; raise the module, or stay on the line that fits it", mod.Mod.Path, mod.Mod.Version, p.targetRuntime(), pkg, in))
		}
	}
	p.upjetFails(named)
}

// goneBelow looks for an import of a package that is gone in another module's
// package, and in what that imports. It returns the importing package and the one
// that is gone.
func (p *planner) goneBelow(importPath string, seen map[string]bool) (in, pkg string) {
	if seen[importPath] || p.sources.isApart(importPath) {
		return "", ""
	}
	seen[importPath] = true
	dir := p.sources.dir(importPath)
	if dir == "" {
		return "", ""
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", ""
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, s := range importsIn(token.NewFileSet(), name, nil) {
			path := importOf(s)
			if _, ok := gone(path, p.targetRuntime()); ok {
				return importPath, path
			}
			if in, pkg := p.goneBelow(path, seen); pkg != "" {
				return in, pkg
			}
		}
	}
	return "", ""
}
