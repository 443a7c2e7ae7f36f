package seam

import xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

// An Outcome is what a call of an external client led to when it returned.
type Outcome struct {
	State State

	// Reason and Message say why a managed resource that is being deleted still
	// exists. They are empty if the call doesn't know.
	Reason  xpv2.ConditionReason
	Message string
}

// A State says whether a call of an external client is over.
type State int

const (
	// Done means that the call did what it returned.
	Done State = iota

	// InProgress means that an operation continues, or waits to begin, after the
	// call has returned.
	InProgress

	// Waiting means that none continues, and that an Observe said what is needed for
	// the next to wait.
	Waiting

	// Untried means that the call returned an error before it did anything.
	Untried

	// Unknown means that the call returned an error, and may have succeeded; or did not
	// find out what an earlier one led to.
	Unknown
)
