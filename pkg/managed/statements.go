package managed

import (
	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// The functions of this file are for external clients and their connectors. They return an error that
// wraps err and says what it means, or nil if err is nil. The outermost of them decides, and none of them
// changes the text.
//
// Without them Graft looks for a status: in methods and fields such as StatusCode, in gRPC's statuses and
// in the errors of package net, then in the text, but not in what the text quotes. A client whose errors
// have a status in neither place states what they mean.

// NoAnswer says that the request may have been carried out although it failed. The outcome of a Create
// is unknown then: it is not repeated before it is known whether it created something.
func NoAnswer(err error) error {
	return failure.State(err, failure.Meaning{Answer: failure.NoAnswer})
}

// Refused says that the external system has not carried out the request. A Create has created nothing
// then, even if it has set an external name.
func Refused(err error) error {
	return failure.State(err, failure.Meaning{Answer: failure.Refused})
}
