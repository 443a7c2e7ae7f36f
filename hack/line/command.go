package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// run runs a command in a directory, prints its output, and returns it.
func run(out io.Writer, dir string, args ...string) (string, error) {
	fmt.Fprintf(out, "%s (in %s)\n", strings.Join(args, " "), dir)
	var said strings.Builder
	start := time.Now()
	cmd := newCommand(dir, args...)

	// One writer for both, which is then not written to by two goroutines.
	both := io.MultiWriter(out, &said)
	cmd.Stdout, cmd.Stderr = both, both
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s failed in %s: %w", strings.Join(args, " "), dir, err)
	}
	fmt.Fprintf(out, "  took %s\n", time.Since(start).Round(time.Second))
	return said.String(), nil
}

// output returns the output of a command, without the last newline.
func output(dir string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := newCommand(dir, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s failed in %s: %w: %s",
			strings.Join(args, " "), dir, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// newCommand returns a command that runs in a directory. It ignores workspaces and the flags of
// the environment.
func newCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return cmd
}
