package main

import (
	"go/types"
)

// typeParams returns the type parameters that a type is declared with.
func typeParams(t types.Type) *types.TypeParamList {
	switch t := t.(type) {
	case *types.Alias:
		return t.TypeParams()
	case *types.Named:
		return t.TypeParams()
	default:
		return nil
	}
}

// namedIn returns the name of t if it is a type declared in pkg, else "".
func namedIn(t types.Type, pkg *types.Package) string {
	if n, ok := types.Unalias(t).(*types.Named); ok && n.Obj().Pkg() == pkg {
		return n.Obj().Name()
	}
	return ""
}

// reachesOwn says whether code that holds a value of type t can get at
// upstream's Reconciler or ReconcilerOption through it.
func reachesOwn(t types.Type, up *types.Package) bool {
	reaches := false
	walk(t, up, func(o *types.TypeName) {
		if o.Pkg() == up && isOwn(o.Name()) {
			reaches = true
		}
	})
	return reaches
}

// walk calls visit for every type name in the spelling of t. For names of pkg it also visits
// the types that they are declared with, their exported fields, and the signatures of their
// exported methods. A nil pkg has no such names.
func walk(t types.Type, pkg *types.Package, visit func(*types.TypeName)) {
	w := walker{pkg: pkg, visit: visit, seen: make(map[types.Type]bool)}
	w.typ(t)
}

type walker struct {
	pkg   *types.Package
	visit func(*types.TypeName)
	seen  map[types.Type]bool
}

func (w *walker) typ(t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true

	switch t := t.(type) {
	case *types.Alias:
		w.visit(t.Obj())
		w.list(t.TypeArgs())
		if w.follows(t.Obj()) {
			w.typ(t.Rhs())
		}
	case *types.Named:
		w.visit(t.Obj())
		w.list(t.TypeArgs())

		if w.follows(t.Obj()) {
			w.typ(t.Underlying())
			for m := range t.Methods() {
				w.member(m)
			}
		}
	case *types.Pointer:
		w.typ(t.Elem())
	case *types.Slice:
		w.typ(t.Elem())
	case *types.Array:
		w.typ(t.Elem())
	case *types.Chan:
		w.typ(t.Elem())
	case *types.Map:
		w.typ(t.Key())
		w.typ(t.Elem())
	case *types.Struct:
		for f := range t.Fields() {
			w.member(f)
		}
	case *types.Tuple:
		for v := range t.Variables() {
			w.typ(v.Type())
		}
	case *types.Signature:
		w.typ(t.Params())
		w.typ(t.Results())
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			w.member(m)
		}

		for e := range t.EmbeddedTypes() {
			w.typ(e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.typ(term.Type())
		}
	case *types.Basic, *types.TypeParam:
	}
}

func (w *walker) list(l *types.TypeList) {
	for t := range l.Types() {
		w.typ(t)
	}
}

func (w *walker) member(o types.Object) {
	// An embedded field promotes its exported members, even if it is unexported.
	if v, ok := o.(*types.Var); o.Exported() || ok && v.Embedded() {
		w.typ(o.Type())
	}
}

func (w *walker) follows(o *types.TypeName) bool { return w.pkg != nil && o.Pkg() == w.pkg }
