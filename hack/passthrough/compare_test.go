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
			reason: "Reconciler and its option may be types of ours. Types made of them are then ours, too.",
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
			up := checkUpstream(t, "type Anchor int\n"+tc.upstream)
			ours := check(
				t, testOursPath, oursHeader+"type Anchor = upstream.Anchor\n"+tc.ours,
				packageMap{testUpstreamPath: up.types},
			)
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
