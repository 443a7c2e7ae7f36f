package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// sources answers what other modules' packages know, from their source where it
// is on disk: in the vendor directory, in a directory that go.mod names as a
// replacement, or in the module cache.
type sources struct {
	module   *providerModule
	modCache string
	known    map[string]knowledge // By import path.
}

type knowledge int

const (
	unknown       knowledge = iota // The source isn't there to be read.
	knowsNothing                   // The package can't have upstream's types in its API.
	knowsUpstream                  // The package imports upstream's.
)

func newSources(m *providerModule, modCache string) *sources {
	return &sources{module: m, modCache: modCache, known: map[string]knowledge{}}
}

// knows returns what a package has to do with upstream's types.
func (s *sources) knows(importPath string) knowledge {
	if k, ok := s.known[importPath]; ok {
		return k
	}
	k := s.look(importPath)
	s.known[importPath] = k
	return k
}

func (s *sources) look(importPath string) knowledge {
	switch {
	case s.isApart(importPath):
		return knowsNothing
	case within(importPath, s.module.path) && !s.inNestedModule(importPath):
		return knowsNothing // It is rewritten with the rest.
	}
	dir := s.dir(importPath)
	if dir == "" {
		return unknown
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return unknown
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			return unknown
		}
		if bytes.Contains(src, []byte(upstreamManaged)) {
			return knowsUpstream
		}
	}
	return knowsNothing
}

// isApart reports whether a package is one that can have nothing to do with upstream's,
// or is upstream's or Graft's itself.
func (s *sources) isApart(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") || // The standard library.
		within(importPath, upstreamV1Module) || within(importPath, graftModule) ||
		first == "k8s.io" || first == "sigs.k8s.io"
}

// requirement returns what go.mod requires for an import path. Its module is empty
// if there is none.
func (s *sources) requirement(importPath string) *modfile.Require {
	best := &modfile.Require{}
	for _, r := range s.module.gomod.Require {
		if within(importPath, r.Mod.Path) && len(r.Mod.Path) > len(best.Mod.Path) {
			best = r
		}
	}
	return best
}

// inNestedModule reports whether a package below this module's path belongs to
// another module: one with a go.mod of its own, or a requirement.
func (s *sources) inNestedModule(importPath string) bool {
	for p := importPath; p != s.module.path; p = p[:strings.LastIndexByte(p, '/')] {
		if required(s.module.gomod, p) != "" {
			return true
		}
		rel := strings.TrimPrefix(p, s.module.path+"/")
		if _, err := os.Stat(s.module.file(rel + "/go.mod")); err == nil {
			return true
		}
	}
	return false
}

// dir returns the directory of another module's package, or "".
func (s *sources) dir(importPath string) string {
	if s.module.vendored {
		return s.module.file("vendor/" + importPath)
	}
	best := s.requirement(importPath).Mod
	if best.Path == "" {
		return ""
	}
	sub := filepath.FromSlash(strings.TrimPrefix(importPath, best.Path))
	for _, r := range s.module.gomod.Replace {
		if r.Old.Path != best.Path || r.Old.Version != "" && r.Old.Version != best.Version {
			continue
		}
		if r.New.Version == "" { // A directory.
			if filepath.IsAbs(r.New.Path) {
				return r.New.Path + sub
			}
			return filepath.Join(s.module.root, r.New.Path) + sub
		}
		best = r.New
	}
	p, err := module.EscapePath(best.Path)
	if err != nil {
		return ""
	}
	v, err := module.EscapeVersion(best.Version)
	if err != nil || s.modCache == "" {
		return ""
	}
	return filepath.Join(s.modCache, filepath.FromSlash(p)+"@"+v) + sub
}
