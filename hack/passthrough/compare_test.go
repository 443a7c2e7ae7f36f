package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const oursHeader = `package managed
import upstream "` + testUpstreamPath + `"
var _ upstream.Anchor
`

func TestCompare(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upstream string
		ours     string
		want     []Difference
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
			want: []Difference{
				{Symbol: "C", Problem: "is missing (a constant upstream)"},
				{Symbol: "F", Problem: "is missing (a function upstream)"},
				{Symbol: "T", Problem: "is missing (a type upstream)"},
				{Symbol: "V", Problem: "is missing (a variable upstream)"},
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
			want: []Difference{
				{Symbol: "Typed", Problem: "should be untyped string, but is string"},
				{Symbol: "Value", Problem: "is 1 upstream, but 2 here"},
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
			want: []Difference{
				{Symbol: "Chan", Problem: "should be func(<-chan (int)), but is func(chan (int))"},
				{Symbol: "Constraint", Problem: "should be func[$0 interface{~int}](), but is func[$0 interface{~string}]()"},
				{Symbol: "Func", Problem: "should be func(func(string) error), but is func(func(string))"},
				{Symbol: "Result", Problem: "should be func() (int, error), but is func() int"},
				{Symbol: "Variadic", Problem: "should be func(...int), but is func([]int)"},
			},
		},
		"Substituted": {
			reason: "Reconciler and its option may be ours's own; what is made of them is then, too.",
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
			want: []Difference{
				{Symbol: "Hooks", Problem: "refers to upstream's Reconciler or ReconcilerOption, which are types of our own, so it can't be an alias"},
				{Symbol: "With", Problem: "should be func() ours.ReconcilerOption, but is func() upstream.ReconcilerOption"},
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
			want: []Difference{
				{Symbol: "Reconciler.Field", Problem: "should be int, but is uint"},
				{Symbol: "Reconciler.Gone", Problem: "is missing (a field upstream)"},
				{Symbol: "Reconciler.Lent", Problem: "is missing (a method upstream)"},
				{Symbol: "Reconciler.OnValue", Problem: "is missing (a method upstream)"},
				{Symbol: "Reconciler.Changed", Problem: "should be func(int), but is func()"},
				{Symbol: "Reconciler.Missing", Problem: "is missing (a method upstream)"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			up := checkUpstream(t, "type Anchor int\n"+tc.upstream)
			ours := check(t, testOursPath, oursHeader+"type Anchor = upstream.Anchor\n"+tc.ours, packageMap{testUpstreamPath: up.types})
			if diff := cmp.Diff(tc.want, Compare(up.types, ours.types)); diff != "" {
				t.Errorf("%s\nCompare(...): -want, +got:\n%s", tc.reason, diff)
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
	for _, d := range Compare(pkgs[upstreamPath].Types, pkgs[oursPath].Types) {
		t.Errorf("%s: run make generate, or declare it by hand", d)
	}
}
