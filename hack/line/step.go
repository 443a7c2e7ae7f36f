package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A step is a command that is run in a directory.
type step struct {
	dir  string
	args []string
	// refused is output that makes the command a failure, advice is the remedy.
	refused, advice string
}

func (s step) run(out io.Writer) error {
	fmt.Fprintf(out, "%s (in %s)\n", strings.Join(s.args, " "), s.dir)
	var said strings.Builder
	start := time.Now()
	cmd := newCommand(s.dir, s.args...)

	// One writer for both, which is then not written to by two goroutines.
	both := io.MultiWriter(out, &said)
	cmd.Stdout, cmd.Stderr = both, both
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s failed in %s: %w", strings.Join(s.args, " "), s.dir, err)
	}
	if s.refused != "" && strings.Contains(said.String(), s.refused) {
		return fmt.Errorf("%s: %s", strings.Join(s.args, " "), s.advice)
	}
	fmt.Fprintf(out, "  took %s\n", time.Since(start).Round(time.Second))
	return nil
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
