package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	up       = `"` + upstreamManaged + `"`
	graft    = `"` + graftManaged + `"`
	resource = `"` + upstreamResource + `"`
)

// TestTrackers runs the command with -trackers, a second time too, which has to
// change nothing.
func TestTrackers(t *testing.T) {
	const use = "\nvar (\n\tt = resource.NewProviderConfigUsageTracker(c, u)\n\tm resource.Managed\n)\n"
	const alone = "\nvar t = resource.NewProviderConfigUsageTracker(c, u)\n"

	cases := map[string]struct {
		reason string
		src    string
		want   string
	}{
		"Beside": {
			reason: "A file that has both imports keeps them.",
			src:    "package p\n\nimport (\n\t" + up + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" + use,
			want:   "package p\n\nimport (\n\t" + graft + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" + strings.Replace(use, "resource.New", "managed.New", 1),
		},
		"Moved": {
			reason: "A file that was moved before is done, too.",
			src:    "package p\n\nimport (\n\txpm " + graft + "\n\t" + resource + "\n)\n\nvar _ xpm.ExternalClient\n" + use,
			want:   "package p\n\nimport (\n\txpm " + graft + "\n\t" + resource + "\n)\n\nvar _ xpm.ExternalClient\n" + strings.Replace(use, "resource.New", "xpm.New", 1),
		},
		"NotNeeded": {
			reason: "An import that nothing else needs goes with its line.",
			src:    "package p\n\nimport (\n\t" + up + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" + alone,
			want:   "package p\n\nimport (\n\t" + graft + "\n)\n\nvar _ managed.ExternalClient\n" + strings.Replace(alone, "resource.", "managed.", 1),
		},
		"NotNeededSingle": {
			reason: "So does a single one.",
			src:    "package p\n\nimport " + up + "\nimport " + resource + "\n\nvar _ managed.ExternalClient\n" + alone,
			want:   "package p\n\nimport " + graft + "\n\nvar _ managed.ExternalClient\n" + strings.Replace(alone, "resource.", "managed.", 1),
		},
		"Added": {
			reason: "A file without the import gets it, in gofmt's order.",
			src:    "package p\n\nimport (\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\t" + resource + " // Trackers.\n\n\t\"z.org/z\"\n)\n" + use,
			want:   "package p\n\nimport (\n\t" + graft + "\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\t" + resource + " // Trackers.\n\n\t\"z.org/z\"\n)\n" + strings.Replace(use, "resource.New", "managed.New", 1),
		},
		"AddedSingle": {
			reason: "It gets a line of its own beside a single import.",
			src:    "package p\n\nimport " + resource + "\n" + use,
			want:   "package p\n\nimport " + resource + "\nimport " + graft + "\n" + strings.Replace(use, "resource.New", "managed.New", 1),
		},
		"Replaced": {
			reason: "It gets it in the place of an import that nothing else needs, whatever that was called.",
			src:    "package p\n\nimport xpresource " + resource + "\n" + strings.Replace(alone, "resource.", "xpresource.", 1),
			want:   "package p\n\nimport " + graft + "\n" + strings.Replace(alone, "resource.", "managed.", 1),
		},
		"NameTaken": {
			reason: "Under another name if something else in the file has it.",
			src:    "package p\n\nimport " + resource + "\n\nvar managed int\n" + alone,
			want:   "package p\n\nimport graftmanaged " + graft + "\n\nvar managed int\n" + strings.Replace(alone, "resource.", "graftmanaged.", 1),
		},
		"Dot": {
			reason: "A dot import needs no name.",
			src:    "package p\n\nimport (\n\t. " + up + "\n\t" + resource + "\n)\n\nvar _ ExternalClient\n" + use,
			want:   "package p\n\nimport (\n\t. " + graft + "\n\t" + resource + "\n)\n\nvar _ ExternalClient\n" + strings.Replace(use, "resource.New", "New", 1),
		},
		"Legacy": {
			reason: "Legacy trackers move too, and so do values.",
			src:    "package p\n\nimport " + resource + "\n\nvar f, _ = resource.NewLegacyProviderConfigUsageTracker, resource.NewProviderConfigUsageTracker\n",
			want:   "package p\n\nimport " + graft + "\n\nvar f, _ = managed.NewLegacyProviderConfigUsageTracker, managed.NewProviderConfigUsageTracker\n",
		},
		"CRLF": {
			reason: "Line endings are kept.",
			src:    "package p\r\n\r\nimport (\r\n\t" + resource + "\r\n)\r\n" + strings.ReplaceAll(use, "\n", "\r\n"),
			want:   "package p\r\n\r\nimport (\r\n\t" + graft + "\r\n\t" + resource + "\r\n)\r\n" + strings.ReplaceAll(strings.Replace(use, "resource.New", "managed.New", 1), "\n", "\r\n"),
		},
		"NotFormatted": {
			reason: "In a block that gofmt hasn't seen, nothing else moves.",
			src:    "package p\n\nimport (\n  \"z.org/z\"\n  " + resource + "\n)\n" + use,
			want:   "package p\n\nimport (\n  \"z.org/z\"\n  " + resource + "\n\t" + graft + "\n)\n" + strings.Replace(use, "resource.New", "managed.New", 1),
		},
		"Kept": {
			reason: "What is to be left is.",
			src:    "package p\n\nimport " + resource + " //graft:keep\n" + use,
			want:   "package p\n\nimport " + resource + " //graft:keep\n" + use,
		},
		"Others": {
			reason: "Another package's functions of the name are another's.",
			src:    "package p\n\nimport \"example.org/resource\"\n" + use,
			want:   "package p\n\nimport \"example.org/resource\"\n" + use,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"go.mod": goMod, "a.go": tc.src})
			for _, time := range []string{"first", "second"} {
				if status, out := runAdopt(t, "-C", dir, "-version", "v0.1.0", "-trackers"); status != exitDone {
					t.Errorf("\n%s\n%s run: want status %d, got %d:\n%s", tc.reason, time, exitDone, status, out)
				}
				got, err := os.ReadFile(filepath.Join(dir, "a.go"))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, string(got)); diff != "" {
					t.Errorf("\n%s\n%s run: -want, +got:\n%s", tc.reason, time, diff)
				}
			}
		})
	}
}

