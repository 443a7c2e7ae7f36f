package main

import (
	"fmt"
	"io"
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

// A printer prints what a person reads.
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

// row prints what was found in one place on both sides.
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
