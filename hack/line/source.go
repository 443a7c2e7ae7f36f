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

	"golang.org/x/tools/go/ast/astutil"
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
	needs   map[importSpec]bool        // Packages of core types.
	changes []change
	omitted map[ast.Node]string // Parts of a test, and how to name them.
	leftOut []string
	differs []testCase // Found in this file.
}

// A change replaces a part of a file's text.
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
	s := &source{
		line: l, path: name, text: text, fset: fset, file: f,
		imports: map[string]*ast.ImportSpec{}, needs: map[importSpec]bool{}, omitted: map[ast.Node]string{},
	}
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

	if len(s.changes) == 0 {
		return s, nil
	}
	if s.text, err = s.withImports(s.apply()); err != nil {
		return nil, fmt.Errorf("cannot rewrite %s: %w", name, err)
	}
	return s, nil
}

// node rewrites the nodes below n.
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
				return fmt.Errorf("%s: crossplane-runtime %s has no %s: hack/line/lines.go must say what stands for it",
					s.fset.Position(n.Pos()), s.line.runtime, n.Sel.Name)
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
		return
	}
	c := coreName{in: core.usual, name: n.Sel.Name}
	if o, ok := core.others[n.Sel.Name]; ok {
		c = o
	}
	s.needs[c.in] = true
	s.replace(n, c.in.name+"."+c.name)
}

// leaveOut finds the smallest parts of a test that the line leaves out: the argument or element
// that calls a name that the release lacks, the case of a table, or the function. For a name
// that has a stand-in, it leaves out cases only.
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

// lack returns the entry of the table for a selector, and whether the release lacks its name.
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

// omit removes a node from the text, with its comment and the comma behind it.
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

// withImports returns the rewritten text, formatted, with the imports that it needs: other
// packages of core types, and none that only the text before used.
func (s *source) withImports(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	// A package's name is not always the one that its path suggests, so an import that the
	// text before did not use by that name stays.
	before, after := qualifiers(s.file), qualifiers(f)
	for n := range s.needs {
		astutil.AddNamedImport(fset, f, n.name, n.path)
	}
	for name, spec := range s.imports {
		if p := importPath(spec); p == corePath || before[name] && !after[name] {
			alias := ""
			if spec.Name != nil {
				alias = spec.Name.Name
			}
			astutil.DeleteNamedImport(fset, f, alias, p)
		}
	}
	ast.SortImports(fset, f)
	var out bytes.Buffer
	err = format.Node(&out, fset, f)
	return out.Bytes(), err
}

// qualifiers returns the names before a selector in a file.
func qualifiers(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				names[x.Name] = true
			}
		}
		return true
	})
	return names
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
