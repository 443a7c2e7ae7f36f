package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// handWritten is what a package needs beside its generated file.
const handWritten = `package managed
import upstream "` + testUpstreamPath + `"
type Reconciler struct{}
type ReconcilerOption func(*Reconciler)
func fromUpstream(upstream.ReconcilerOption) ReconcilerOption { return nil }
`

const testReconciler = `
type Reconciler struct{}
type ReconcilerOption func(*Reconciler)
`

func TestGenerate(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upstream string
		own      []string
		want     []string
		absent   []string
	}{
		"Types": {
			reason: "A type becomes an alias with upstream's type parameters.",
			upstream: `
				type T struct{}
				type A = T
				type C interface{ M() }
				type G[a C, b any] struct{}`,
			want: []string{
				"type A = upstream.A\n",
				"type T = upstream.T\n",
				"type G[a C, b any] = upstream.G[a, b]\n",
			},
		},
		"Constants": {
			reason:   "A constant has upstream's value by reference, so that it follows a bump.",
			upstream: `const Name = "x"`,
			want:     []string{"Name = upstream.Name\n"},
		},
		"Functions": {
			reason: "A function hands everything on: variadic, unnamed and blank parameters, several results, and ones whose name would hide the import.",
			upstream: `
				type T[m any] struct{}
				func Generic[m any](t T[m], more ...m) (*T[m], error) { return nil, nil }
				func Hiding(upstream, fromUpstream int) {}
				func Unnamed(int, string) (named bool) { return false }
				func Blank(_ int, m map[string]any) {}`,
			want: []string{
				"func Generic[m any](t T[m], more ...m) (*T[m], error) {\n\treturn upstream.Generic[m](t, more...)\n}",
				"func Hiding(arg0 int, arg1 int) {\n\tupstream.Hiding(arg0, arg1)\n}",
				"func Unnamed(arg0 int, arg1 string) bool {\n\treturn upstream.Unnamed(arg0, arg1)\n}",
				"func Blank(arg0 int, m map[string]any) {\n\tupstream.Blank(arg0, m)\n}",
			},
		},
		"Options": {
			reason:   "A function that returns upstream's option returns ours.",
			upstream: `func With(n int) ReconcilerOption { return nil }`,
			want:     []string{"func With(n int) ReconcilerOption {\n\treturn fromUpstream(upstream.With(n))\n}"},
			absent:   []string{"type Reconciler", "func NewReconciler"},
		},
		"Imports": {
			reason: "Only packages that are used are imported, under the name that upstream's files use.",
			upstream: `
				import ("context"; clock "time")
				var _ context.Context
				func In(d clock.Duration) {}`,
			want:   []string{"clock \"time\"\n", "func In(d clock.Duration) {"},
			absent: []string{"context"},
		},
		"Deprecated": {
			reason: "Users of a deprecated name are told, with what upstream mentions to use instead if it exists.",
			upstream: `
				// Old is old.
				//
				// Deprecated: Please use New, or Newer() of old.
				func Old() {}

				// Aged is, too.
				//
				// Deprecated: Nothing replaces it.
				type Aged int

				// New isn't Deprecated: it is new.
				func New() {}
				func Newer() {}`,
			want: []string{
				"// Old calls [upstream.Old].\n//\n// Deprecated: upstream points to [New] and [Newer] in its place.\nfunc Old() {",
				"// Aged is [upstream.Aged].\n//\n// Deprecated: upstream says why.\ntype Aged =",
				"// New calls [upstream.New].\nfunc New() {",
			},
		},
		"Own": {
			reason: "What is declared by hand isn't generated, even if it couldn't be.",
			upstream: `
				var V int
				func NewReconciler(...ReconcilerOption) *Reconciler { return nil }
				func With() ReconcilerOption { return nil }`,
			own:    []string{"V", "With", "NewReconciler"},
			absent: []string{"V", "With", "NewReconciler"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Imports have to come first.
			up := checkUpstream(t, tc.upstream+testReconciler)

			own := make(map[string]bool)
			for _, n := range tc.own {
				own[n] = true
			}

			src, err := generate(up, own)
			if err != nil {
				t.Fatalf("%s\ngenerate(...): %v", tc.reason, err)
			}

			got := string(src)

			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s\ngenerate(...): want %q in:\n%s", tc.reason, want, got)
				}
			}

			for _, absent := range tc.absent {
				if strings.Contains(got, absent) {
					t.Errorf("%s\ngenerate(...): want no %q in:\n%s", tc.reason, absent, got)
				}
			}

			if len(own) > 0 {
				return
			}

			// What was generated has to compile, and be what parity asks for.
			ours := checkOurs(t, up.types, handWritten, got)
			if diff := cmp.Diff([]Difference(nil), Compare(up.types, ours)); diff != "" {
				t.Errorf("%s\nCompare(upstream, generated): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upstream string
		want     string
	}{
		"Variable": {
			reason:   "A copy of a variable would go its own way.",
			upstream: `var V int`,
			want:     "V: an exported variable can't be passed through",
		},
		"OptionParameter": {
			reason:   "We can't turn our option into upstream's.",
			upstream: `func F(o []ReconcilerOption) {}`,
			want:     "F: a parameter refers to Reconciler or ReconcilerOption",
		},
		"ReconcilerInType": {
			reason:   "An alias would hand out upstream's reconciler.",
			upstream: `type T interface{ M(map[string]chan *Reconciler) }`,
			want:     "T: an alias would refer to upstream's Reconciler or ReconcilerOption",
		},
		"Unexported": {
			reason: "A type that only upstream can name has no spelling here.",
			upstream: `
				type hidden int
				func F() []hidden { return nil }`,
			want: "F: its signature has upstream's unexported type hidden",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := generate(checkUpstream(t, testReconciler+tc.upstream), nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngenerate(...): want an error with %q, got: %v", tc.reason, tc.want, err)
			}
		})
	}
}

func TestDeclared(t *testing.T) {
	dir := t.TempDir()

	for name, content := range map[string]string{
		"a.go":        "package managed\ntype T struct{}\nfunc (T) Method() {}\nfunc F() { undefined() }\n",
		"b.go":        "package managed\nconst C, D = 1, 2\nvar (\n\tV int\n)\ntype (\n\tA = T\n)\n",
		"c_test.go":   "package managed\nfunc OnlyInTests() {}\n",
		"notes.txt":   "func NotGo() {}\n",
		generatedFile: "package managed\nfunc Generated() { this does not parse\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	got, err := declared(dir)
	if err != nil {
		t.Fatalf("declared(...): %v", err)
	}

	want := map[string]bool{"T": true, "F": true, "C": true, "D": true, "V": true, "A": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("declared(...) has to see what hand-written files declare although they don't compile: -want, +got:\n%s", diff)
	}
}

func TestDeclaredRefusesWhatItCannotParse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package managed\nfunc {"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := declared(dir); err == nil || !strings.Contains(err.Error(), "cannot tell what a.go declares") {
		t.Errorf("declared(...): want an error that names the file, got: %v", err)
	}
}
