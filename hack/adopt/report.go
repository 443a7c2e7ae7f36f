package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// listed is the number of changed files that a report names unless it is asked
// for all.
const listed = 20

// A finding is something at a place in the module.
type finding struct {
	path string
	line int // 0 if it concerns the whole file.
	text string
}

func (f finding) place() string {
	if f.line == 0 {
		return f.path
	}
	return fmt.Sprintf("%s:%d", f.path, f.line)
}

// A report says what changed, and what didn't.
type report struct {
	module                  string // Module path.
	upjet                   string // The version that go.mod requires, if it does.
	line                    line   // Of Graft, that the provider gets.
	dryRun, revert, verbose bool

	tooOld bool // The provider's crossplane-runtime is, so nothing changes.
	names  bool // Whether some text of the module names upstream's package.

	uses  bool // Whether some file imports the package that is moved to, when all is done.
	edits []edit
	left  []finding // For a person to do.
	notes []finding // For a person to know.
	next  []string  // Commands.
}

func (r *report) leave(path string, line int, text string) {
	r.left = append(r.left, finding{path: path, line: line, text: text})
}

func (r *report) note(path string, line int, text string) {
	r.notes = append(r.notes, finding{path: path, line: line, text: text})
}

// print writes the report as plain text.
func (r *report) print(w io.Writer) error {
	var out bytes.Buffer
	if r.dryRun {
		for _, e := range r.edits {
			out.WriteString(unified(e.path, e.before, e.after))
		}
		if len(r.edits) > 0 {
			out.WriteByte('\n')
		}
	}
	fmt.Fprintf(&out, "%s: %s\n", r.module, r.summary())
	r.printEdits(&out)
	printFindings(&out, "left for you", r.left)
	printFindings(&out, "good to know", r.grouped(r.notes))
	if len(r.next) > 0 {
		out.WriteString("\nnext\n")
		for _, c := range r.next {
			fmt.Fprintf(&out, "  %s\n", c)
		}
	}
	if len(r.left) > 0 {
		fmt.Fprintf(&out, "\nexit status %d: %s left for you\n", exitLeft, count(len(r.left), "thing"))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (r *report) summary() string {
	target := "Graft"
	if r.revert {
		target = "crossplane-runtime"
	}
	var moved, trackers, generated int
	for _, e := range r.edits {
		switch {
		case e.moved:
			moved++
		case e.remark == "":
			trackers++
		}
		if e.generated {
			generated++
		}
	}
	switch {
	case r.tooOld:
		return "nothing changed, crossplane-runtime has to be raised first"
	case moved+trackers == 0 && len(r.edits) > 0:
		return "only go.mod is to change"
	case len(r.edits) == 0 && r.uses:
		return "nothing to change, it imports " + target + "'s package already"
	case len(r.edits) == 0:
		return "nothing changed: no import can be replaced"
	}

	var parts []string
	if moved > 0 {
		parts = append(parts, count(moved, "Go file")+" "+r.would("moved", "move")+" to "+target)
	}
	if trackers > 0 {
		s := "usage trackers of " + count(trackers, "Go file") + " " + r.would("replaced", "be replaced")
		if moved > 0 {
			s = "usage trackers of " + count(trackers, "other Go file") + " " + r.would("replaced", "be replaced")
		}
		parts = append(parts, s+" by "+target+"'s")
	}
	s := strings.Join(parts, ", ")
	if generated > 0 {
		s += fmt.Sprintf(" (%d generated)", generated)
	}
	return s
}

// would returns what was done, or would be in a dry run.
func (r *report) would(done, verb string) string {
	if r.dryRun {
		return "would " + verb
	}
	return done
}

func (r *report) printEdits(out *bytes.Buffer) {
	if len(r.edits) == 0 {
		return
	}
	// go.mod first, then what people wrote, then what programs wrote.
	edits := slices.Clone(r.edits)
	rank := func(e edit) int {
		switch {
		case e.remark != "":
			return 0
		case !e.generated:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.path, b.path))
	})
	heading := "changed"
	if r.dryRun {
		heading = "would change"
	}
	fmt.Fprintf(out, "\n%s\n", heading)
	shown := len(edits)
	if !r.verbose {
		shown = min(shown, listed)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, e := range edits[:shown] {
		remark := e.remark
		if e.generated {
			remark = "generated"
		}
		if remark == "" {
			fmt.Fprintf(table, "  %s\n", e.path)
			continue
		}
		fmt.Fprintf(table, "  %s\t%s\n", e.path, remark)
	}
	_ = table.Flush() // Into memory.
	if rest := len(edits) - shown; rest > 0 {
		fmt.Fprintf(out, "  and %d more; -v lists all\n", rest)
	}
	if r.revert {
		return
	}
	if slices.ContainsFunc(edits, func(e edit) bool { return e.upjet }) {
		out.WriteString("\n" + upjetAdvice(r.upjet, r.line))
	}
	if r.names && slices.ContainsFunc(edits, func(e edit) bool { return e.generated && !e.upjet }) {
		out.WriteString("\n  Generated files come back with upstream's import if their generator writes it.\n" +
			"  The places in this module that name it are listed below: change them, or run\n" +
			"  adopt as the last step of make generate.\n")
	}
}

// grouped returns findings with those of one text made one, unless all are asked for.
func (r *report) grouped(findings []finding) []finding {
	if r.verbose {
		return findings
	}
	var first []finding
	more := map[string]int{}
	for _, f := range findings {
		if !slices.ContainsFunc(first, func(g finding) bool { return g.text == f.text }) {
			first = append(first, f)
			continue
		}
		more[f.text]++
	}
	for i, f := range first {
		if n := more[f.text]; n > 0 {
			first[i].text += fmt.Sprintf(" (and %s; -v lists all)", count(n, "more place"))
		}
	}
	return first
}

func printFindings(out *bytes.Buffer, heading string, findings []finding) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", heading)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(table, "  %s\t%s\n", f.place(), f.text)
	}
	_ = table.Flush() // Into memory.
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
