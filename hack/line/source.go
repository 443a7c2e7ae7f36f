package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A source is a Go file that is rewritten for a line. Changes are of its text, so
// that comments stay where they are.
type source struct {
	line line
	path string
	text []byte
	fset *token.FileSet
	file *ast.File

	imports map[string]*ast.ImportSpec // By the name that the file uses.
	uses    map[string]int             // How often the rewritten file uses an import, by name.
	needs   map[importSpec]bool        // Packages of core types.
	changes []change
	omitted map[ast.Node]string // Parts of a test, and how to name them.
	leftOut []string
	differs []testCase // Found in this file.
}

// A change replaces some of a file's text.
type change struct {
	start, end int
	text       string
}

// rewrite returns a Go file as it is in a line. A file that doesn't differ is
// returned as it is.
func rewrite(l line, name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{line: l, path: name, text: text, fset: fset, file: f, imports: map[string]*ast.ImportSpec{}, uses: map[string]int{}, needs: map[importSpec]bool{}, omitted: map[ast.Node]string{}}
	for _, spec := range f.Imports {
		s.imports[nameOf(spec)] = spec
	}
	s.leaveOut()
	s.leaveOutMethods()

	for _, d := range f.Decls {
		if err := s.node(d); err != nil {
			return nil, err
		}
	}

	s.importSpecs()
	if len(s.changes) == 0 {
		return s, nil
	}
	s.text, err = format.Source(s.apply())
	if err != nil {
		return nil, fmt.Errorf("cannot format %s after rewriting it: %w", name, err)
	}
	return s, nil
}

// node rewrites what is below n.
func (s *source) node(n ast.Node) error {
	if s.omitted[n] != "" {
		s.omit(n)
		return nil
	}
	switch n := n.(type) {
	case *ast.ImportSpec:
		return nil
	case *ast.SelectorExpr:
		if l, ok := s.lack(n); ok {
			if l.instead == "" {
				return fmt.Errorf("%s: crossplane-runtime %s has no %s: hack/line/lines.go must say what stands for it", s.fset.Position(n.Pos()), s.line.runtime, n.Sel.Name)
			}
			s.replace(n, l.instead)
			return nil
		}

		if x, ok := n.X.(*ast.Ident); ok && s.imports[x.Name] != nil {
			s.selector(n, x.Name)
			return nil
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok {
			if l, ok := s.line.lacks[name{name: f.Sel.Name}]; ok && l.instead != "" {
				s.replace(n, l.instead)
				return nil
			}
		}
	case *ast.Ident:
		// The name of an embedded field is its type's.
		if c, ok := s.line.core.others[n.Name]; ok && c.name != n.Name {
			s.replace(n, c.name)
		}
	}

	var err error

	ast.Inspect(n, func(c ast.Node) bool {
		if c == nil || c == n || err != nil {
			return c == n
		}
		err = s.node(c)
		return false
	})
	return err
}

// selector rewrites a name of another package.
func (s *source) selector(n *ast.SelectorExpr, pkg string) {
	core := s.line.core
	if importPath(s.imports[pkg]) != corePath {
		s.uses[pkg]++
		return
	}
	c := coreName{in: core.usual, name: n.Sel.Name}
	if o, ok := core.others[n.Sel.Name]; ok {
		c = o
	}
	s.needs[c.in] = true
	s.replace(n, c.in.name+"."+c.name)
}

// leaveOut finds what a line leaves out of a test, by the smallest part: the
// argument or element that calls a name that the release lacks, the case of a table,
// the function. A name that something stands for is a reason for a case only.
func (s *source) leaveOut() {
	if !strings.HasSuffix(s.path, "_test.go") {
		return
	}
	var above []ast.Node

	ast.Inspect(s.file, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return false
		}
		above = append(above, n)

		switch n := n.(type) {
		case *ast.SelectorExpr:
			if l, ok := s.lack(n); ok {
				if part, what := smallest(above, l); part != nil {
					s.omitted[part] = what
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := caseOf(n, above[len(above)-2]); ok {
				c := testCase{test: function(above), name: key}
				if why := s.line.differs[c]; why != "" {
					s.omitted[n] = fmt.Sprintf("case %s of %s: %s", c.name, c.test, why)
					s.differs = append(s.differs, c)
				}
			}
		}
		return true
	})
}

// function returns the name of the declared function that nodes are in.
func function(nodes []ast.Node) string {
	for _, n := range nodes {
		if f, ok := n.(*ast.FuncDecl); ok {
			return f.Name.Name
		}
	}
	return "a variable"
}

// caseOf returns the name of a case in a table, which is a map.
func caseOf(n *ast.KeyValueExpr, table ast.Node) (string, bool) {
	l, ok := table.(*ast.CompositeLit)
	if !ok {
		return "", false
	}
	if _, ok := l.Type.(*ast.MapType); !ok {
		return "", false
	}
	key, ok := n.Key.(*ast.BasicLit)
	if !ok || key.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(key.Value)
	return name, err == nil
}

// leaveOutMethods finds methods that implement one which the release lacks: nothing
// there calls them.
func (s *source) leaveOutMethods() {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			if _, ok := s.line.lacks[name{name: f.Name.Name}]; ok {
				s.omitted[f] = "method " + f.Name.Name
			}
		}
	}
}

