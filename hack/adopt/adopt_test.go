package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const (
	goMod    = "module example.org/provider\n\ngo 1.25.11\n\nrequire github.com/crossplane/crossplane-runtime/v2 v2.4.0\n"
	upImport = `import "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`
	ourOne   = `import "github.com/crossplane-graft/graft/pkg/managed"`
	v1Import = `import "github.com/crossplane/crossplane-runtime/pkg/reconciler/managed"`

	// one is a file with nothing but the import.
	one = "package p\n\n" + upImport + "\n"
)

// TestAdopt runs the command once, with a version, on small trees. Every tree
// is run a second time, which has to change nothing.
func TestAdopt(t *testing.T) {
	type want struct {
		status  int
		changed map[string]string // Go files, after the run.
		says    []string          // In the report, or the error.
		not     []string          // In neither.
	}
	cases := map[string]struct {
		reason  string
		files   map[string]string // And a go.mod, unless it has none.
		none    bool
		swapped []string // Files in which the path of the import changes, and nothing else.
		version string   // Of Graft, v0.24.0 unless it is given.
		want    want
	}{
		"Aliases": {
			reason: "The name of an import is kept, and so are blank and dot imports.",
			files: map[string]string{
				"a.go": "package p\n\nimport xpm \"" + upstreamManaged + "\"\n\nvar _ xpm.ExternalClient\n",
				"b.go": "package p\n\nimport . \"" + upstreamManaged + "\"\n\nvar _ ExternalClient\n",
				"c.go": "package p\n\nimport _ `" + upstreamManaged + "` // why\n",
			},
			swapped: []string{"a.go", "b.go", "c.go"},
		},
		"Sorted": {
			reason: "A block that gofmt has sorted stays sorted, comments move along, and the rest of the file stays.",
			files:  map[string]string{"a.go": "package p\n\nimport (\n\t\"os\"\n\n\t\"example.org/x\"\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\t\"" + upstreamManaged + "\" // The loop.\n\n\t\"z.org/z\"\n)\n\nfunc  f() {}\n"},
			want:   want{changed: map[string]string{"a.go": "package p\n\nimport (\n\t\"os\"\n\n\t\"example.org/x\"\n\t\"" + graftManaged + "\" // The loop.\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\n\t\"z.org/z\"\n)\n\nfunc  f() {}\n"}},
		},
		"NotFormatted": {
			reason:  "In a block that gofmt hasn't seen, only the path changes.",
			files:   map[string]string{"a.go": "package p\n\nimport (\n  \"z.org/z\"\n  \"" + upstreamManaged + "\"\n)\n"},
			swapped: []string{"a.go"},
		},
		"CRLF": {
			reason: "Line endings are kept, also where lines move.",
			files:  map[string]string{"a.go": "package p\r\n\r\nimport (\r\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\r\n\t\"" + upstreamManaged + "\"\r\n)\r\n"},
			want:   want{changed: map[string]string{"a.go": "package p\r\n\r\nimport (\r\n\t\"" + graftManaged + "\"\r\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\r\n)\r\n"}},
		},
		"BuildTags": {
			reason: "Files that this build excludes are changed too.",
			files: map[string]string{
				"a.go":           "//go:build ignore\n\npackage main\n\n" + upImport + "\n",
				"a_plan9.go":     one,
				"a_long_test.go": "//go:build e2e\n\npackage p_test\n\n" + upImport + "\n",
			},
			swapped: []string{"a.go", "a_plan9.go", "a_long_test.go"},
		},
		"V1": {
			reason: "A provider on v1 has to move to v2 first; nothing is added to its go.mod.",
			files: map[string]string{
				"go.mod": "module example.org/provider\n\ngo 1.19\n\nrequire github.com/crossplane/crossplane-runtime v1.15.0\n",
				"a.go":   "package p\n\n" + v1Import + "\n",
			},
			want: want{status: exitLeft, says: []string{"a.go:3  imports crossplane-runtime v1; move the provider to " + upstreamModule + " first"}},
		},
		"SyntaxError": {
			reason: "A file that doesn't parse is left, and the others are changed.",
			files: map[string]string{
				"a.go": "package p\n\n" + upImport + "\n\nfunc {\n",
				"b.go": one,
			},
			swapped: []string{"b.go"},
			want: want{
				status: exitLeft,
				says:   []string{"a.go:5  not changed, it doesn't parse: expected 'IDENT'"},
			},
		},
		"Both": {
			reason: "A file that has both imports may need them, and is left with a word.",
			files:  map[string]string{"a.go": "package p\n\nimport (\n\t\"" + graftManaged + "\"\n\tupstream \"" + upstreamManaged + "\"\n)\n\nvar o = managed.Upstream(upstream.WithTimeout(1))\n"},
			want:   want{says: []string{"a.go:5  left, since the file imports both packages"}},
		},
		"Keep": {
			reason: "An import that says so is left.",
			files:  map[string]string{"a.go": "package p\n\n" + upImport + " //graft:keep\n"},
			want:   want{says: []string{"a.go:3  import left, as its //graft:keep comment asks"}},
		},
		"OneKept": {
			reason: "Of two imports the one that says so is left; its options don't fit the other's reconciler.",
			files:  map[string]string{"a.go": "package p\n\nimport (\n\traw \"" + upstreamManaged + "\" //graft:keep\n\n\t\"" + upstreamManaged + "\"\n)\n\nvar r = managed.NewReconciler(nil, kind, raw.WithTimeout(1))\n"},
			want: want{
				status:  exitLeft,
				changed: map[string]string{"a.go": "package p\n\nimport (\n\traw \"" + upstreamManaged + "\" //graft:keep\n\n\t\"" + graftManaged + "\"\n)\n\nvar r = managed.NewReconciler(nil, kind, raw.WithTimeout(1))\n"},
				says:    []string{"a.go:9  takes upstream's options", "managed.Upstream(raw.WithTimeout(1))"},
			},
		},
		"Generated": {
			reason:  "A generated file is changed. Nothing shows that its generator writes the import again.",
			files:   map[string]string{"zz.go": "// Code generated by x. DO NOT EDIT.\n\npackage p\n\n" + upImport + "\n"},
			swapped: []string{"zz.go"},
			want: want{
				says: []string{"zz.go   generated"},
				not:  []string{"come back"},
			},
		},
		"GeneratedFromTemplate": {
			reason: "A template in the module that names the package shows that its files come back.",
			files: map[string]string{
				"zz.go":          "// Code generated by x. DO NOT EDIT.\n\npackage p\n\n" + upImport + "\n",
				"hack/x.go.tmpl": upImport + "\n",
			},
			swapped: []string{"zz.go"},
			want: want{
				says: []string{"Generated files come back with upstream's import", "hack/x.go.tmpl:1  names upstream's package"},
				not:  []string{"config.WithControllerTemplate"},
			},
		},
		"GeneratedByUpjet": {
			reason: "For a file of upjet's the report names what a provider sets, and the package that ends a second create.",
			files: map[string]string{
				"go.mod":           strings.Replace(goMod, "v2.4.0", "v2.2.0\n\nrequire github.com/crossplane/upjet/v2 v2.3.0", 1),
				"zz_controller.go": "// Code generated by upjet. DO NOT EDIT.\n\npackage p\n\n" + upImport + "\n",
			},
			swapped: []string{"zz_controller.go"},
			want: want{
				says: []string{"config.WithControllerTemplate(upjet.ControllerTemplate(...))", "github.com/crossplane-graft/graft/pkg/upjet", "zz_controller.go"},
				not:  []string{"Generated files come back"},
			},
			version: "v0.22.0",
		},
		"Elsewhere": {
			reason: "Vendored, nested and ignored packages are left; a nested module and a golden file are named.",
			files: map[string]string{
				"vendor/x/x.go":        "package x\n\n" + upImport + "\n",
				"hack/vendor/x/x.go":   "package x\n\n" + upImport + "\n",
				"tools/go.mod":         "module example.org/provider/tools\n",
				"tools/a/a.go":         "package a\n\n" + upImport + "\n",
				"other/go.mod":         "module example.org/provider/other\n",
				"other/a.go":           "package a\n",
				"_output/a.go":         "package a\n\n" + upImport + "\n",
				".cache/a.go":          "package a\n\n" + upImport + "\n",
				"gen/testdata/want.go": "package a\n\n" + upImport + "\n",
				"docs/guide.md":        upstreamManaged + "\n",
				"image.bin":            "\x00" + upstreamManaged + "\n",
			},
			want: want{says: []string{
				"gen/testdata/want.go:3  names upstream's package",
				"tools  ", "run adopt there, with -C tools",
			}},
		},
		"Strings": {
			reason: "Generators name the package in strings and in go:generate comments.",
			files:  map[string]string{"gen.go": "package p\n\n//go:generate mockgen " + upstreamManaged + " ExternalClient\n\n// Prose on " + upstreamManaged + ".\nconst path = \"" + upstreamManaged + "\"\n"},
			want:   want{says: []string{"gen.go:3  go:generate names", "gen.go:6  names upstream's package in a string"}},
		},
		"NothingToDo": {
			reason: "A module without the import isn't a provider yet, which is no error.",
			files:  map[string]string{"a.go": "package p\n"},
			want:   want{says: []string{"nothing changed: no import can be replaced"}},
		},
		"NoModule": {
			reason: "Without go.mod there is nothing to work on.",
			none:   true,
			files:  map[string]string{"a.go": one},
			want:   want{status: exitFailed, says: []string{"no go.mod in ", "run adopt in the root of the provider's module"}},
		},
		"BadModule": {
			reason: "A go.mod that doesn't parse stops everything before it begins.",
			files:  map[string]string{"go.mod": "modul x\n", "a.go": one},
			want:   want{status: exitFailed, says: []string{"cannot parse go.mod", "unknown directive: modul"}},
		},
		"Graft": {
			reason: "Graft itself has to import upstream's package.",
			files:  map[string]string{"go.mod": "module " + graftModule + "\n", "a.go": one},
			want:   want{status: exitFailed, says: []string{"is Graft itself"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, ok := tc.files["go.mod"]; !ok && !tc.none {
				tc.files["go.mod"] = goMod
			}
			dir := writeTree(t, tc.files)
			version := cmp.Or(tc.version, "v0.24.0")
			out := adopted(t, tc.reason, dir, tc.want.status, tc.want.says, "-version", version)
			for _, s := range tc.want.not {
				if strings.Contains(out, s) {
					t.Errorf("\n%s\nwant no %q in the report:\n%s", tc.reason, s, out)
				}
			}
			left := tc.want.status == exitLeft
			if says := strings.Contains(out, fmt.Sprintf("\nexit status %d: ", exitLeft)); says != left {
				t.Errorf("\n%s\nthe last line says the status: want %t, got %t:\n%s", tc.reason, left, says, out)
			}

			want := maps.Clone(tc.files)
			for _, name := range tc.swapped {
				want[name] = strings.Replace(want[name], upstreamManaged, graftManaged, 1)
			}
			maps.Copy(want, tc.want.changed)
			got := readTree(t, dir)
			// go.mod has its own test; here only whether it changed counts.
			requires := strings.Contains(got["go.mod"], graftModule+" "+version)
			imports := false
			for name, content := range got {
				imports = imports || strings.HasSuffix(name, ".go") && strings.Contains(content, graftManaged)
			}
			if requires != imports {
				t.Errorf("\n%s\ngo.mod requires Graft: %t, some file imports it: %t", tc.reason, requires, imports)
			}
			first := got["go.mod"]
			delete(want, "go.mod")
			delete(got, "go.mod")
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if tc.want.status == exitFailed {
				return
			}

			adopted(t, "Second run: "+tc.reason, dir, tc.want.status, []string{": nothing "}, "-version", version)
			if !tc.none {
				got["go.mod"] = first
			}
			if diff := gocmp.Diff(got, readTree(t, dir)); diff != "" {
				t.Errorf("\n%s\nsecond run: -before, +after:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFileModes(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"go.mod":   goMod,
		"exec.go":  one,
		"fixed.go": one,
	})
	outside := writeTree(t, map[string]string{"linked.go": one})
	for name, mode := range map[string]os.FileMode{"exec.go": 0o750, "fixed.go": 0o444} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "linked.go"), filepath.Join(dir, "linked.go")); err != nil {
		t.Fatal(err)
	}

	adopted(t, "The read-only file is named.", dir, exitLeft, []string{"fixed.go  not changed, the file is read-only"}, "-version", "v0.24.0")
	got := readTree(t, dir)
	if !strings.Contains(got["exec.go"], graftManaged) || strings.Contains(got["fixed.go"], graftManaged) {
		t.Errorf("want exec.go changed and fixed.go left, got: %v", got)
	}
	info, err := os.Stat(filepath.Join(dir, "exec.go"))
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("want the mode kept, got %v, %v", info.Mode(), err)
	}
	if strings.Contains(readTree(t, outside)["linked.go"], graftManaged) {
		t.Error("a file outside the module changed through a symbolic link")
	}
	if info, err := os.Lstat(filepath.Join(dir, "linked.go")); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the symbolic link is gone: %v, %v", info, err)
	}
}

func TestWriteFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "gone", "a.go")
	if err := write(name, edit{mode: 0o644}); err == nil || !strings.Contains(err.Error(), filepath.Dir(name)) {
		t.Errorf("want an error that names the directory, got: %v", err)
	}

	// A directory in the way lets the last step fail: nothing may be left over.
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a.go", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(dir, "a.go"), edit{mode: 0o644}); err == nil {
		t.Error("want an error")
	}
	if left := readTree(t, dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestBelowTheRoot(t *testing.T) {
	dir := writeTree(t, map[string]string{"go.mod": goMod, "internal/a.go": "package p\n"})
	adopted(t, "The root is named.", filepath.Join(dir, "internal"), exitFailed, []string{"the module's root is " + dir})
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		status int
		stdout string
		stderr string
	}{
		"Help":     {reason: "Help isn't an error.", args: []string{"-h"}, stdout: usage},
		"Unknown":  {reason: "An unknown flag is named.", args: []string{"-x"}, status: exitFailed, stderr: "flag provided but not defined: -x"},
		"Argument": {reason: "A directory goes with -C.", args: []string{"dir"}, status: exitFailed, stderr: `unexpected argument "dir"`},
		"Latest":   {reason: "What latest means only the network knows.", args: []string{"-version", "latest"}, status: exitFailed, stderr: "doesn't use the network"},
		"Major":    {reason: "A version has to fit the module's path.", args: []string{"-version", "v2.0.0"}, status: exitFailed, stderr: "-version v2.0.0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(tc.args, &stdout, &stderr); got != tc.status {
				t.Errorf("\n%s\nwant status %d, got %d", tc.reason, tc.status, got)
			}
			if stdout.String() != tc.stdout || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("\n%s\nstdout:\n%s\nstderr:\n%s", tc.reason, stdout.String(), stderr.String())
			}
		})
	}
}

