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
		"Help":    {reason: "Help isn't an error, and names the lines.", args: []string{"-h"}, stdout: "The release of crossplane-runtime: v2.2.1 or v2.4.0."},
		"Unknown": {reason: "A release without a line is named, with those that have one.", args: []string{"-runtime", "v2.1.0"}, status: exitUsage, stderr: `no line for crossplane-runtime "v2.1.0": there is one for v2.2.1 and v2.4.0`},
		"Version": {reason: "A version has the line's minor number.", args: []string{"-runtime", "v2.2.1", "-version", "v0.24.0"}, status: exitUsage, stderr: "v0.24.0 is no version of v0.22.x"},
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
