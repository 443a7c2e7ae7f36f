package crashtest

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
)

// How many points a run leads by default.
const (
	defaultPoints = 1500
	shortPoints   = 300
)

// maxDetailed is how many findings are shown with a timeline.
const maxDetailed = 5

// An Option changes a run.
type Option func(*settings)

type settings struct {
	points *int
	pairs  *int
	seed   uint64
	only   string
}

// Points sets how many lives with a fault are led at the most. A life takes some
// milliseconds. The default is 1500, and 300 with -short.
func Points(n int) Option { return func(s *settings) { s.points = &n } }

// Pairs sets how many of the points have two faults at the most. The default is a fifth, and
// more if there are fewer points with one fault.
func Pairs(n int) Option { return func(s *settings) { s.pairs = &n } }

// Only leads the lives whose names match, as the part of -run below the test does, for
// instance create/crash. A whole name selects one life.
func Only(name string) Option { return func(s *settings) { s.only = name } }

// Seed decides everything that is random: which goroutine is next, which points are led,
// and where a second fault strikes. The default is 1.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

// Run leads the lives of a provider's managed resource, with faults. Each finding fails a
// subtest, whose name replays that life alone. With -v it logs its progress.
//
// Run ends the test at once if it can't lead a life, for instance because the provider
// is not complete. It must not be called in a bubble of testing/synctest.
func Run[C Cloud](t *testing.T, p Provider[C], o ...Option) {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		t.Fatal(err)
	}

	if f := flag.Lookup("test.run"); f != nil {
		if err := s.selects(askedFor(t.Name(), f.Value.String())...); err != nil {
			t.Fatal(err)
		}
	}
	if s.alone != nil {
		s.replay(*s.alone)
		return
	}
	began := time.Now()
	results, all, err := s.run()
	s.report(results)
	if err != nil && !errors.Is(err, errHung) {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("crashtest: the run ends early, because a life is stuck: %v", err)
	}
	t.Logf(
		"crashtest: led %d lives; one fault can strike at %d points; %s",
		len(results),
		all,
		time.Since(began).Round(100*time.Millisecond),
	)
}

func newSweep[C Cloud](t *testing.T, p Provider[C], o []Option) (*sweep, error) {
	sub, err := p.check()
	if err != nil {
		return nil, err
	}
	set := settings{seed: 1}
	for _, fn := range o {
		fn(&set)
	}
	points := defaultPoints
	switch {
	case set.points != nil:
		points = *set.points
	case testing.Short():
		points = shortPoints
	}
	if points < 0 {
		return nil, errors.Errorf("crashtest: Points(%d) is negative", points)
	}
	progress := func(format string, a ...any) {
		if testing.Verbose() {
			t.Logf("crashtest: "+format, a...)
		}
	}
	s := &sweep{
		t:        t,
		subject:  sub,
		seed:     set.seed,
		points:   points,
		pairs:    points / 5,
		fill:     set.pairs == nil,
		progress: progress,
	}
	if set.pairs != nil {
		s.pairs = *set.pairs
	}
	if set.points == nil {
		s.pairs = min(s.pairs, points) // The author does not know how many that is with -short.
	}
	if s.pairs < 0 || s.pairs > s.points {
		return nil, errors.Errorf("crashtest: Pairs(%d) is not between 0 and Points(%d)", s.pairs, points)
	}
	if set.only != "" {
		err = s.selects(set.only)
	}
	return s, err
}

// selects the life of a name, or the points whose names match one of these patterns.
func (s *sweep) selects(patterns ...string) error {
	if len(patterns) == 1 {
		if p, err := parsePoint(plainName(patterns[0]), s.subject.lives); err == nil {
			s.alone = &p
			return nil
		}
	}
	var matches []func(p point) bool
	for _, pattern := range patterns {
		match, err := matching(pattern)
		if err != nil {
			return err
		}
		matches = append(matches, match)
	}
	if len(matches) > 0 {
		s.only = func(p point) bool {
			return slices.ContainsFunc(matches, func(match func(p point) bool) bool { return match(p) })
		}
	}
	return nil
}

