package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

const runtimeMod = "module " + runtimeModule +
	"\n\ngo 1.25.9\n\nrequire (\n\tgithub.com/go-logr/logr v1.4.3\n\tgithub.com/pkg/errors v0.9.0 // indirect\n)\n"

func runtimeFile(t *testing.T) *modfile.File {
	t.Helper()
	f, err := modfile.ParseLax("go.mod", []byte(runtimeMod), nil)
	must(t, err)
	return f
}

func TestGoMod(t *testing.T) {
	main := "module " + graftModule + "\n\ngo 1.25.11\n\nreplace example.org/a => ../a\n\nrequire (\n\t" +
		runtimeModule +
		" v2.4.0\n\t" +
		coreModule +
		" v2.3.4\n\tgithub.com/go-logr/logr v1.4.4\n\tgithub.com/pkg/errors v0.9.1\n)\n\nrequire golang.org/x/net v0.58.0 // indirect\n"
	want := "module " + graftModule + "\n\ngo 1.25.9\n\nreplace example.org/a => ../a\n\nrequire (\n\t" +
		runtimeModule +
		" v2.2.1\n\tgithub.com/go-logr/logr v1.4.3\n\tgithub.com/pkg/errors v0.9.1\n)\n\nrequire github.com/cenkalti/backoff/v5 v5.0.3 // indirect\n"
	f, err := modfile.Parse("go.mod", []byte(main), nil)
	must(t, err)
	got, err := goMod(lines()["v2.2.1"], runtimeFile(t), f)
	must(t, err)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf(
			"a line requires what its runtime requires directly, main's version of the rest, and no module that it doesn't use: -want, +got:\n%s",
			diff,
		)
	}
}

// The tables of lines in adopt, the README and the documentation agree with this command, and so do go.mod
// and .gitignore.
func TestTables(t *testing.T) {
	for version, l := range lines() {
		files := map[string]string{
			".gitignore":          "/" + marker + "\n",
			"hack/adopt/lines.go": fmt.Sprintf("{graft: %q, runtime: %q, ", l.graft, version),
			"hack/line/tag.sh":    fmt.Sprintf("old=%s.$patch runtime=%s\n", l.graft, version),
			"docs/adopt.md":       fmt.Sprintf("| `%s.x` | %s |", l.graft, version),
			"README.md":           fmt.Sprintf("| `%s.x` | %s |", l.graft, version),
		}
		if l.main {
			files["hack/line/tag.sh"] = fmt.Sprintf("new=%s.$patch ", l.graft)
			files["go.mod"] = fmt.Sprintf("\t%s %s\n", runtimeModule, version)
		}
		for name, want := range files {
			text, err := os.ReadFile(filepath.Join("..", "..", name))
			must(t, err)
			if !strings.Contains(string(text), want) {
				t.Errorf("%s doesn't have %q", name, want)
			}
		}
	}
}

func TestNewTree(t *testing.T) {
	v22 := lines()["v2.2.1"]
	v22.edits = nil
	cases := map[string]struct {
		reason  string
		line    line
		files   map[string]string
		want    []string
		modules []string // That the line builds.
		err     string
	}{
		"Files": {
			reason: "A line should have no files that only main needs, and none that is generated for each line.",
			line:   v22,
			files: map[string]string{
				"LICENSE":         "x",
				"Makefile":        "x",
				".ci/run":         "x",
				"hack/line/a.go":  "package p\n",
				"hack/liner/a.go": "package p\n",
				passThrough:       "package managed\n",
			},
			want: []string{"LICENSE", "hack/liner/a.go"},
		},
		"ModuleOfOtherLine": {
			reason: "A module that requires another release of crossplane-runtime than main is built in that line alone.",
			line:   lines()["v2.4.0"],
			files: map[string]string{
				"go.mod":           "module " + graftModule + "\n\nrequire " + runtimeModule + " v2.4.0\n",
				"pkg/upjet/go.mod": "module " + graftModule + "/pkg/upjet\n\nrequire " + runtimeModule + " v2.2.1\n",
			},
			want:    []string{"go.mod", "pkg/upjet/go.mod"},
			modules: []string{"."},
		},
		"NoMatch": {
			reason: "An edit that changes nothing any more must not stay in the list.",
			line:   line{edits: []edit{{from: "old"}}},
			err:    `nothing matches "old"`,
		},
		"MainMoved": {
			reason: "Once main requires another runtime, the table must say so.",
			line:   lines()["v2.4.0"],
			files:  map[string]string{"go.mod": "module " + graftModule + "\n\nrequire " + runtimeModule + " v2.5.0\n"},
			err:    "go.mod requires crossplane-runtime v2.5.0, and hack/line/lines.go says that main requires v2.4.0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var files []file
			for p, text := range tc.files {
				files = append(files, file{path: p, text: []byte(text)})
			}
			tree, err := newTree(tc.line, runtimeFile(t), files)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("\n%s\nwant error %q, got: %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("\n%s\nunexpected error: %v", tc.reason, err)
			}
			var got []string
			for _, f := range tree.files {
				got = append(got, f.path)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.modules, tree.modules); diff != "" {
				t.Errorf("\n%s\nmodules: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A tree replaces the tree of an earlier run, and no other files.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "v2.2.1")
	first := &tree{files: []file{{path: "a/old.go", mode: 0o644}, {path: "run", mode: 0o755, text: []byte("x")}}}
	second := &tree{files: []file{{path: "a/new.go", mode: 0o644}}}
	must(t, first.write(dir))
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("want the mode kept, got %v, %v", info, err)
	}
	must(t, second.write(dir))
	if _, err := os.Stat(filepath.Join(dir, "a", "old.go")); !os.IsNotExist(err) {
		t.Errorf("want the file of the earlier run removed, got: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "new.go")); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "mine"), nil, 0o600))
	if err := second.write(other); err == nil || !strings.Contains(err.Error(), other+" is not empty") {
		t.Errorf("want an error that names the directory, got: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "mine")); err != nil {
		t.Errorf("a directory of another's was touched: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommand(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		status int
		stdout string
		stderr string
	}{
		"Help": {
			reason: "Help isn't an error, and names the lines.",
			args:   []string{"-h"},
			stdout: "The release of crossplane-runtime: v2.2.1 or v2.4.0.",
		},
		"Unknown": {
			reason: "A release without a line is named, with those that have one.",
			args:   []string{"-runtime", "v2.1.0"},
			status: intest.ExitUsage,
			stderr: `no line for crossplane-runtime "v2.1.0": there is one for v2.2.1 or v2.4.0`,
		},
		"Version": {
			reason: "A version has the line's minor number.",
			args:   []string{"-runtime", "v2.2.1", "-version", "v0.24.0"},
			status: intest.ExitUsage,
			stderr: "v0.24.0 is no version of v0.22.x",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := command(tc.args, &stdout, &stderr); got != tc.status {
				t.Errorf("\n%s\nwant status %d, got %d", tc.reason, tc.status, got)
			}
			if !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf(
					"\n%s\nwant %q and %q, got: %s%s", tc.reason, tc.stdout, tc.stderr, stdout.String(),
					stderr.String(),
				)
			}
		})
	}
}
