package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// TestTrees runs adopt on whole providers: a dry run, a run, a second run, and
// back.
func TestTrees(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		want   int
	}{
		"handwritten": {
			reason: "A provider written by hand needs nothing but the import and go.mod.",
			args:   []string{"-version", "v0.24.0"},
			want:   exitDone,
		},
		"upjet": {
			reason: "A controller that upjet generated is moved too, with a word on its template.",
			want:   exitDone,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			dir := writeTree(t, files(archive))
			args := append([]string{"-C", dir}, tc.args...)
			before := readTree(t, dir)

			var got txtar.Archive
			record := func(name string, data []byte) {
				got.Files = append(got.Files, txtar.File{Name: name, Data: data})
			}

			status, out := runAdopt(t, append(args, "-n")...)
			record("output of a dry run", out)
			if status != tc.want {
				t.Errorf("\n%s\ndry run: want status %d, got %d", tc.reason, tc.want, status)
			}
			if diff := cmp.Diff(before, readTree(t, dir)); diff != "" {
				t.Errorf("\n%s\ndry run changed the tree: -before, +after:\n%s", tc.reason, diff)
			}

			status, out = runAdopt(t, args...)
			record("output", out)
			if status != tc.want {
				t.Errorf("\n%s\nrun: want status %d, got %d", tc.reason, tc.want, status)
			}
			after := readTree(t, dir)
			for _, f := range archive.Files {
				if after[f.Name] != string(f.Data) {
					record(f.Name, []byte(after[f.Name]))
				}
			}

			status, out = runAdopt(t, args...)
			record("output of a second run", out)
			if status != tc.want {
				t.Errorf("\n%s\nsecond run: want status %d, got %d", tc.reason, tc.want, status)
			}
			if diff := cmp.Diff(after, readTree(t, dir)); diff != "" {
				t.Errorf("\n%s\nthe second run changed the tree: -before, +after:\n%s", tc.reason, diff)
			}

			status, out = runAdopt(t, "-C", dir, "-revert")
			record("output of a run back", out)
			if status != exitDone {
				t.Errorf("\n%s\n-revert: want status %d, got %d", tc.reason, exitDone, status)
			}
			back := readTree(t, dir)
			delete(before, "go.mod")
			delete(back, "go.mod")
			if diff := cmp.Diff(before, back); diff != "" {
				t.Errorf("\n%s\n-revert: -before, +after:\n%s", tc.reason, diff)
			}

			golden(t, filepath.Join("testdata", name+".golden.txtar"), txtar.Format(&got))
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want, +got:\n%s", name, diff)
	}
}

// runAdopt runs the command; nothing may go to standard error unless it fails.
func runAdopt(t *testing.T, args ...string) (status int, out []byte) {
	t.Helper()
	// Other modules' source isn't looked for on the machine that runs the test.
	t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "none"))
	var stdout, stderr bytes.Buffer
	status = run(args, &stdout, &stderr)
	if status == exitFailed {
		return status, stderr.Bytes()
	}
	if stderr.Len() > 0 {
		t.Errorf("adopt %q: unexpected on standard error: %s", args, stderr.String())
	}
	return status, stdout.Bytes()
}

func files(a *txtar.Archive) map[string]string {
	m := map[string]string{}
	for _, f := range a.Files {
		m[f.Name] = string(f.Data)
	}
	return m
}

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readTree returns the regular files below dir, without following links.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		m[filepath.ToSlash(rel)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
