package main

import (
	"os"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// runtimeModFile returns the go.mod of a release of crossplane-runtime.
func runtimeModFile(version string) (*modfile.File, error) {
	name, err := output(os.TempDir(), "go", "list", "-m", "-f", "{{.GoMod}}", runtimeModule+"@"+version)
	if err != nil {
		return nil, err
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.ParseLax(name, src, nil)
}

// goMod returns the go.mod of one of Graft's modules in a line. A direct requirement has the
// version that crossplane-runtime requires directly, or else main's, because a library should
// not raise modules without need. Go mod tidy adds the indirect requirements.
func goMod(l line, runtime, f *modfile.File) ([]byte, error) {
	versions := map[string]string{runtimeModule: l.runtime}
	if l.version != "" {
		versions[graftModule] = l.version
	}
	for _, r := range runtime.Require {
		if !r.Indirect {
			versions[r.Mod.Path] = r.Mod.Version
		}
	}

	var requires []*modfile.Require
	for _, r := range f.Require {
		// Go mod tidy would remove a module that is not used, but raise the go directive
		// for it first.
		if v, ok := l.requires[r.Mod.Path]; r.Indirect || ok && v == "" {
			continue
		}
		if v, ok := versions[r.Mod.Path]; ok {
			r.Mod.Version = v
		}
		requires = append(requires, &modfile.Require{Mod: r.Mod})
	}
	for path, v := range l.requires {
		if v != "" {
			requires = append(requires, &modfile.Require{Mod: module.Version{Path: path, Version: v}, Indirect: true})
		}
	}
	f.SetRequireSeparateIndirect(requires)
	if err := f.AddGoStmt(runtime.Go.Version); err != nil {
		return nil, err
	}
	f.Cleanup()
	return f.Format()
}

// required returns the version at which a go.mod requires a module, or "".
func required(f *modfile.File, path string) string {
	for _, r := range f.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	return ""
}
