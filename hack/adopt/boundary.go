package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// A crossing is a place where one of the two types of which Graft has its own
// meets code that keeps upstream's.
type crossing struct {
	line int
	text string
}

// crossings finds them in one file, by syntax alone. ours is the import path by
// which the file gets the two types.
func crossings(g *goFile, ours string, s *sources) []crossing {
	b := &boundary{file: g, managed: g.namesOf(ours), foreign: map[string]string{}, guess: map[string]bool{}}
	for _, spec := range g.ast.Imports {
		// Options of upstream's package itself, in a file that imports both.
		p := importOf(spec)
		raw := p == upstreamManaged && (ours != upstreamManaged || isKept(spec))
		if k := s.knows(p); raw || k != knowsNothing {
			b.foreign[nameOf(spec)] = p
			b.guess[p] = !raw && k == unknown
		}
	}
	if len(b.foreign) == 0 {
		return nil
	}
	for _, d := range g.ast.Decls {
		b.vars = map[string]origin{}
		b.results = nil
		switch d := d.(type) {
		case *ast.FuncDecl:
			b.function(d.Recv, d.Type, d.Body)
		case *ast.GenDecl:
			ast.Inspect(d, b.visit)
		}
	}
	return b.found
}

// An origin is what is known of a variable.
type origin struct {
	ours       bool   // An option, options, or a reconciler.
	foreign    string // The import path of the other module's package that it is from.
	reconciler bool   // Ours, and surely a reconciler.
}

// A boundary walks over one file.
type boundary struct {
	file    *goFile
	managed map[string]bool   // Names of the package that has the two types.
	foreign map[string]string // Names of other modules' packages: their import paths.

	guess map[string]bool // Import paths of which the source isn't there to be read.

	vars    map[string]origin // Of the function at hand; inner scopes aren't told apart.
	results []bool            // Which results of the function at hand are ours.

	found []crossing
	seen  map[token.Pos]bool
}

func (b *boundary) report(n ast.Node, format string, args ...any) {
	if b.seen[n.Pos()] {
		return
	}
	if b.seen == nil {
		b.seen = map[token.Pos]bool{}
	}
	b.seen[n.Pos()] = true
	b.found = append(b.found, crossing{line: b.file.line(n), text: fmt.Sprintf(format, args...)})
}

// function walks over a function, declared or literal.
func (b *boundary) function(recv *ast.FieldList, t *ast.FuncType, body *ast.BlockStmt) {
	outer := b.results
	defer func() { b.results = outer }()
	b.results = nil
	b.declareFields(recv)
	b.declareFields(t.Params)
	b.declareFields(t.Results)
	if t.Results != nil {
		for _, f := range t.Results.List {
			for range max(1, len(f.Names)) {
				b.results = append(b.results, b.isOurType(f.Type))
			}
		}
	}
	if body != nil {
		ast.Inspect(body, b.visit)
	}
}

func (b *boundary) declareFields(l *ast.FieldList) {
	if l == nil {
		return
	}
	for _, f := range l.List {
		for _, name := range f.Names {
			b.vars[name.Name] = b.typeOrigin(f.Type)
		}
	}
}

// visit is called for each node in the order of the source.
func (b *boundary) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		b.function(nil, n.Type, n.Body)
		return false
	case *ast.AssignStmt:
		// The right side first: it means the variables as they were.
		for _, e := range n.Rhs {
			ast.Inspect(e, b.visit)
		}
		b.assign(n)
		return false
	case *ast.ValueSpec:
		for _, e := range n.Values {
			ast.Inspect(e, b.visit)
		}
		b.declare(n)
		return false
	case *ast.RangeStmt:
		if v, ok := n.Value.(*ast.Ident); ok && n.Tok == token.DEFINE {
			b.vars[v.Name] = b.valueOrigin(n.X)
		}
	case *ast.ReturnStmt:
		for i, e := range n.Results {
			if i < len(b.results) && b.results[i] && len(n.Results) == len(b.results) {
				b.take(e)
			}
		}
	case *ast.CompositeLit:
		b.literal(n)
	case *ast.CallExpr:
		b.call(n)
	case *ast.TypeAssertExpr:
		if from := b.from(n.X); from != "" && n.Type != nil && b.isOurType(n.Type) {
			b.report(n, "asserts a type that Graft has its own of on a value from %s; this compiles, and fails when it runs", from)
		}
	}
	return true
}

