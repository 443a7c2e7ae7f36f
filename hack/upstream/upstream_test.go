//go:build upstream

package upstream

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	runtimeModule  = "github.com/crossplane/crossplane-runtime/v2"
	managedPackage = "pkg/reconciler/managed"
	root           = "../.."

	// coreOfMain is the package of the core types that main imports.
	coreOfMain = "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// A release is a release of crossplane-runtime that a line of Graft is for.
type release struct {
	version string

	// core is the package of the core types.
	core string

	// tests is the number of upstream's tests and subtests. Without it, a test that is not
	// run would not be noticed.
	tests int
}

// differences has the tests that fail with Graft, with the reason.
func differences() map[string]string {
	const polled = "A create whose outcome is unknown is polled, because another process may store the outcome " +
		"in annotations, whose changes event filters usually ignore. Upstream waits for an event."
	const observed = "An absent external resource is observed again when the creation grace period ends. The " +
		"work queue's backoff, which upstream asks for, may come up to a minute later."
	return map[string]string{
		"TestReconciler/CreationGracePeriod":         observed,
		"TestModernReconciler/CreationGracePeriod":   observed,
		"TestReconciler/ExternalCreatePending":       polled,
		"TestModernReconciler/ExternalCreatePending": polled,
	}
}

// Code for the release that main requires behaves the same with Graft.
func TestUpstream_Main(t *testing.T) {
	check(t, release{version: "v2.4.0", core: coreOfMain, tests: 237}, absolute(t, root))
}

// Code for the release of the other line behaves the same with that line's Graft.
func TestUpstream_Line(t *testing.T) {
	r := release{version: "v2.2.1", core: runtimeModule + "/apis/common/v1", tests: 223}
	tree := filepath.Join(absolute(t, root), "bin", "upstream", "line-"+r.version)
	output(t, filepath.Join(root, "hack"), "go", "run", "./line", "-runtime", r.version, "-write", "-o", tree)
	check(t, r, tree)
}

// check runs upstream's tests of a release with the Graft whose source is in tree.
func check(t *testing.T, r release, tree string) {
	t.Helper()
	tests := build(t, r, tree)
	rows := "^" + strings.Join(slices.Sorted(maps.Keys(differences())), "$|^") + "$"

	same := run(t, tests, "-test.skip", rows)
	for name, got := range same {
		if got.action != "pass" {
			t.Errorf("%s should pass with Graft, got %s:\n%s", name, got.action, got.output)
		}
	}
	different := run(t, tests, "-test.run", rows)
	for name, reason := range differences() {
		if got := different[name].action; got != "fail" {
			t.Errorf("%s should not be in the table of differences, got %q\n%s", name, got, reason)
		}
	}
	if got := len(same) + len(differences()); got != r.tests {
		t.Errorf("want %d tests and subtests, got %d", r.tests, got)
	}
}

// build compiles upstream's tests with the Graft in tree, and returns the program. The
// directory is always the same one, so that Go's build cache is used.
func build(t *testing.T, r release, tree string) string {
	t.Helper()
	dir := filepath.Join(absolute(t, root), "bin", "upstream", r.version)
	must(t, os.RemoveAll(dir))
	source := output(t, tree, "go", "list", "-m", "-f", "{{.Dir}}", runtimeModule+"@"+r.version)
	must(t, os.CopyFS(filepath.Join(dir, "runtime"), os.DirFS(strings.TrimSpace(source))))
	adapt(t, r, filepath.Join(dir, "runtime", managedPackage))

	for _, f := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(tree, f))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, f), text, 0o600))
	}
	modfile, tests := filepath.Join(dir, "go.mod"), filepath.Join(dir, "managed.test")
	output(t, dir, "go", "mod", "edit", "-replace", runtimeModule+"="+filepath.Join(dir, "runtime"), modfile)
	output(t, tree, "go", "test", "-c", "-vet=off", "-modfile", modfile, "-o", tests, runtimeModule+"/"+managedPackage)
	return tests
}

// A result is the outcome of a test, and its output.
type result struct{ action, output string }

// run runs tests of a program, and returns their results by name.
func run(t *testing.T, tests string, args ...string) map[string]result {
	t.Helper()
	// It exits with an error if a test fails.
	out, _ := command(filepath.Dir(tests), append([]string{
		"go", "tool", "test2json", tests, "-test.v=test2json",
	}, args...)...).Output()
	results := map[string]result{}
	for events := json.NewDecoder(bytes.NewReader(out)); events.More(); {
		var e struct{ Action, Test, Output string }
		must(t, events.Decode(&e))
		got := results[e.Test]
		got.output += e.Output
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			got.action = e.Action
		}
		results[e.Test] = got
	}
	if all := results[""]; all.action == "" {
		t.Fatalf("the tests did not end:\n%s", all.output)
	}
	delete(results, "")
	return results
}

func output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := command(dir, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s%s", strings.Join(args, " "), dir, err, out, stderr.String())
	}
	return string(out)
}

// command returns a command that ignores workspaces and the flags of the environment.
func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return cmd
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	must(t, err)
	return abs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
