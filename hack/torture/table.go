package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// A count is the account of one row on one side.
type count struct {
	points, duplicates, leaks, lost, stuck, stopped, misled, reconciles int
}

func (c *count) plus(o count) {
	c.points += o.points
	c.duplicates += o.duplicates
	c.leaks += o.leaks
	c.lost += o.lost
	c.stuck += o.stuck
	c.stopped += o.stopped
	c.misled += o.misled
	c.reconciles = max(c.reconciles, o.reconciles)
}

func (c *count) cells() []int {
	return []int{c.points, c.duplicates, c.leaks, c.lost, c.stuck, c.stopped, c.misled, c.reconciles}
}

// A verdictOf a life is its result.
type verdictOf struct {
	row    row
	column column
	seed   uint64
	result crashtest.Result
}

// name of the life, its client and its faults.
func (v verdictOf) name() string {
	_, faults, _ := strings.Cut(v.result.Name, "/")
	return v.row.name() + "/" + faults
}

func (v verdictOf) has(verdicts ...crashtest.Verdict) bool {
	return slices.ContainsFunc(
		v.result.Violations, func(o crashtest.Violation) bool { return slices.Contains(verdicts, o.Verdict) },
	)
}

// misled reports whether a create succeeded, its answer said that it failed, and the client
// can't look it up: a token belongs to the create that failed, the blind client has none,
// and a look-up at once finds nothing in a cloud that is late. No provider can prevent that.
func (v verdictOf) misled() bool {
	k := v.row.kind.goesBy()
	return v.has(crashtest.InvariantBroken) &&
		(k == tokenClient || k == blindClient || k == finderClient && v.row.life.lag > 0)
}

// count of one life.
func (v verdictOf) count() count {
	one := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return count{
		points:     one(!strings.HasSuffix(v.result.Name, "/undisturbed")),
		duplicates: one(v.has(crashtest.SecondResource) && !v.misled()),
		leaks:      one(v.has(crashtest.Leak) && !v.misled()),
		lost:       one(v.has(crashtest.LostName)),
		stuck:      one(len(v.others()) > 0),
		stopped:    one(v.has(crashtest.Stopped)),
		misled:     one(v.misled()),
		reconciles: v.result.Reconciles,
	}
}

// others returns the violations that have no column of their own.
func (v verdictOf) others() []crashtest.Violation {
	own := []crashtest.Verdict{
		crashtest.SecondResource, crashtest.Leak, crashtest.LostName, crashtest.Stopped, crashtest.InvariantBroken,
	}
	return slices.DeleteFunc(
		slices.Clone(v.result.Violations), func(o crashtest.Violation) bool { return slices.Contains(own, o.Verdict) },
	)
}

// bad returns how the life breaks the rules. It returns "" if it does not.
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
			if slices.Contains(v.column.mayStop, v.row.kind.goesBy()) {
				continue
			}
		}
		out = append(out, string(o.Verdict)+": "+o.Text)
	}
	return strings.Join(out, "; ")
}

// command that leads this life again.
func (v verdictOf) command() string {
	c := "go run ./torture -replay " + v.name()
	if v.column.side != graftSide {
		c += " -side " + v.column.side
	}
	if v.row.life.lag > 0 {
		c += " -lag " + v.row.life.lag.String()
	}
	return fmt.Sprintf("%s -seed %d", c, v.seed)
}

// A report has the results of a run.
type report struct {
	rows  []row
	sides map[string]map[string]*count // By side and row.
	bad   []verdictOf
}

func newReport() *report {
	return &report{sides: map[string]map[string]*count{upstreamSide: {}, graftSide: {}}}
}

// add the result of a life.
func (r *report) add(v verdictOf) {
	if !slices.ContainsFunc(r.rows, func(o row) bool { return o.name() == v.row.name() }) {
		r.rows = append(r.rows, v.row)
	}
	side := r.sides[v.column.side]
	if side[v.row.name()] == nil {
		side[v.row.name()] = &count{}
	}
	side[v.row.name()].plus(v.count())
	if v.bad() != "" {
		r.bad = append(r.bad, v)
	}
}

// total of one side.
func (r *report) total(side string) *count {
	out := &count{}
	for _, c := range r.sides[side] {
		out.plus(*c)
	}
	return out
}

// asExpected reports whether each life ended well with Graft, and some didn't without.
func (r *report) asExpected(all bool) bool {
	u := r.total(upstreamSide)
	isGraft := func(v verdictOf) bool { return v.column.side == graftSide }
	return !slices.ContainsFunc(r.bad, isGraft) && (!all || u.duplicates > 0 && u.leaks > 0)
}

// print the table.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "Each figure is upstream : Graft.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(life, mode, kind string, u, g *count) {
		cells := []string{life, mode, kind}
		us, gs := u.cells(), g.cells()
		for i := range us {
			cells = append(cells, fmt.Sprintf("%d : %d", us[i], gs[i]))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintln(w, "life\tmode\tclient\tpoints\tduplicates\tleaks\tnames lost\tstuck\tstopped*\tmisled†\treconciles")
	last := ""
	for _, o := range r.rows {
		name := o.life.Name
		if name == last {
			name = ""
		}
		last = o.life.Name
		line(name, string(o.mode), string(o.kind), r.side(upstreamSide, o), r.side(graftSide, o))
	}
	line("all", "", "", r.total(upstreamSide), r.total(graftSide))
	_ = w.Flush()
	fmt.Fprint(out, notes)
}

func (r *report) side(name string, o row) *count {
	if c := r.sides[name][o.name()]; c != nil {
		return c
	}
	return &count{}
}

const notes = `
Graft is its package managed: sync with WithCreateResolver for the client that is a
finder, and WithDeletionConfirmation for the one that chooses names; async with
WithAsync. Upstream has the same clients; its asynchronous ones are of upjet's shape.
In lives that end in late the cloud hides new resources for a while. In those that end in
throttled it answers the first creates with 429, and Graft has WithRateLimits.

* Nothing is in progress, and a condition says that an operator has to determine
  the outcome of the create: neither fine nor stuck. Reconciles are the most that
  were needed after a fault.
† The client said of a create that it made nothing, although it did, and can't look
  it up: what it made is left behind, once for each such answer.
`

// maxExplained is how many lives are named that ended badly.
const maxExplained = 12

// explain names the lives that ended badly, and how to lead them again.
func (r *report) explain(w io.Writer, all bool) {
	named := 0
	for _, v := range r.bad {
		if v.column.side != graftSide && !all {
			continue
		}
		if named++; named <= maxExplained || all {
			fmt.Fprintf(w, "\n%s %s: %s\n  %s\n", v.column.side, v.name(), v.bad(), v.command())
		}
	}
	if named > maxExplained && !all {
		fmt.Fprintf(w, "\nand %d more (-v names them all)\n", named-maxExplained)
	}
}
