package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

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
func (s *score) add(w io.Writer, m *mutant, killer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case err != nil:
		s.err = fmt.Errorf("%s:%d: %w", m.file, m.line, err)
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
	return fmt.Sprintf("killed %d of %d (%s), survived %d; %d more don't compile",
		killed, killed+s.lived, strings.Join(by, ", "), s.lived, s.broken)
}
