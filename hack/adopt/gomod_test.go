package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGoMod(t *testing.T) {
	const runtime = "github.com/crossplane/crossplane-runtime/v2 "
	cases := map[string]struct {
		reason string
		gomod  string
		args   []string
		want   string
		says   []string
	}{
		"Added": {
			reason: "The requirement joins the direct ones; comments stay.",
			gomod:  "module p // A provider.\n\ngo 1.25.11\n\nrequire (\n\t" + runtime + "v2.4.0\n\tz.org/z v1.0.0\n)\n\nrequire a.org/a v1.0.0 // indirect\n",
			args:   []string{"-version", "v0.1.0"},
			want:   "module p // A provider.\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.1.0\n\t" + runtime + "v2.4.0\n\tz.org/z v1.0.0\n)\n\nrequire a.org/a v1.0.0 // indirect\n",
			says:   []string{"require github.com/crossplane-graft/graft v0.1.0", "  go mod tidy\n  go build ./..."},
		},
		"CRLF": {
			reason: "Line endings are kept.",
			gomod:  "module p\r\n\r\ngo 1.25.11\r\n\r\nrequire " + runtime + "v2.4.0\r\n",
			args:   []string{"-version", "v0.1.0"},
			want:   "module p\r\n\r\ngo 1.25.11\r\n\r\nrequire (\r\n\tgithub.com/crossplane-graft/graft v0.1.0\r\n\t" + runtime + "v2.4.0\r\n)\r\n",
		},
		"NoVersion": {
			reason: "Without a version the command that finds one is printed.",
			gomod:  "module p\n\ngo 1.25.11\n\nrequire " + runtime + "v2.4.0\n",
			want:   "module p\n\ngo 1.25.11\n\nrequire " + runtime + "v2.4.0\n",
			says:   []string{"  go get github.com/crossplane-graft/graft@latest\n  go mod tidy\n"},
		},
		"Present": {
			reason: "A requirement that is there is left.",
			gomod:  "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.0.9\n\t" + runtime + "v2.4.0\n)\n",
			want:   "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.0.9\n\t" + runtime + "v2.4.0\n)\n",
		},
		"Asked": {
			reason: "A version that is asked for replaces another.",
			gomod:  "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.0.9 // indirect\n\t" + runtime + "v2.4.0\n)\n",
			args:   []string{"-version", "v0.1.0"},
			want:   "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.1.0\n\t" + runtime + "v2.4.0\n)\n",
		},
		"Old": {
			reason: "What go mod tidy will raise is told.",
			gomod:  "module p\n\ngo 1.24\n\nrequire " + runtime + "v2.1.0\n",
			want:   "module p\n\ngo 1.24\n\nrequire " + runtime + "v2.1.0\n",
			says: []string{
				"go.mod:5  crossplane-runtime v2.1.0 is older than the v2.4.0 that Graft is built for; go mod tidy will raise it",
				"go.mod:3  go 1.24 is older than the go 1.25.11 that Graft needs; go mod tidy will raise it",
			},
		},
		"New": {
			reason: "So is what Graft wasn't built for.",
			gomod:  "module p\n\ngo 1.26\n\nrequire " + runtime + "v2.5.0-rc.1\n\nreplace " + runtime + "=> ../runtime\n",
			want:   "module p\n\ngo 1.26\n\nrequire " + runtime + "v2.5.0-rc.1\n\nreplace " + runtime + "=> ../runtime\n",
			says: []string{
				"go.mod:5  crossplane-runtime v2.5.0-rc.1 is newer than the v2.4.0",
				"go.mod:7  replaces github.com/crossplane/crossplane-runtime/v2",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"go.mod": tc.gomod, "a.go": "package p\n\n" + upImport + "\n"})
			status, out := runAdopt(t, append([]string{"-C", dir}, tc.args...)...)
			if status != exitDone {
				t.Errorf("\n%s\nwant status %d, got %d:\n%s", tc.reason, exitDone, status, out)
			}
			if diff := cmp.Diff(tc.want, readTree(t, dir)["go.mod"]); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			for _, s := range tc.says {
				if !strings.Contains(string(out), s) {
					t.Errorf("\n%s\nwant %q in the report:\n%s", tc.reason, s, out)
				}
			}
		})
	}
}
