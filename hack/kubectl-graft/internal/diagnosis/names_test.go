package diagnosis

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The plugin's names of conditions, reasons and annotations are those that Graft writes.
func TestNamesAreGrafts(t *testing.T) {
	ours := literals(t, "names.go")
	written := map[string]bool{
		ReasonCreateRefused: true, // Graft has an annotation for it, and no reason.
	}
	err := filepath.WalkDir(
		filepath.Join("..", "..", "..", "..", "pkg"),
		func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				for _, s := range literals(t, path) {
					written[s] = true
				}
			}
			return err
		},
	)
	if err != nil {
		t.Fatal(err)
	}

	// What crossplane-runtime and Crossplane write.
	upstream := []string{
		typeReady, typeSynced, typeHealthy, typeRevisionHealthy, typeRuntimeHealthy, ReasonPaused, createIncomplete,
		FinalizerManaged, FinalizerConfig, FinalizerComposite, FinalizerClaim, LabelInUse,
	}
	for _, s := range ours {
		if strings.HasPrefix(s, "crossplane.io/") || slices.Contains(upstream, s) {
			continue
		}
		if !written[s] {
			t.Errorf("Graft writes no %q", s)
		}
	}
}

// literals returns the strings in a Go file.
func literals(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				out = append(out, s)
			}
		}
		return true
	})
	return out
}
