package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxReconcilesToRest is how many reconciles a process may need, after a fault, to
// bring things to rest. A create that was interrupted is looked up 16 times in ten
// minutes, until its absence is believed, and stored.
const maxReconcilesToRest = 45

// A count is what is counted of one column in one row.
type count struct {
	points, duplicates, leaks, lost, stuck, stopped, misled, reconciles int
}

func (c *count) add(p point, f finding) {
	one := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	c.plus(count{
		one(len(p.at) > 0), one(f.duplicate), one(f.leak), one(f.nameLost), one(f.stuck), one(f.stopped), one(f.misled), f.reconciles,
	})
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

// A row is one life with one kind of client.
type row struct {
	story string
	mode  mode
	kind  clientKind

	sides map[string]*count
}

// A report is what a sweep found.
type report struct {
	rows     []*row
	verdicts []verdictOf
}

// tally the verdicts.
func tally(vs []verdictOf) *report {
	r := &report{verdicts: vs}
	for _, v := range vs {
		r.row(v.point).side(v.point.column.side).add(v.point, v.finding)
	}
	return r
}

func (r *report) row(p point) *row {
	i := slices.IndexFunc(r.rows, func(o *row) bool {
		return o.story == p.story.name && o.mode == p.column.mode && o.kind == p.kind
	})
	if i >= 0 {
		return r.rows[i]
	}
	n := &row{story: p.story.name, mode: p.column.mode, kind: p.kind, sides: map[string]*count{}}
	r.rows = append(r.rows, n)
	return n
}

func (r *row) side(name string) *count {
	if r.sides[name] == nil {
		r.sides[name] = &count{}
	}
	return r.sides[name]
}

// total of one side.
func (r *report) total(side string) count {
	var out count
	for _, o := range r.rows {
		if c := o.sides[side]; c != nil {
			out.plus(*c)
		}
	}
	return out
}

// violates returns how a life with Graft breaks the rules. It returns "" if it does
// not.
func violates(p point, f finding) string {
	switch {
	case f.err != nil:
		return f.err.Error()
	case f.bad():
		return strings.Join(f.why, "; ")
	case f.stopped && !slices.Contains(p.column.mayStop, p.kind.goesBy()):
		return "it waits for an operator, which is not needed: " + strings.Join(f.why, "; ")
	case f.reconciles > maxReconcilesToRest:
		return fmt.Sprintf("%d reconciles to rest, more than %d", f.reconciles, maxReconcilesToRest)
	default:
		return ""
	}
}

// asExpected reports whether Graft did all it has to, and upstream didn't.
func (r *report) asExpected(all bool) bool {
	for _, v := range r.verdicts {
		if v.finding.err != nil || v.point.column.side == graftSide && violates(v.point, v.finding) != "" {
			return false
		}
	}
	u := r.total(upstreamSide)
	return !all || u.duplicates > 0 && u.leaks > 0
}

const (
	storyWidth = 16
	modeWidth  = 5
	kindWidth  = 7
)

// print the table.
func (r *report) print(w io.Writer) {
	heads := []string{"points", "duplicates", "leaks", "names lost", "stuck", "stopped*", "misled†", "reconciles"}
	widths := []int{11, 10, 9, 10, 7, 9, 9, 10}

	line := func(story, mode, kind string, cells []string) {
		parts := []string{left(story, storyWidth), left(mode, modeWidth), left(kind, kindWidth)}
		for i, c := range cells {
			parts = append(parts, centred(c, widths[i]))
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(parts, " "), " "))
	}

	fmt.Fprintf(w, "Each figure is upstream : Graft.\n\n")
	line("life", "mode", "client", heads)
	last := ""
	for _, o := range r.rows {
		name := o.story
		if name == last {
			name = ""
		}
		last = o.story
		line(name, string(o.mode), string(o.kind), pairs(o.sides[upstreamSide], o.sides[graftSide]))
	}

	u, g := r.total(upstreamSide), r.total(graftSide)
	line("all", "", "", pairs(&u, &g))
	fmt.Fprintf(w, "\nGraft is its package managed: sync with WithCreateResolver for the client that is a\n"+
		"finder, and WithDeletionConfirmation for the one that chooses names; async with\n"+
		"WithAsync. Upstream has the same clients; its asynchronous ones are of upjet's shape.\n")
	fmt.Fprintf(w, "\n* Nothing is in progress, and a condition says that an operator has to determine\n"+
		"  the outcome of the create: neither fine nor stuck. Reconciles are the most that\n"+
		"  were needed after a fault.\n"+
		"† The client said of a create that it made nothing, although it did, and can't look\n"+
		"  it up: what it made is left behind, once for each such answer.\n")
}

func pairs(u, g *count) []string {
	none := make([]string, len((&count{}).cells()))
	for i := range none {
		none[i] = "-"
	}

	text := func(c *count) []string {
		if c == nil {
			return none
		}
		out := make([]string, 0, len(none))
		for _, n := range c.cells() {
			out = append(out, fmt.Sprint(n))
		}
		return out
	}

	ut, gt := text(u), text(g)
	out := make([]string, 0, len(ut))
	for i := range ut {
		out = append(out, ut[i]+" : "+gt[i])
	}
	return out
}

// maxExplained is how many lives are named that ended badly.
const maxExplained = 12

// explain names the lives that ended badly, and how to lead them again.
func (r *report) explain(w io.Writer, e environment, all bool) {
	named := 0

	for _, v := range r.verdicts {
		text := violates(v.point, v.finding)
		if text == "" || v.point.column.side != graftSide && !all && v.finding.err == nil {
			continue
		}
		if named++; named > maxExplained && !all {
			continue
		}
		fmt.Fprintf(w, "\n%s %s: %s\n  %s\n", v.point.column.side, v.point.name(), text, v.point.command(e))
	}

	if named > maxExplained && !all {
		fmt.Fprintf(w, "\nand %d more (-v names them all)\n", named-maxExplained)
	}
}

func left(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// centred puts the colon of a pair, or the middle of a word, in the middle.
func centred(s string, n int) string {
	before, after, ok := strings.Cut(s, " : ")
	if !ok {
		return left(strings.Repeat(" ", max(0, (n-utf8.RuneCountInString(s))/2))+s, n)
	}
	half := (n - 1) / 2
	return left(strings.Repeat(" ", max(0, half-1-len(before)))+before+" : "+after, n)
}