func (b *boundary) assign(n *ast.AssignStmt) {
	for i, l := range n.Lhs {
		var value ast.Expr
		if len(n.Rhs) == len(n.Lhs) {
			value = n.Rhs[i]
		} else {
			value = n.Rhs[0] // More than one result of a call.
		}
		name, isVar := l.(*ast.Ident)
		switch {
		case n.Tok == token.DEFINE && isVar:
			b.vars[name.Name] = b.valueOrigin(value)
		case b.isOurs(l):
			b.take(value)
		case !isVar && b.isOurs(value):
			if to := b.from(l); to != "" {
				b.give(value, to)
			}
		}
	}
}

func (b *boundary) declare(n *ast.ValueSpec) {
	for i, name := range n.Names {
		var value ast.Expr
		if len(n.Values) == len(n.Names) {
			value = n.Values[i]
		}
		switch {
		case n.Type != nil:
			b.vars[name.Name] = b.typeOrigin(n.Type)
			if value != nil && b.isOurType(n.Type) {
				b.take(value)
			}
		case value != nil:
			b.vars[name.Name] = b.valueOrigin(value)
		}
	}
}

// literal checks the elements of a composite literal.
func (b *boundary) literal(n *ast.CompositeLit) {
	if n.Type == nil {
		return
	}
	takes, to := b.isOurType(n.Type), b.from(n.Type)
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		switch {
		case takes:
			b.takeAs(e, "%s")
		case to != "" && b.isOurs(e):
			b.give(e, to)
		}
	}
}

// call checks the arguments of a call.
func (b *boundary) call(n *ast.CallExpr) {
	name, to := b.managedName(n.Fun), b.from(n.Fun)
	for i, arg := range n.Args {
		spread := n.Ellipsis.IsValid() && i == len(n.Args)-1
		switch {
		case b.isOurType(n.Fun): // A conversion.
			b.take(arg)
		case name == "NewReconciler" && i >= 2 && spread, b.combines(n) && spread:
			b.takeAs(arg, "%s...")
		case name == "NewReconciler" && i >= 2, b.combines(n) && i > 0 && isAppend(n):
			b.takeAs(arg, "%s")
		case name != "": // Another function of the package, such as managed.Upstream.
		case b.combines(n):
			b.take(arg)
		case to != "" && b.isOurs(arg):
			b.give(arg, to)
		}
	}
}

func isAppend(n *ast.CallExpr) bool {
	fun, ok := n.Fun.(*ast.Ident)
	return ok && fun.Name == "append"
}

// combines reports whether a call puts slices of ours together: append, or a
// function of package slices.
func (b *boundary) combines(n *ast.CallExpr) bool {
	if !isAppend(n) {
		fun, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if x, ok := fun.X.(*ast.Ident); !ok || x.Name != "slices" {
			return false
		}
	}
	for _, arg := range n.Args {
		if b.isOurs(arg) {
			return true
		}
	}
	return false
}

// take checks an expression that is used as one of ours.
func (b *boundary) take(e ast.Expr) {
	b.takeAs(e, "")
}

// takeAs is take for an expression that Upstream can wrap right there. The
// format makes Upstream's argument of it.
func (b *boundary) takeAs(e ast.Expr, format string) {
	if b.isOurs(e) {
		return
	}
	from := b.from(e)
	if from == "" {
		return
	}
	wrapped := b.qualifier() + "Upstream"
	if text := b.text(e); format != "" && text != "" {
		wrapped += "(" + fmt.Sprintf(format, text) + ")"
	}
	b.report(e, "takes upstream's options from %s; wrap them with %s", from, wrapped)
}

// give reports an expression of ours that another module gets.
func (b *boundary) give(e ast.Expr, to string) {
	guess := ""
	if b.guess[to] {
		guess = " (a guess: its source isn't here)"
	}
	if b.isReconciler(e) {
		b.report(e, "gives the reconciler to %s%s; fine if that takes a reconcile.Reconciler, not if it takes upstream's *managed.Reconciler", to, guess)
		return
	}
	b.report(e, "gives options to %s%s; if that takes upstream's, build them with upstream's package, imported with a %s comment", to, guess, keepDirective)
}

