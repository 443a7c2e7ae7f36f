// Package text writes for a terminal: trees, tables and colours.
package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// A Style writes in colour, or without.
type Style struct{ Coloured bool }

// Bad is red.
func (s Style) Bad(text string) string { return s.in("31", text) }

// Waiting is yellow.
func (s Style) Waiting(text string) string { return s.in("33", text) }

// Good is green.
func (s Style) Good(text string) string { return s.in("32", text) }

// Strong is bold.
func (s Style) Strong(text string) string { return s.in("1", text) }

func (s Style) in(code, text string) string {
	if !s.Coloured || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// ShellQuote returns s as a shell reads it as one word.
func ShellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-:@=,+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Clean returns text of an object without control characters, which could act on the
// terminal.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// Since says when something began, and how long ago that was.
func Since(t, now time.Time) string {
	return fmt.Sprintf("since %s (%s)", t.UTC().Format(time.RFC3339), Age(t, now))
}

// Age says how long ago a time was.
func Age(t, now time.Time) string { return duration.HumanDuration(now.Sub(t)) }

// A Node of a tree has a title, lines below it, and further nodes.
type Node struct {
	Title string
	Lines []string
	Nodes []Node
}

// WriteTree writes a tree.
func WriteTree(w io.Writer, n Node) { writeNode(w, n, "", "") }

func writeNode(w io.Writer, n Node, first, rest string) {
	fmt.Fprintln(w, first+n.Title)
	stem := "  "
	if len(n.Nodes) > 0 {
		stem = "│ "
	}
	for _, l := range n.Lines {
		fmt.Fprintln(w, strings.TrimRight(rest+stem+l, " "))
	}
	for i, c := range n.Nodes {
		if i == len(n.Nodes)-1 {
			writeNode(w, c, rest+"└─ ", rest+"   ")
			continue
		}
		writeNode(w, c, rest+"├─ ", rest+"│  ")
	}
}

// WriteTable writes rows below a header, in columns.
func WriteTable(w io.Writer, header []string, rows [][]string) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, r := range append([][]string{header}, rows...) {
		cells := make([]string, 0, len(r))
		for _, c := range r {
			cells = append(cells, Clean(c))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for l := range strings.Lines(out.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(l, " \n")); err != nil {
			return err
		}
	}
	return nil
}
