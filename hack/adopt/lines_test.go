package main

import "testing"

func TestLineVersion(t *testing.T) {
	older, newer := lines()[0], lines()[1]
	cases := map[string]struct {
		reason   string
		line     line
		released string
		want     string
	}{
		"Same":       {"The line of the command itself has the command's version.", newer, "v0.24.3", "v0.24.3"},
		"Other":      {"Lines are released together, under equal patch numbers.", older, "v0.24.3", "v0.22.3"},
		"PreRelease": {"So are releases that are to be tried.", older, "v0.24.0-rc.1", "v0.22.0-rc.1"},
		"Commit": {
			"A commit is of main, so of the newer line.", newer, "v0.0.0-20261121000000-0123456789ab",
			"v0.0.0-20261121000000-0123456789ab",
		},
		"OtherCommit": {"No other line has a version for it.", older, "v0.24.4-0.20261121000000-0123456789ab", ""},
		"None":        {"Nor for what isn't released.", older, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "", tc.want, tc.line.version(tc.released))
		})
	}
}
