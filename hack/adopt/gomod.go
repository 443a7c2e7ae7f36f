package main

import (
	"bytes"
	"fmt"
	"go/build"
	"go/version"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// checkVersion reports what is wrong with a version given by hand.
func checkVersion(v string) error {
	if v == "" {
		return nil
	}
	if err := module.Check(graftModule, v); err != nil {
		return fmt.Errorf("-version %s: adopt doesn't use the network, so it needs a full version such as v0.1.0; leave the flag out to run go get yourself", v)
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

// requireGraft plans the change of go.mod, or says which command makes it.
func (p *planner) requireGraft(o options) error {
	want := o.version
	if has := required(p.module.gomod, graftModule); has != "" && (want == "" || want == has) {
		return nil
	}
	if want == "" {
		want = o.ownVersion
	}
	if want == "" {
		p.report.next = append(p.report.next, "go get "+graftModule+"@latest")
		return nil
	}
	if p.module.gomodMode.Perm()&0o200 == 0 {
		p.report.leave("go.mod", 0, "not changed, the file is read-only; it needs: require "+graftModule+" "+want)
		return nil
	}

	after, err := addRequire(p.module.gomodSrc, graftModule, want)
	if err != nil {
		return fmt.Errorf("cannot add %s %s to go.mod: %w", graftModule, want, err)
	}
	p.report.edits = append(p.report.edits, edit{
		path:   "go.mod",
		mode:   p.module.gomodMode,
		before: p.module.gomodSrc,
		after:  after,
		remark: "require " + graftModule + " " + want,
	})
	return nil
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

// remarkVersions notes what go mod tidy will raise, and what Graft wasn't built
// for.
func (p *planner) remarkVersions() {
	f := p.module.gomod
	for _, r := range f.Replace {
		if r.Old.Path == upstreamModule {
			p.report.note("go.mod", r.Syntax.Start.Line, "replaces "+upstreamModule+"; Graft is built for "+builtForRuntime)
		}
	}
	for _, r := range f.Require {
		if r.Mod.Path != upstreamModule {
			continue
		}
		line := r.Syntax.Start.Line
		switch c := semver.Compare(r.Mod.Version, builtForRuntime); {
		case c < 0:
			p.report.note("go.mod", line, fmt.Sprintf("crossplane-runtime %s is older than the %s that Graft is built for; go mod tidy will raise it", r.Mod.Version, builtForRuntime))
		case c > 0:
			p.report.note("go.mod", line, fmt.Sprintf("crossplane-runtime %s is newer than the %s that Graft is built for; look for a newer Graft if something doesn't build", r.Mod.Version, builtForRuntime))
		}
	}
	switch {
	case f.Go == nil:
		p.report.note("go.mod", 0, "has no go directive; Graft needs go "+builtForGo)
	case version.Compare("go"+f.Go.Version, "go"+builtForGo) < 0:
		p.report.note("go.mod", f.Go.Syntax.Start.Line, fmt.Sprintf("go %s is older than the go %s that Graft needs; go mod tidy will raise it", f.Go.Version, builtForGo))
	}
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

// defaultModCache returns where the go command keeps modules, as far as the
// environment says.
func defaultModCache() string {
	if dir := os.Getenv("GOMODCACHE"); dir != "" {
		return dir
	}
	if paths := filepath.SplitList(build.Default.GOPATH); len(paths) > 0 {
		return filepath.Join(paths[0], "pkg", "mod")
	}
	return ""
}
