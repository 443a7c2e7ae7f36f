package main

import (
	"strings"
	"testing"
)

func TestLineVersion(t *testing.T) {
	older, newer := lines()[0], lines()[1]
	cases := map[string]struct {
		reason   string
		line     line
		released string
		want     string
	}{
		"Same":        {"The line of the command itself has the command's version.", newer, "v0.24.3", "v0.24.3"},
		"Other":       {"Lines are released together, under equal patch numbers.", older, "v0.24.3", "v0.22.3"},
		"PreRelease":  {"So are releases that are to be tried.", older, "v0.24.0-rc.1", "v0.22.0-rc.1"},
		"Commit":      {"A commit is of main, so of the newer line.", newer, "v0.0.0-20261121000000-0123456789ab", "v0.0.0-20261121000000-0123456789ab"},
		"OtherCommit": {"No other line has a version for it.", older, "v0.24.4-0.20261121000000-0123456789ab", ""},
		"None":        {"Nor for what isn't released.", older, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.line.version(tc.released); got != tc.want {
				t.Errorf("\n%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// What can't be done is said before anything is changed.
func TestRefused(t *testing.T) {
	cases := map[string]adoption{
		"UnknownFlag": {
			reason: "An unknown flag is named.",
			files:  map[string]string{"a.go": one}, args: []string{"-x"}, status: exitFailed, says: []string{"flag provided but not defined: -x"},
		},
		"Latest": {
			reason: "What latest means only the network knows.",
			files:  map[string]string{"a.go": one}, args: []string{"-version", "latest"}, status: exitFailed, says: []string{"doesn't use the network"},
		},
		"Major": {
			reason: "A version has to fit the module's path.",
			files:  map[string]string{"a.go": one}, args: []string{"-version", "v2.0.0"}, status: exitFailed, says: []string{"-version v2.0.0"},
		},
		"OlderLineAsked": {
			reason: "The line is named that fits.",
			files:  map[string]string{"a.go": one}, args: []string{"-version", "v0.22.0"}, status: exitFailed,
			says: []string{"-version v0.22.0 is for crossplane-runtime v2.2, and go.mod requires v2.4.0: use v0.24.x"},
		},
		"OldRuntime": {
			reason: "A provider below all lines raises crossplane-runtime first.",
			files:  map[string]string{"go.mod": strings.Replace(goMod, "v2.4.0", "v2.1.1", 1)}, src: one, want: one, status: exitLeft,
			says: []string{"crossplane-runtime v2.1.1 is older than v2.2.1, which Graft's oldest line requires: raise it first", "go get " + upstreamModule + "@v2.2.1"},
		},
	}
	adoptions(t, cases, "")
}
