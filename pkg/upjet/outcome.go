package upjet

import (
	"regexp"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// outcomeUnknown is an error of a create that may have made something. Its text is
// Terraform's.
type outcomeUnknown struct{ error }

func (e outcomeUnknown) Unwrap() []error { return []error{e.error, asyncstate.ErrOutcomeUnknown} }

// classified returns an error of a create that says whether its outcome is unknown.
// upjet turns Terraform's diagnostics into text, and providers turn errors into
// diagnostics: the text is all there is.
func classified(err error) error {
	// A connection that was not made has sent nothing.
	text := notDialed().ReplaceAllString(err.Error(), "")
	if lost().MatchString(text) {
		return outcomeUnknown{err}
	}
	return err
}

// notDialed matches the text of one error: what follows it may be about a request.
func notDialed() *regexp.Regexp {
	return regexp.MustCompile(`dial (tcp|udp)\d?( \S+)?:` +
		`( lookup \S+( on \S+)?:( (dial|read|write) udp\d?( \S+)?:)?)?` +
		` (i/o timeout|operation was canceled|connect: [a-z ]+)`)
}

// lost matches texts of time-outs, of lost connections, and of creates that Terraform
// takes for successful but returns no ID of.
func lost() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` +
		`context deadline exceeded|context canceled|operation was canceled|` +
		`timed out|timeout while waiting|i/o timeout|timeout awaiting|client\.timeout|request ?timeout|gateway time-?out|bad gateway|` +
		`\bEOF\b|connection reset|broken pipe|closed network connection|forcibly closed|server closed|connection lost|connection broken|connection force closed|GOAWAY|stream error|` +
		`code = (canceled|deadlineexceeded|unavailable|internal)|` +
		`failed to read the ID of the new resource|new state is empty after creation`)
}
