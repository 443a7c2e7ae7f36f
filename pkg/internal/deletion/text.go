package deletion

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Texts of the Deleting condition that managed resources and other objects share.
const (
	MessageRequested            = "Deletion was requested."
	MessagePaused               = "Reconciliation is paused, and deletion with it."
	MessageStillExists          = "The external resource still exists after its deletion was requested."
	MessageWaitingForFinalizers = "Waiting for other controllers to remove their finalizers: "

	// OrphanHint begins the part of a message that explains force orphan.
	OrphanHint = " To orphan it, set the annotation "
)

// Limits of texts, in bytes. The API server accepts more, but a message is quoted by all
// objects that depend on the object.
const (
	MaxMessageLength = 4096
	MaxNameLength    = 253
	maxHintLength    = 1024
	maxEventLength   = 1024

	// maxNamed is the number of names in a list.
	maxNamed = 5

	// Ellipsis replaces the part of a text that is cut.
	Ellipsis = "…"
)

const reasonCannotReport event.Reason = "CannotReportDeletion"

// CannotReport records that the conditions of a deletion could not be written.
func CannotReport(log logging.Logger, record event.Recorder, o client.Object, err error) {
	log.Info("Cannot report deletion", "uid", o.GetUID(), "error", err)
	record.Event(o, event.Warning(reasonCannotReport, err))
}

// OtherFinalizers returns the finalizers of o without the excepted ones.
func OtherFinalizers(o client.Object, except ...string) []string {
	return slices.DeleteFunc(
		slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(except, f) },
	)
}

// Names lists names in an order that doesn't change.
func Names(list []string) string {
	sorted := slices.Sorted(slices.Values(list))
	rest := ""
	if n := len(sorted); n > maxNamed {
		sorted, rest = sorted[:maxNamed], fmt.Sprintf(" and %d more", n-maxNamed)
	}

	for i := range sorted {
		sorted[i] = Cut(sorted[i], MaxNameLength)
	}
	return strings.Join(sorted, ", ") + rest
}

// Cut cuts s at its end to at most n bytes.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	return start(s, n-len(Ellipsis)) + Ellipsis
}

// CutMiddle cuts s in its middle to at most n bytes, because the cause of a blocked deletion
// stands at the end of a message.
func CutMiddle(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	head := n / 3
	tail := min(len(s), len(s)-(n-head-len(Ellipsis)))
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return start(s, head) + Ellipsis + s[tail:]
}

// start returns at most n bytes of s, which is valid and longer.
func start(s string, n int) string {
	for n = max(n, 0); !utf8.RuneStart(s[n]); {
		n--
	}
	return s[:n]
}
