package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// runtimeModFile returns the go.mod of a release of crossplane-runtime.
func runtimeModFile(version string) (*modfile.File, error) {
	out, err := output(os.TempDir(), "go", "mod", "download", "-json", runtimeModule+"@"+version)
	if err != nil {
		return nil, err
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal([]byte(out), &downloaded); err != nil {
		return nil, fmt.Errorf("cannot read what go mod download printed: %w", err)
	}
	src, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return nil, err
	}
	return modfile.ParseLax(downloaded.GoMod, src, nil)
}

// goMod returns the go.mod of one of Graft's modules in a line. A direct requirement has the
// version that crossplane-runtime requires directly, or else main's, because a library should
// not raise modules without need. Go mod tidy adds the indirect requirements.
func goMod(l line, runtime *modfile.File, src []byte) ([]byte, error) {
	f, err := modfile.Parse("go.mod", src, nil)
	if err != nil {
		return nil, err
	}
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
		// Go mod tidy would remove the module of the core types, but raise the go directive
		// for it first.
		if r.Indirect || r.Mod.Path == coreModule && l.core.usual.path != corePath {
			continue
		}
		if v, ok := versions[r.Mod.Path]; ok {
			r.Mod.Version = v
		}
		requires = append(requires, &modfile.Require{Mod: r.Mod})
	}

	for path, v := range l.requires {
		requires = append(requires, &modfile.Require{Mod: module.Version{Path: path, Version: v}, Indirect: true})
	}
	f.SetRequireSeparateIndirect(requires)
	if err := f.AddGoStmt(runtime.Go.Version); err != nil {
		return nil, err
	}
	f.Cleanup()
	return f.Format()
}

// requiredRuntime returns the release of crossplane-runtime that a go.mod requires,
// or "".
func requiredRuntime(src []byte) (string, error) {
	f, err := modfile.Parse("go.mod", src, nil)
	if err != nil {
		return "", err
	}
	for _, r := range f.Require {
		if r.Mod.Path == runtimeModule {
			return r.Mod.Version, nil
		}
	}
	return "", nil
}
