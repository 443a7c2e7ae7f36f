package crashtest

import (
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

const (
	// maxDetailed is how many findings are shown with a timeline, maxShown how many are shown at all.
	maxDetailed = 5
	maxShown    = 25

	// longestViolation is how many lines of a violation are shown, for instance of a stack.
	longestViolation = 30
)

// Run makes the runs of a provider's scenarios, with faults. Each finding fails a
// subtest, whose name replays that run alone. With -v it logs its progress.
//
// Run ends the test at once if a run is not possible, for instance because the provider
// is not complete. It must not be called in a bubble of testing/synctest.
func Run[C Cloud](t *testing.T, p Provider[C], o ...Option) {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err == nil {
		err = s.selectAskedFor()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if s.alone != nil {
		if err := s.replay(*s.alone); err != nil {
			t.Fatal(err)
		}
		return
	}
	results, all, err := s.run()
	s.report(results)
	if err != nil && !errors.Is(err, errHung) {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("crashtest: the test ends early, because runs hang: %v", err)
	}
	s.notice()
	t.Logf(
		"crashtest: made %d runs; one fault can strike in %d places; %s",
		len(results), all, time.Since(began).Round(100*time.Millisecond),
	)
}

// selectAskedFor selects the runs that -run names below the test.
func (s *sweep) selectAskedFor() error {
	f := flag.Lookup("test.run")
	if f == nil {
		return nil
	}
	patterns := askedFor(s.t.Name(), f.Value.String())
	if len(patterns) == 0 {
		return nil
	}
	var err error
	s.selection, err = newSelection(patterns, s.scenarios)
	return err
}

// report fails a subtest for each finding.
func (s *sweep) report(results []result) {
	detailed, shown, known, accepted := 0, 0, map[string]string{}, 0
	sums := map[string]int{}
	for _, r := range results {
		if len(r.violations) == 0 {
			continue
		}
		if s.accepted(r.ending) {
			accepted++
			continue
		}
		name, group := r.name(), verdicts(r.violations)
		sums[r.scenario.Name+": "+group]++
		if len(r.injections) > 0 {
			group = r.scenario.Name + group
		}
		first, again := known[group]
		if shown++; shown > maxShown {
			continue
		}
		s.t.Run(name, func(t *testing.T) {
			t.Helper()
			switch {
			case again:
				t.Errorf("%s, as in %s", history.Short(r.violations[0].Text), first)
			case detailed >= maxDetailed || errors.Is(r.err, errHung):
				t.Error(s.explain(r, ""))
			default:
				detailed++
				if len(r.events) == 0 {
					r.events = s.execute(r.testCase).events
				}
				t.Error(s.explain(r, r.timeline()))
			}
		})
		if !again {
			known[group] = name
		}
	}
	if accepted > 0 {
		s.t.Logf("crashtest: %d runs ended with a verdict of Provider.Accept", accepted)
	}
	if shown > 1 {
		var b strings.Builder
		fmt.Fprintf(&b, "crashtest: %d findings", shown)
		if shown > maxShown {
			fmt.Fprintf(&b, ", of which %d are shown above", maxShown)
		}
		for _, k := range slices.Sorted(maps.Keys(sums)) {
			fmt.Fprintf(&b, "\n  %4d  %s", sums[k], k)
		}
		s.t.Error(b.String())
	}
}

// notice logs a remark for the author that fails nothing.
func (s *sweep) notice() {
	if s.diverged > 0 {
		s.t.Logf("crashtest: %d runs made another request than the run without a fault before the fault struck. A "+
			"replay may differ, too. The provider ranges over a map, draws random names, or shares state between "+
			"runs, "+
			"for instance a variable of a package: create everything in Provider.Start.", s.diverged)
	}
	const most = 10
	texts := slices.Sorted(maps.Keys(s.notices))
	for i, text := range texts {
		if i == most {
			s.t.Logf("crashtest: and %d other things failed without a fault", len(texts)-i)
			break
		}
		s.t.Logf("crashtest: this failed without a fault: %s (in %s)", text, strings.Join(s.notices[text], ", "))
	}
}

// replay one case.
func (s *sweep) replay(c testCase) error {
	rs, _, err := s.run()
	if err != nil && !errors.Is(err, errHung) {
		return err
	}
	if len(rs) == 0 {
		return errors.Errorf("crashtest: scenario %s has nothing to replay", c.scenario.Name)
	}
	r := rs[len(rs)-1]
	if r.events == nil {
		r.events = s.execute(c).events
	}
	s.t.Run(c.name(), func(t *testing.T) {
		if len(r.violations) > 0 && !s.accepted(r.ending) {
			t.Error(s.explain(r, r.timeline()))
			return
		}
		accepted := ""
		if len(r.violations) > 0 {
			accepted = ", with an accepted verdict: " + r.violations[0].Text
		}
		t.Logf("%s ends as it should%s\n\n%s", c.name(), accepted, r.timeline())
	})
	return nil
}

// explain a finding.
func (s *sweep) explain(r result, timeline string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", verdicts(r.violations))
	struck := slices.DeleteFunc(slices.Clone(r.events), func(e *history.Event) bool { return e.Fault == "" })
	for i, o := range r.injections {
		n, at := o.Number, o.Want
		if i < len(struck) {
			n, at = struck[i].Number, struck[i].Request.String()
		}
		fmt.Fprintf(&b, "  fault    %s at request %d (%s)\n", o.Fault.Name, n, at)
	}
	said := map[oracle.Verdict]bool{}
	for i, v := range r.violations {
		fmt.Fprintf(&b, "  found    %s\n", cut(v.Text))
		if !said[v.Verdict] && i < len(r.advice) {
			fmt.Fprintf(&b, "  cause    %s\n  remedy   %s\n", r.advice[i].Cause, r.advice[i].Remedy)
		}
		said[v.Verdict] = true
	}
	if r.diverged {
		fmt.Fprintln(
			&b, "  note     The run made another request than the run without a fault. A replay may differ, too.",
		)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(s.t.Name()+"/"+r.name()), "/", "$/^")
	fmt.Fprintf(&b, "  replay   go test -run '^%s$' -v\n", strings.ReplaceAll(pattern, "'", `'\''`))
	if timeline != "" {
		fmt.Fprintf(&b, "\n%s", timeline)
	}
	return b.String()
}

// cut a text of many lines.
func cut(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if n := len(lines); n > longestViolation {
		lines = append(lines[:longestViolation], fmt.Sprintf("… and %d more lines", n-longestViolation))
	}
	return strings.Join(lines, "\n")
}

// verdicts of violations in one text.
func verdicts(vs []oracle.Violation) string {
	var out []string
	for _, v := range vs {
		if !slices.Contains(out, string(v.Verdict)) {
			out = append(out, string(v.Verdict))
		}
	}
	return strings.Join(out, ", ")
}
