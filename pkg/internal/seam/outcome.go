package seam

import xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

// An Outcome is the state in which a call of an external client left the operation.
type Outcome struct {
	State State

	// Reason and Message say why a managed resource that is being deleted still
	// exists. They are empty if the call doesn't know.
	Reason  xpv2.ConditionReason
	Message string

	// Deleted means that a Delete of this process has succeeded, and that no Observe has
	// found the external resource since.
	Deleted bool
}

// A State says whether a call of an external client is over.
type State int

const (
	// Done means that the operation is over, with the result that the call returned.
	Done State = iota

	// InProgress means that an operation continues, or waits to begin, after the
	// call has returned.
	InProgress

	// Waiting means that no operation is in progress, and that Observe has postponed the
	// next one.
	Waiting

	// Untried means that the call returned an error before it did anything.
	Untried

	// Refused is Untried because the external resource is another's.
	Refused

	// Unknown means that the call returned an error and may have succeeded, or that the
	// outcome of an earlier call is unknown.
	Unknown
)
