package main

import (
	"fmt"
	"go/types"

	"golang.org/x/exp/apidiff"
)

// Compare returns what keeps ours from taking upstream's place: a sentence for each exported
// symbol of upstream that ours lacks or has in another form, which begins with its name. It
// doesn't matter what ours has on top.
//
// Reconciler and ReconcilerOption may be types of ours. Then each mention of upstream's must
// be one of ours.
func Compare(upstream, ours *types.Package) []string {
	var out []string
	for _, c := range apidiff.Changes(upstream, ours).Changes {
		if !c.Compatible {
			out = append(out, c.Message)
		}
	}

	// apidiff compares neither the constraints of functions nor what aliases of the same type
	// refer to.
	for _, name := range upstream.Scope().Names() {
		switch up := upstream.Scope().Lookup(name).(type) {
		case *types.Func:
			our, ok := ours.Scope().Lookup(name).(*types.Func)
			if want := constraints(up); ok && up.Exported() && want != constraints(our) {
				out = append(out, fmt.Sprintf("%s: constraints changed from %s to %s", name, want, constraints(our)))
			}
		case *types.TypeName:
			if up.Exported() && !isOwn(name) && declaresOwn(ours) && showsOwn(up) {
				out = append(out, fmt.Sprintf("%s: refers to upstream's %s or %s, which are types of our own, "+
					"so it can't be an alias", name, reconcilerType, optionType))
			}
		}
	}
	return out
}

// constraints writes the constraints of a function's type parameters.
func constraints(f *types.Func) string {
	out := []string{}
	for tp := range f.Signature().TypeParams().TypeParams() {
		out = append(out, tp.Constraint().String())
	}
	return fmt.Sprint(out)
}

// declaresOwn reports whether Reconciler or ReconcilerOption is a type of a package.
func declaresOwn(p *types.Package) bool {
	for _, name := range []string{reconcilerType, optionType} {
		if o, ok := p.Scope().Lookup(name).(*types.TypeName); ok && isNamed(o.Type(), name, p) {
			return true
		}
	}
	return false
}
