package crashtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

const (
	// maxDetailed is how many findings are shown with a timeline, maxShown how many are shown at all.
	maxDetailed = 5
	maxShown    = 25

	// maxNotices is how many notices are shown, maxLines how many lines of a violation, for instance of a stack.
	maxNotices = 10
	maxLines   = 30
)

// Run makes the runs of a provider's scenarios, with faults. Each finding fails a
// subtest, whose name replays that run alone. A pattern of -run selects runs by their names, also those of [Results]
// and [Compare]; it must not list alternatives that differ in their number of slashes.
//
// Run ends the test at once if a run is not possible, for instance because the provider
// is not complete. It must not be called in a bubble of testing/synctest.
func Run[C Cloud](t *testing.T, p Provider[C], o ...Option) {
	t.Helper()
	began := time.Now()
	s, err := newSweep(t, p, o)
	if err != nil {
		t.Fatal(err)
	}
	results, places, err := s.run()
	s.report(results)
	if err != nil {
		t.Fatal(err)
	}
	s.notice(results)
	t.Logf(
		"crashtest: made %d runs; one fault can strike in %d places; %s",
		len(results), places, time.Since(began).Round(100*time.Millisecond),
	)
}

// report fails a subtest for each finding. A run that is alone is shown even if it is none.
func (s *sweep) report(results []*Result) {
	shown, accepted, known, sums := 0, 0, map[string]string{}, map[string]int{}
	for _, r := range results {
		if s.accepts(r) {
			if len(r.Violations) > 0 {
				accepted++
			}
			if len(results) == 1 && s.only != "" {
				s.t.Logf("%s ends as it should, or is accepted: %s\n\n%s", r.Name, verdicts(r.Violations), r.Timeline())
			}
			continue
		}
		group := r.scenario.Name + ": " + verdicts(r.Violations)
		sums[group]++
		first, again := known[group]
		if shown++; shown > maxShown {
			continue
		}
		text := fmt.Sprintf("%s, as in %s", history.Short(r.Violations[0].Text), first)
		if !again {
			known[group] = r.Name
			text = s.explain(r, len(known) <= maxDetailed && !r.hung)
		}
		ran := false
		s.t.Run(r.Name, func(t *testing.T) {
			t.Helper()
			ran = true
			t.Error(text)
		})
		if !ran { // The pattern of -run does not select it, but the run without a fault is wrong already.
			s.t.Error(text)
		}
	}
	if accepted > 0 {
		s.t.Logf("crashtest: %d runs ended with a verdict of Provider.Accept", accepted)
	}
	if slices.ContainsFunc(results, func(r *Result) bool { return r.hung }) {
		s.t.Log("crashtest: the test ends early, because a run hangs")
	}
	if shown > 1 {
		var b strings.Builder
		fmt.Fprintf(&b, "crashtest: %d findings, of which %d are shown above", shown, min(shown, maxShown))
		for _, k := range slices.Sorted(maps.Keys(sums)) {
			fmt.Fprintf(&b, "\n  %4d  %s", sums[k], k)
		}
		s.t.Error(b.String())
	}
}

// notice logs remarks for the author that fail nothing.
func (s *sweep) notice(results []*Result) {
	diverged := slices.DeleteFunc(slices.Clone(results), func(r *Result) bool { return !r.diverged })
	if len(diverged) > 0 {
		s.t.Logf("crashtest: %d runs made another request than the run without a fault before the fault struck. A "+
			"replay may differ, too. The provider ranges over a map, draws random names, or shares state between "+
			"runs, for instance a variable of a package: create everything in Provider.Start.", len(diverged))
	}
	texts := slices.Sorted(maps.Keys(s.notices))
	for _, text := range texts[:min(len(texts), maxNotices)] {
		s.t.Logf("crashtest: this failed without a fault: %s (in %s)", text, strings.Join(s.notices[text], ", "))
	}
	if n := len(texts) - maxNotices; n > 0 {
		s.t.Logf("crashtest: and %d other things failed without a fault", n)
	}
}

// explain a finding.
func (s *sweep) explain(r *Result, detailed bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", verdicts(r.Violations))
	timeline := ""
	if detailed {
		timeline = "\n" + r.Timeline()
	}
	struck := slices.DeleteFunc(slices.Clone(r.events), func(e *history.Event) bool { return e.Fault == "" })
	for i, o := range r.injections {
		n, at := o.Number, o.Want
		if i < len(struck) {
			n, at = struck[i].Number, struck[i].Request.String()
		}
		fmt.Fprintf(&b, "  fault    %s at request %d (%s)\n", o.Fault.Name, n, at)
	}
	said := map[Verdict]bool{}
	for i, v := range r.Violations {
		lines := strings.Split(strings.TrimRight(v.Text, "\n"), "\n")
		if n := len(lines) - maxLines; n > 0 {
			lines = append(lines[:maxLines], fmt.Sprintf("… and %d more lines", n))
		}
		fmt.Fprintf(&b, "  found    %s\n", strings.Join(lines, "\n"))
		if !said[v.Verdict] && i < len(r.advice) {
			fmt.Fprintf(&b, "  cause    %s\n  remedy   %s\n", r.advice[i].Cause, r.advice[i].Remedy)
		}
		said[v.Verdict] = true
	}
	if r.diverged {
		fmt.Fprintln(&b, "  note     It made another request than the run without a fault. A replay may differ, too.")
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(s.t.Name()+"/"+r.Name), "/", "$/^")
	fmt.Fprintf(&b, "  replay   go test -run '^%s$' -v\n%s", strings.ReplaceAll(pattern, "'", `'\''`), timeline)
	return b.String()
}

// verdicts of violations in one text.
func verdicts(vs []Violation) string {
	var out []string
	for _, v := range oracle.Verdicts() {
		if oracle.Has(vs, v) {
			out = append(out, string(v))
		}
	}
	return strings.Join(out, ", ")
}
