package history

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	processWidth = 44
	apiWidth     = 42
	longestText  = 160

	// A timeline of a run that loops repeats itself.
	firstShown = 100
	lastShown  = 30
)

// Timeline prints events with a column for the processes and the user, one for the API server and
// one for the external system.
func Timeline(events []*Event) string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "%8s  %-*s %-*s %s\n", "time", processWidth, "process, user", apiWidth, "API server", "external system",
	)
	var lines []string
	said := map[string]bool{}
	for _, e := range events {
		if text := line(e, said); text != "" {
			lines = append(lines, text)
		}
	}
	for i, text := range lines {
		hidden := len(lines) - firstShown - lastShown
		switch {
		case hidden <= 1 || i < firstShown || i >= firstShown+hidden:
			fmt.Fprintln(&b, text)
		case i == firstShown:
			fmt.Fprintf(&b, "%8s  %d entries are left out\n", "…", hidden)
		}
	}
	return b.String()
}

// line returns the line of an event, or "". A long text that was said before is cut.
func line(e *Event, said map[string]bool) string {
	text, indent := Short(e.Text), 0
	if len(text) > 60 && said[text] {
		text = string([]rune(text)[:40]) + "… (as before)"
	}
	said[text] = true
	switch e.Kind {
	case KindReconcile:
		text = "reconciles " + e.Object
	case KindRequest, KindArrival, KindAnswer:
		if indent = processWidth + 1; e.Request.Target == External {
			indent += apiWidth + 1
		}
		if e.Kind == KindAnswer {
			text = "    → " + text
		} else {
			text = requestText(e)
		}
	case KindObject, KindSettled, KindUnsettled:
		return ""
	}
	if text == "" {
		return ""
	}
	who := ""
	if e.Process > 0 {
		who = fmt.Sprintf("%d ", e.Process)
	}
	return strings.TrimRight(fmt.Sprintf("%7.1fs  %-*s%s", e.At.Seconds(), indent, who, text), " ")
}

func requestText(e *Event) string {
	text := e.Request.String()
	if e.Request.Query != "" {
		text += "?" + e.Request.Query
	}
	text = Short(strings.TrimSpace(text + " " + e.Text))
	if e.Number > 0 {
		text = fmt.Sprintf("%3d %s", e.Number, text)
	}
	if e.Fault != "" {
		text += "  ← " + e.Fault
	}
	return text
}

// Short returns the first line of a text, if it isn't too long.
func Short(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if utf8.RuneCountInString(s) > longestText {
		s = string([]rune(s)[:longestText]) + "…"
	}
	return s
}
