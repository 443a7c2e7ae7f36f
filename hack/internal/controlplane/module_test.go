package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// The control plane is built with the versions of hack/go.mod, so that what `make demo` compiles is not compiled again:
// half of the packages. Of Kubernetes' own modules its release decides.
func TestModule_Versions(t *testing.T) {
	ours, its := versions(t, filepath.Join("..", "..", "go.mod")), versions(t, filepath.Join("kubernetes", "go.mod"))
	for path, version := range ours {
		if got := its[path]; got != "" && got != version && !strings.HasPrefix(path, "k8s.io/") {
			t.Errorf("kubernetes/go.mod requires %s %s, hack/go.mod %s: run go get %[1]s@%[3]s in kubernetes",
				path, got, version)
		}
	}
}

func versions(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	f, err := modfile.Parse(path, text, nil)
	must(t, err)
	out := map[string]string{}
	for _, r := range f.Require {
		out[r.Mod.Path] = r.Mod.Version
	}
	return out
}
