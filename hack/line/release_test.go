//go:build release

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
	"golang.org/x/tools/txtar"
)

const (
	adoptModule  = graftModule + "/hack/adopt"
	pluginModule = graftModule + "/hack/kubectl-graft"
	upjetModule  = graftModule + "/pkg/upjet"

	patch = ".999" // Of what is released here.
)

// TestRelease tags a release as the workflow does, and puts the tagged modules on a module
// proxy. Then providers adopt Graft from that proxy with an empty module cache.
func TestRelease(t *testing.T) {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	must(t, err)
	files, err := readFiles(root)
	must(t, err)

	for i, f := range files {
		if f.path == "docs/CHANGELOG.md" {
			section := "## v0.24" + patch + " and v0.22" + patch + ", today\n\nSee [adopt](adopt.md#x).\n\n"
			files[i].text = bytes.Replace(f.text, []byte("## "), []byte(section+"## "), 1)
		}
	}
	repository, proxy := repositoryWith(t, files), t.TempDir()
	tags, err := output(repository, "hack/line/tag.sh", strings.TrimPrefix(patch, "."))
	must(t, err)

	for tag := range strings.Lines(tags + "\n") {
		publish(t, proxy, repository, strings.TrimSpace(tag))
	}

	for _, l := range lines() {
		checkGo(t, repository, l)
	}
	notes, err := os.ReadFile(filepath.Join(repository, "bin", "release", "notes.md"))
	must(t, err)
	want := "\nSee [adopt](https://" + graftModule + "/blob/v0.24" + patch + "/docs/adopt.md#x).\n\n"
	if diff := cmp.Diff(want, string(notes)); diff != "" {
		t.Errorf("the notes are the changelog's section, with links that work elsewhere: -want, +got:\n%s", diff)
	}
	run := newUser(t, root, proxy)
	t.Run("Plugin", func(t *testing.T) {
		out, err := run(t, t.TempDir(), "go run "+pluginModule+"@v0.24"+patch+" version --client")
		if err != nil || !strings.HasSuffix(out, "kubectl graft v0.24"+patch+"\n") {
			t.Errorf("the plugin is built from the proxy as go install does: %v\n%s", err, out)
		}
	})
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

// checkGo fails if a release requires a later Go than its crossplane-runtime does.
func checkGo(t *testing.T, repository string, l line) {
	t.Helper()
	runtime, err := runtimeModFile(l.runtime)
	must(t, err)
	text, err := output(repository, "git", "show", l.graft+patch+":go.mod")
	must(t, err)
	got, err := modfile.ParseLax("go.mod", []byte(text), nil)
	must(t, err)
	if got.Go.Version != runtime.Go.Version {
		t.Errorf(
			"%s.x: want Go %s, as crossplane-runtime %s has, got %s", l.graft, runtime.Go.Version, l.runtime,
			got.Go.Version,
		)
	}
}

// publish puts the module that a tag releases on the proxy, as proxy.golang.org does.
func publish(t *testing.T, proxy, repository, tag string) {
	t.Helper()
	dir, version := path.Split(tag)
	dir = strings.TrimSuffix(dir, "/")
	m := module.Version{Path: path.Join(graftModule, dir), Version: version}
	gomod, err := output(repository, "git", "show", tag+":"+path.Join(dir, "go.mod"))
	must(t, err)
	var content bytes.Buffer
	must(t, zip.CreateFromVCS(&content, m, repository, tag, dir))
	list := filepath.Join(proxy, m.Path, "@v", "list")
	known, _ := os.ReadFile(list) // There is none for the first version.
	writeFiles(t, filepath.Dir(list), map[string]string{
		"list":            string(known) + version + "\n",
		version + ".info": fmt.Sprintf(`{"Version":%q}`, version),
		version + ".mod":  gomod + "\n",
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
	env := append(
		os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GONOPROXY=none", "GONOSUMDB="+graftModule,

		"GOMODCACHE="+t.TempDir(), fmt.Sprintf("GOPROXY=file://%s,file://%s/cache/download,%s", proxy, cache, others),
	)
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
		case dir == "apis", dir == "features", strings.HasPrefix(name, "controllers/stock/"), name == "go.mod",
			name == "go.sum":
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
