package main

import (
	"fmt"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// A describer writes types such that two types read the same if and only if they
// are identical, also if they come from packages that were not type-checked
// together. Aliases are written as what they stand for, type parameters by their
// position; names of parameters don't appear.
type describer struct {
	// short maps the path of a package to what is written for it.
	short map[string]string

	// substitutes maps what would be written for a named type, without its type
	// arguments, to what is written instead.
	substitutes map[string]string
}

func (d describer) describe(t types.Type) string {
	if d.named(t) {
		return d.withParams(t)
	}
	return d.typ(t)
}

// named says whether t is the generic declaration of a named type, which has
// parameters where its uses have arguments.
func (d describer) named(t types.Type) bool {
	n, ok := t.(*types.Named)
	return ok && n.TypeParams().Len() > 0 && n.TypeArgs().Len() == 0
}

// withParams writes the declaration of a generic type as its use with its own
// parameters, which is what an alias with the same parameters stands for.
func (d describer) withParams(t types.Type) string {
	params := typeParams(t)
	args := make([]string, 0, params.Len())
	for tp := range params.TypeParams() {
		args = append(args, d.typ(tp))
	}
	return d.typ(t) + "[" + strings.Join(args, ", ") + "]"
}

// typeParams writes the constraints of l.
func (d describer) typeParams(l *types.TypeParamList) string {
	var cs []string
	for tp := range l.TypeParams() {
		cs = append(cs, d.typ(tp)+" "+d.typ(tp.Constraint()))
	}
	return strings.Join(cs, ", ")
}

func (d describer) typ(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Basic:
		return types.Typ[t.Kind()].Name() // byte and rune as what they are aliases of.
	case *types.TypeParam:
		return "$" + strconv.Itoa(t.Index())
	case *types.Named:
		return d.typeName(t.Obj()) + d.args(t.TypeArgs())
	case *types.Pointer:
		return "*" + d.typ(t.Elem())
	case *types.Slice:
		return "[]" + d.typ(t.Elem())
	case *types.Array:
		return "[" + strconv.FormatInt(t.Len(), 10) + "]" + d.typ(t.Elem())
	case *types.Map:
		return "map[" + d.typ(t.Key()) + "]" + d.typ(t.Elem())
	case *types.Chan:
		return map[types.ChanDir]string{types.SendRecv: "chan ", types.SendOnly: "chan<- ", types.RecvOnly: "<-chan "}[t.Dir()] + "(" + d.typ(t.Elem()) + ")"
	case *types.Struct:
		return d.structType(t)
	case *types.Signature:
		return "func" + d.signature(t)
	case *types.Interface:
		return d.interfaceType(t)
	case *types.Union:
		var terms []string

		for term := range t.Terms() {
			tilde := ""
			if term.Tilde() {
				tilde = "~"
			}
			terms = append(terms, tilde+d.typ(term.Type()))
		}
		return strings.Join(terms, " | ")
	default:
		return fmt.Sprintf("%T(%s)", t, t) // Invalid types, and any that Go may gain.
	}
}

func (d describer) typeName(o *types.TypeName) string {
	name := d.qualified(o)
	if s, ok := d.substitutes[name]; ok {
		return s
	}
	return name
}

func (d describer) qualified(o types.Object) string {
	if o.Pkg() == nil {
		return o.Name() // Predeclared: error, comparable.
	}
	if s, ok := d.short[o.Pkg().Path()]; ok {
		return s + "." + o.Name()
	}
	return o.Pkg().Path() + "." + o.Name()
}

func (d describer) args(l *types.TypeList) string {
	if l.Len() == 0 {
		return ""
	}
	var as []string
	for t := range l.Types() {
		as = append(as, d.typ(t))
	}
	return "[" + strings.Join(as, ", ") + "]"
}

func (d describer) signature(sig *types.Signature) string {
	tparams := ""
	if sig.TypeParams().Len() > 0 {
		tparams = "[" + d.typeParams(sig.TypeParams()) + "]"
	}
	var params []string
	for v := range sig.Params().Variables() {
		params = append(params, d.typ(v.Type()))
	}

	if sig.Variadic() {
		last := len(params) - 1
		params[last] = "..." + strings.TrimPrefix(params[last], "[]")
	}

	var results []string
	for v := range sig.Results().Variables() {
		results = append(results, d.typ(v.Type()))
	}
	s := tparams + "(" + strings.Join(params, ", ") + ")"

	switch len(results) {
	case 0:
		return s
	case 1:
		return s + " " + results[0]
	default:
		return s + " (" + strings.Join(results, ", ") + ")"
	}
}

func (d describer) structType(t *types.Struct) string {
	var fields []string

	for i := range t.NumFields() {
		f := t.Field(i)
		s := d.memberName(f) + " " + d.typ(f.Type())
		if f.Embedded() {
			s = "embedded " + s
		}

		if tag := t.Tag(i); tag != "" {
			s += " " + strconv.Quote(tag)
		}
		fields = append(fields, s)
	}
	return "struct{" + strings.Join(fields, "; ") + "}"
}

func (d describer) interfaceType(t *types.Interface) string {
	var members []string
	for m := range t.Methods() {
		members = append(members, d.memberName(m)+d.signature(m.Signature()))
	}

	for e := range t.EmbeddedTypes() {
		// Interfaces with nothing but methods are in the method set already.
		if i, ok := e.Underlying().(*types.Interface); !ok || !i.IsMethodSet() {
			members = append(members, d.typ(e))
		}
	}

	if len(members) == 0 {
		return "any"
	}
	slices.Sort(members)
	return "interface{" + strings.Join(members, "; ") + "}"
}

// memberName writes the name of a field or method. Unexported ones of different
// packages differ even if they are spelled alike.
func (d describer) memberName(o types.Object) string {
	if o.Exported() {
		return o.Name()
	}
	return d.qualified(o)
}
