package asyncstate

import (
	"fmt"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

var (
	// ErrOutcomeUnknown is for external clients to return, or to wrap, from a
	// Create whose request may have been carried out although it failed: the
	// answer was lost. Any other error means that nothing was created, as in
	// upstream, except for panics and those that OutcomeUnknown describes. A Finder
	// is asked even so, before the create is repeated or the managed resource goes.
	ErrOutcomeUnknown = errors.New("the outcome of the operation is not known")

	// ErrNotInOperation is returned by functions that need the context of an
	// operation.
	ErrNotInOperation = errors.New("not called in an operation: pass the context that Create, Update, Delete or Resume was given, or that of Begin's Operation")

	// ErrRunning is returned by Begin while another operation of the object
	// runs.
	ErrRunning = errors.New("another operation of the object is running")

	// ErrEnded is returned by an Operation that has ended.
	ErrEnded = errors.New("the operation has ended")

	// ErrStopped is returned by Begin when the tracker was stopped.
	ErrStopped = errors.New("the tracker was stopped and starts no more operations")

	// ErrDeadline is the cause of the end of an operation's context when its
	// deadline has passed (see context.Cause).
	ErrDeadline = errors.New("the deadline of the operation has passed")

	// ErrCancelled is the cause of the end of an operation's context when it was
	// cancelled, because the object is being deleted.
	ErrCancelled = errors.New("the operation was cancelled")

	// ErrResultUnknown means that the outcome of a create is unknown.
	ErrResultUnknown = errors.New("it is unknown whether the external resource was created")

	// ErrRecord is wrapped by errors about a record of an operation that can't
	// be used.
	ErrRecord = errors.New("cannot use the record of an operation")
)

// errTakenOver means that another process makes the same attempt.
var errTakenOver = errors.New("another process has taken the operation over")

// errInterrupted means that the process that ran an operation died.
var errInterrupted = errors.New("interrupted")

// errGone means that there is no managed resource to store anything on.
var errGone = errors.New("the managed resource no longer exists")

// errNotEnded means that a client has not called End although it had to.
var errNotEnded = errors.New("the operation did not end by its deadline")

// errExited means that the external client ended its goroutine.
var errExited = errors.New("the external client called runtime.Goexit")

// errPanicked means that the external client panicked.
var errPanicked = errors.New("the external client panicked: see the provider's log")

// OutcomeUnknown reports whether a request that failed with err may have been carried out:
// err wraps ErrOutcomeUnknown, or the answer was lost. An answer is lost if
//
//   - the time ran out, or the context was cancelled;
//   - the connection broke after it was made, or the answer breaks off or can't be read;
//   - the server failed: HTTP statuses 408, 499 and 5xx but 501, and the gRPC statuses Canceled,
//     Unknown, DeadlineExceeded, Internal, Unavailable and DataLoss;
//   - package net/http returned an error whose cause is unknown to Graft;
//   - an error without a cause quotes one of these.
//
// All other errors mean that the request was refused or never sent: another HTTP or gRPC
// status, a connection that was not made, and errors that say nothing about a request.
//
// A client that knows that nothing was sent returns an error of its own that neither wraps
// nor quotes these. A client wraps ErrOutcomeUnknown itself where its last error does not show
// that an answer was lost: if it retries requests, or cancels a context with a cause of its own.
func OutcomeUnknown(err error) bool {
	for _, target := range []error{ErrOutcomeUnknown, errPanicked, errExited} {
		if errors.Is(err, target) {
			return true
		}
	}
	return err != nil && requestOutcomeOf(err) == maybeCarriedOut
}

// resultUnknown is an ErrResultUnknown with a complete message of its own.
type resultUnknown struct{ message string }

func (r resultUnknown) Error() string { return r.message }

func (r resultUnknown) Unwrap() error { return ErrResultUnknown }

// outcomeUnknownOf returns an error that names the create whose outcome is unknown, the
// reason, and the steps that a person can take.
func outcomeUnknownOf(s creation.State, why string) error {
	token := ""
	if s.Record != nil && s.Record.Token != "" {
		token = " with token " + s.Record.Token
	}
	return resultUnknown{fmt.Sprintf(messageUnknown, seam.Stamp(s.Since), token, ErrResultUnknown, why)}
}
