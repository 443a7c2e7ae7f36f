package main

import (
	"bytes"
	"go/types"
	"regexp"
	"slices"
)

// isOwn reports whether pkg/managed has a type of its own where upstream has one
// called name. Such types can't be aliases: they are what Graft changes.
func isOwn(name string) bool { return name == reconcilerType || name == optionType }

// isNamed reports whether t is the type that pkg declares as name.
func isNamed(t types.Type, name string, pkg *types.Package) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() == pkg && n.Obj().Name() == name
}

// showsOwn reports whether code that holds a value of a type can get at a Reconciler or
// ReconcilerOption of the type's package: through an exported or embedded field, or a method.
func showsOwn(o *types.TypeName) bool {
	shown := []types.Type{o.Type().Underlying()}
	if s, ok := shown[0].(*types.Struct); ok {
		shown = nil
		for f := range s.Fields() {
			if f.Exported() || f.Embedded() {
				shown = append(shown, f.Type())
			}
		}
	}
	for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		if m.Obj().Exported() {
			shown = append(shown, m.Type())
		}
	}
	return slices.ContainsFunc(namesIn(o.Pkg(), shown...), isOwn)
}

// namesIn returns the names of pkg's types in the spelling of other types.
func namesIn(pkg *types.Package, ts ...types.Type) []string {
	const mark = "@" // No type is spelled with it.
	var b bytes.Buffer
	for _, t := range ts {
		types.WriteType(&b, t, func(p *types.Package) string {
			if p == pkg {
				return mark
			}
			return p.Name()
		})
		b.WriteByte(' ')
	}
	var names []string
	for _, m := range regexp.MustCompile(mark+`\.(\w+)`).FindAllStringSubmatch(b.String(), -1) {
		names = append(names, m[1])
	}
	return names
}
