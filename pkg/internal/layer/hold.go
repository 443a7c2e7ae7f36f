package layer

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// A Hold is the error of a layer that stops the reconcile. It says why a managed resource that is being deleted still
// exists.
type Hold struct {
	Reason  xpv2.ConditionReason
	Message string // of the reason by default

	// Cause is the error that upstream reports.
	Cause error
}

func (h *Hold) Error() string { return h.Cause.Error() }

// Unwrap returns the cause.
func (h *Hold) Unwrap() error { return h.Cause }
