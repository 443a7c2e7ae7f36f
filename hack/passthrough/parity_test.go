package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/packages"
)

const (
	oursDir  = "../../pkg/managed"
	oursPath = "github.com/crossplane-graft/graft/pkg/managed"

	// resourcePath is a package that tests may use in what they add upstream.
	resourcePath = "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
)

// TestParity holds Graft's pkg/managed against upstream's package, at the
// version that go.mod selects, and against what upstream's might become.
func TestParity(t *testing.T) {
	pkgs, err := load(oursDir, upstreamPath, oursPath)
	if err != nil {
		t.Fatal(err)
	}

	up, ours := pkgs[upstreamPath], pkgs[oursPath]

	t.Run("Today", func(t *testing.T) {
		for _, d := range Compare(up.Types, ours.Types) {
			t.Errorf("%s: run make generate, or declare it by hand", d)
		}
	})

	if t.Failed() {
		return // What is different today would be in every other case, too.
	}

	cases := map[string]struct {
		reason string
		remove string
		add    string
		want   []Difference
	}{
		"Unchanged": {
			reason: "Checking upstream once more finds what the first check found: nothing.",
		},
		"NewFunction": {
			reason: "A new function is named.",
			add:    `func FreshFunction(n int) error { return nil }`,
			want:   []Difference{{Symbol: "FreshFunction", Problem: "is missing (a function upstream)"}},
		},
		"ChangedConstraint": {
			reason: "A generic option whose constraint changes is named, and nothing else that is generic.",
			remove: "WithTypedExternalConnector",
			add:    `func WithTypedExternalConnector[managed resource.ModernManaged](c TypedExternalConnector[managed]) ReconcilerOption { return nil }`,
			want: []Difference{{
				Symbol: "WithTypedExternalConnector",
				Problem: "should be func[$0 " + resourcePath + ".ModernManaged](upstream.TypedExternalConnector[$0]) ours.ReconcilerOption, " +
					"but is func[$0 " + resourcePath + ".Managed](upstream.TypedExternalConnector[$0]) ours.ReconcilerOption",
			}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := change(t, up, tc.remove, tc.add)

			if diff := cmp.Diff(tc.want, Compare(changed, ours.Types)); diff != "" {
				t.Errorf("%s\nCompare(changed upstream, ours): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestGeneratedFileIsCurrent fails if the generated file differs from what make
// generate writes.
func TestGeneratedFileIsCurrent(t *testing.T) {
	up, err := upstreamOf(oursDir)
	if err != nil {
		t.Fatal(err)
	}

	want, err := generateFor(oursDir, up)
	if err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(filepath.Join(oursDir, generatedFile))
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(want, got) {
		t.Errorf("%s is out of date, run make generate: -want, +got:\n%s", generatedFile, cmp.Diff(string(want), string(got)))
	}
}

// change type-checks p once more, without its function or constant called
// remove, and with the declarations in add, which may use the resource package.
// (The go command refuses overlays for files in the module cache, so this can't
// be left to loading.)
func change(t *testing.T, p *packages.Package, remove, add string) *types.Package {
	t.Helper()

	files := make([]*ast.File, 0, len(p.Syntax)+1)
	for _, f := range p.Syntax {
		files = append(files, without(f, remove))
	}

	files = append(files, parse(t, p.Fset, "package managed\nimport \""+resourcePath+"\"\nvar _ resource.Managed\n"+add))

	imports := packageMap{}
	for _, i := range p.Types.Imports() {
		imports[i.Path()] = i
	}

	return check(t, p.Fset, p.PkgPath, imports, files...)
}

// without returns f without what it declares under the given name.
func without(f *ast.File, name string) *ast.File {
	c := *f

	c.Decls = slices.DeleteFunc(slices.Clone(f.Decls), func(d ast.Decl) bool {
		switch d := d.(type) {
		case *ast.FuncDecl:
			return d.Recv == nil && d.Name.Name == name
		case *ast.GenDecl:
			return d.Tok == token.CONST && slices.ContainsFunc(d.Specs, func(s ast.Spec) bool {
				v, ok := s.(*ast.ValueSpec)
				return ok && v.Names[0].Name == name
			})
		default:
			return false
		}
	})

	return &c
}
