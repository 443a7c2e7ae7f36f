package tutorial

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root     = "../.."
	tutorial = root + "/docs/tutorial.md"
	example  = root + "/docs/examples/provider"
)

// A block is a fenced block of a document.
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

// metricsOf returns the metrics that the packages of the tutorial have.
func metricsOf(t *testing.T) map[string]bool {
	t.Helper()

	out := map[string]bool{}

	for _, f := range []string{"asyncstate/metrics.go"} {
		for _, m := range regexp.MustCompile(`"(graft_[a-z_]+)"`).FindAllStringSubmatch(read(t, filepath.Join(root, "pkg", f)), -1) {
			out[m[1]] = true
		}
	}

	return out
}

// known are metrics of what every provider has: crossplane-runtime's and
// controller-runtime's.
func known() []string {
	return []string{"controller_runtime_reconcile_errors_total", "workqueue_depth", "leader_election_master_status"}
}

// checkExpression reports names of metrics that don't exist.
func checkExpression(t *testing.T, where, expr string, ours map[string]bool) {
	t.Helper()

	names := regexp.MustCompile(`\b(graft|controller_runtime|workqueue|leader_election)_[a-z_]+`).FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s has no metric: %q", where, expr)
	}

	for _, n := range names {
		base := n
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}

		if !ours[n] && !ours[base] && !slices.Contains(known(), n) {
			t.Errorf("%s uses %s, which does not exist", where, n)
		}
	}
}

// Every alert is on a metric that exists, and says what to do.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}

	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(example, "deploy", "alerts.yaml"))), &rules); err != nil {
		t.Fatal(err)
	}

	n := 0

	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++

			checkExpression(t, r.Alert, r.Expr, metricsOf(t))

			if r.Annotations["summary"] == "" || r.Annotations["runbook"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s needs a summary, a runbook and a severity", r.Alert)
			}
		}
	}

	if n == 0 {
		t.Error("there are no alerts")
	}
}

// Every panel of the board is on metrics that exist.
func TestBoard(t *testing.T) {
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}

	if err := json.Unmarshal([]byte(read(t, filepath.Join(example, "deploy", "board.json"))), &board); err != nil {
		t.Fatal(err)
	}

	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", p.Title)
		}

		for _, target := range p.Targets {
			checkExpression(t, p.Title, target.Expr, metricsOf(t))
		}
	}

	if len(board.Panels) == 0 {
		t.Error("there are no panels")
	}
}
