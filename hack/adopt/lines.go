package main

import (
	"fmt"
	"slices"

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

// isTooOld reports whether a release of crossplane-runtime is older than all lines.
func isTooOld(runtime string) bool {
	return compareMinor(runtime, lines()[0].runtime) < 0
}

func compareMinor(a, b string) int {
	return semver.Compare(semver.MajorMinor(a), semver.MajorMinor(b))
}

// lineOf returns the line of a version of Graft, if it is of one. Versions of commits
// that precede all tags are of the last line.
func lineOf(graft string) (line, bool) {
	all := lines()
	i := slices.IndexFunc(all, func(l line) bool { return l.graft == semver.MajorMinor(graft) })
	if i < 0 {
		return all[len(all)-1], semver.MajorMinor(graft) == "v0.0"
	}
	return all[i], true
}

// clone returns the folder of the line's tree in a clone beside the provider.
func (l line) clone() string {
	if all := lines(); l != all[len(all)-1] {
		return "../graft/bin/line/" + l.runtime
	}
	return "../graft"
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

// pickLine returns the line of the version in the -version flag, or the line for the provider's
// crossplane-runtime: the first whose release is of the same minor version or a later one, else
// the last.
func pickLine(f *modfile.File, asked string) (line, error) {
	all := lines()
	fits := all[len(all)-1]
	runtime, _ := runtimeRequired(f)
	i := slices.IndexFunc(all, func(l line) bool { return compareMinor(runtime, l.runtime) <= 0 })
	if runtime != "" && i >= 0 {
		fits = all[i]
	}
	l, ok := lineOf(asked)
	switch {
	case !ok:
		return fits, nil
	case semver.Compare(l.runtime, fits.runtime) < 0:
		return line{}, fmt.Errorf("-version %s is for crossplane-runtime %s, and go.mod requires %s: use %s.x",
			asked, semver.MajorMinor(l.runtime), runtime, fits.graft)
	default:
		return l, nil
	}
}