func TestReleasedVersion(t *testing.T) {
	const path = graftModule + "/hack/adopt"
	cases := map[string]struct {
		reason string
		main   debug.Module
		want   string
	}{
		"Released":      {"A downloaded release counts.", debug.Module{Path: path, Version: "v0.2.0", Sum: "h1:x"}, "v0.2.0"},
		"PseudoVersion": {"A downloaded commit counts.", debug.Module{Path: path, Version: "v0.0.0-20261121000000-0123456789ab", Sum: "h1:x"}, "v0.0.0-20261121000000-0123456789ab"},
		"Checkout":      {"A version made up from a checkout may not be published.", debug.Module{Path: path, Version: "v0.2.1-0.20261121000000-0123456789ab"}, ""},
		"Dirty":         {"Local changes can't be downloaded.", debug.Module{Path: path, Version: "v0.2.0+dirty", Sum: "h1:x"}, ""},
		"Devel":         {"This is no version.", debug.Module{Path: path, Version: "(devel)"}, ""},
		"Other":         {"Another module's version isn't Graft's.", debug.Module{Path: "example.org/fork", Version: "v1.0.0", Sum: "h1:x"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := releasedVersion(&debug.BuildInfo{Main: tc.main}); got != tc.want {
				t.Errorf("\n%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
