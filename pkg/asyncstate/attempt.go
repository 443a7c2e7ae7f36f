package asyncstate

import (
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// A Type of operation.
type Type string

// Types of operations.
const (
	Create Type = "create"
	Update Type = "update"
	Delete Type = "delete"
)

// An Attempt identifies an operation whose outcome is unknown.
type Attempt struct {
	// Type of the operation.
	Type Type

	// Number counts from 1. It is incremented after a failure, and unchanged while the
	// outcome is unknown.
	Number int

	// Token is the result of Token in the operation. It is empty for a create that no
	// Tracker began.
	Token string

	// Handle is the last argument of SetHandle. It is empty if there was no call.
	Handle string

	// Started is when the operation began, by the clock of the process that began it. No
	// request reached the external system earlier.
	Started time.Time
}

// A Status describes a running operation.
type Status struct {
	Attempt

	// Deadline of the operation.
	Deadline time.Time

	// Percent and Message are the last arguments of Progress.
	Percent int
	Message string
}

// attemptOf returns the attempt of a record.
func attemptOf(r *creation.Record) Attempt {
	return Attempt{Type: Type(r.Type), Number: r.Attempt, Token: r.Token, Handle: r.Handle, Started: r.Started.Time}
}

// attemptOfCreate returns the attempt of a create, which may have no record.
func attemptOfCreate(s creation.State) Attempt {
	if s.Record == nil {
		return Attempt{Type: Create, Number: 1, Started: s.Since}
	}
	return attemptOf(s.Record)
}
