package main

import (
	"bytes"
	"fmt"
	"go/types"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/exp/apidiff"
)

// compare returns what keeps ours from taking upstream's place: a sentence for each exported
// symbol of upstream that ours lacks or has in another form, which begins with its name. It
// doesn't matter what ours has on top.
//
// Reconciler and ReconcilerOption may be types of ours. Then each mention of upstream's must
// be one of ours.
func compare(upstream, ours *types.Package) []string {
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

const oursHeader = `package managed
import upstream "` + testUpstreamPath + `"
var _ upstream.Anchor
`

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upstream string
		ours     string
		want     []string
	}{
		"Alike": {
			reason: "Aliases, equal constants and functions of the same type take upstream's place; unexported and additional names don't matter.",
			upstream: `
				const Name, hidden = "a", 1
				type T struct{ A int }
				type G[m any] interface{ Do(m) }
				type A = G[int]
				func F(t T, more ...A) (G[string], error) { return nil, nil }
				func P[m interface{ ~int | ~string }](x m) *G[m] { return nil }
				var V map[string]chan<- []byte`,
			ours: `
				const Name = upstream.Name
				type T = upstream.T
				type G[other any] = upstream.G[other]
				type A = upstream.A
				func F(x upstream.T, _ ...A) (_ G[string], err error) { return nil, nil }
				func P[k interface{ ~int | ~string }](x k) *upstream.G[k] { return nil }
				func More() {}
				var V map[string]chan<- []uint8`,
		},
		"Missing": {
			reason: "Each kind of symbol that ours lacks is named.",
			upstream: `
				const C = 1
				func F() {}
				type T int
				var V int`,
			want: []string{
				"C: removed",
				"F: removed",
				"T: removed",
				"V: removed",
			},
		},
		"Constants": {
			reason: "A constant needs upstream's value and type, untyped ones included.",
			upstream: `
				const Typed = "a"
				const Value = 1`,
			ours: `
				const Typed string = "a"
				const Value = 2`,
			want: []string{
				"Typed: changed from untyped string to string",
				"Value: value changed from 1 to 2",
			},
		},
		"Signatures": {
			reason: "Variadic parameters, results, directions of channels and constraints are part of a function's type.",
			upstream: `
				func Chan(<-chan int) {}
				func Constraint[t ~int]() {}
				func Func(func(string) error) {}
				func Result() (int, error) { return 0, nil }
				func Variadic(...int) {}`,
			ours: `
				func Chan(chan int) {}
				func Constraint[t ~string]() {}
				func Func(func(string)) {}
				func Result() int { return 0 }
				func Variadic([]int) {}`,
			want: []string{
				"Chan: changed from func(<-chan int) to func(chan int)",
				"Func: changed from func(func(string) error) to func(func(string))",
				"Result: changed from func() (int, error) to func() int",
				"Variadic: changed from func(...int) to func([]int)",
				"Constraint: constraints changed from [~int] to [~string]",
			},
		},
		"Substituted": {
			reason: "Reconciler and its option may be types of ours. Types made from these are ours then, too.",
			upstream: `
				type Reconciler struct{ hidden int }
				func (r *Reconciler) Reconcile(n int) error { return nil }
				type ReconcilerOption func(*Reconciler)
				func New(o ...ReconcilerOption) *Reconciler { return nil }
				func With[m any](m) ReconcilerOption { return nil }`,
			ours: `
				type Reconciler struct{ other string }
				func (r *Reconciler) Reconcile(n int) error { return nil }
				func (r *Reconciler) More() {}
				type ReconcilerOption func(*Reconciler)
				func New(o ...ReconcilerOption) *Reconciler { return nil }
				func With[m any](m) ReconcilerOption { return nil }`,
		},
		"NotSubstituted": {
			reason: "A function with upstream's option, and an alias through which upstream's Reconciler shows, don't fit the types of our own.",
			upstream: `
				type Reconciler struct{}
				type ReconcilerOption func(*Reconciler)
				type Hooks struct{ Run func(*Reconciler) }
				func With() ReconcilerOption { return nil }`,
			ours: `
				type Reconciler struct{}
				type ReconcilerOption func(*Reconciler)
				type Hooks = upstream.Hooks
				func With() upstream.ReconcilerOption { return nil }`,
			want: []string{
				"With: changed from func() ReconcilerOption to func() example.org/runtime/managed.ReconcilerOption",
				"Hooks: refers to upstream's Reconciler or ReconcilerOption, which are types of our own, so it can't be an alias",
			},
		},
		"MembersOfReconciler": {
			reason: "Exported methods and fields of Reconciler are API, also those that an embedded type lends, and a method of the value can't become one of the pointer.",
			upstream: `
				type base struct{}
				func (base) Lent() {}
				type Reconciler struct { base; Field int; Gone string }
				func (r *Reconciler) Changed(int) {}
				func (r *Reconciler) Missing() {}
				func (r Reconciler) OnValue() {}`,
			ours: `
				type Reconciler struct { Field uint }
				func (r *Reconciler) Changed() {}
				func (r *Reconciler) OnValue() {}`,
			want: []string{
				"(*Reconciler).Changed: changed from func(int) to func()",
				"(*Reconciler).Missing: removed",
				"Reconciler.Field: changed from int to uint",
				"Reconciler.Gone: removed",
				"Reconciler.OnValue: removed",
				"base.Lent, method set of *Reconciler: removed",
				"base.Lent, method set of Reconciler: removed",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			up := check(t, testUpstreamPath, "package managed\ntype Anchor int\n"+tc.upstream, nil)
			ours := check(
				t, testOursPath, oursHeader+"type Anchor = upstream.Anchor\n"+tc.ours,
				packageMap{testUpstreamPath: up},
			)
			if diff := cmp.Diff(tc.want, compare(up, ours)); diff != "" {
				t.Errorf("%s\ncompare(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

const (
	oursDir  = "../../pkg/managed"
	oursPath = "github.com/crossplane-graft/graft/pkg/managed"
)

// TestParity holds Graft's pkg/managed against upstream's package, at the version that
// go.mod selects.
func TestParity(t *testing.T) {
	pkgs, err := load(oursDir, upstreamPath, oursPath)
	must(t, err)
	for _, d := range compare(pkgs[upstreamPath].Types, pkgs[oursPath].Types) {
		t.Errorf("%s: run make generate, or declare it by hand", d)
	}
}
