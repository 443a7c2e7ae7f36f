// Package text writes for a terminal: times, tables and colours.
package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

// A Colour is the code with which a terminal begins it.
type Colour string

// Colours of states and names.
const (
	Strong  Colour = "1"
	Bad     Colour = "31"
	Good    Colour = "32"
	Waiting Colour = "33"
)

// ShellQuote returns s as a shell reads it as one word. The result has only characters that a terminal shows, and no two
// spaces side by side: neither Clean nor the form of a message changes it.
func ShellQuote(s string) string {
	if strings.Contains(s, "  ") || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		var out strings.Builder
		for _, r := range s {
			switch {
			case r == '\'' || r == '\\':
				out.WriteString(`\` + string(r))
			case r != ' ' && unicode.IsPrint(r):
				out.WriteRune(r)
			default:
				for _, b := range []byte(string(r)) {
					fmt.Fprintf(&out, `\x%02x`, b)
				}
			}
		}
		return "$'" + out.String() + "'"
	}
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-:@=,+"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Clean replaces characters that could act on the terminal or change the direction of the text by spaces.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

// Since says when something began, and how long ago that was.
func Since(t, now time.Time) string { return fmt.Sprintf("since %s (%s)", Stamp(t), Age(t, now)) }

// Age says how long ago a time was.
func Age(t, now time.Time) string { return duration.HumanDuration(now.Sub(t)) }

// Stamp says when something is, as the API server does.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// WriteTable writes rows in columns, without spaces at the ends of lines.
func WriteTable(w io.Writer, rows [][]string) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		for _, cell := range r {
			fmt.Fprint(t, Clean(cell)+"\t")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.Split(out.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}