// qualifier returns what stands before a name of the package with our types.
func (b *boundary) qualifier() string {
	if b.managed["."] {
		return ""
	}
	for _, spec := range b.file.ast.Imports {
		if name := nameOf(spec); b.managed[name] && name != "_" {
			return name + "."
		}
	}
	return ""
}

// text returns an expression as it is written if it is short, else "".
func (b *boundary) text(e ast.Expr) string {
	s := string(b.file.src[b.file.offset(e.Pos()):b.file.offset(e.End())])
	if len(s) > 60 || strings.ContainsAny(s, "\r\n") {
		return ""
	}
	return s
}

// isReconciler reports whether an expression that is ours is surely no option.
func (b *boundary) isReconciler(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		return b.managedName(e.Fun) == "NewReconciler"
	case *ast.Ident:
		return b.vars[e.Name].reconciler
	default:
		return false
	}
}

// managedName returns X for managed.X, also under a dot import, else "".
func (b *boundary) managedName(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && b.managed[x.Name] && !b.isVar(x.Name) {
			return e.Sel.Name
		}
	case *ast.IndexExpr: // With a type argument.
		return b.managedName(e.X)
	case *ast.Ident:
		if b.managed["."] && ast.IsExported(e.Name) && !b.isVar(e.Name) {
			return e.Name
		}
	}
	return ""
}

func (b *boundary) isVar(name string) bool {
	_, ok := b.vars[name]
	return ok
}

// isOurType reports whether a type is one of the two, or made of one.
func (b *boundary) isOurType(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.StarExpr:
		return b.isOurType(e.X)
	case *ast.ArrayType:
		return b.isOurType(e.Elt)
	case *ast.Ellipsis:
		return b.isOurType(e.Elt)
	case *ast.MapType:
		return b.isOurType(e.Value)
	default:
		name := b.managedName(e)
		return name == "ReconcilerOption" || name == "Reconciler"
	}
}

// isOurs reports whether a value is one of ours for sure.
func (b *boundary) isOurs(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return b.vars[e.Name].ours
	case *ast.IndexExpr:
		return b.isOurs(e.X)
	case *ast.SliceExpr:
		return b.isOurs(e.X)
	case *ast.UnaryExpr:
		return e.Op == token.AND && b.isOurs(e.X)
	case *ast.CompositeLit:
		return e.Type != nil && b.isOurType(e.Type)
	case *ast.CallExpr:
		return b.combines(e) || b.isOurType(e.Fun) || makesOurs(b.managedName(e.Fun))
	default:
		return false
	}
}

// makesOurs reports whether a function of the package returns one of the two
// types, going by its name.
func makesOurs(name string) bool {
	switch name {
	case "NewReconciler", "Upstream":
		return true
	case "WithProviderVersion", "WithSendTimeout", "WithSupportedManagementPolicies":
		return false // Options of other things.
	default:
		return strings.HasPrefix(name, "With")
	}
}

// from returns the import path of the other module's package at the root of an
// expression, such as helper in helper.New().Options[0], else "".
func (b *boundary) from(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.CallExpr:
			e = x.Fun
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.UnaryExpr:
			e = x.X
		case *ast.ArrayType:
			e = x.Elt
		case *ast.Ellipsis:
			e = x.Elt
		case *ast.TypeAssertExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			if o, ok := b.vars[x.Name]; ok {
				return o.foreign
			}
			return b.foreign[x.Name]
		default:
			return ""
		}
	}
}

func (b *boundary) typeOrigin(t ast.Expr) origin {
	if b.isOurType(t) {
		return origin{ours: true, reconciler: b.isReconcilerType(t)}
	}
	return origin{foreign: b.from(t)}
}

func (b *boundary) valueOrigin(e ast.Expr) origin {
	if b.isOurs(e) {
		return origin{ours: true, reconciler: b.isReconciler(e)}
	}
	return origin{foreign: b.from(e)}
}

// isReconcilerType reports whether a type is a pointer to a reconciler.
func (b *boundary) isReconcilerType(t ast.Expr) bool {
	star, ok := ast.Unparen(t).(*ast.StarExpr)
	return ok && b.managedName(star.X) == "Reconciler"
}
