package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTag_Refused(t *testing.T) {
	script, err := os.ReadFile("tag.sh")
	must(t, err)
	cases := map[string]struct {
		reason    string
		changelog string
		change    string // A file that is not committed.
		patch     string
		err       string
	}{
		"Usage": {
			reason: "A version of a line must not be mistaken for the number that both have.",
			patch:  "v0.24.3",
			err:    "usage: hack/line/tag.sh PATCH",
		},
		"NotCommitted": {
			reason:    "Uncommitted changes would be missing in the tag.",
			changelog: "## v0.24.3 and v0.22.3, today\n\n- x\n",
			change:    "pkg/a.go",
			patch:     "3",
			err:       "pkg/",
		},
		"NoSection": {
			reason:    "A release without notes must not be tagged, even if an earlier one has a similar number.",
			changelog: "## Unreleased\n\n- x\n\n## v0.24.30 and v0.22.30, today\n\n- y\n",
			patch:     "3",
			err:       `docs/CHANGELOG.md has no section "## v0.24.3 and v0.22.3, DATE"`,
		},
		"EmptySection": {
			reason:    "The next release's notes are not this one's.",
			changelog: "## v0.24.3 and v0.22.3, today\n\n## v0.24.2 and v0.22.2, yesterday\n\n- y\n",
			patch:     "3",
			err:       `docs/CHANGELOG.md has no section "## v0.24.3 and v0.22.3, DATE"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := repositoryWith(t, []file{
				{path: ".gitignore", mode: 0o644, text: []byte("/.line\n/bin\n")},
				{path: "docs/CHANGELOG.md", mode: 0o644, text: []byte(tc.changelog)},
				{path: "hack/line/tag.sh", mode: 0o755, text: script},
			})
			if tc.change != "" {
				name := filepath.Join(dir, tc.change)
				must(t, os.MkdirAll(filepath.Dir(name), 0o755))
				must(t, os.WriteFile(name, nil, 0o600))
			}
			if out, err := output(dir, "hack/line/tag.sh", tc.patch); err == nil ||
				!strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s\nwant error %q, got: %v\n%s", tc.reason, tc.err, err, out)
			}
			if tags, err := output(dir, "git", "tag"); err != nil || tags != "" {
				t.Errorf("%s\nwant no tag, got: %q, %v", tc.reason, tags, err)
			}
		})
	}
}

// repositoryWith returns the directory of a repository with files in one commit.
func repositoryWith(t *testing.T, files []file) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "graft")
	must(t, (&tree{files: files}).write(dir))
	for _, args := range [][]string{
		{"git", "init", "-q"},
		{"git", "config", "user.name", "Graft"},
		{"git", "config", "user.email", "graft@example.org"},
		{"git", "add", "--all"},
		{"git", "commit", "-q", "-m", "Graft"},
	} {
		_, err := output(dir, args...)
		must(t, err)
	}
	return dir
}
