package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// width of a line. Rows are indented, and have gaps between their cells.
	width  = 80
	indent = 2
	gap    = 2

	// How text looks on a terminal.
	red   = "31"
	green = "32"
	bold  = "1"
	faint = "2"
)

// A printer prints text for a person.
type printer struct {
	w               io.Writer
	colour          bool   // Whether the output can show colours.
	good, bad, line string // Two marks, and a piece of a line.
}

// newPrinter returns a printer that uses colours on a terminal, if NO_COLOR doesn't forbid
// it, and characters beyond ASCII if the locale has them.
func newPrinter(w io.Writer, getenv func(string) string) printer {
	p := printer{w: w, good: "+", bad: "x", line: "-"}
	file, ok := w.(*os.File)
	p.colour = ok && term.IsTerminal(int(file.Fd())) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	if strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
		p.good, p.bad, p.line = "✓", "✗", "─"
	}
	return p
}

func (p printer) paint(how, text string) string {
	if !p.colour || how == "" || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

// A cell of a row. Its text is wrapped in its width, beside a mark if it has one.
type cell struct {
	text, how string
	width     int
	mark      string
}

// row prints cells beside each other.
func (p printer) row(cells ...cell) {
	lines, most := make([][]string, len(cells)), 0
	for i, c := range cells {
		lines[i] = wrap(c.text, c.width)
		most = max(most, len(lines[i]))
	}
	for n := range most {
		out := strings.Repeat(" ", indent)
		for i, c := range cells {
			if c.mark != "" {
				out += c.mark + " "
				cells[i].mark = " " // The mark is beside the first line.
			}
			text := ""
			if n < len(lines[i]) {
				text = lines[i][n]
			}
			out += p.paint(c.how, text) + strings.Repeat(" ", gap+c.width-utf8.RuneCountInString(text))
		}
		fmt.Fprintln(p.w, strings.TrimRight(out, " "))
	}
}

// text prints a paragraph.
func (p printer) text(how, text string) { p.row(cell{text: text, how: how, width: width - indent}) }

// marked prints a paragraph behind a mark.
func (p printer) marked(good bool, how, text string) {
	p.row(cell{text: text, how: how, width: width - indent - 2, mark: p.mark(good)})
}

func (p printer) mark(good bool) string {
	if good {
		return p.paint(green, p.good)
	}
	return p.paint(red, p.bad)
}

// wrap breaks a text into lines of at most n characters, where it has line breaks
// and else at spaces, where it can. There is at least one line.
func wrap(text string, n int) []string {
	if utf8.RuneCountInString(text) <= n && !strings.Contains(text, "\n") {
		return []string{text}
	}
	var lines []string
	for paragraph := range strings.Lines(text) {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > n {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
			for r := []rune(line); len(r) > n; r = []rune(line) { // A word that is longer than a line.
				lines, line = append(lines, string(r[:n])), string(r[n:])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// beside prints a row with a cell for each side.
func (p printer) beside(label, u, g cell) {
	u.width = (width-indent-label.width-2*gap)/2 - 2
	g.width = u.width
	p.row(label, u, g)
}

// header prints the titles of a table, over a line.
func (p printer) header(label cell, upstream, graft string) {
	p.beside(label, cell{text: upstream, how: bold, mark: " "}, cell{text: graft, how: bold, mark: " "})
	p.text(faint, strings.Repeat(p.line, width-indent))
}

// overview prints a line for each story.
func (p printer) overview(upstream string, all report) {
	const label = 35
	p.text("", "What goes wrong with "+upstream+", and with Graft. On an API server in memory.")
	fmt.Fprintln(p.w)
	p.header(cell{text: "story", how: bold, width: label}, "upstream", "Graft")
	var shapes []string
	for _, r := range all.stories {
		name := r.name
		if r.upstream.title != upstream {
			name, shapes = name+" *", append(shapes, r.name+": "+r.upstream.title)
		}
		p.beside(cell{text: name, width: label}, p.outcome(r.upstream), p.outcome(r.graft))
		p.problems(r)
	}
	fmt.Fprintln(p.w)
	if len(shapes) > 0 {
		p.text("", "* Not upstream's own code, which is internal to Crossplane or to clusterctl, but code of its "+
			"shape. "+strings.Join(shapes, ", ")+".")
		fmt.Fprintln(p.w)
	}
	p.text("", "See one: make demo STORY="+all.stories[0].name)
	fmt.Fprintln(p.w)
	p.verdict(all)
}

// outcome says in a word or two how a story ended, and whether well.
func (p printer) outcome(c column) cell {
	short, good := "failed", len(c.findings) > 0
	for _, f := range c.findings {
		good = good && f.good
		if f.short != "" {
			short = f.short
		}
	}
	return cell{text: short, mark: p.mark(good)}
}

func (p printer) problems(r result) {
	for _, problem := range r.problems {
		p.marked(false, "", problem)
	}
}

// details prints stories: the timelines of a user, and the findings.
func (p printer) details(all report) {
	const label = 17
	for _, r := range all.stories {
		p.text(bold, r.name)
		p.text("", r.about)
		fmt.Fprintln(p.w)
		p.timeline(r.upstream)
		p.timeline(r.graft)
		if n := len(r.graft.findings); n > 0 && n == len(r.upstream.findings) {
			p.header(cell{width: label}, r.upstream.title, r.graft.title)
			for i, u := range r.upstream.findings {
				g := r.graft.findings[i]
				p.beside(cell{text: u.where, width: label},
					cell{text: u.seen, mark: p.mark(u.good)}, cell{text: g.seen, mark: p.mark(g.good)})
			}
			fmt.Fprintln(p.w)
		}
		if len(r.problems) == 0 {
			p.marked(true, bold, r.difference)
		}
		p.problems(r)
		fmt.Fprintln(p.w)
	}
	p.verdict(all)
}

// timeline prints the timeline of a user.
func (p printer) timeline(c column) {
	titles := shown{name: "NAME", ready: "READY", synced: "SYNCED"}
	at, name := len("60.00s"), len(titles.name)
	for _, e := range c.timeline {
		at = max(at, len(seconds(e.at)))
		if e.row != nil {
			name = max(name, len(e.row.name))
			if e.row.externalName != "" {
				titles.externalName = "EXTERNAL-NAME"
			}
		}
	}
	row := func(how, when string, s shown) {
		line := fmt.Sprintf("%-*s  %-5s  %-6s  %s", name, s.name, s.ready, s.synced, s.externalName)
		p.row(cell{text: when, how: how, width: at}, cell{text: line, how: how, width: len(line)})
	}
	p.text(bold, "What kubectl get shows: "+c.title)
	row(faint, "TIME", titles)
	for _, e := range c.timeline {
		beside := width - indent - at - gap
		if e.row == nil {
			event := "> " + strings.TrimSpace(e.who+" "+e.what)
			p.row(cell{text: seconds(e.at), width: at}, cell{text: event, width: beside})
			continue
		}
		row("", seconds(e.at), *e.row)
		if e.row.message != "" {
			p.row(cell{width: at}, cell{text: e.row.message, how: faint, width: beside})
		}
	}
	fmt.Fprintln(p.w)
}

func seconds(t float64) string { return fmt.Sprintf("%5.2fs", t) }

// verdict prints whether all stories are as they should be.
func (p printer) verdict(all report) {
	took := all.took.Round(100 * time.Millisecond)
	n := plurals(len(all.stories), "story", "stories")
	if all.failed > 0 {
		p.marked(false, bold, fmt.Sprintf("Not as it should be: %d of %s. (%s)", all.failed, n, took))
		return
	}
	p.marked(true, bold, fmt.Sprintf("%s: upstream fails, Graft holds. (%s)", n, took))
}
