package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A mutant is a copy of a file with one change.
type mutant struct {
	id       int    // From 1.
	file     string // Relative to the module's root.
	path     string // Of the copy.
	line     int    // The first line that differs.
	was, now string // That line before and after the change.
	woven    bool   // It is in the test programs.
}

// generate returns all mutants of a package in a stable order. Generated files have none.
func generate(ctx context.Context, o options, p *build.Package, tmp string) ([]*mutant, error) {
	var files []string
	for _, name := range p.GoFiles {
		mode := parser.ParseComments | parser.PackageClauseOnly
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, mode)
		if err != nil {
			return nil, err
		}
		if !ast.IsGenerated(f) {
			files = append(files, filepath.Join(o.pkg, name))
		}
	}
	driver, err := writeDriver(p, tmp)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, o.tool, append([]string{"--no-exec", "--do-not-remove-tmp-folder"}, files...)...)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "GOPACKAGESDRIVER="+driver)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", o.tool, err, out)
	}
	return collect(o.root, files, tmp)
}

// writeDriver writes a program that answers go-mutesting, which loads a package with all that it
// imports, once for each file and from source, and takes minutes for that. The answer leaves out
// the imports: mutating needs hardly any type from another package. The price is a
// few more mutants that don't compile.
func writeDriver(p *build.Package, tmp string) (string, error) {
	var files []string
	for _, name := range p.GoFiles {
		files = append(files, filepath.Join(p.Dir, name))
	}
	answer, err := json.Marshal(packages.DriverResponse{
		Compiler: "gc", Arch: runtime.GOARCH, Roots: []string{p.Dir}, Packages: []*packages.Package{
			{ID: p.Dir, Name: p.Name, PkgPath: p.Dir, GoFiles: files, CompiledGoFiles: files},
		},
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(tmp, "driver")
	return path, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ncat <<'END'\n%s\nEND\n", answer), 0o700)
}

// collect returns the mutants of files that go-mutesting has written below tmp, in the order in
// which it has made them.
func collect(root string, files []string, tmp string) ([]*mutant, error) {
	var all []*mutant
	for _, file := range files {
		original, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		paths, err := filepath.Glob(filepath.Join(tmp, "go-mutesting-*", file+".*[0-9]"))
		if err != nil {
			return nil, err
		}
		// The names differ in the number at their end alone: a shorter one is lower.
		slices.SortFunc(paths, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			m := &mutant{id: len(all) + 1, file: file, path: path}
			if m.diff(string(original), string(content)) {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// diff sets the mutant's line, and reports whether there is one.
func (m *mutant) diff(original, content string) bool {
	a, b := strings.Split(original, "\n"), strings.Split(content, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			m.line, m.was, m.now = i+1, strings.TrimSpace(a[i]), strings.TrimSpace(b[i])
			return true
		}
	}
	return false
}

// sample returns n of the mutants in random order, or all if they are fewer. It orders them
// by a hash of their change, so that a change of the source hardly changes the sample.
func sample(all []*mutant, n int, seed uint64) []*mutant {
	hashes, times := map[*mutant][]byte{}, map[string]int{}
	for _, m := range all {
		text := fmt.Sprintf("%d %s\n%s\n%s", seed, m.file, m.was, m.now)
		hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", text, times[text]))
		hashes[m] = hash[:]
		times[text]++
	}
	s := slices.SortedFunc(slices.Values(all), func(a, b *mutant) int { return bytes.Compare(hashes[a], hashes[b]) })
	return s[:min(n, len(s))]
}
