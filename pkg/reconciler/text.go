package reconciler

import (
	"slices"
	"strings"
	"unicode"
)

const (
	// maxReasonsLength bounds the reasons of all blockers in a message, without their names, in
	// bytes.
	maxReasonsLength = 1200
	maxKindLength    = 63
)

// oneLine returns s without line breaks, control characters and invalid UTF-8, which
// terminals and JSON change.
func oneLine(s string) string {
	ends := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"), ends), " ")
}

// quoted returns another writer's message as part of a message. Errors that are
// wrapped repeatedly, here and by an SDK, say the same twice: "delete failed: delete
// failed: 409".
func quoted(s string) string {
	parts := strings.Split(strings.ReplaceAll(oneLine(s), ".: ", ": "), ": ")
	return strings.Join(slices.Compact(parts), ": ")
}
