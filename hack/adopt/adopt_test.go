package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

const (
	goMod    = "module example.org/provider\n\ngo 1.25.11\n\nrequire github.com/crossplane/crossplane-runtime/v2 v2.4.0\n"
	upImport = `import "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`
	ourOne   = `import "github.com/crossplane-graft/graft/pkg/managed"`
	v1Import = `import "github.com/crossplane/crossplane-runtime/pkg/reconciler/managed"`

	// one is a file with nothing but the import.
	one = "package p\n\n" + upImport + "\n"

	// tracked is one with a usage tracker.
	tracked = "package p\n\nimport " + resource + "\n\nvar t = resource.NewProviderConfigUsageTracker(c, u)\n"
)

// TestAdopt runs the command with a version.
func TestAdopt(t *testing.T) {
	cases := map[string]adoption{
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
			reason: "A file that gofmt has formatted stays formatted, and comments move along.",
			files: map[string]string{
				"a.go": "package p\n\nimport (\n\t\"os\"\n\n\t\"example.org/x\"\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\t\"" +
					upstreamManaged +
					"\" // The loop.\n\n\t\"z.org/z\"\n)\n\nfunc f() {}\n",
			},
			changed: map[string]string{
				"a.go": "package p\n\nimport (\n\t\"os\"\n\n\t\"example.org/x\"\n\t\"" + graftManaged +
					"\" // The loop.\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\n\t\"z.org/z\"\n)\n\nfunc f() {}\n",
			},
		},
		"NotFormatted": {
			reason: "In a file that gofmt hasn't formatted only the path changes, and the rest of the file stays.",
			files: map[string]string{
				"a.go": "package p\n\nimport (\n\t\"example.org/x\"\n\t\"" + upstreamManaged + "\" // The loop.\n)\n\nfunc  f() {}\n",
			},
			swapped: []string{"a.go"},
		},
		"CRLF": {
			reason: "Line endings are kept, also where lines move.",
			files: map[string]string{
				"a.go": "package p\r\n\r\nimport (\r\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\r\n\t\"" +
					upstreamManaged +
					"\"\r\n)\r\n",
			},
			changed: map[string]string{
				"a.go": "package p\r\n\r\nimport (\r\n\t\"" + graftManaged +
					"\"\r\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\r\n)\r\n",
			},
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
			status: exitLeft,
			says: []string{
				"a.go:3  imports crossplane-runtime v1; move the provider to " + upstreamModule + " first",
			},
		},
		"V1Often": {
			reason: "A refusal that holds for many files should be said once.",
			files: map[string]string{
				"go.mod": "module example.org/provider\n\ngo 1.19\n\nrequire github.com/crossplane/crossplane-runtime v1.15.0\n",
				"a.go":   "package p\n\n" + v1Import + "\n", "b.go": "package p\n\n" + v1Import + "\n",
				"c.go": "package p\n\n" + v1Import + "\n",
			},
			status: exitLeft,
			says:   []string{"a.go:3  imports crossplane-runtime v1;", "(and 2 more places; -v lists all)"},
			not:    "b.go",
		},
		"SyntaxError": {
			reason: "A file that doesn't parse is left, and the others are changed.",
			files: map[string]string{
				"a.go": "package p\n\n" + upImport + "\n\nfunc {\n",
				"b.go": one,
			},
			swapped: []string{"b.go"},
			status:  exitLeft,
			says:    []string{"a.go  not changed, it doesn't parse: a.go:5:6: expected 'IDENT'"},
		},
		"Both": {
			reason: "A file that has both imports may need them, and is left with a word.",
			files: map[string]string{
				"a.go": "package p\n\nimport (\n\t\"" + graftManaged + "\"\n\tupstream \"" + upstreamManaged +
					"\"\n)\n\nvar o = managed.Upstream(upstream.WithTimeout(1))\n",
			},
			says: []string{"a.go:5  left, since the file imports both packages"},
		},
		"Keep": {
			reason: "An import that says so is left.",
			files:  map[string]string{"a.go": "package p\n\n" + upImport + " //graft:keep\n"},
			says:   []string{"a.go:3  import left, as its //graft:keep comment asks"},
		},
		"GeneratedFromTemplate": {
			reason: "A template in the module that names the package shows that its files come back.",
			files: map[string]string{
				"zz.go":          "// Code generated by x. DO NOT EDIT.\n\npackage p\n\n" + upImport + "\n",
				"hack/x.go.tmpl": upImport + "\n",
			},
			swapped: []string{"zz.go"},
			says: []string{
				"Generated files come back with upstream's import", "hack/x.go.tmpl:1  names upstream's package",
			},
			not: "config.WithControllerTemplate",
		},
		"TrackersOffered": {
			reason: "The report should offer -trackers, once for places of the same kind, with their count.",
			files:  map[string]string{"a.go": tracked, "b.go": tracked, "c.go": tracked},
			says: []string{
				"a.go:5  keeps managed resources in a terminating namespace for ever; -trackers replaces it by Graft's tracker, which lets them be deleted (and 2 more places; -v lists all)\n",
			},
			not: "b.go",
		},
		"LegacyTracker": {
			reason: "The report should name each place that -trackers would change.",
			files: map[string]string{
				"a.go": strings.Replace(tracked, "NewProvider", "NewLegacyProvider", 1),
				"b.go": tracked,
			},
			says: []string{
				"a.go:5  fails while the cache lacks a usage that exists; -trackers",
				"b.go:5  keeps managed resources in a terminating namespace",
			},
		},
		"UpjetOnLastLine": {
			reason: "Graft's template should be recommended for upjet's main branch, too.",
			files: map[string]string{
				"go.mod":           goMod + "\nrequire " + upjetModule + " v2.4.2-0.20260820000000-dbfccb48a1c4\n",
				"zz_controller.go": "// Code generated by upjet. DO NOT EDIT.\n\n" + one,
			},
			says:    []string{"config.WithControllerTemplate(upjet.ControllerTemplate(...))"},
			swapped: []string{"zz_controller.go"},
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
			says: []string{
				"gen/testdata/want.go:3  names upstream's package",
				"tools/a/a.go  ", "run adopt there, with -C tools",
			},
		},
		"Strings": {
			reason: "Generators name the package in strings and in go:generate comments.",
			files: map[string]string{
				"gen.go": "package p\n\n//go:generate mockgen " + upstreamManaged + " ExternalClient\n\n// Prose on " +
					upstreamManaged +
					".\nconst path = \"" +
					upstreamManaged +
					"\"\n",
			},
			says: []string{"gen.go:3  names upstream's package", "gen.go:6  names upstream's package"},
			args: []string{"-v"},
		},
		"NoModule": {
			reason: "Without go.mod there is nothing to work on.",
			files:  map[string]string{"go.mod": "", "a.go": one},
			status: exitFailed, says: []string{"no go.mod in ", "run adopt in the root of the provider's module"},
		},
		"UnknownFlag": {
			reason: "An unknown flag is named, before anything is changed.",
			files:  map[string]string{"a.go": one},
			args:   []string{"-x"}, status: exitFailed, says: []string{"flag provided but not defined: -x"},
		},
		"Latest": {
			reason: "What latest means only the network knows.",
			files:  map[string]string{"a.go": one},
			args:   []string{"-version", "latest"}, status: exitFailed, says: []string{"doesn't use the network"},
		},
		"Major": {
			reason: "A version has to fit the module's path.",
			files:  map[string]string{"a.go": one},
			args:   []string{"-version", "v2.0.0"}, status: exitFailed, says: []string{"-version v2.0.0"},
		},
		"OlderLineAsked": {
			reason: "The line is named that fits.",
			files:  map[string]string{"a.go": one}, args: []string{"-version", "v0.22.0"}, status: exitFailed,
			says: []string{"-version v0.22.0 is for crossplane-runtime v2.2, and go.mod requires v2.4.0: use v0.24.x"},
		},
		"Graft": {
			reason: "Graft itself has to import upstream's package.",
			files:  map[string]string{"go.mod": "module " + graftModule + "\n", "a.go": one},
			status: exitFailed, says: []string{"is Graft itself"},
		},
	}
	adoptions(t, cases, "-version", "v0.24.0")
}

