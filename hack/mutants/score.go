package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// errBuild says that a mutant does not compile.
var errBuild = errors.New("does not compile")

// A tester runs the tests of packages with mutants.
type tester struct {
	root, tmp string
	pkgs      []string
	skip      string
	timeout   time.Duration
}

// test returns the first package whose tests fail with the mutant and their output,
// or "" if all pass. Without a mutant it tests the source as it is.
func (t tester) test(ctx context.Context, m *mutant) (killer, output string, err error) {
	// Linking takes less time without the debug information.
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-ldflags=-s -w", "-timeout=" + t.timeout.String(), "-skip=" + t.skip}

	if m != nil {
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(t.root, m.file): m.path}})
		if err != nil {
			return "", "", err
		}

		file := m.path + ".json"
		if err := os.WriteFile(file, overlay, 0o600); err != nil {
			return "", "", err
		}

		args = append(args, "-overlay="+file)
	}

	for _, pkg := range t.pkgs {
		cmd := exec.CommandContext(ctx, "go", append(args, pkg)...) //nolint:gosec // What the caller names is what is to be tested.
		cmd.Dir = t.root
		cmd.WaitDelay = 10 * time.Second

		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}

		if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
			return pkg, string(out), errBuild
		}

		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			return pkg, string(out), err
		}

		return pkg, string(out), nil
	}

	return "", "", nil
}

// A score counts the mutants that the tests of each package killed. Its methods may
// be called concurrently.
type score struct {
	mu     sync.Mutex
	pkgs   []string
	killed map[string]int
	lived  int
	broken int
	err    error
}

func newScore(pkgs []string) *score {
	return &score{pkgs: pkgs, killed: map[string]int{}}
}

// add counts a mutant, and prints it if it survived.
func (s *score) add(w io.Writer, m mutant, killer, out string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case errors.Is(err, errBuild):
		s.broken++
	case err != nil:
		s.err = fmt.Errorf("%s:%d: %w\n%s", m.file, m.line, err, out)
	case killer != "":
		s.killed[killer]++
	default:
		s.lived++
		fmt.Fprintf(w, "survived %s:%d\n  - %s\n  + %s\n", m.file, m.line, m.was, m.now)
	}
}

// String returns the score. Mutants that don't compile don't count.
func (s *score) String() string {
	killed, by := 0, make([]string, 0, len(s.pkgs))

	for _, pkg := range s.pkgs {
		killed += s.killed[pkg]
		by = append(by, fmt.Sprintf("%d by the tests of %s", s.killed[pkg], pkg))
	}

	return fmt.Sprintf("killed %d of %d (%s), survived %d; %d more don't compile", killed, killed+s.lived, strings.Join(by, ", "), s.lived, s.broken)
}
