// Package intest runs a command as a test, because only a test can have a bubble in which time
// is simulated.
package intest

import (
	"os"
	"testing"
)

// Main runs a command with the arguments of the program, and exits with the status that it
// returns.
func Main(command func(t *testing.T, args []string) (exitStatus int)) {
	args := os.Args[1:]
	os.Args = os.Args[:1] // The flags are not those of tests.
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "command", F: func(t *testing.T) { os.Exit(command(t, args)) }}},
		nil, nil,
	)
}
