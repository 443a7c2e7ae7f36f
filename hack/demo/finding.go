package main

import (
	"fmt"
	"strings"
)

// A finding is a row of the table: one observation, on one side.
type finding struct {
	// Where the story looked.
	Where string `json:"where"`

	// Seen is the observation, as measured.
	Seen string `json:"seen"`

	// Good reports whether it is as it should be.
	Good bool `json:"good"`

	// Broken says that upstream is known to fail here. It is the same for both
	// sides.
	Broken bool `json:"upstreamIsKnownToFail"`

	// short is the text of the overview, if this is the headline.
	short string
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s", f.Where, strings.ReplaceAll(f.Seen, "\n", ", "))
}

// knownToFail marks a finding that upstream is known to get wrong.
func (f finding) knownToFail() finding {
	f.Broken = true
	return f
}

// headline makes the finding the one that the overview shows, in a word or two.
func (f finding) headline(format string) finding {
	word, _, _ := strings.Cut(f.Seen, "\n")
	word, _, _ = strings.Cut(word, " (")
	word, _, _ = strings.Cut(word, " for ")
	f.short = fmt.Sprintf(format, word)
	return f
}

// either finds yes or no.
func either(where string, good bool, yes, no string) finding {
	f := finding{Where: where, Seen: no, Good: good}
	if good {
		f.Seen = yes
	}
	return f
}

func plurals(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
