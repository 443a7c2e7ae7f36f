package crashtest

import (
	"flag"
	"regexp"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// How many faults are tried by default. A fifth of the runs has two.
const (
	defaultRuns = 1500
	shortRuns   = 300
	aFifth      = -1
)

// An Option changes which runs a test makes.
type Option func(*settings)

type settings struct {
	runs, pairs int
	seed        uint64

	// only is a pattern, or "", and patterns are its parts. fill says that all runs that are left may have two faults.
	only     string
	patterns []*regexp.Regexp
	fill     bool
}

// Runs sets how many runs with a fault are made at the most. A run takes some
// milliseconds. The default is 1500, and 300 with -short.
func Runs(n int) Option { return func(s *settings) { s.runs = n } }

// Pairs sets how many of the runs have two faults at the most. The default is a fifth, and
// more if there are fewer runs with one fault.
func Pairs(n int) Option { return func(s *settings) { s.pairs = n } }

// Only makes the runs whose names match, as the part of -run below the test does, for
// instance create/crash. A whole name selects one run. A pattern that matches nothing fails the test.
func Only(pattern string) Option {
	return func(s *settings) {
		if pattern != "" {
			s.only = pattern
		}
	}
}

// Seed decides everything that is random: which goroutine is next, which runs are made,
// and where a second fault strikes. The default is 1.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

func newSettings(o []Option) (settings, error) {
	s := settings{runs: defaultRuns, pairs: aFifth, seed: 1}
	if testing.Short() {
		s.runs = shortRuns
	}
	for _, fn := range o {
		fn(&s)
	}
	if s.runs < 0 || s.pairs < aFifth {
		return s, errors.Errorf("crashtest: Runs(%d) or Pairs(%d) is negative", s.runs, s.pairs)
	}
	if s.fill = s.pairs == aFifth; s.fill {
		s.pairs = s.runs / 5
	}
	s.pairs = min(s.pairs, s.runs)
	for _, part := range strings.Split(s.only, "/") {
		p, err := regexp.Compile(part)
		if err != nil {
			return s, errors.Wrap(err, "crashtest: cannot read the pattern of -run or Only")
		}
		s.patterns = append(s.patterns, p)
	}
	return s, nil
}

// onlyRun returns an option with the part of -run that selects subtests of a test.
func onlyRun(test string) Option {
	f, names := flag.Lookup("test.run"), strings.Split(test, "/")
	if f == nil {
		return Only("")
	}
	return Only(below(names, strings.Split(f.Value.String(), "/")))
}

// below returns the patterns that are left after one for each name, or "" if a pattern does not match its name.
func below(names, patterns []string) string {
	if len(patterns) <= len(names) {
		return ""
	}
	for i, name := range names {
		if ok, err := regexp.MatchString(patterns[i], name); !ok || err != nil {
			return ""
		}
	}
	return strings.Join(patterns[len(names):], "/")
}

// selects reports whether the pattern matches a name. begins says that the name is only the beginning of one.
func (s settings) selects(name string, begins bool) bool {
	parts := strings.Split(name, "/")
	for i := range min(len(s.patterns), len(parts)) {
		if !s.patterns[i].MatchString(parts[i]) {
			return false
		}
	}
	return begins || len(s.patterns) <= len(parts)
}
