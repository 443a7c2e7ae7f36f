//go:build integration

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestReal tells all stories on a real control plane. What has to be seen is the
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
		"x 100 for 50 managed          + 50 for 50 managed",
		"x empty                       + stored",
		"reconciles         + 100                         + 100",
		"status writes      x 100                         + 0",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("want %q in the output", want)
		}
	}

	checkLayout(t, stdout.String(), true)
	t.Logf("%s\n%s", &stdout, &stderr)
}
