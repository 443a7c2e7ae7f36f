package main

import (
	"io"
	"os"
	"strings"
)

// A style is what a terminal can show.
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
