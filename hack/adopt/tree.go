package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// A providerModule is the module that adopt works on.
type providerModule struct {
	root     string // Its directory.
	path     string // Its module path.
	vendored bool

	gomod     *modfile.File
	gomodSrc  []byte
	gomodMode fs.FileMode
}

// openModule reads the go.mod of the module whose root is dir.
func openModule(dir string) (*providerModule, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", dir, err)
	}
	name := filepath.Join(root, "go.mod")
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "run adopt in the root of the provider's module, or give it with -C"
		if parent := moduleAbove(root); parent != "" {
			hint = "the module's root is " + parent + "; give it with -C"
		}
		return nil, fmt.Errorf("no go.mod in %s: %s", root, hint)
	}
	if err != nil {
		return nil, err
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, src, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot parse go.mod: %w", err)
	}
	if f.Module == nil {
		return nil, fmt.Errorf("%s names no module", name)
	}
	if within(f.Module.Mod.Path, graftModule) {
		return nil, fmt.Errorf("%s is Graft itself, which has to import upstream's package", root)
	}
	vendor, err := os.Stat(filepath.Join(root, "vendor"))
	return &providerModule{
		root:      root,
		path:      f.Module.Mod.Path,
		vendored:  err == nil && vendor.IsDir(),
		gomod:     f,
		gomodSrc:  src,
		gomodMode: info.Mode(),
	}, nil
}

// moduleAbove returns the nearest parent of dir that has a go.mod.
func moduleAbove(dir string) string {
	for {
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		if _, err := os.Stat(filepath.Join(parent, "go.mod")); err == nil {
			return parent
		}
		dir = parent
	}
}

// file returns the name, on this system, of a file in the module.
func (m *providerModule) file(rel string) string {
	return filepath.Join(m.root, filepath.FromSlash(rel))
}

func (m *providerModule) read(f treeFile) ([]byte, error) {
	return os.ReadFile(m.file(f.path))
}

// write replaces a file as a whole: a reader, or an interrupted run, sees the old content or
// the new.
func (m *providerModule) write(rel string, mode fs.FileMode, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(m.file(rel)), ".adopt-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Chmod(mode.Perm()), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), m.file(rel))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// A treeFile is a regular file below the module's root, or a symbolic link there to a Go
// file that isn't.
type treeFile struct {
	path    string // From the root, with slashes.
	mode    fs.FileMode
	nested  string // The nested module that it is in, if any.
	ignored bool   // The go command ignores its directory.
}

// walk calls visit for the regular files of the module, in lexical order, and failed for each
// file or directory that it cannot read.
func (m *providerModule) walk(visit func(treeFile), failed func(path string, line int, text string)) {
	nested := map[string]string{} // By directory.
	ignored := map[string]bool{}  // By directory.

	// The root may be a symbolic link, which WalkDir follows only with a separator behind
	// it. The error is always nil: the function below returns none but SkipDir.
	_ = filepath.WalkDir(m.root+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(m.root, name) // Both are absolute and one is below the other.
		rel = filepath.ToSlash(rel)
		if err != nil {
			failed(rel, 0, fmt.Sprintf("not read: %v", err))
			return nil
		}
		parent := path.Dir(rel)

		if d.IsDir() {
			if rel == "." {
				return nil
			}
			if skipped(rel) {
				return fs.SkipDir
			}
			nested[rel] = nested[parent]
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				nested[rel] = rel
			}
			ignored[rel] = ignored[parent] || d.Name() == "testdata"
			return nil
		}
		if !d.Type().IsRegular() && !m.leavesModule(name) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			failed(rel, 0, fmt.Sprintf("not read: %v", err))
			return nil
		}
		visit(treeFile{path: rel, mode: info.Mode(), nested: nested[parent], ignored: ignored[parent]})
		return nil
	})
}

// leavesModule reports whether a file is a symbolic link to a Go file that isn't in the
// module.
func (m *providerModule) leavesModule(name string) bool {
	if filepath.Ext(name) != ".go" {
		return false
	}
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	target, err := filepath.EvalSymlinks(name)
	root, rerr := filepath.EvalSymlinks(m.root)
	return err == nil && rerr == nil && !within(target, root)
}

// skipped reports whether adopt does not read a directory. It skips source of other modules
// and, because build systems keep caches and output there, names that the go command ignores.
func skipped(dir string) bool {
	name := path.Base(dir)
	return name == "vendor" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}
