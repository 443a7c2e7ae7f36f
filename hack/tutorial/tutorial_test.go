package tutorial

import (
	"os"
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
