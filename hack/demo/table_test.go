package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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

func TestTable(t *testing.T) {
	const red, green, end = "\x1b[31m", "\x1b[32m", "\x1b[0m"

	cases := map[string]struct {
		reason string
		style  style
		want   string
	}{
		"Plain": {
			reason: "Cells are wrapped beside each other.",
			want: "  why is it still    x nothing                     + WaitingForExternalResource\n" +
				"  there?                                             The external resource\n" +
				"                                                     still exists.\n",
		},
		"Colour": {
			reason: "Colours take no room.",
			style:  style{colour: true, utf8: true},
			want: "  why is it still    " + red + "✗" + end + " nothing                     " + green + "✓" + end + " WaitingForExternalResource\n" +
				"  there?                                             The external resource\n" +
				"                                                     still exists.\n",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer

			printer{w: &b, style: tc.style}.row(
				finding{Where: whyRow, Seen: "nothing"},
				finding{Where: whyRow, Seen: "WaitingForExternalResource\nThe external resource still exists.", Good: true},
			)

			if diff := cmp.Diff(tc.want, b.String()); diff != "" {
				t.Errorf("\n%s\nrow(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"Empty":     {reason: "There is a line to put a mark on.", want: []string{""}},
		"Fits":      {reason: "What fits stays.", text: "12345678", want: []string{"12345678"}},
		"Words":     {reason: "Lines are broken at spaces.", text: "1234 678 9", want: []string{"1234 678", "9"}},
		"LongWord":  {reason: "What is too long is broken anywhere.", text: "1 123456789012 2", want: []string{"1", "12345678", "9012 2"}},
		"LineBreak": {reason: "A line break stays.", text: "1\n2 3", want: []string{"1", "2 3"}},
		"Wide":      {reason: "Characters are counted, not bytes.", text: "✓✓✓✓✓✓✓✓", want: []string{"✓✓✓✓✓✓✓✓"}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wrap(tc.text, 8)); diff != "" {
				t.Errorf("\n%s\nwrap(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStyle(t *testing.T) {
	// It is a character device, as a terminal is.
	terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = terminal.Close() }()

	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = file.Close() }()

	cases := map[string]struct {
		reason string
		w      io.Writer
		env    map[string]string
		want   style
	}{
		"Terminal":   {reason: "There are colours on a terminal.", w: terminal, want: style{colour: true}},
		"NoColor":    {reason: "There are none if NO_COLOR is set.", w: terminal, env: map[string]string{"NO_COLOR": "1"}},
		"Dumb":       {reason: "There are none on a dumb terminal.", w: terminal, env: map[string]string{"TERM": "dumb"}},
		"File":       {reason: "There are none in files.", w: file},
		"Buffer":     {reason: "Nor anywhere else.", w: &bytes.Buffer{}},
		"Lang":       {reason: "The locale says what characters there are.", w: file, env: map[string]string{"LANG": "C.UTF-8"}, want: style{utf8: true}},
		"Spelling":   {reason: "Names of locales are spelt in many ways.", w: file, env: map[string]string{"LC_CTYPE": "de_DE.utf8"}, want: style{utf8: true}},
		"Overridden": {reason: "LC_ALL wins over LANG.", w: file, env: map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := styleOf(tc.w, func(k string) string { return tc.env[k] })
			if got != tc.want {
				t.Errorf("\n%s\nstyleOf(): want %+v, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}
