package tutorial

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root     = "../.."
	tutorial = root + "/docs/tutorial.md"
	example  = root + "/docs/examples/provider"
)

type block struct{ language, text string }

func blocks(t *testing.T) []block {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)\n```$")
	var out []block
	for _, m := range fence.FindAllStringSubmatch(read(t, tutorial), -1) {
		out = append(out, block{language: m[1], text: m[2]})
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The Go code that the tutorial shows is the example's.
func TestCode(t *testing.T) {
	var code strings.Builder
	for _, f := range []string{"main.go", "client.go"} {
		code.WriteString(read(t, filepath.Join(example, f)))
	}
	for _, b := range blocks(t) {
		if b.language != "go" {
			continue
		}
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); !strings.Contains(code.String(), line) {
				t.Errorf("the example does not have the line %q", line)
			}
		}
	}
}

// A copy outside of the repository is built, from a folder that is empty, by the
// tutorial's first commands. It uses nothing that others can't import.
func TestCopy(t *testing.T) {
	graft, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	bs := blocks(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", bs[0].text+"\ngo vet .\ngo list -deps .")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GRAFT="+graft, "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	imports := regexp.MustCompile(`"(github\.com/crossplane-graft/[^"]*)"`)
	public := []string{"github.com/crossplane-graft/graft/pkg/asyncstate", "github.com/crossplane-graft/graft/pkg/managed"}
	for _, f := range []string{"main.go", "client.go", "cloud.go", "database.go"} {
		for _, m := range imports.FindAllStringSubmatch(read(t, filepath.Join(example, f)), -1) {
			if !slices.Contains(public, m[1]) {
				t.Errorf("%s imports %s", f, m[1])
			}
		}
	}
}

// The alerts and the board are on metrics that exist: the packages' own, and those that
// every provider has.
func TestMetrics(t *testing.T) {
	known := []string{"controller_runtime_reconcile_errors_total", "workqueue_depth", "leader_election_master_status"}
	for _, m := range regexp.MustCompile(`"(graft_[a-z_]+)"`).FindAllStringSubmatch(read(t, filepath.Join(root, "pkg", "asyncstate", "metrics.go")), -1) {
		known = append(known, m[1])
	}
	for file, least := range map[string]int{"alerts.yaml": 7, "board.json": 5} {
		names := regexp.MustCompile(`\b(graft|controller_runtime|workqueue|leader_election)_[a-z_]+`).FindAllString(read(t, filepath.Join(example, "deploy", file)), -1)
		if len(names) < least {
			t.Errorf("%s: want at least %d metrics, got %q", file, least, names)
		}
		for _, n := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(n, "")
			if !slices.Contains(known, n) && !slices.Contains(known, base) {
				t.Errorf("%s uses %s, which does not exist", file, n)
			}
		}
	}
}
