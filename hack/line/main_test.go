package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		status int
		stdout string
		stderr string
	}{
		"Help":     {reason: "Help isn't an error, and names the lines.", args: []string{"-h"}, stdout: "The release of crossplane-runtime: v2.2.1 or v2.4.0."},
		"Unknown":  {reason: "A release without a line is named, with those that have one.", args: []string{"-runtime", "v2.1.0"}, status: exitUsage, stderr: `no line for crossplane-runtime "v2.1.0": there is one for v2.2.1 and v2.4.0`},
		"None":     {reason: "A release must be named.", status: exitUsage, stderr: `no line for crossplane-runtime ""`},
		"Version":  {reason: "A version has the line's minor number.", args: []string{"-runtime", "v2.2.1", "-version", "v0.24.0"}, status: exitUsage, stderr: "v0.24.0 is no version of v0.22.x"},
		"Argument": {reason: "A directory goes with -o.", args: []string{"-runtime", "v2.2.1", "dir"}, status: exitUsage, stderr: `unexpected argument "dir"`},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer

			if got := command(tc.args, &stdout, &stderr); got != tc.status {
				t.Errorf("\n%s\nwant status %d, got %d", tc.reason, tc.status, got)
			}

			if !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("\n%s\nwant %q and %q, got: %s%s", tc.reason, tc.stdout, tc.stderr, stdout.String(), stderr.String())
			}
		})
	}
}

func TestStep(t *testing.T) {
	cases := map[string]struct {
		reason string
		step   step
		err    string
	}{
		"Done":    {reason: "A command that succeeds is fine.", step: step{dir: t.TempDir(), args: []string{"go", "version"}}},
		"Failed":  {reason: "A failure names the command and the directory.", step: step{dir: "/", args: []string{"go", "nosuchcommand"}}, err: "go nosuchcommand failed in /: exit status 2"},
		"Refused": {reason: "An output that must not be is a failure with what to do.", step: step{dir: "/", args: []string{"sh", "-c", "echo go: finding module for x >&2"}, refused: "go: finding module", advice: "pin it"}, err: "pin it"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer

			err := tc.step.run(&out)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("\n%s\nwant error %q, got: %v", tc.reason, tc.err, err)
			}
		})
	}
}
