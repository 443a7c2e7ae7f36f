package crashtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// Compare makes the runs of two providers, for instance of one with upstream's
// reconciler and with Graft's, and logs a table: for each scenario, how many runs were
// made and how many had each verdict. Findings of the second provider fail the test as with [Run].
func Compare[A, B Cloud](t *testing.T, before Provider[A], after Provider[B], o ...Option) {
	t.Helper()
	first, err := Results(t, before, o...)
	if err != nil {
		t.Fatalf("the first provider: %v", err)
	}
	s, err := newSweep(t, after, o)
	if err != nil {
		t.Fatalf("the second provider: %v", err)
	}
	second, _, err := s.run()
	if err != nil {
		t.Fatalf("the second provider: %v", err)
	}
	t.Logf("Each figure is first : second.\n\n%s", table(first, second))
	s.report(second)
}

// table of the verdicts of two providers.
func table(first, second []*Result) string {
	const all = "all"
	scenarios, seen := []string{}, []Violation{}
	for _, r := range slices.Concat(first, second) {
		if !slices.Contains(scenarios, r.scenario.Name) {
			scenarios = append(scenarios, r.scenario.Name)
		}
		seen = append(seen, r.Violations...)
	}
	count := func(rs []*Result, scenario string, v Verdict) (n int) {
		for _, r := range rs {
			if (scenario == all || scenario == r.scenario.Name) && (v == "" || oracle.Has(r.Violations, v)) {
				n++
			}
		}
		return n
	}
	columns := []Verdict{""} // The runs.
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "scenario\truns")
	for _, v := range oracle.Verdicts() {
		if oracle.Has(seen, v) {
			columns = append(columns, v)
			fmt.Fprint(w, "\t", v)
		}
	}
	for _, scenario := range append(scenarios, all) {
		fmt.Fprint(w, "\n", scenario)
		for _, v := range columns {
			fmt.Fprintf(w, "\t%d : %d", count(first, scenario, v), count(second, scenario, v))
		}
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	return b.String()
}
