package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A tester has test programs that contain mutants.
type tester struct {
	options

	tmp  string
	pkgs []string // Whose tests to run, the mutated package first.
	name string   // Of the mutated package.
}

// errorPrefix and the number of a mutant stand for a file's name in errors of the compiler.
const errorPrefix = "graft-mutant-"

// build builds the test programs with all the given mutants, and returns those that
// compile and are in the programs.
func (t tester) build(ctx context.Context, ms []*mutant) ([]*mutant, error) {
	ms = slices.Clone(ms)
	for {
		overlay, err := t.overlay(ms)
		if err != nil {
			return nil, err
		}
		ms = slices.DeleteFunc(ms, func(m *mutant) bool { return !m.woven })
		out, err := t.goCommand(ctx, "build", "-gcflags=-e", "-overlay="+overlay, "-o", os.DevNull, t.pkgs[0])
		if err == nil {
			return ms, t.link(ctx, overlay)
		}

		// The next round is without the mutants that the compiler complains about.
		had := len(ms)
		ms = slices.DeleteFunc(ms, func(m *mutant) bool {
			return strings.Contains(out, fmt.Sprintf("%s%d:", errorPrefix, m.id))
		})
		if len(ms) == had {
			return nil, fmt.Errorf("cannot build %s with mutants: %w\n%s", t.pkgs[0], err, out)
		}
	}
}

// link builds the test programs.
func (t tester) link(ctx context.Context, overlay string) error {
	for i, pkg := range t.pkgs {
		// Linking takes less time without the debug information.
		out, err := t.goCommand(ctx, "test", "-c", "-ldflags=-s -w", "-overlay="+overlay, "-o", t.program(i), pkg)
		if err != nil {
			return fmt.Errorf("cannot build the tests of %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

func (t tester) program(i int) string { return filepath.Join(t.tmp, strconv.Itoa(i)+".test") }

func (t tester) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overlay returns a file for -overlay, with which the go command reads the mutants.
func (t tester) overlay(ms []*mutant) (string, error) {
	replace := map[string]string{}
	write := func(name string, text []byte) error {
		path := filepath.Join(t.tmp, filepath.Base(name))
		replace[filepath.Join(t.root, name)] = path
		return os.WriteFile(path, text, 0o600)
	}
	err := write(filepath.Join(t.pkgs[0], "zz_graft_mutant.go"), fmt.Appendf(nil, selector, t.name, mutantEnv))
	for _, m := range ms {
		if replace[filepath.Join(t.root, m.file)] != "" {
			continue
		}
		text, werr := weave(t.root, m.file, ms)
		if err = errors.Join(err, werr); err == nil {
			err = write(m.file, text)
		}
	}
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(t.tmp, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// test returns the first package whose tests fail with the mutant, and their output;
// or "" if all pass. Mutant 0 is the source as it is.
func (t tester) test(ctx context.Context, id int) (killer, output string, err error) {
	for i, pkg := range t.pkgs {
		cmd := exec.CommandContext(ctx, t.program(i), "-test.failfast", "-test.timeout="+t.timeout.String())
		cmd.Dir = filepath.Join(t.root, pkg)
		cmd.Env = append(os.Environ(), mutantEnv+"="+strconv.Itoa(id))
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return pkg, string(out), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return "", "", nil
}
