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
		return fmt.Errorf("-version %s: adopt doesn't use the network, so it needs a full version such as v0.24.0; leave the flag out to run go get yourself", v)
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
	if has := required(p.module.gomod, graftModule); has != "" {
		l, _ := lineOf(has)
		if want == has || want == "" && l == p.line {
			return nil
		}
	}
	if want == "" {
		want = p.line.version(o.ownVersion)
	}
	if want == "" {
		p.report.next = append(p.report.next, "go get "+graftModule+"@"+p.line.graft)
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

// isTooOld reports whether the provider's crossplane-runtime is older than all lines.
func (p *planner) isTooOld() bool {
	v, _ := runtimeRequired(p.module.gomod)
	return v != "" && isTooOld(v)
}

// raiseFirst says what to do about a crossplane-runtime that is older than all
// lines. Nothing else is planned then.
func (p *planner) raiseFirst() {
	oldest := lines()[0].runtime
	v, at := runtimeRequired(p.module.gomod)
	p.report.edits, p.report.notes, p.report.tooOld = nil, nil, true
	p.report.leave("go.mod", at, fmt.Sprintf("crossplane-runtime %s is older than %s, which Graft's oldest line requires: raise it first, in go.mod and in a change of its own; no import of crossplane-runtime changes, but controller-runtime becomes v0.23 and Kubernetes v0.35", v, oldest))
	p.report.next = []string{"go get " + upstreamModule + "@" + oldest}
	p.nextSteps()
	p.report.next = append(p.report.next, "adopt")
}

// remarkVersions notes what go mod tidy will raise, and what the line isn't built
// for.
func (p *planner) remarkVersions(asked string) {
	f, l := p.module.gomod, p.line
	if _, ok := lineOf(asked); asked != "" && !ok {
		p.report.note("go.mod", 0, fmt.Sprintf("Graft %s is of no line that this adopt knows; for this provider it knows %s.x", asked, l.graft))
	}
	for _, r := range f.Replace {
		if r.Old.Path == upstreamModule {
			p.report.note("go.mod", r.Syntax.Start.Line, fmt.Sprintf("replaces %s; Graft %s.x is built for %s", upstreamModule, l.graft, l.runtime))
		}
	}
	if v, at := runtimeRequired(f); v != "" {
		switch c := semver.Compare(v, l.runtime); {
		case c < 0 && !isPinned(f):
			p.report.note("go.mod", at, fmt.Sprintf("go mod tidy raises crossplane-runtime from %s to %s, for Graft %s.x", v, l.runtime, l.graft))
		case semver.Compare(semver.MajorMinor(v), semver.MajorMinor(l.runtime)) > 0:
			p.report.note("go.mod", at, fmt.Sprintf("crossplane-runtime %s is newer than the %s that Graft %s.x is built for; look for a newer Graft if something doesn't build", v, l.runtime, l.graft))
		}
	}
	switch {
	case f.Go == nil:
		p.report.note("go.mod", 0, "has no go directive; Graft needs go "+l.golang)
	case version.Compare("go"+f.Go.Version, "go"+l.golang) < 0:
		p.report.note("go.mod", f.Go.Syntax.Start.Line, fmt.Sprintf("go mod tidy raises go from %s to %s, for Graft %s.x", f.Go.Version, l.golang, l.graft))
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
