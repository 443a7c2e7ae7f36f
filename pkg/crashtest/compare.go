package crashtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// Compare makes the runs of two providers, for instance of one with upstream's
// reconciler and with Graft's, and logs a table: for each scenario, how many runs were
// made and how many had each verdict. Findings of the second provider fail the test as with [Run].
func Compare[A, B Cloud](t *testing.T, before Provider[A], after Provider[B], o ...Option) {
	t.Helper()
	first, err := newSweep(t, before, o)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newSweep(t, after, o)
	if err != nil {
		t.Fatal(err)
	}
	was, _, err := first.run()
	if err != nil {
		t.Fatalf("the first provider: %v", err)
	}
	is, _, err := second.run()
	if err != nil {
		t.Fatalf("the second provider: %v", err)
	}
	t.Logf("Each figure is first : second.\n\n%s", table(was, is))
	second.report(is)
}

// table of the verdicts of two runs.
func table(first, second []result) string {
	type side struct {
		runs     int
		verdicts map[Verdict]int
	}
	rows, order := map[string]*[2]side{}, []string{}
	var total [2]side
	seen := map[Verdict]bool{}

	for i, rs := range [][]result{first, second} {
		for _, r := range rs {
			if rows[r.scenario.Name] == nil {
				rows[r.scenario.Name] = &[2]side{}
				order = append(order, r.scenario.Name)
			}
			had := map[Verdict]bool{}
			for _, s := range []*side{&rows[r.scenario.Name][i], &total[i]} {
				s.runs++
				clear(had)
				for _, v := range r.violations {
					if s.verdicts == nil {
						s.verdicts = map[Verdict]int{}
					}
					if !had[v.Verdict] {
						s.verdicts[v.Verdict]++
					}
					had[v.Verdict], seen[v.Verdict] = true, true
				}
			}
		}
	}

	cells := [][]string{{"scenario", "runs"}}
	var verdicts []Verdict
	for _, e := range oracle.Verdicts() {
		if seen[e] {
			verdicts = append(verdicts, e)
			cells[0] = append(cells[0], string(e))
		}
	}
	row := func(name string, s *[2]side) {
		line := []string{name, fmt.Sprintf("%d : %d", s[0].runs, s[1].runs)}
		for _, v := range verdicts {
			line = append(line, fmt.Sprintf("%d : %d", s[0].verdicts[v], s[1].verdicts[v]))
		}
		cells = append(cells, line)
	}
	for _, name := range order {
		row(name, rows[name])
	}
	row("all", &total)
	return columns(cells)
}

// columns prints cells, each as wide as the widest of its column.
func columns(cells [][]string) string {
	var b strings.Builder
	for _, line := range cells {
		var out []string
		for i, c := range line {
			widest := slices.MaxFunc(cells, func(a, b []string) int { return cmp.Compare(len(a[i]), len(b[i])) })
			out = append(out, fmt.Sprintf("%-*s", len(widest[i]), c))
		}
		fmt.Fprintln(&b, strings.TrimRight(strings.Join(out, "  "), " "))
	}
	return b.String()
}
