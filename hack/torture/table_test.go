package torture

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// defaultLag is how long the cloud hides new resources.
const defaultLag = 20 * time.Second

// A count is the account of one row on one side: a figure for each column of the table.
type count [7]int

// A tally is a column of the table, which counts runs.
type tally struct {
	title string
	has   func(v verdictOf) bool
}

func tallies() []tally {
	return []tally{
		{"points", func(v verdictOf) bool { return !strings.HasSuffix(v.result.Name, "/undisturbed") }},
		{"duplicates", func(v verdictOf) bool { return v.has(crashtest.SecondResource) && !v.misled() }},
		{"leaks", func(v verdictOf) bool { return v.has(crashtest.Leak) && !v.misled() }},
		{"names lost", func(v verdictOf) bool { return v.has(crashtest.LostName) }},
		{"stuck", func(v verdictOf) bool {
			// A violation that has no other column.
			return slices.ContainsFunc(v.result.Violations, func(o crashtest.Violation) bool {
				return !slices.Contains([]crashtest.Verdict{
					crashtest.SecondResource, crashtest.Leak, crashtest.LostName, crashtest.Stopped,
					crashtest.InvariantBroken,
				}, o.Verdict)
			})
		}},
		{"stopped*", func(v verdictOf) bool { return v.has(crashtest.Stopped) }},
		{"misled†", verdictOf.misled},
	}
}

// A verdictOf a run is its result.
type verdictOf struct {
	row    row
	side   string
	seed   uint64
	result *crashtest.Result
}

// name of the run, its client and its faults.
func (v verdictOf) name() string {
	_, faults, _ := strings.Cut(v.result.Name, "/")
	return v.row.name() + "/" + faults
}

func (v verdictOf) has(verdict crashtest.Verdict) bool {
	return slices.ContainsFunc(v.result.Violations, func(o crashtest.Violation) bool { return o.Verdict == verdict })
}

// misled reports whether a create succeeded, its answer said that it failed, and the client
// can't look it up: a token belongs to the create that failed, the blind client has none, and
// a cloud that is late hides the resource from a Finder and under its name. No provider can
// prevent that.
func (v verdictOf) misled() bool {
	k := v.row.kind.goesBy()
	return v.has(crashtest.InvariantBroken) &&
		(k == tokenClient || k == blindClient || v.row.lag > 0)
}

// bad returns how the run breaks the rules. It returns "" if it does not.
func (v verdictOf) bad() string {
	var out []string
	for _, o := range v.result.Violations {
		switch o.Verdict {
		case crashtest.InvariantBroken:
			continue
		case crashtest.SecondResource, crashtest.Leak:
			if v.misled() {
				continue
			}
		case crashtest.Stopped:
			if v.row.mayStop(v.side) {
				continue
			}
		}
		out = append(out, string(o.Verdict)+": "+o.Text)
	}
	return strings.Join(out, "; ")
}

// command that makes this run again.
func (v verdictOf) command() string {
	parts := []string{"TestTorture", v.row.name(), v.side, v.result.Name}
	c := "go test -tags torture -v ./torture -run '^" + strings.ReplaceAll(strings.Join(parts, "/"), "/", "$/^") + "$'"
	if v.row.lag > 0 {
		return fmt.Sprintf("%s -args -seed %d -lag %s", c, v.seed, v.row.lag)
	}
	return fmt.Sprintf("%s -args -seed %d", c, v.seed)
}

// makeRuns makes the runs of a row with the reconciler of a side. It shows a run that is alone.
func makeRuns(t *testing.T, r row, side string, seed uint64, o ...crashtest.Option) []verdictOf {
	t.Helper()
	results, err := crashtest.Results(t, r.provider(side, seed), append(o, crashtest.Seed(seed))...)
	if err != nil {
		t.Fatalf("%s %s: %v", side, r.name(), err)
	}
	out := make([]verdictOf, len(results))
	for i, res := range results {
		out[i] = verdictOf{row: r, side: side, seed: seed, result: res}
	}
	if len(out) == 1 {
		t.Logf("%s: %s\n%s", out[0].name(), out[0].bad(), results[0].Timeline())
	}
	return out
}

// A report has the results of a run.
type report struct {
	rows   []row
	counts map[string]count // By side and row. A side alone has its total.
	bad    []verdictOf
}

// add the result of a run.
func (r *report) add(v verdictOf) {
	if !slices.ContainsFunc(r.rows, func(o row) bool { return o.name() == v.row.name() }) {
		r.rows = append(r.rows, v.row)
	}
	for _, key := range []string{v.side, v.side + v.row.name()} {
		c := r.counts[key]
		for i, t := range tallies() {
			if t.has(v) {
				c[i]++
			}
		}
		r.counts[key] = c
	}
	if v.bad() != "" {
		r.bad = append(r.bad, v)
	}
}

// asExpected reports whether each run ended well with Graft, and some didn't without.
func (r *report) asExpected(all bool) bool {
	isGraft := func(v verdictOf) bool { return v.side == graftSide }
	fails := func(verdict crashtest.Verdict) bool {
		return slices.ContainsFunc(r.bad, func(v verdictOf) bool {
			return !isGraft(v) && v.has(verdict) && !v.misled()
		})
	}
	return !slices.ContainsFunc(r.bad, isGraft) && (!all || fails(crashtest.SecondResource) && fails(crashtest.Leak))
}

// print the table.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "Each figure is upstream : Graft.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "scenario\tmode\tclient")
	for _, t := range tallies() {
		fmt.Fprint(w, "\t", t.title)
	}
	fmt.Fprintln(w)
	line := func(row, scenario, mode, client string) {
		fmt.Fprintf(w, "%s\t%s\t%s", scenario, mode, client)
		graft := r.counts[graftSide+row]
		for i, upstream := range r.counts[upstreamSide+row] {
			fmt.Fprintf(w, "\t%d : %d", upstream, graft[i])
		}
		fmt.Fprintln(w)
	}
	for i, o := range r.rows {
		name := o.scenario.Name
		if i > 0 && r.rows[i-1].scenario.Name == name {
			name = ""
		}
		line(o.name(), name, string(o.mode), string(o.kind))
	}
	line("", "all", "", "")
	_ = w.Flush()
	fmt.Fprint(out, notes)
}

const notes = `
Graft is its package managed: sync with resolve.With for the client that is a
finder, async with asyncstate.With. Upstream has the same clients; its asynchronous ones are
of upjet's shape. In runs that end in late the cloud hides new resources for a while.
In those that end in throttled it answers the first creates with 429, and Graft has
ratelimit.With.

* Nothing is in progress, and a condition says that an operator has to determine
  the outcome of the create: neither fine nor stuck.
† The client said of a create that it made nothing, although it did, and can't look
  it up, or the cloud hides it: it is left behind, once for each such answer.
`

// explain names the runs that ended badly with Graft, and how to make them again. Of upstream's the first is named.
func (r *report) explain(w io.Writer) {
	const most = 12
	n, upstream := 0, 0
	for _, v := range r.bad {
		if v.side == graftSide {
			n++
		} else {
			upstream++
		}
		if v.side == graftSide && n <= most || v.side != graftSide && upstream == 1 {
			fmt.Fprintf(w, "\n%s %s: %s\n  %s\n", v.side, v.name(), v.bad(), v.command())
		}
	}
	if n > most {
		fmt.Fprintf(w, "\nand %d more\n", n-most)
	}
}