// matching returns a function that reports whether a point's name matches a pattern of
// -run.
func matching(pattern string) (func(p point) bool, error) {
	var parts []*regexp.Regexp
	for _, s := range strings.Split(pattern, "/") {
		r, err := regexp.Compile(s)
		if err != nil {
			return nil, errors.Wrap(err, "crashtest: cannot read the pattern of -run or Only")
		}
		parts = append(parts, r)
	}
	return func(p point) bool {
		for i, e := range strings.Split(p.name(), "/") {
			if i < len(parts) && !parts[i].MatchString(e) {
				return false
			}
		}
		return true
	}, nil
}

// accepted reports whether a finding doesn't fail the test.
func (s *sweep) accepted(f finding) bool {
	for _, v := range f.violations {
		if !slices.Contains(s.subject.accept, v.Verdict) {
			return false
		}
	}
	return true
}

// report fails a subtest for each finding.
func (s *sweep) report(results []result) {
	detailed, known, accepted := 0, map[string]string{}, 0
	for _, r := range results {
		f := r.finding
		if len(f.violations) == 0 {
			continue
		}
		if s.accepted(f) {
			accepted++
			continue
		}
		name := r.point.name()
		group := f.verdicts()
		if len(r.point.at) > 0 {
			group = r.point.life.Name + group
		}
		first, again := known[group]

		s.t.Run(name, func(t *testing.T) {
			t.Helper()
			switch {
			case again:
				t.Errorf("%s, as in %s", f.violations[0].Text, first)
			case detailed >= maxDetailed || errors.Is(f.err, errHung):
				t.Error(s.explain(r, nil))
			default:
				detailed++
				tl := &timeline{}
				lead(s.t, s.subject, r.point, s.seed, s.calm[r.point.life.Name], tl)
				t.Error(s.explain(r, tl))
			}
		})
		if !again {
			known[group] = name
		}
	}
	if accepted > 0 {
		s.t.Logf("crashtest: %d lives ended with a verdict of Provider.Accept", accepted)
	}
}

// replay one life.
func (s *sweep) replay(p point) {
	name := p.name()
	calm := lead(s.t, s.subject, point{life: p.life}, s.seed, nil, nil)
	tl := &timeline{}
	f := lead(s.t, s.subject, p, s.seed, &calm, tl)
	s.t.Run(name, func(t *testing.T) {
		switch {
		case f.err != nil && !errors.Is(f.err, errHung):
			t.Fatalf("%v\n%s", f.err, tl)
		case len(f.violations) > 0 && !s.accepted(f):
			t.Error(s.explain(result{p, f}, tl))
		default:
			t.Logf("%s ends as it should%s\n\n%s", name, s.asAccepted(f), tl)
		}
	})
}

func (s *sweep) asAccepted(f finding) string {
	if len(f.violations) == 0 {
		return ""
	}
	return ", with an accepted verdict: " + f.violations[0].Text
}

// explain a finding.
func (s *sweep) explain(r result, tl *timeline) string {
	var b strings.Builder
	f := r.finding
	fmt.Fprintf(&b, "%s\n", f.verdicts())

	for i, d := range r.point.at {
		n, at := d.step, d.want
		if i < len(f.struck) {
			n, at = f.struck[i], f.steps[f.struck[i]-1].String()
		}
		fmt.Fprintf(&b, "  fault    %s at step %d (%s)\n", d.fault.name, n, at)
	}
	said := map[Verdict]bool{}
	for _, v := range f.violations {
		fmt.Fprintf(&b, "  found    %s\n", v.Text)
		if e := v.Verdict.explanation(); !said[v.Verdict] {
			fmt.Fprintf(&b, "  cause    %s\n  remedy   %s\n", e.cause, e.remedy)
		}
		said[v.Verdict] = true
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(s.t.Name()+"/"+r.point.name()), "/", "$/^")
	fmt.Fprintf(&b, "  replay   go test -run '^%s$' -v\n", strings.ReplaceAll(pattern, "'", `'\''`))
	if tl != nil {
		fmt.Fprintf(&b, "\n%s", tl)
	}
	return b.String()
}
