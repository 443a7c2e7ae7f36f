package crashtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// How many faults are tried by default.
const (
	defaultRuns = 1500
	shortRuns   = 300
)

// An Option changes which runs a test makes.
type Option func(*settings)

type settings struct {
	runs  *int
	pairs *int
	seed  uint64
	only  []string
}

// Runs sets how many runs with a fault are made at the most. A run takes some
// milliseconds. The default is 1500, and 300 with -short.
func Runs(n int) Option { return func(s *settings) { s.runs = &n } }

// Pairs sets how many of the runs have two faults at the most. The default is a fifth, and
// more if there are fewer runs with one fault.
func Pairs(n int) Option { return func(s *settings) { s.pairs = &n } }

// Only makes the runs whose names match, as the part of -run below the test does, for
// instance create/crash. A whole name selects one run. A pattern that matches nothing fails the test.
func Only(name string) Option {
	return func(s *settings) {
		if name != "" {
			s.only = []string{name}
		}
	}
}

// Seed decides everything that is random: which goroutine is next, which runs are made,
// and where a second fault strikes. The default is 1.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

// A budget is how many runs are made. fill says that all that are left may have two faults.
type budget struct {
	runs, pairs int
	fill        bool
}

// budget of the settings.
func (s settings) budget() (budget, error) {
	b := budget{runs: defaultRuns, fill: s.pairs == nil}
	switch {
	case s.runs != nil:
		b.runs = *s.runs
	case testing.Short():
		b.runs = shortRuns
	}
	if b.runs < 0 {
		return b, errors.Errorf("crashtest: Runs(%d) is negative", b.runs)
	}
	b.pairs = b.runs / 5
	if s.pairs != nil {
		b.pairs = *s.pairs
	}
	if s.runs == nil {
		b.pairs = min(b.pairs, b.runs) // The author does not know how many that is with -short.
	}
	if b.pairs < 0 || b.pairs > b.runs {
		return b, errors.Errorf("crashtest: Pairs(%d) is not between 0 and Runs(%d)", b.pairs, b.runs)
	}
	return b, nil
}

// A selection of cases. One without patterns has all.
type selection struct {
	patterns []string
	matches  [][]*regexp.Regexp

	// alone is the only case, if a whole name was given.
	alone *testCase
}

// newSelection returns the cases whose names match one of the patterns.
func newSelection(patterns []string, scenarios []Scenario) (selection, error) {
	s := selection{patterns: patterns}
	if len(patterns) == 1 {
		if c, err := parseCase(plainName(patterns[0]), scenarios); err == nil {
			s.alone = &c
			return s, nil
		}
	}
	for _, pattern := range patterns {
		var parts []*regexp.Regexp
		for _, part := range split(pattern, '/') {
			r, err := regexp.Compile(part)
			if err != nil {
				return s, errors.Wrap(err, "crashtest: cannot read the pattern of -run or Only")
			}
			parts = append(parts, r)
		}
		s.matches = append(s.matches, parts)
	}
	return s, nil
}

// has reports whether the selection has a case.
func (s selection) has(c testCase) bool { return s.match(c.name(), false) }

// hasScenario reports whether the selection may have cases of a scenario.
func (s selection) hasScenario(o Scenario) bool { return s.match(o.Name, true) }

func (s selection) match(name string, prefix bool) bool {
	elements := strings.Split(name, "/")
	return len(s.matches) == 0 || slices.ContainsFunc(s.matches, func(parts []*regexp.Regexp) bool {
		for i, e := range elements {
			if i < len(parts) && !parts[i].MatchString(e) {
				return false
			}
		}
		return prefix || len(parts) <= len(elements)
	})
}
