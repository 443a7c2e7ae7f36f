package crashtest

import (
	"regexp"
	"strings"
)

// askedFor returns the patterns below a test in a pattern of -run. There are none if all of the
// test is to be run.
func askedFor(test, run string) []string {
	names := strings.Split(test, "/")
	var out []string

	for _, alternative := range split(run, '|') {
		parts := split(alternative, '/')
		matches := true
		for i := range min(len(names), len(parts)) {
			ok, err := regexp.MatchString(parts[i], names[i])
			matches = matches && ok && err == nil
		}
		switch {
		case !matches:
		case len(parts) <= len(names):
			return nil
		default:
			out = append(out, strings.Join(parts[len(names):], "/"))
		}
	}
	return out
}

// split a pattern of -run as the testing package does: not in brackets and parentheses.
func split(pattern string, at byte) []string {
	var out []string
	start, brackets, parentheses := 0, 0, 0

	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '[':
			brackets++
		case c == ']':
			brackets = max(brackets-1, 0)
		case brackets > 0:
		case c == '(':
			parentheses++
		case c == ')':
			parentheses--
		case c == at && parentheses == 0:
			out = append(out, pattern[start:i])
			start = i + 1
		}
	}
	return append(out, pattern[start:])
}

// plainName returns the name that a pattern selects, if it selects one only.
func plainName(pattern string) string {
	parts := strings.Split(pattern, "/")
	for i := range parts {
		parts[i] = strings.TrimSuffix(strings.TrimPrefix(parts[i], "^"), "$")
	}
	return strings.Join(parts, "/")
}
