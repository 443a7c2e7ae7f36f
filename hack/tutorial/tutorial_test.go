package tutorial

import (
	"io/fs"
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
	for _, f := range []string{"main.go", "client.go", "cloud.go"} {
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

// The example can be read in ten minutes. The limit is for lines of Go, without blank lines,
// comments, tests, the cloud that the tests use, and generated files.
func TestSize(t *testing.T) {
	const most = 500
	code := regexp.MustCompile(`(?m)^\s*[^\s/]`)
	n := 0
	err := filepath.WalkDir(example, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == "fakecloud":
			return fs.SkipDir
		case filepath.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "zz_"):
			return nil
		}
		n += len(code.FindAllString(read(t, path), -1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n > most {
		t.Errorf("The example has %d lines of code: at most %d can be read in ten minutes", n, most)
	}
	t.Logf("%d lines of code", n)
}

// The alerts and the board are on metrics that exist: the packages' own, and those that
// every provider has.
func TestMetrics(t *testing.T) {
	known := []string{"controller_runtime_reconcile_errors_total", "workqueue_depth", "leader_election_master_status"}
	for _, source := range []string{"asyncstate/metrics.go", "managed/ratelimit/limits.go"} {
		for _, m := range regexp.MustCompile(`"(graft_[a-z_]+)"`).FindAllStringSubmatch(
			read(t, filepath.Join(root, "pkg", source)), -1,
		) {
			known = append(known, m[1])
		}
	}
	for file, least := range map[string]int{"alerts.yaml": 10, "board.json": 9} {
		names := regexp.MustCompile(`\b(graft|controller_runtime|workqueue|leader_election)_[a-z_]+`).FindAllString(
			read(t, filepath.Join(example, "deploy", file)), -1,
		)
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