// Without being asked adopt only says where it would help; and it doesn't know
// the way back.
func TestTrackersAreOffered(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		src    string
		status int
		says   string
		not    string
	}{
		"Offered": {
			reason: "It names the place and the flag.",
			src:    "package p\n\nimport " + resource + "\n\nvar t = resource.NewProviderConfigUsageTracker(c, u)\n",
			says:   "a.go:5  in a namespace that is being deleted",
		},
		"Legacy": {
			reason: "What is cluster-scoped has no namespace to be deleted.",
			src:    "package p\n\nimport " + resource + "\n\nvar t = resource.NewLegacyProviderConfigUsageTracker(c, u)\n",
			not:    "a.go",
		},
		"Revert": {
			reason: "Upstream's package has no such function.",
			args:   []string{"-revert"},
			src:    "package p\n\nimport " + graft + "\n\nvar t = managed.NewProviderConfigUsageTracker(c, u)\n",
			status: exitLeft,
			says:   "a.go:5  NewProviderConfigUsageTracker isn't in this package of crossplane-runtime",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"go.mod": goMod, "a.go": tc.src})
			status, out := runAdopt(t, append([]string{"-C", dir}, tc.args...)...)
			if status != tc.status || !strings.Contains(string(out), tc.says) || tc.not != "" && strings.Contains(string(out), tc.not) {
				t.Errorf("\n%s\nwant status %d, %q and not %q, got %d:\n%s", tc.reason, tc.status, tc.says, tc.not, status, out)
			}
			if len(tc.args) > 0 {
				return
			}
			got, err := os.ReadFile(filepath.Join(dir, "a.go"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.src, string(got)); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
