package crashtest

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A timeline is what happened in a life. A nil timeline keeps nothing.
type timeline struct {
	mu      sync.Mutex
	entries []entry
}

// An entry of a timeline: a step, or an event of a process or the user.
type entry struct {
	at      time.Duration
	process int // 0 is the user.
	target  target
	step    bool
	number  int
	text    string
	fault   string
}

func (l *timeline) add(e entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

const (
	processWidth = 44
	apiWidth     = 42
	longestText  = 160

	// A timeline of a life that doesn't come to rest repeats itself.
	firstShown = 120
	lastShown  = 40
)

// String prints the timeline with a column for the processes and the user, one for the API
// server and one for the external system.
func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(
		&b, "%8s  %-*s %-*s %s\n", "time", processWidth, "process, user", apiWidth, "API server", "external system",
	)

	for i, e := range l.entries {
		if hidden := len(l.entries) - firstShown - lastShown; hidden > 1 && i >= firstShown && i < firstShown+hidden {
			if i == firstShown {
				fmt.Fprintf(&b, "%8s  %d entries are left out\n", "…", hidden)
			}
			continue
		}
		who := ""
		if e.process > 0 {
			who = fmt.Sprintf("%d ", e.process)
		}
		text := short(e.text)
		if e.number > 0 {
			text = fmt.Sprintf("%3d %s", e.number, text)
		}
		if e.fault != "" {
			text += "  ← " + e.fault
		}
		indent := 0

		switch {
		case !e.step:
			who += text
			text = ""
		case e.target == apiTarget:
			indent = processWidth + 1 - utf8.RuneCountInString(who)
		default:
			indent = processWidth + 1 + apiWidth + 1 - utf8.RuneCountInString(who)
		}
		fmt.Fprintf(
			&b, "%7.1fs  %s\n", e.at.Seconds(), strings.TrimRight(who+strings.Repeat(" ", max(indent, 0))+text, " "),
		)
	}
	return b.String()
}

// short returns the first line of a text, if it isn't too long.
func short(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if utf8.RuneCountInString(s) > longestText {
		s = string([]rune(s)[:longestText]) + "…"
	}
	return s
}
