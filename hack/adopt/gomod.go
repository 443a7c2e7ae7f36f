package main

import (
	"bytes"
	"fmt"
	"go/version"
	"runtime/debug"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// withoutCommon is the first release of crossplane-runtime without packages apis/common and
// pkg/parser.
const withoutCommon = "v2.3.0"

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
	v := info.Main.Version
	if !semver.IsValid(v) || semver.Build(v) != "" {
		return ""
	}
	return v
}

// addRequire returns a go.mod that requires a module directly at a version, and
// is otherwise as it was.
func addRequire(src []byte, path, version string) ([]byte, error) {
	f, err := modfile.Parse("go.mod", src, nil)
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
	out, err := f.Format()
	if err != nil {
		return nil, err
	}
	if bytes.Contains(src, []byte("\r\n")) {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n"))
	}
	return out, nil
}

// versionRemarks returns the versions that go mod tidy will raise, and those that the line is
// not built for. asked is the -version flag.
func versionRemarks(f *modfile.File, l line, asked string) []finding {
	var found []finding
	note := func(at int, format string, args ...any) {
		found = append(found, finding{path: "go.mod", line: at, text: fmt.Sprintf(format, args...)})
	}
	if _, ok := lineOf(asked); asked != "" && !ok {
		note(0, "Graft %s is of no line that this adopt knows; for this provider it knows %s.x", asked, l.graft)
	}

	pinned := false
	for _, r := range f.Replace {
		if r.Old.Path == upstreamModule {
			pinned = pinned || r.Old.Version == ""
			note(r.Syntax.Start.Line, "replaces %s; Graft %s.x is built for %s", upstreamModule, l.graft, l.runtime)
		}
	}
	if v, at := runtimeRequired(f); v != "" {
		switch {
		case semver.Compare(v, l.runtime) < 0 && !pinned:
			fails := ""
			if semver.Compare(v, withoutCommon) < 0 && semver.Compare(l.runtime, withoutCommon) >= 0 {
				fails = ", and fails if something imports its apis/common or pkg/parser"
			}
			note(at, "go mod tidy raises crossplane-runtime from %s to %s, for Graft %s.x%s",
				v, l.runtime, l.graft, fails)
		case semver.Compare(semver.MajorMinor(v), semver.MajorMinor(l.runtime)) > 0:
			note(at, "crossplane-runtime %s is newer than the %s that Graft %s.x is built for; "+
				"look for a newer Graft if something doesn't build", v, l.runtime, l.graft)
		}
	}

	switch {
	case f.Go == nil:
		note(0, "has no go directive; Graft needs go %s", l.golang)
	case version.Compare("go"+f.Go.Version, "go"+l.golang) < 0:
		note(f.Go.Syntax.Start.Line,
			"go mod tidy raises go from %s to %s, for Graft %s.x", f.Go.Version, l.golang, l.graft)
	}
	return found
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
