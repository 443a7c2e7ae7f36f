package main

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
)

// A Difference is an exported symbol of upstream's that ours lacks, or has in
// another form, so that code written for upstream's may not compile with ours.
type Difference struct {
	// Symbol is the name as a user would write it behind the package's name:
	// "WithTimeout", or "Reconciler.Reconcile" for a method or field.
	Symbol string

	// Problem completes a sentence that begins with the symbol.
	Problem string
}

func (d Difference) String() string { return d.Symbol + " " + d.Problem }

// Compare returns what keeps ours from taking upstream's place, in the order of
// the symbols' names, and nothing if each exported symbol of upstream's is in
// ours with the same kind, type and, for a constant, value. What ours has on
// top doesn't matter.
//
// Types must be identical, except that Reconciler and ReconcilerOption may be
// ours's own: then every mention of upstream's has to be one of ours, and they
// need upstream's exported methods and fields.
//
// The packages needn't have been type-checked together: types are compared by
// the path of their package and their name.
func Compare(upstream, ours *types.Package) []Difference {
	c := newComparer(upstream, ours)
	for _, name := range upstream.Scope().Names() {
		if token.IsExported(name) {
			c.object(name, upstream.Scope().Lookup(name), ours.Scope().Lookup(name))
		}
	}
	return c.found
}

type comparer struct {
	upstream, ours *types.Package

	// How types read in upstream with our own types put in for upstream's, and
	// how they read in ours.
	inUpstream, inOurs describer

	found []Difference
}

func newComparer(upstream, ours *types.Package) *comparer {
	substitutes := make(map[string]string)
	short := map[string]string{upstream.Path(): "upstream", ours.Path(): "ours"}

	for _, name := range upstream.Scope().Names() {
		if o, ok := ours.Scope().Lookup(name).(*types.TypeName); ok && isOwn(name) && namedIn(o.Type(), ours) == name {
			substitutes["upstream."+name] = "ours." + name
		}
	}
	return &comparer{
		upstream:   upstream,
		ours:       ours,
		inUpstream: describer{short: short, substitutes: substitutes},
		inOurs:     describer{short: short},
	}
}

func (c *comparer) report(symbol, format string, args ...any) {
	c.found = append(c.found, Difference{Symbol: symbol, Problem: fmt.Sprintf(format, args...)})
}

func (c *comparer) object(symbol string, up, our types.Object) {
	if our == nil {
		c.report(symbol, "is missing (%s upstream)", kind(up))
		return
	}
	if kind(up) != kind(our) {
		c.report(symbol, "is %s upstream, but %s here", kind(up), kind(our))
		return
	}
	if up, ok := up.(*types.TypeName); ok {
		c.typeName(symbol, up.Type(), our.Type())
		return
	}
	if !c.sameType(symbol, up.Type(), our.Type()) {
		return
	}
	if up, ok := up.(*types.Const); ok {
		if our, ok := our.(*types.Const); ok && !constant.Compare(up.Val(), token.EQL, our.Val()) {
			c.report(symbol, "is %s upstream, but %s here", up.Val(), our.Val())
		}
	}
}

func kind(o types.Object) string {
	switch o := o.(type) {
	case *types.Const:
		return "a constant"
	case *types.Var:
		if o.IsField() {
			return "a field"
		}
		return "a variable"
	case *types.Func:
		if o.Signature().Recv() != nil {
			return "a method"
		}
		return "a function"
	case *types.TypeName:
		return "a type"
	default:
		return fmt.Sprintf("a %T", o)
	}
}

func (c *comparer) sameType(symbol string, up, our types.Type) bool {
	if want, got := c.inUpstream.describe(up), c.inOurs.describe(our); want != got {
		c.report(symbol, "should be %s, but is %s", want, got)
		return false
	}
	return true
}

func (c *comparer) typeName(symbol string, up, our types.Type) {
	upParams, ourParams := typeParams(up), typeParams(our)

	if want, got := c.inUpstream.typeParams(upParams), c.inOurs.typeParams(ourParams); want != got {
		c.report(symbol, "should have the type parameters [%s], but has [%s]", want, got)
		return
	}
	if isOwn(symbol) && namedIn(our, c.ours) == symbol {
		c.ownType(symbol, up, our)
		return
	}
	if !c.sameType(symbol, declaredAs(up), declaredAs(our)) {
		return
	}
	if len(c.inUpstream.substitutes) > 0 && reachesOwn(up, c.upstream) {
		c.report(symbol, "refers to upstream's %s or %s, which are types of our own, so it can't be an alias", reconcilerType, optionType)
	}
}

// declaredAs returns the type that a declaration stands for: the right hand side
// of an alias, the type itself for others.
func declaredAs(t types.Type) types.Type {
	if a, ok := t.(*types.Alias); ok {
		return a.Rhs()
	}
	return t
}

// ownType compares a type that is ours's own with upstream's by what a user can
// do with it.
func (c *comparer) ownType(symbol string, up, our types.Type) {
	upStruct, ok := up.Underlying().(*types.Struct)
	ourStruct, too := our.Underlying().(*types.Struct)

	switch {
	case ok && too:
		c.fields(symbol, upStruct, ourStruct)
	case !c.sameType(symbol, up.Underlying(), our.Underlying()):
		return
	}

	for _, pointer := range []bool{false, true} {
		c.methods(symbol, up, our, pointer)
	}
}

func (c *comparer) fields(symbol string, up, our *types.Struct) {
	ours := make(map[string]types.Object)
	for f := range our.Fields() {
		ours[f.Name()] = f
	}
	for f := range up.Fields() {
		if f.Exported() {
			c.object(symbol+"."+f.Name(), f, ours[f.Name()])
		}
	}
}

// methods compares the methods of the types or, with pointer, those that only
// pointers to the types have.
func (c *comparer) methods(symbol string, up, our types.Type, pointer bool) {
	onValue := types.NewMethodSet(up)
	if pointer {
		up, our = types.NewPointer(up), types.NewPointer(our)
	}
	ours := types.NewMethodSet(our)

	for sel := range types.NewMethodSet(up).Methods() {
		m := sel.Obj()
		if !m.Exported() || pointer && onValue.Lookup(m.Pkg(), m.Name()) != nil {
			continue
		}
		var o types.Object
		if sel := ours.Lookup(c.ours, m.Name()); sel != nil {
			o = sel.Obj()
		}
		c.object(symbol+"."+m.Name(), m, o)
	}
}
