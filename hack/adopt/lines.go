package main

import (
	"fmt"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A line is Graft for one minor release of crossplane-runtime. Its minor number is
// that release's.
type line struct {
	graft   string // Major and minor version.
	runtime string // The release of crossplane-runtime that it requires.
	golang  string // The version of Go that it requires.
}

// lines returns all lines, the oldest first. The last is the one that this command
// is released with.
func lines() []line {
	return []line{
		{graft: "v0.22", runtime: "v2.2.1", golang: "1.25.9"},
		{graft: "v0.24", runtime: "v2.4.0", golang: "1.25.11"},
	}
}

// lineFor returns the line for a release of crossplane-runtime: the first whose
// release is of the same minor version or a later one, else the last.
func lineFor(runtime string) line {
	all := lines()
	for _, l := range all {
		if semver.Compare(semver.MajorMinor(runtime), semver.MajorMinor(l.runtime)) <= 0 {
			return l
		}
	}
	return all[len(all)-1]
}

// isTooOld reports whether a release of crossplane-runtime is older than all lines.
func isTooOld(runtime string) bool {
	return semver.Compare(semver.MajorMinor(runtime), semver.MajorMinor(lines()[0].runtime)) < 0
}

// lineOf returns the line of a version of Graft, if it is of one. Versions of commits
// that precede all tags are of the last line.
func lineOf(graft string) (line, bool) {
	all := lines()
	for _, l := range all {
		if l.graft == semver.MajorMinor(graft) {
			return l, true
		}
	}
	return all[len(all)-1], semver.MajorMinor(graft) == "v0.0"
}

// version returns the version of the line that is released together with a version
// of Graft: the patch numbers are equal. It is empty if the other isn't a release.
func (l line) version(released string) string {
	own, ok := lineOf(released)
	switch {
	case !ok:
		return ""
	case own == l:
		return released
	case module.IsPseudoVersion(released):
		return ""
	default:
		return l.graft + released[len(own.graft):]
	}
}

// runtimeRequired returns the release of crossplane-runtime that a go.mod leads to,
// with the line that says so, or "" if it requires none.
func runtimeRequired(f *modfile.File) (version string, at int) {
	for _, r := range f.Require {
		if r.Mod.Path == upstreamModule {
			version, at = r.Mod.Version, r.Syntax.Start.Line
		}
	}
	for _, r := range f.Replace {
		applies := r.Old.Version == "" || r.Old.Version == version
		if version != "" && r.Old.Path == upstreamModule && applies && r.New.Version != "" {
			version, at = r.New.Version, r.Syntax.Start.Line
		}
	}
	return version, at
}

// pickLine returns the line for the provider: the line of the version in the -version flag, or
// the line for its crossplane-runtime.
func pickLine(f *modfile.File, asked string) (line, error) {
	runtime, _ := runtimeRequired(f)
	fits := lines()[len(lines())-1]
	if runtime != "" {
		fits = lineFor(runtime)
	}
	l, ok := lineOf(asked)
	if asked == "" || !ok {
		return fits, nil
	}
	if semver.Compare(l.runtime, fits.runtime) < 0 {
		return line{}, fmt.Errorf("-version %s is for crossplane-runtime %s, and go.mod requires %s: use %s.x",
			asked, semver.MajorMinor(l.runtime), runtime, fits.graft)
	}
	return l, nil
}
