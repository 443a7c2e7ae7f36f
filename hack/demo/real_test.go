//go:build integration

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestReal plays all stories on a real control plane. What has to be seen is the
// stories' own matter: the command fails if it isn't.
func TestReal(t *testing.T) {
	var stdout, stderr bytes.Buffer
	env := func(k string) string {
		if k == "CONTROL_PLANE" {
			return "real"
		}
		return ""
	}
	if got := command(t.Context(), nil, env, bothSides(), &stdout, &stderr); got != exitOK {
		t.Errorf("exit status: want %d, got %d", exitOK, got)
	}

	// The numbers that are claimed, for 50 managed resources.
	for _, want := range []string{
		"lost-external-name                   x 100 in the cloud   + 50 in the cloud",
		"steady-state-writes                  x 100 writes         + 0 writes",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("want %q in the output", want)
		}
	}
	checkLayout(t, stdout.String(), true)
	t.Logf("%s\n%s", &stdout, &stderr)
}
