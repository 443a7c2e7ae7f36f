//go:build fork

package fork

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	crossplane = "github.com/crossplane/crossplane/v2"
	apis       = "github.com/crossplane/crossplane/apis/v2"
	ours       = "github.com/crossplane-graft/graft"

	// release is the one that the documentation is about. Crossplane's own module
	// replaces its APIs with a folder that isn't part of it; they are released
	// together.
	release = "v2.4.0"

	root = "../.."
)

func changed() []string {
	return []string{"./internal/controller/apiextensions/...", "./internal/controller/ops/...", "./cmd/crossplane/core"}
}

// The steps for forks are applied to a release of Crossplane. It must compile, and Crossplane's own
// tests must pass.
func TestDocumentation(t *testing.T) {
	const deletion, watch = "Deletions", "Watches"
	cases := map[string]struct {
		reason string
		parts  []string // Sections of docs/forks.md.
		tested []string // Packages whose tests must pass.
	}{
		"Deletion": {
			reason: "The wrapped reconcilers compile. The tests of the two packages that wrap give them what New refuses.",
			parts:  []string{deletion},
			tested: []string{
				"./internal/controller/apiextensions/claim", "./internal/controller/apiextensions/composite/...",
			},
		},
		"Watch": {
			reason: "The engine can be exchanged without a change of the code that uses it.",
			parts:  []string{watch},
			tested: changed(),
		},
		"Both": {
			reason: "Both work together.",
			parts:  []string{deletion, watch},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason) // It is shown if anything fails.
			dir := checkout(t)
			for _, part := range tc.parts {
				follow(t, dir, part)
			}
			if slices.Contains(tc.parts, watch) {
				if out := run(t, dir, "gofmt", "-l", "cmd", "internal"); len(out) > 0 {
					t.Errorf("not formatted:\n%s", out)
				}
				run(t, dir, "go", "mod", "tidy", "-diff")
			}
			run(t, dir, append([]string{"go", "vet"}, changed()...)...)
			if len(tc.tested) > 0 {
				run(t, dir, append([]string{"go", "test"}, tc.tested...)...)
			}
		})
	}
}

func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var module struct{ Dir string }
	if err := json.Unmarshal(
		run(t, dir, "go", "mod", "download", "-json", crossplane+"@"+release), &module,
	); err != nil {
		t.Fatalf("cannot tell where Crossplane was downloaded to: %v", err)
	}

	// The module cache is read only.
	dir = filepath.Join(dir, "crossplane")
	if err := os.CopyFS(dir, os.DirFS(module.Dir)); err != nil {
		t.Fatalf("cannot copy Crossplane: %v", err)
	}
	run(t, dir, "go", "mod", "edit",
		"-dropreplace="+apis, "-require="+apis+"@"+release,
		"-require="+ours+"@v0.0.0", "-replace="+ours+"="+graftDir(t))
	return dir
}

func graftDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func follow(t *testing.T, dir, part string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "forks.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := steps(string(page), part)
	if len(all) == 0 {
		t.Fatalf("docs/forks.md says nothing about %s", part)
	}
	for i, s := range all {
		t.Logf("%s: step %d: %s", part, i+1, s.language)
		if s.language == "sh" {
			run(t, dir, "sh", "-euc", s.text)
			continue
		}
		patch := filepath.Join(t.TempDir(), "patch")
		if err := os.WriteFile(patch, []byte(s.text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "git", "apply", "--whitespace=nowarn", patch)
	}
}

// A step of a page is a block to apply (diff) or to run (sh).
type step struct{ language, text string }

// steps returns the steps of a section: its blocks, without the indentation that they have in a list.
func steps(page, part string) []step {
	_, section, _ := strings.Cut(page, "\n## "+part+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []step
	block := regexp.MustCompile("(?s)\n( *)```(diff|sh)\n(.*?\n) *```\n")
	for _, m := range block.FindAllStringSubmatch(section+"\n", -1) {
		text := regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[3], "")
		out = append(out, step{language: m[2], text: text})
	}
	return out
}

// run a command, and return its output. Modules that are missing in go.sum are
// added, and folders above are no repository of Crossplane's.
func run(t *testing.T, dir string, command ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // What the documentation says.
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(
		os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
		"GRAFT="+graftDir(t),
	)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}
