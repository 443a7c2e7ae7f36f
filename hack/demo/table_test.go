package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// checkLayout checks what every output has to be: of lines that fit, without
// colours, and in ASCII if the locale has no more.
func checkLayout(t *testing.T, out string, ascii bool) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("a line of %d characters, at most %d fit: %q", n, width, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("spaces at the end of a line: %q", line)
		}
		if strings.Contains(line, "\x1b") {
			t.Errorf("colours where there is no terminal: %q", line)
		}
		for _, c := range line {
			if ascii && c >= utf8.RuneSelf {
				t.Errorf("%q isn't ASCII: %q", c, line)
			}
		}
	}
}
