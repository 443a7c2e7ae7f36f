//go:build release

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
	"golang.org/x/tools/txtar"
)

const (
	adoptModule = graftModule + "/hack/adopt"
	upjetModule = graftModule + "/pkg/upjet"

	patch = ".999" // Of what is released here.
)

// TestRelease releases both lines to a module proxy. Then providers adopt Graft with
// what that proxy has, and an empty module cache.
func TestRelease(t *testing.T) {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	must(t, err)
	proxy := t.TempDir()
	publish(t, proxy, filepath.Join(root, "hack", "adopt"), adoptModule, "v0.24"+patch)
	for _, l := range lines() {
		tree, version := filepath.Join(t.TempDir(), "tree"), l.graft+patch
		var stderr bytes.Buffer
		if status := command([]string{"-runtime", l.runtime, "-version", version, "-write", "-o", tree}, t.Output(), &stderr); status != exitOK {
			t.Fatalf("line: exit status %d\n%s", status, &stderr)
		}
		publish(t, proxy, tree, graftModule, version)
		checkGo(t, tree, l)
		if !l.main {
			publish(t, proxy, filepath.Join(tree, "pkg", "upjet"), upjetModule, version)
		}
	}
	run := newUser(t, root, proxy)
	adopt := "go run " + adoptModule + "@v0.24" + patch
	build := []string{"go mod tidy", "go build ./...", "go test ./..."}
	cases := map[string]struct {
		reason   string
		provider string
		graft    string
		raise    string // What adopt says has to be done first.
		also     []string
	}{
		"Handwritten2.0": {
			reason:   "Below all lines, crossplane-runtime is raised as adopt says.",
			provider: handwritten(t, "v2.0.0"), graft: "v0.22", raise: "go get " + runtimeModule + "@v2.2.1",
		},
		"Handwritten2.2": {
			reason:   "On v2.2 the older line builds.",
			provider: handwritten(t, "v2.2.1"), graft: "v0.22",
		},
		"Handwritten2.3": {
			reason:   "On v2.3 the newer line builds.",
			provider: handwritten(t, "v2.3.3"), graft: "v0.24",
		},
		"Handwritten2.4": {
			reason:   "On v2.4 the newer line builds.",
			provider: handwritten(t, "v2.4.0"), graft: "v0.24",
		},
		"Upjet2.2": {
			reason:   "What upjet generated builds, and so does the module for such providers.",
			provider: generated(t, root), graft: "v0.22",
			also: []string{"go get " + upjetModule + "@v0.22", "go build " + upjetModule},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			steps := slices.Concat([]string{adopt, "go get " + graftModule + "@" + tc.graft}, build, tc.also)
			if tc.raise != "" {
				if out, err := run(t, tc.provider, adopt); err == nil || !strings.Contains(out, tc.raise) {
					t.Errorf("%s\nwant adopt to fail with %q, got: %v\n%s", tc.reason, tc.raise, err, out)
				}
				steps = slices.Concat([]string{tc.raise}, build, steps)
			}
			for _, step := range steps {
				if out, err := run(t, tc.provider, step); err != nil {
					t.Fatalf("%s\n%s: %v\n%s", tc.reason, step, err, out)
				}
			}
			for command, want := range map[string]string{
				"go list -m " + graftModule:     graftModule + " " + tc.graft + patch + "\n",
				"go list -f {{.Imports}} ./...": graftModule + "/pkg/managed ",
			} {
				if out, err := run(t, tc.provider, command); err != nil || !strings.Contains(out, want) {
					t.Errorf("%s\n%s: want %q, got: %v\n%s", tc.reason, command, want, err, out)
				}
			}
		})
	}
}

// checkGo reports a tree that makes users raise Go further than their
// crossplane-runtime does.
func checkGo(t *testing.T, tree string, l line) {
	t.Helper()
	runtime, err := runtimeModFile(l.runtime)
	must(t, err)
	got, err := output(tree, "go", "list", "-m", "-f", "{{.GoVersion}}")
	if want := runtime.Go.Version; err != nil || got != want {
		t.Errorf("%s.x: want Go %s, as crossplane-runtime %s has, got %s, %v", l.graft, want, l.runtime, got, err)
	}
}

func publish(t *testing.T, proxy, dir, path, version string) {
	t.Helper()
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	must(t, err)
	var content bytes.Buffer
	must(t, zip.CreateFromDir(&content, module.Version{Path: path, Version: version}, dir))
	list := filepath.Join(proxy, path, "@v", "list")
	known, _ := os.ReadFile(list) // There is none for the first version.
	writeFiles(t, filepath.Join(proxy, path, "@v"), map[string]string{
		"list":            string(known) + version + "\n",
		version + ".info": fmt.Sprintf(`{"Version":%q}`, version),
		version + ".mod":  string(gomod),
		version + ".zip":  content.String(),
	})
}

// newUser returns what runs commands with a module cache of their own, to which Graft comes
// from the proxy, and other modules from this machine's cache or from where that has them.
func newUser(t *testing.T, root, proxy string) func(t *testing.T, dir, command string) (string, error) {
	t.Helper()
	out, err := output(root, "go", "env", "GOMODCACHE", "GOPROXY")
	must(t, err)
	cache, others, _ := strings.Cut(out, "\n")
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GONOPROXY=none", "GONOSUMDB="+graftModule,
		"GOMODCACHE="+t.TempDir(), fmt.Sprintf("GOPROXY=file://%s,file://%s/cache/download,%s", proxy, cache, others))
	return func(t *testing.T, dir, command string) (string, error) {
		t.Helper()
		args := strings.Split(command, " ")
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		t.Logf("%s\n%s", command, out)
		return string(out), err
	}
}

func handwritten(t *testing.T, runtime string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("..", "adopt", "testdata", "handwritten.txtar"))
	must(t, err)
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = strings.ReplaceAll(string(f.Data), runtimeModule+" v2.4.0", runtimeModule+" "+runtime)
	}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return dir
}

// generated returns a directory with what upjet generates: the API and the stock
// controllers of hack/upjet, in a module that doesn't know Graft.
func generated(t *testing.T, root string) string {
	t.Helper()
	const ours, users = graftModule + "/pkg/hack/upjet", "example.org/provider"
	files := map[string]string{}
	all, err := readFiles(root)
	must(t, err)
	for _, f := range all {
		name, ok := strings.CutPrefix(f.path, "hack/upjet/")
		switch dir, _, _ := strings.Cut(name, "/"); {
		case !ok:
		case dir == "apis", dir == "features", strings.HasPrefix(name, "controllers/stock/"), name == "go.mod", name == "go.sum":
			files[name] = strings.ReplaceAll(string(f.text), ours, users)
		}
	}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	for _, m := range []string{graftModule, graftModule + "/pkg/hack", upjetModule} {
		_, err := output(dir, "go", "mod", "edit", "-droprequire="+m, "-dropreplace="+m)
		must(t, err)
	}
	return dir
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(content), 0o600))
	}
}
