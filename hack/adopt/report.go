package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
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
	more int // Places with the same text that the report doesn't list.
}

func (f finding) row() string {
	place, text := f.path, f.text
	if f.line > 0 {
		place = fmt.Sprintf("%s:%d", f.path, f.line)
	}
	if f.more > 0 {
		text += fmt.Sprintf(" (and %s; -v lists all)", count(f.more, "more place"))
	}
	return place + "\t" + text
}

// An edit is a change of one file.
type edit struct {
	path          string // From the module's root, with slashes.
	before, after []byte
	generated     bool   // A program generated the file.
	remark        string // For go.mod: the requirement.
}

// rank sorts go.mod first, and generated files last.
func (e edit) rank() int {
	switch {
	case e.remark != "":
		return 0
	case e.generated:
		return 2
	default:
		return 1
	}
}

func (e edit) row() string {
	switch {
	case e.generated:
		return e.path + "\tgenerated"
	case e.remark != "":
		return e.path + "\t" + e.remark
	default:
		return e.path
	}
}

// A report lists the changes, and the work that remains for a person.
type report struct {
	module                  string // Module path.
	dryRun, revert, verbose bool

	uses   bool // A file imports the package that files are moved to.
	edits  []edit
	advice []string  // Paragraphs on the changed files.
	left   []finding // For a person to do.
	notes  []finding // For a person to know.
	next   []string  // Commands.
}

func (r *report) leave(path string, line int, format string, args ...any) {
	r.add(&r.left, finding{path: path, line: line, text: fmt.Sprintf(format, args...)})
}

func (r *report) note(path string, line int, text string) {
	r.add(&r.notes, finding{path: path, line: line, text: text})
}

// add a finding to a list, or count it if there is one of the same text and not all are listed.
func (r *report) add(list *[]finding, f finding) {
	same := func(other finding) bool { return other.text == f.text }
	if i := slices.IndexFunc(*list, same); i >= 0 && !r.verbose {
		(*list)[i].more++
		return
	}
	*list = append(*list, f)
}

// print writes the report as plain text.
func (r *report) print(w io.Writer) error {
	slices.SortStableFunc(r.edits, func(a, b edit) int { return cmp.Compare(a.rank(), b.rank()) })
	var out bytes.Buffer
	changed := "changed"
	if r.dryRun {
		changed = "would change"
		for _, e := range r.edits {
			text := string(diff.Diff("a/"+e.path, e.before, "b/"+e.path, e.after))
			_, text, _ = strings.Cut(text, "\n") // The first line is the command diff.
			out.WriteString(text)
		}
		if len(r.edits) > 0 {
			out.WriteByte('\n')
		}
	}
	fmt.Fprintf(&out, "%s: %s\n", r.module, r.summary())

	shown := r.edits
	if !r.verbose {
		shown = shown[:min(len(shown), listed)]
	}
	section(&out, changed, shown, edit.row)
	if rest := len(r.edits) - len(shown); rest > 0 {
		fmt.Fprintf(&out, "  and %d more; -v lists all\n", rest)
	}
	for _, paragraph := range r.advice {
		out.WriteString("\n" + paragraph)
	}
	section(&out, "left for you", r.left, finding.row)
	section(&out, "good to know", r.notes, finding.row)
	section(&out, "next", r.next, func(command string) string { return command })
	if len(r.left) > 0 {
		fmt.Fprintf(&out, "\nexit status %d: %s left for you\n", exitLeft, count(len(r.left), "thing"))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (r *report) summary() string {
	target, moved := "Graft", "moved"
	if r.revert {
		target = "crossplane-runtime"
	}
	if r.dryRun {
		moved = "would move"
	}
	files, generated := 0, 0
	for _, e := range r.edits {
		if e.remark == "" {
			files++
		}
		if e.generated {
			generated++
		}
	}
	switch {
	case files == 0 && len(r.edits) > 0:
		return "only go.mod is to change"
	case files == 0 && r.uses:
		return "nothing to change, it imports " + target + "'s package already"
	case files == 0:
		return "nothing changed: no import can be replaced"
	case generated > 0:
		return fmt.Sprintf("%s %s to %s (%d generated)", count(files, "Go file"), moved, target, generated)
	default:
		return fmt.Sprintf("%s %s to %s", count(files, "Go file"), moved, target)
	}
}

// section prints rows, whose columns are separated by tabs, below a heading.
func section[T any](out io.Writer, heading string, rows []T, row func(T) string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", heading)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(table, "  %s\n", row(r))
	}
	_ = table.Flush() // Into memory.
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