// lack returns what the release lacks if n names it.
func (s *source) lack(n *ast.SelectorExpr) (lack, bool) {
	key := name{name: n.Sel.Name}
	if x, ok := n.X.(*ast.Ident); ok && s.imports[x.Name] != nil {
		key.path = importPath(s.imports[x.Name])
	}
	l, ok := s.line.lacks[key]
	return l, ok
}

// smallest returns the smallest part of a test that can be left out with the last of
// the nodes, which are in each other, and how to name it.
func smallest(nodes []ast.Node, l lack) (ast.Node, string) {
	in := function(nodes)
	last := len(nodes) - 1

	for i := last - 1; i > 0; i-- {
		switch n := nodes[i].(type) {
		case *ast.CallExpr:
			if i == last-1 && l.instead == "" && isElement(n, nodes[i-1]) {
				return n, "an argument in " + in
			}
		case *ast.KeyValueExpr:
			if name, ok := caseOf(n, nodes[i-1]); ok {
				return n, fmt.Sprintf("case %s of %s", name, in)
			}
		case *ast.FuncDecl:
			if l.instead == "" && n.Recv == nil {
				return n, in
			}
		}
	}
	return nil, ""
}

// isElement reports whether n is one of the arguments or elements of a list.
func isElement(n ast.Expr, list ast.Node) bool {
	switch l := list.(type) {
	case *ast.CallExpr:
		return slices.Contains(l.Args, n)
	case *ast.CompositeLit:
		return slices.Contains(l.Elts, n)
	default:
		return false
	}
}

// omit takes a node out of the text, with its comment and the comma behind it.
func (s *source) omit(n ast.Node) {
	start, end := s.span(n)
	if f, ok := n.(*ast.FuncDecl); ok && f.Doc != nil {
		start = s.offset(f.Doc.Pos())
	}

	if i := bytes.IndexByte(s.text[end:], ','); i >= 0 && len(bytes.TrimSpace(s.text[end:end+i])) == 0 {
		end += i + 1
	}
	s.changes = append(s.changes, change{start: start, end: end})
	s.leftOut = append(s.leftOut, fmt.Sprintf("%s: %s", s.path, s.omitted[n]))
}

// importSpecs replaces the import of the core types, and takes away imports that
// nothing uses any more.
func (s *source) importSpecs() {
	if len(s.changes) == 0 {
		return
	}
	for pkg, spec := range s.imports {
		p := importPath(spec)

		switch {
		case pkg == "_" || pkg == "." || p == "C" || p == "embed":
		case p == corePath:
			var specs []string
			for n := range s.needs {
				specs = append(specs, n.name+" "+strconv.Quote(n.path))
			}
			slices.Sort(specs)
			s.replace(spec, strings.Join(specs, "\n"))
		case s.uses[pkg] == 0 && s.used(pkg):
			s.dropImport(spec)
		}
	}
}

// dropImport takes an import away, with its line if that is in a block.
func (s *source) dropImport(spec *ast.ImportSpec) {
	start, end := s.span(spec)

	for _, d := range s.file.Decls {
		if block, ok := d.(*ast.GenDecl); ok && slices.Contains(block.Specs, ast.Spec(spec)) && !block.Lparen.IsValid() {
			start, end = s.span(block)
		}
	}

	if bytes.HasPrefix(s.text[end:], []byte("\n")) {
		end++
	}
	s.changes = append(s.changes, change{start: start, end: end})
}

// used reports whether the file as it is in main uses an import. The name of a
// package isn't always the one that its path suggests.
func (s *source) used(pkg string) bool {
	found := false

	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
				found = true
			}
		}
		return !found
	})
	return found
}

func (s *source) replace(n ast.Node, text string) {
	start, end := s.span(n)
	s.changes = append(s.changes, change{start: start, end: end, text: text})
}

func (s *source) span(n ast.Node) (start, end int) { return s.offset(n.Pos()), s.offset(n.End()) }

func (s *source) offset(p token.Pos) int { return s.fset.PositionFor(p, false).Offset }

func (s *source) apply() []byte {
	slices.SortFunc(s.changes, func(a, b change) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	done := 0

	for _, c := range s.changes {
		out = append(out, s.text[done:c.start]...)
		out = append(out, c.text...)
		done = c.end
	}
	return append(out, s.text[done:]...)
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "" // The parser accepts no such import.
	}
	return p
}

// nameOf returns the name that a file uses for an import: its alias, or the last
// element of the path that isn't a major version.
func nameOf(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	p := importPath(spec)
	if base := path.Base(p); len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		p = path.Dir(p)
	}
	return path.Base(p)
}
