package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// notInLine are the files that only main needs: what checks, measures and releases it, and
// the commands that are released from it for all lines. The integration tests use
// packages of Crossplane that came with crossplane-runtime v2.3.
func notInLine() []string {
	return []string{
		".ci", ".github", ".golangci.yml", ".goreleaser.yaml", "Makefile",
		"hack/adopt", "hack/compare", "hack/fork", "hack/integration", "hack/kubectl-graft", "hack/line",
		"hack/real", "hack/tools", "hack/upstream",
	}
}

// passThrough is the file that hack/passthrough generates for each line.
const passThrough = "pkg/managed/zz_upstream.go"

// marker is a file in each directory that this command writes to. .gitignore names
// it.
const marker = ".line"

// A tree is the source of a line, in memory.
type tree struct {
	line    line
	files   []file
	modules []string // Directories of modules that require crossplane-runtime.
	made    map[edit]bool
}

type file struct {
	path string // From the root, with slashes.
	mode fs.FileMode
	text []byte
}

// readFiles returns the files below root that git knows or would add.
func readFiles(root string) ([]file, error) {
	out, err := output(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // Deleted, and not yet committed.
		}
		text, rerr := os.ReadFile(filepath.Join(root, name))
		if err := errors.Join(err, rerr); err != nil {
			return nil, err
		}
		files = append(files, file{path: name, mode: info.Mode().Perm(), text: text})
	}
	return files, nil
}

// newTree returns the tree of a line, made of main's files. It gets the go.mod of
// the line's release of crossplane-runtime.
func newTree(l line, runtime *modfile.File, files []file) (*tree, error) {
	t := &tree{line: l, made: map[edit]bool{}}
	for _, f := range files {
		below := func(dir string) bool { return f.path == dir || strings.HasPrefix(f.path, dir+"/") }
		if slices.ContainsFunc(notInLine(), below) || f.path == passThrough && !l.main {
			continue
		}
		var err error
		if f.text, err = t.rewrite(f, runtime); err != nil {
			return nil, err
		}
		t.files = append(t.files, f)
	}

	for _, e := range l.edits {
		if !t.made[e] {
			return nil, fmt.Errorf("nothing matches %q: mend the edits of hack/line/lines.go", e.from)
		}
	}
	return t, nil
}

// rewrite returns a file of main as it is in the line.
func (t *tree) rewrite(f file, runtime *modfile.File) ([]byte, error) {
	switch {
	case path.Ext(f.path) == ".go" && !t.line.main:
		return t.line.rewrite(f.path, f.text, t.made)
	case path.Base(f.path) == "go.mod":
		m, err := modfile.Parse(f.path, f.text, nil)
		if err != nil {
			return nil, err
		}
		v := required(m, runtimeModule)
		switch {
		case v == "" || t.line.main && v != t.line.runtime && f.path != "go.mod":
			return f.text, nil // Of another line, if of any.
		case t.line.main && v != t.line.runtime:
			return nil, fmt.Errorf("go.mod requires crossplane-runtime %s, "+
				"and hack/line/lines.go says that main requires %s", v, t.line.runtime)
		}
		t.modules = append(t.modules, path.Dir(f.path))
		if !t.line.main {
			return goMod(t.line, runtime, m)
		}
	}
	return f.text, nil
}

// write writes the tree into dir. It replaces the tree of an earlier run, and returns an error
// if dir has other files.
func (t *tree) write(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	isMarker := func(e fs.DirEntry) bool { return e.Name() == marker }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isMarker) {
		return fmt.Errorf("%s is not empty, and hack/line did not write it: name another directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, f := range append([]file{{path: marker, mode: 0o644}}, t.files...) {
		name := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// finish completes the tree in dir. The programs that it runs are main's.
func (t *tree) finish(out io.Writer, root, dir string) error {
	if t.line.main {
		return nil
	}
	for _, m := range t.modules {
		said, err := run(out, filepath.Join(dir, m), "go", "mod", "tidy")
		if err == nil && strings.Contains(said, "go: finding module") {
			err = errors.New("a tree must not depend on which version is the latest: " +
				"name the module in requires of hack/line/lines.go")
		}
		if err != nil {
			return err
		}
	}
	managed := filepath.Join(dir, path.Dir(passThrough))
	_, err := run(out, filepath.Join(root, "hack"), "go", "run", "./passthrough", "-dir", managed)
	return err
}

// check builds and tests the tree in dir: the modules that are released, and that the
// pass-through has all of upstream's names.
func (t *tree) check(out io.Writer, dir string) error {
	for _, m := range t.modules {
		// Vet compiles the tests that are not run here.
		commands := [][]string{{"go", "vet", "./..."}}
		switch {
		case m == "." || strings.HasPrefix(m, "pkg/"):
			commands = [][]string{{"go", "test", "-vet=off", "./..."}}
		case m == "hack":
			commands = append(commands, []string{"go", "test", "./passthrough"})
		}
		for _, c := range commands {
			if _, err := run(out, filepath.Join(dir, m), c...); err != nil {
				return err
			}
		}
	}
	return nil
}
