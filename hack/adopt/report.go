package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/diff"
)

// Exit statuses; usage says when.
const (
	exitDone   = 0
	exitLeft   = 1
	exitFailed = 2
)

// listed is the number of changed files that a report names without -v.
const listed = 20

// A finding is a message about a place in the module.
type finding struct {
	path string
	line int // 0 for the whole file.
	text string
}

func (f finding) place() string {
	if f.line == 0 {
		return f.path
	}
	return fmt.Sprintf("%s:%d", f.path, f.line)
}

// An edit is a change of one file.
type edit struct {
	path          string // From the module's root, with slashes.
	mode          fs.FileMode
	before, after []byte
	moved         bool   // The import path changes.
	generated     bool   // A program generated the file.
	remark        string // For go.mod: the requirement.
}

// A report lists the changes, and the work that remains for a person.
type report struct {
	module                  string // Module path.
	dryRun, revert, verbose bool

	tooOld bool // The provider's crossplane-runtime is older than all lines.

	uses   bool // A file imports the package that files are moved to.
	edits  []edit
	advice []string  // Paragraphs on the changed files.
	left   []finding // For a person to do.
	notes  []finding // For a person to know.
	next   []string  // Commands.
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
			out.WriteString(unified(e))
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

// would returns the verb for a run, or for a dry run.
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
	// go.mod first, generated files last.
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
	edits := slices.SortedStableFunc(slices.Values(r.edits), func(a, b edit) int {
		return cmp.Compare(rank(a), rank(b))
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
		switch {
		case e.generated:
			fmt.Fprintf(table, "  %s\tgenerated\n", e.path)
		case e.remark != "":
			fmt.Fprintf(table, "  %s\t%s\n", e.path, e.remark)
		default:
			fmt.Fprintf(table, "  %s\n", e.path)
		}
	}
	_ = table.Flush() // Into memory.
	if rest := len(edits) - shown; rest > 0 {
		fmt.Fprintf(out, "  and %d more; -v lists all\n", rest)
	}
	for _, paragraph := range r.advice {
		out.WriteString("\n" + paragraph)
	}
}

// unified returns an edit in the form that patch reads.
func unified(e edit) string {
	text := string(diff.Diff("a/"+e.path, e.before, "b/"+e.path, e.after))
	_, text, _ = strings.Cut(text, "\n") // The first line is the command diff.
	return text
}

// grouped returns findings with one for each text, unless the report is verbose.
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
