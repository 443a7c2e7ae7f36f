package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of texts, in bytes. The API server accepts more, but a message is quoted by all
// objects that depend on the object.
const (
	maxMessageLength = 4096
	maxHintLength    = 1024
	maxEventLength   = 1024

	// maxReasonsLength bounds the reasons of all blockers in a message, without their names.
	// maxNamed is the number of finalizers that a message names.
	maxReasonsLength = 1200
	maxNamed         = 5
	maxNameLength    = 253
	maxKindLength    = 63

	ellipsis = "…"
)

// orphanHint begins the part of a message that explains force orphan.
const orphanHint = " To orphan it, set the annotation "

// names lists names in an order that doesn't change.
func names(list []string) string {
	sorted := slices.Sorted(slices.Values(list))
	rest := ""
	if n := len(sorted); n > maxNamed {
		sorted, rest = sorted[:maxNamed], fmt.Sprintf(" and %d more", n-maxNamed)
	}

	for i := range sorted {
		sorted[i] = cut(sorted[i], maxNameLength)
	}
	return strings.Join(sorted, ", ") + rest
}

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

// cut s at its end to at most n bytes.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	return start(s, n-len(ellipsis)) + ellipsis
}

// cutMiddle cuts s in its middle to at most n bytes, because the cause of a blocked deletion
// stands at the end of a message.
func cutMiddle(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	head := n / 3
	tail := min(len(s), len(s)-(n-head-len(ellipsis)))
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return start(s, head) + ellipsis + s[tail:]
}

// start returns at most n bytes of s, which is valid and longer.
func start(s string, n int) string {
	for n = max(n, 0); !utf8.RuneStart(s[n]); {
		n--
	}
	return s[:n]
}
