package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

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
			files := map[string]string{}
			for _, f := range archive.Files {
				files[f.Name] = string(f.Data)
			}
			dir := writeTree(t, files)
			before := readTree(t, dir)
			var got txtar.Archive
			record := func(name, data string) {
				got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(data)})
			}
			record(
				"output of a dry run", adopted(t, "Dry run: "+tc.reason, dir, tc.want, nil, append(tc.args, "-n")...),
			)
			wants(t, tc.reason, "dry run changed the tree", before, readTree(t, dir))
			record("output", adopted(t, tc.reason, dir, tc.want, nil, tc.args...))
			after := readTree(t, dir)
			for _, f := range archive.Files {
				if after[f.Name] != string(f.Data) {
					record(f.Name, after[f.Name])
				}
			}
			record("output of a second run", adopted(t, "Second run: "+tc.reason, dir, tc.want, nil, tc.args...))
			wants(t, tc.reason, "the second run changed the tree", after, readTree(t, dir))
			record("output of a run back", adopted(t, "Back: "+tc.reason, dir, exitDone, nil, "-revert"))
			back := readTree(t, dir)
			delete(before, "go.mod")
			delete(back, "go.mod")
			wants(t, tc.reason, "-revert", before, back)
			golden := filepath.Join("testdata", name+".golden.txtar")
			if *update {
				must(t, os.WriteFile(golden, txtar.Format(&got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			wants(t, "", golden, string(want), string(txtar.Format(&got)))
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

// adoption is a run of the command on a small tree, and a second one, which has to
// change nothing.
type adoption struct {
	reason string

	// files has goMod, too, unless it has a go.mod. src is a.go, want that after the run:
	// src with the path of the import changed if it is empty.
	files     map[string]string
	src, want string

	args   []string
	status int

	// swapped are the files in which the path of the import changes, and nothing else; those
	// that are one are, unless the run fails. changed are others, after the run.
	swapped []string
	changed map[string]string

	says []string // In the report, or the error, in this order.
	not  string   // In neither.
}

// adoptions runs the command with args and the args of the case.
func adoptions(t *testing.T, cases map[string]adoption, args ...string) {
	t.Helper()
	from, to := upstreamManaged, graftManaged
	if slices.Contains(args, "-revert") {
		from, to = to, from
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(args, tc.args)
			files := map[string]string{"go.mod": goMod}
			maps.Copy(files, tc.files)
			if files["go.mod"] == "" {
				delete(files, "go.mod")
			}
			if tc.src != "" {
				files["a.go"] = tc.src
			}
			dir := writeTree(t, files)
			out := adopted(t, tc.reason, dir, tc.status, tc.says, args...)
			at := 0
			for _, s := range tc.says {
				i := strings.Index(out[at:], s)
				if at += max(i, 0); i < 0 {
					t.Errorf("\n%s\nwant %q after the others:\n%s", tc.reason, s, out)
				}
			}
			if tc.not != "" && strings.Contains(out, tc.not) {
				t.Errorf("\n%s\nwant no %q:\n%s", tc.reason, tc.not, out)
			}
			left := tc.status == exitLeft
			says := strings.Contains(out, fmt.Sprintf("\nexit status %d: ", exitLeft))
			wants(t, tc.reason+"\n"+out, "the last line says the status", left, says)

			want := maps.Clone(files)
			for name, text := range files {
				if text == one && tc.status != exitFailed || name == "a.go" && tc.src != "" ||
					slices.Contains(tc.swapped, name) {
					want[name] = strings.Replace(text, from, to, 1)
				}
			}
			maps.Copy(want, tc.changed)
			if tc.want != "" {
				want["a.go"] = tc.want
			}
			got := readTree(t, dir)
			requires, imports := strings.Contains(got["go.mod"], graftModule+" v0.24.0"), false
			for name, content := range want {
				imports = imports || strings.HasSuffix(name, ".go") && strings.Contains(content, graftManaged)
			}
			wants(t, tc.reason, "go.mod requires Graft", imports && slices.Contains(args, "-version"), requires)
			if tc.changed["go.mod"] == "" && requires {
				want["go.mod"] = got["go.mod"]
			}
			wants(t, tc.reason, "", want, got)
			if tc.status == exitFailed {
				return
			}
			adopted(t, "Second run: "+tc.reason, dir, tc.status, []string{": nothing "}, args...)
			wants(t, tc.reason, "second run", got, readTree(t, dir))
		})
	}
}

// adopted runs the command in a directory. It checks the exit status, and the texts in the
// report or the error, which it returns. Standard error has nothing but the error.
func adopted(t *testing.T, reason, dir string, status int, says []string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	got, out := command(append([]string{"-C", dir}, args...), &stdout, &stderr), &stdout
	if got == exitFailed {
		out = &stderr
	} else if stderr.Len() > 0 {
		t.Errorf("adopt %q: unexpected on standard error: %s", args, stderr.String())
	}
	wants(t, reason+"\n"+out.String(), "status", status, got)
	for _, s := range says {
		if !strings.Contains(out.String(), s) {
			t.Errorf("\n%s\nwant %q in the report:\n%s", reason, s, out)
		}
	}
	return out.String()
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

func wants(t *testing.T, reason, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
