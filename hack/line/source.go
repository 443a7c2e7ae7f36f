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

	imports map[string]string   // Paths, by the name that the file uses.
	needs   map[importSpec]bool // Packages of core types.
	changes []change
	err     error
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
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	s := &source{
		line: l, path: name, text: text, fset: fset, file: f,
		imports: map[string]string{}, needs: map[importSpec]bool{}, omitted: map[ast.Node]string{},
	}
	for _, spec := range f.Imports {
		s.imports[nameOf(spec)] = importPath(spec)
	}
	s.leaveOut()
	ast.Inspect(f, s.node)
	if s.err != nil || len(s.changes) == 0 {
		return s, s.err
	}
	if s.text, err = s.withImports(s.apply()); err != nil {
		return nil, fmt.Errorf("cannot rewrite %s: %w", name, err)
	}
	return s, nil
}

// node rewrites a node, and reports whether to visit the nodes below it.
func (s *source) node(n ast.Node) bool {
	if s.omitted[n] != "" {
		s.omit(n, s.omitted[n])
		return false
	}
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.FuncDecl:
		// Nothing calls a method that implements one which the release lacks.
		if _, ok := s.line.lacks[name{name: n.Name.Name}]; ok && n.Recv != nil {
			s.omit(n, "method "+n.Name.Name)
			return false
		}
	case *ast.SelectorExpr:
		if instead, ok := s.lack(n); ok {
			if instead == "" && s.err == nil {
				s.err = fmt.Errorf(
					"%s: crossplane-runtime %s has no %s: hack/line/lines.go must say what stands for it",
					s.fset.Position(n.Pos()), s.line.runtime, n.Sel.Name,
				)
			}
			s.replace(n, instead)
			return false
		}
		if p := s.packageOf(n); p != "" {
			if p == corePath {
				s.coreName(n)
			}
			return false
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok {
			if instead := s.line.lacks[name{name: f.Sel.Name}]; instead != "" {
				s.replace(n, instead)
				return false
			}
		}
	case *ast.Ident:
		// The name of an embedded field is its type's.
		if c, ok := s.line.others[n.Name]; ok && c.name != n.Name {
			s.replace(n, c.name)
		}
	}
	return true
}

// coreName rewrites the name of a core type.
func (s *source) coreName(n *ast.SelectorExpr) {
	c, ok := s.line.others[n.Sel.Name]
	if !ok {
		c = coreName{in: s.line.core, name: n.Sel.Name}
	}
	s.needs[c.in] = true
	s.replace(n, c.in.name+"."+c.name)
}

// packageOf returns the path of the package whose name a selector is, or "".
func (s *source) packageOf(n *ast.SelectorExpr) string {
	if x, ok := n.X.(*ast.Ident); ok {
		return s.imports[x.Name]
	}
	return ""
}

// lack returns the entry of the table for a selector, and whether the release lacks its name.
func (s *source) lack(n *ast.SelectorExpr) (instead string, ok bool) {
	instead, ok = s.line.lacks[name{path: s.packageOf(n), name: n.Sel.Name}]
	return instead, ok
}

// leaveOut finds the smallest parts of a test that the line leaves out: the argument or element
// that calls a name that the release lacks, the case of a table, or the function. For a name
// that has a stand-in, it leaves out cases only.
func (s *source) leaveOut() {
	if !strings.HasSuffix(s.path, "_test.go") {
		return
	}
	ast.PreorderStack(s.file, nil, func(n ast.Node, above []ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if instead, ok := s.lack(n); ok {
				if part, what := smallest(above, instead != ""); part != nil {
					s.omitted[part] = what
				}
			}
		case *ast.KeyValueExpr:
			c := testCase{test: function(above), name: caseOf(n, above[len(above)-1])}
			if why := s.line.differs[c]; why != "" {
				s.omitted[n] = fmt.Sprintf("case %s of %s: %s", c.name, c.test, why)
				s.differs = append(s.differs, c)
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

// caseOf returns the name of a case in a table, which is a map, or "".
func caseOf(n *ast.KeyValueExpr, table ast.Node) string {
	if l, ok := table.(*ast.CompositeLit); ok {
		_, isMap := l.Type.(*ast.MapType)
		key, isText := n.Key.(*ast.BasicLit)
		if isMap && isText && key.Kind == token.STRING {
			name, _ := strconv.Unquote(key.Value) // The parser accepts only valid strings.
			return name
		}
	}
	return ""
}

// smallest returns the smallest of the nodes, which are in each other and a part of a test,
// that can be left out, and how to name it. If casesOnly is set, that is the case of a table.
func smallest(nodes []ast.Node, casesOnly bool) (ast.Node, string) {
	in := function(nodes)
	last := len(nodes) - 1
	for i := last; i > 0; i-- {
		switch n := nodes[i].(type) {
		case *ast.CallExpr:
			_, argument := nodes[i-1].(*ast.CallExpr)
			_, element := nodes[i-1].(*ast.CompositeLit)
			if i == last && !casesOnly && (argument || element) {
				return n, "an argument in " + in
			}
		case *ast.KeyValueExpr:
			if name := caseOf(n, nodes[i-1]); name != "" {
				return n, fmt.Sprintf("case %s of %s", name, in)
			}
		case *ast.FuncDecl:
			if !casesOnly && n.Recv == nil {
				return n, in
			}
		}
	}
	return nil, ""
}

// omit removes a node, which is called what, from the text, with its comment and the comma
// behind it.
func (s *source) omit(n ast.Node, what string) {
	start, end := s.offset(n.Pos()), s.offset(n.End())
	if f, ok := n.(*ast.FuncDecl); ok && f.Doc != nil {
		start = s.offset(f.Doc.Pos())
	}
	if i := bytes.IndexByte(s.text[end:], ','); i >= 0 && len(bytes.TrimSpace(s.text[end:end+i])) == 0 {
		end += i + 1
	}
	s.changes = append(s.changes, change{start: start, end: end})
	s.leftOut = append(s.leftOut, fmt.Sprintf("%s: %s", s.path, what))
}

func (s *source) replace(n ast.Node, text string) {
	s.changes = append(s.changes, change{start: s.offset(n.Pos()), end: s.offset(n.End()), text: text})
}

func (s *source) offset(p token.Pos) int { return s.fset.PositionFor(p, false).Offset }

// apply returns the text with all changes.
func (s *source) apply() []byte {
	slices.SortFunc(s.changes, func(a, b change) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	done := 0
	for _, c := range s.changes {
		out = fmt.Append(out, string(s.text[done:c.start]), c.text)
		done = c.end
	}
	return append(out, s.text[done:]...)
}

// withImports returns the rewritten text, formatted, with the imports that it needs: other
// packages of core types, and none that only the text before used.
func (s *source) withImports(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for n := range s.needs {
		astutil.AddNamedImport(fset, f, n.name, n.path)
	}
	for _, spec := range s.file.Imports {
		if p := importPath(spec); p == corePath || astutil.UsesImport(s.file, p) && !astutil.UsesImport(f, p) {
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

func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // The parser accepts only valid strings.
	return p
}

// nameOf returns the name that a file uses for an import: its alias, or the last element of the
// path, as it is for the packages that lines.go names.
func nameOf(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return path.Base(importPath(spec))
}
