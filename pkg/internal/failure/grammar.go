package failure

import (
	_ "embed" // It is for the grammar.
	"regexp"
	"strings"
	"sync"
)

//go:embed grammar.tsv
var grammarText string

// grammar returns the regular expressions of grammar.tsv by their kinds. Lines of the same kind are alternatives.
//
//nolint:gochecknoglobals // It is compiled once, and only read then.
var grammar = sync.OnceValue(func() map[string]*regexp.Regexp {
	reference, lines := regexp.MustCompile(`<([a-z ]+)>`), map[string][]string{}
	for line := range strings.Lines(grammarText) {
		column := strings.Split(line, "\t")
		if len(column) < 3 {
			continue
		}
		lines[column[0]] = append(lines[column[0]], reference.ReplaceAllStringFunc(column[1], func(name string) string {
			return "(?:" + strings.Join(lines[strings.Trim(name, "<>")], "|") + ")"
		}))
	}
	expressions := map[string]*regexp.Regexp{}
	for kind, alternatives := range lines {
		expressions[kind] = regexp.MustCompile("(?i)(?:" + strings.Join(alternatives, "|") + ")")
	}
	return expressions
})

// matches reports whether a text has a part of a kind of the grammar.
func matches(kind, text string) bool {
	expression := grammar()[kind]
	return expression != nil && expression.MatchString(text)
}
