package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	width = 80

	indent     = 2
	gap        = 2
	whereWidth = 17
	cellWidth  = (width - indent - whereWidth - 2*gap) / 2
)

// A printer prints text for a person.
type printer struct {
	w     io.Writer
	style style
}

// text prints a paragraph.
func (p printer) text(text string) {
	for _, line := range wrap(text, width-indent) {
		p.line(line)
	}
}

// line prints an indented line.
func (p printer) line(text string) {
	fmt.Fprintln(p.w, strings.TrimRight(strings.Repeat(" ", indent)+text, " "))
}

// head prints the head of a table.
func (p printer) head(titles ...string) {
	cells := []string{pad("", whereWidth)}
	for _, t := range titles {
		cells = append(cells, pad(strings.Repeat(" ", markWidth+1)+t, cellWidth))
	}
	p.line(p.style.paint(bold, strings.TrimRight(strings.Join(cells, strings.Repeat(" ", gap)), " ")))
	p.line(p.style.paint(faint, p.style.rule(width-indent)))
}

// row prints a finding of both sides.
func (p printer) row(upstream, graft finding) {
	where := wrap(upstream.Where, whereWidth)
	u, g := p.cell(upstream), p.cell(graft)
	for i := range max(len(where), len(u), len(g)) {
		left := pad("", whereWidth)
		if i < len(where) {
			left = pad(where[i], whereWidth)
		}
		p.line(left + strings.Repeat(" ", gap) + lineOf(u, i) + strings.Repeat(" ", gap) + lineOf(g, i))
	}
}

// cell returns the lines of a cell, each of cellWidth.
func (p printer) cell(f finding) []string {
	lines := wrap(f.Seen, cellWidth-markWidth-1)

	for i, l := range lines {
		mark := strings.Repeat(" ", markWidth)
		if i == 0 {
			mark = p.style.mark(f.Good)
		}
		lines[i] = mark + " " + pad(l, cellWidth-markWidth-1)
	}
	return lines
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return pad("", cellWidth)
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// marked prints a paragraph behind a mark.
func (p printer) marked(good bool, how, text string) {
	for i, l := range wrap(text, width-indent-markWidth-1) {
		mark := strings.Repeat(" ", markWidth)
		if i == 0 {
			mark = p.style.mark(good)
		}
		p.line(mark + " " + p.style.paint(how, l))
	}
}

// wrap breaks a text into lines of at most n characters, where it has line breaks
// and else at spaces, where it can. There is at least one line.
func wrap(text string, n int) []string {
	var lines []string
	for paragraph := range strings.Lines(text) {
		lines = append(lines, wrapParagraph(paragraph, n)...)
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

func wrapParagraph(text string, n int) []string {
	lines := []string{""}

	for _, word := range strings.Fields(text) {
		for {
			last := &lines[len(lines)-1]

			if *last == "" && utf8.RuneCountInString(word) <= n {
				*last = word
				break
			}
			if *last != "" && utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= n {
				*last += " " + word
				break
			}
			if *last != "" {
				lines = append(lines, "")
				continue
			}

			// A word that is longer than a line.
			r := []rune(word)
			*last, word = string(r[:n]), string(r[n:])
			lines = append(lines, "")
		}
	}
	return lines
}

// A style says which characters a terminal can show.
type style struct {
	colour bool
	utf8   bool
}

const (
	red   = "31"
	green = "32"
	bold  = "1"
	faint = "2"
)

// styleOf returns the style for an output: colours on a terminal, if NO_COLOR
// doesn't forbid it, and characters beyond ASCII if the locale has them.
func styleOf(w io.Writer, getenv func(string) string) style {
	return style{
		colour: isTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		utf8:   hasUTF8(getenv),
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// hasUTF8 asks the variables that decide about characters, the first that is set.
func hasUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

func (s style) paint(how, text string) string {
	if !s.colour || how == "" || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

// mark returns a mark for good and for bad. Both are of markWidth.
func (s style) mark(good bool) string {
	switch {
	case good && s.utf8:
		return s.paint(green, "✓")
	case good:
		return s.paint(green, "+")
	case s.utf8:
		return s.paint(red, "✗")
	default:
		return s.paint(red, "x")
	}
}

const markWidth = 1

func (s style) rule(width int) string {
	if s.utf8 {
		return strings.Repeat("─", width)
	}
	return strings.Repeat("-", width)
}