func TestFileModes(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"go.mod":   goMod,
		"exec.go":  one,
		"fixed.go": one,
	})
	outside := writeTree(t, map[string]string{"linked.go": one})
	for name, mode := range map[string]os.FileMode{"exec.go": 0o750, "fixed.go": 0o444} {
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	must(t, os.Symlink(filepath.Join(outside, "linked.go"), filepath.Join(dir, "linked.go")))

	adopted(t, "The read-only file is named.", dir, exitLeft, []string{
		"fixed.go   not changed, the file is read-only",
		"linked.go  not changed, it is a symbolic link to a file outside the module",
	}, "-version", "v0.24.0")
	got := readTree(t, dir)
	wants(t, "exec.go is changed, and fixed.go left.", "import Graft", []bool{true, false}, []bool{
		strings.Contains(got["exec.go"], graftManaged), strings.Contains(got["fixed.go"], graftManaged),
	})
	info, err := os.Stat(filepath.Join(dir, "exec.go"))
	must(t, err)
	wants(t, "", "mode", os.FileMode(0o750), info.Mode().Perm())
	wants(
		t, "A file outside the module.", "changed through a symbolic link", false,
		strings.Contains(readTree(t, outside)["linked.go"], graftManaged),
	)
	if info, err := os.Lstat(filepath.Join(dir, "linked.go")); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the symbolic link is gone: %v, %v", info, err)
	}
}

// A module is adopted through a symbolic link to its root, too.
func TestLinkedRoot(t *testing.T) {
	dir, link := writeTree(t, map[string]string{"go.mod": goMod, "a.go": one, "p/a.go": one}),
		filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	adopted(t, "", link, exitDone, []string{"2 Go files moved to Graft", "p/a.go"}, "-version", "v0.24.0")
}

func TestReleasedVersion(t *testing.T) {
	const path = graftModule + "/hack/adopt"
	cases := map[string]struct {
		reason string
		main   debug.Module
		want   string
	}{
		"Released": {"A downloaded release counts.", debug.Module{
			Path:    path,
			Version: "v0.2.0",
			Sum:     "h1:x",
		}, "v0.2.0"},
		"Checkout": {"A version made up from a checkout may not be published.", debug.Module{
			Path:    path,
			Version: "v0.2.1-0.20261121000000-0123456789ab",
		}, ""},
		"Dirty": {"Local changes can't be downloaded.", debug.Module{
			Path:    path,
			Version: "v0.2.0+dirty",
			Sum:     "h1:x",
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "", tc.want, releasedVersion(&debug.BuildInfo{Main: tc.main}))
		})
	}
}
