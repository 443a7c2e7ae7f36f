//go:build upstream

package upstream

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/ast/astutil"
)

const graftPackage = "github.com/crossplane-graft/graft/pkg/managed"

// unexported are tests of upstream's code that neither a provider nor Graft can call. They run
// in upstream's package, without Graft.
func unexported() []string {
	return []string{
		"TestEffectivePollInterval",   // Sets private fields of upstream's Reconciler.
		"TestPrepareJSONMerge",        // Calls a private function of upstream's reference resolver.
		"TestAPISecretPublisher",      // Sets private fields of upstream's publisher.
		"TestAPILocalSecretPublisher", // Sets private fields of upstream's publisher.
	}
}

// adapt rewrites upstream's tests in a directory: all but the unexported ones move to package
// managed_test, which imports Graft's package.
func adapt(t *testing.T, r release, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	must(t, err)
	isUnexported := func(test string) bool { return slices.Contains(unexported(), test) }
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		keepTests(t, name, text, isUnexported)

		outside := regexp.MustCompile(`(?m)^package managed$`).ReplaceAll(text, []byte("package managed_test\nimport . \""+graftPackage+`"`))
		outside = bytes.ReplaceAll(outside, []byte(" NewReconciler("), []byte(" newReconciler("))
		outside = bytes.ReplaceAll(outside, []byte("cmpopts.EquateApproxTime(1*time.Second)"), []byte("equateTimes()"))
		keepTests(t, strings.TrimSuffix(name, "_test.go")+"_graft_test.go", outside, func(test string) bool { return !isUnexported(test) })
	}

	for _, name := range []string{"export_test.go", "graft_test.go"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		must(t, err)
		text = bytes.ReplaceAll(text, []byte(coreOfMain), []byte(r.core))
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	exportConstants(t, dir)
}

// keepTests writes the Go file with the given text, without the tests that are not kept, and
// without the imports that only those use. Helpers stay.
func keepTests(t *testing.T, name string, text []byte, keep func(test string) bool) {
	t.Helper()
	fset := token.NewFileSet()
	// Comments are lost, because those in a test that is removed would move elsewhere.
	f, err := parser.ParseFile(fset, name, text, 0)
	must(t, err)
	f.Decls = slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && strings.HasPrefix(fn.Name.Name, "Test") && !keep(fn.Name.Name)
	})
	for _, i := range slices.Clone(f.Imports) {
		path, err := strconv.Unquote(i.Path.Value)
		must(t, err)
		if path != graftPackage && !astutil.UsesImport(f, path) {
			importName := ""
			if i.Name != nil {
				importName = i.Name.Name
			}
			astutil.DeleteNamedImport(fset, f, importName, path)
		}
	}
	var out bytes.Buffer
	must(t, format.Node(&out, fset, f))
	must(t, os.WriteFile(name, out.Bytes(), 0o600))
}

// exportConstants gives package managed_test the private constants of upstream's package: texts
// of errors, and defaults.
func exportConstants(t *testing.T, dir string) {
	t.Helper()
	inside := "package managed\n"
	outside := "package managed_test\nimport \"" + runtimeModule + "/" + managedPackage + "\"\n"
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		for constant, o := range f.Scope.Objects {
			if o.Kind == ast.Con && !ast.IsExported(constant) {
				inside += fmt.Sprintf("const Export_%[1]s = %[1]s\n", constant)
				outside += fmt.Sprintf("const %[1]s = managed.Export_%[1]s\n", constant)
			}
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "constants_test.go"), []byte(inside), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "constants_graft_test.go"), []byte(outside), 0o600))
}
