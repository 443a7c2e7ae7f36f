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
	root string // Its directory, without symbolic links.
	path string // Its module path.

	gomod    *modfile.File
	gomodSrc []byte
}

// openModule reads the go.mod of the module whose root is dir.
func openModule(dir string) (*providerModule, error) {
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", dir, err)
	}
	name := filepath.Join(root, "go.mod")
	src, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no go.mod in %s: run adopt in the root of the provider's module, "+
			"or give it with -C", root)
	}
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
	return &providerModule{root: root, path: f.Module.Mod.Path, gomod: f, gomodSrc: src}, nil
}

// file returns the name, on this system, of a file in the module.
func (m *providerModule) file(rel string) string {
	return filepath.Join(m.root, filepath.FromSlash(rel))
}

// A treeFile is a regular file below the module's root, or a symbolic link there to a Go
// file that isn't.
type treeFile struct {
	path    string // From the root, with slashes.
	nested  string // The nested module that it is in, if any.
	ignored bool   // The go command ignores its directory.
	outside bool   // It is a symbolic link.
}

// walk calls visit for the regular files of the module, in lexical order, and failed for each
// directory that it cannot read.
func (m *providerModule) walk(visit func(treeFile), failed func(path string, err error)) {
	dirs := map[string]treeFile{}
	// The function below returns no error but SkipDir.
	_ = filepath.WalkDir(m.root, func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(m.root, name) // Both are absolute and one is below the other.
		rel = filepath.ToSlash(rel)
		f := dirs[path.Dir(rel)]
		f.path = rel
		switch {
		case err != nil:
			failed(rel, err)
		case !d.IsDir():
			f.outside = !d.Type().IsRegular() && m.leavesModule(name)
			if d.Type().IsRegular() || f.outside {
				visit(f)
			}
		case rel != "." && skipped(d.Name()):
			return fs.SkipDir
		default:
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && rel != "." {
				f.nested = rel
			}
			f.ignored = f.ignored || d.Name() == "testdata"
			dirs[rel] = f
		}
		return nil
	})
}

// leavesModule reports whether a symbolic link is to a Go file that isn't in the module.
func (m *providerModule) leavesModule(name string) bool {
	target, err := filepath.EvalSymlinks(name)
	return err == nil && path.Ext(target) == ".go" && !within(target, m.root)
}

// skipped reports whether adopt does not read a directory. It skips source of other modules
// and, because build systems keep caches and output there, names that the go command ignores.
func skipped(name string) bool {
	return name == "vendor" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}
