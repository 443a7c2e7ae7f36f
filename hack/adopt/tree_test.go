package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
			must(t, err)
			dir := writeTree(t, files(archive))
			before := readTree(t, dir)
			var got txtar.Archive
			record := func(name, data string) {
				got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(data)})
			}
			record("output of a dry run", adopted(t, "Dry run: "+tc.reason, dir, tc.want, nil, append(tc.args, "-n")...))
			if diff := cmp.Diff(before, readTree(t, dir)); diff != "" {
				t.Errorf("\n%s\ndry run changed the tree: -before, +after:\n%s", tc.reason, diff)
			}
			record("output", adopted(t, tc.reason, dir, tc.want, nil, tc.args...))
			after := readTree(t, dir)
			for _, f := range archive.Files {
				if after[f.Name] != string(f.Data) {
					record(f.Name, after[f.Name])
				}
			}
			record("output of a second run", adopted(t, "Second run: "+tc.reason, dir, tc.want, nil, tc.args...))
			if diff := cmp.Diff(after, readTree(t, dir)); diff != "" {
				t.Errorf("\n%s\nthe second run changed the tree: -before, +after:\n%s", tc.reason, diff)
			}
			record("output of a run back", adopted(t, "Back: "+tc.reason, dir, exitDone, nil, "-revert"))
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
		must(t, os.WriteFile(name, got, 0o644))
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want, +got:\n%s", name, diff)
	}
}

// adopted runs the command in a directory, and wants a status and texts in what it
// returns: the report, or the error. Nothing else may go to standard error.
func adopted(t *testing.T, reason, dir string, status int, says []string, args ...string) string {
	t.Helper()
	// Other modules' source isn't looked for on the machine that runs the test.
	t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "none"))
	var stdout, stderr bytes.Buffer
	got, out := run(append([]string{"-C", dir}, args...), &stdout, &stderr), &stdout
	if got == exitFailed {
		out = &stderr
	} else if stderr.Len() > 0 {
		t.Errorf("adopt %q: unexpected on standard error: %s", args, stderr.String())
	}
	if got != status {
		t.Errorf("\n%s\nwant status %d, got %d:\n%s", reason, status, got, out)
	}
	for _, s := range says {
		if !strings.Contains(out.String(), s) {
			t.Errorf("\n%s\nwant %q in the report:\n%s", reason, s, out)
		}
	}
	return out.String()
}

// statusOf returns the status of a run that leaves something.
func statusOf(left []string) int {
	if len(left) > 0 {
		return exitLeft
	}
	return exitDone
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
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(content), 0o644))
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
	must(t, err)
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
