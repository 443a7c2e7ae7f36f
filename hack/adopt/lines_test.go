package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// TestShapes runs a released adopt on providers of each release of crossplane-runtime
// that is in use.
func TestShapes(t *testing.T) {
	type want struct {
		graft string // What go.mod requires afterwards.
		moved bool
		left  string
		next  []string
	}
	tidy := []string{"go mod tidy", "go build ./..."}
	raise := []string{"go get github.com/crossplane/crossplane-runtime/v2@v2.2.1", "go mod tidy", "go build ./...", "adopt"}

	cases := map[string]struct {
		reason  string
		archive string
		runtime string
		core    string // Where the provider's types have the core types from.
		want    want
	}{
		"Handwritten2.0": {
			reason:  "A provider below all lines raises crossplane-runtime first; nothing else changes.",
			archive: "handwritten", runtime: "v2.0.0", core: upstreamModule + "/apis/common/v1",
			want: want{left: "go.mod:6  crossplane-runtime v2.0.0 is older than v2.2.1, which Graft's oldest line requires: raise it first", next: raise},
		},
		"Handwritten2.1": {
			reason:  "So does one a release later.",
			archive: "handwritten", runtime: "v2.1.1", core: upstreamModule + "/apis/common/v1",
			want: want{left: "go.mod:6  crossplane-runtime v2.1.1 is older than v2.2.1", next: raise},
		},
		"Handwritten2.2": {
			reason:  "A provider on v2.2 gets the older line, whose core types are where the provider's are.",
			archive: "handwritten", runtime: "v2.2.0", core: upstreamModule + "/apis/common/v1",
			want: want{graft: "v0.22.3", moved: true, next: tidy},
		},
		"Handwritten2.3": {
			reason:  "A provider on v2.3 gets the newer line, since the core types have moved.",
			archive: "handwritten", runtime: "v2.3.3", core: "github.com/crossplane/crossplane/apis/v2/core/v2",
			want: want{graft: "v0.24.3", moved: true, next: tidy},
		},
		"Handwritten2.4": {
			reason:  "A provider on v2.4 gets the line of that release.",
			archive: "handwritten", runtime: "v2.4.0", core: "github.com/crossplane/crossplane/apis/v2/core/v2",
			want: want{graft: "v0.24.3", moved: true, next: tidy},
		},
		"Upjet2.2": {
			reason:  "A provider of upjet's on v2.2 gets the older line.",
			archive: "upjet", runtime: "v2.2.0", core: upstreamModule + "/apis/common/v1",
			want: want{graft: "v0.22.3", moved: true, next: []string{"go mod tidy", "go mod vendor", "go build ./..."}},
		},
		"Upjet2.0": {
			reason:  "A provider of upjet's below all lines raises crossplane-runtime first.",
			archive: "upjet", runtime: "v2.0.0-20250730220209-c306b1c8b181", core: upstreamModule + "/apis/common/v1",
			want: want{left: "go.mod:6  crossplane-runtime v2.0.0-20250730220209-c306b1c8b181 is older than v2.2.1", next: []string{"go get github.com/crossplane/crossplane-runtime/v2@v2.2.1", "go mod tidy", "go mod vendor", "go build ./...", "adopt"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", tc.archive+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			tree := files(archive)
			had := required(parseMod(t, tree["go.mod"]), upstreamModule)
			tree["go.mod"] = strings.Replace(tree["go.mod"], "crossplane-runtime/v2 "+had, "crossplane-runtime/v2 "+tc.runtime, 1)
			tree["apis/v1/types.go"] = "package v1\n\nimport xp \"" + tc.core + "\"\n\ntype Spec struct{ xp.ConditionedStatus }\n"
			dir := writeTree(t, tree)

			r, err := adopt(options{dir: dir, ownVersion: "v0.24.3"})
			if err != nil {
				t.Fatalf("\n%s\nunexpected error: %v", tc.reason, err)
			}

			var out strings.Builder
			if err := r.print(&out); err != nil {
				t.Fatal(err)
			}
			after := readTree(t, dir)
			got := want{graft: required(parseMod(t, after["go.mod"]), graftModule), left: tc.want.left, next: r.next}
			for name, src := range after {
				got.moved = got.moved || strings.HasSuffix(name, ".go") && strings.Contains(src, graftManaged)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s\n%s", tc.reason, diff, out.String())
			}
			if !strings.Contains(out.String(), tc.want.left) || tc.want.left == "" && len(r.left) > 0 {
				t.Errorf("\n%s\nwant %q left, got:\n%s", tc.reason, tc.want.left, out.String())
			}
			if tc.want.left != "" {
				if diff := cmp.Diff(tree, after); diff != "" {
					t.Errorf("\n%s\nwant nothing changed: -want, +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestLineVersion(t *testing.T) {
	older, newer := lines()[0], lines()[1]
	cases := map[string]struct {
		reason   string
		line     line
		released string
		want     string
	}{
		"Same":        {"The line of the command itself has the command's version.", newer, "v0.24.3", "v0.24.3"},
		"Other":       {"Lines are released together, under equal patch numbers.", older, "v0.24.3", "v0.22.3"},
		"PreRelease":  {"So are releases that are to be tried.", older, "v0.24.0-rc.1", "v0.22.0-rc.1"},
		"Commit":      {"A commit is of main, so of the newer line.", newer, "v0.0.0-20261121000000-0123456789ab", "v0.0.0-20261121000000-0123456789ab"},
		"OtherCommit": {"No other line has a version for it.", older, "v0.24.4-0.20261121000000-0123456789ab", ""},
		"None":        {"Nor for what isn't released.", older, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.line.version(tc.released); got != tc.want {
				t.Errorf("\n%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// A version of an older line than the provider's crossplane-runtime is an error
// before anything is changed.
func TestVersionOfOlderLine(t *testing.T) {
	dir := writeTree(t, map[string]string{"go.mod": goMod, "a.go": one})
	adopted(t, "The line is named that fits.", dir, exitFailed, []string{"-version v0.22.0 is for crossplane-runtime v2.2, and go.mod requires v2.4.0: use v0.24.x"}, "-version", "v0.22.0")
}
