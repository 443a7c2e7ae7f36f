package main

import (
	"bytes"
	"fmt"
	"runtime/debug"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// checkVersion returns an error if the -version flag is not a full version.
func checkVersion(v string) error {
	if v == "" {
		return nil
	}
	if err := module.Check(graftModule, v); err != nil {
		return fmt.Errorf("-version %s: adopt doesn't use the network, so it needs a full version such as v0.24.0; "+
			"leave the flag out to run go get yourself", v)
	}
	return nil
}

// releasedVersion returns the version of the running command if others can
// download it, else "". The command's module is released together with Graft's,
// under the same version.
func releasedVersion(info *debug.BuildInfo) string {
	// Only a module that was downloaded has a checksum: a checkout has none,
	// although the go command makes up a version for it.
	if info.Main.Path != graftModule+"/hack/adopt" || info.Main.Sum == "" {
		return ""
	}
	if v := info.Main.Version; semver.IsValid(v) && semver.Build(v) == "" {
		return v
	}
	return ""
}

// addRequire returns a go.mod that requires a module directly at a version, and
// is otherwise as it was.
func addRequire(src []byte, path, version string) ([]byte, error) {
	f, err := modfile.Parse("go.mod", bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n")), nil)
	if err != nil {
		return nil, err
	}
	requires := []*modfile.Require{{Mod: module.Version{Path: path, Version: version}}}
	for _, r := range f.Require {
		if r.Mod.Path != path {
			requires = append(requires, r)
		}
	}
	// Unlike AddRequire this keeps direct requirements out of a block of
	// indirect ones.
	f.SetRequireSeparateIndirect(requires)
	f.Cleanup()
	return f.Format()
}

// replacement returns the path that a go.mod replaces a module by, with the line that says so.
func replacement(f *modfile.File, path string) (by string, at int, ok bool) {
	for _, r := range f.Replace {
		if r.Old.Path == path {
			return r.New.Path, r.Syntax.Start.Line, true
		}
	}
	return "", 0, false
}

// drops returns the flags of go mod edit that remove Graft's modules from a go.mod.
func drops(f *modfile.File) string {
	flags := ""
	for _, module := range []string{graftModule, graftUpjet} {
		if _, _, replaced := replacement(f, module); replaced || module == graftModule || required(f, module) != "" {
			flags += " -droprequire " + module + " -dropreplace " + module
		}
	}
	return flags
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
