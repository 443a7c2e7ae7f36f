package asyncstate

import (
	"fmt"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

var (
	// ErrOutcomeUnknown is for external clients to return, or to wrap, from a
	// Create whose request may have been carried out although it failed: the
	// answer was lost. Any other error means that nothing was created, as in
	// upstream, except for panics and those that OutcomeUnknown describes. Graft
	// still calls the Finder before it repeats the create or removes the finalizer.
	ErrOutcomeUnknown = failure.ErrNoAnswer

	// ErrNotInOperation is returned by functions that need the context of an
	// operation.
	ErrNotInOperation = errors.New("not called in an operation: pass the context that Create, Update, Delete or Resume was given")

	// ErrEnded is returned by the functions of an operation that has ended.
	ErrEnded = errors.New("the operation has ended")

	// ErrDeadline is the cause of the end of an operation's context when its
	// deadline has passed (see context.Cause).
	ErrDeadline = errors.New("the deadline of the operation has passed")

	// ErrCancelled is the cause of the end of an operation's context when it was
	// cancelled, because the object is being deleted.
	ErrCancelled = errors.New("the operation was cancelled")
)

// errRunning means that another operation of the object is running.
var errRunning = errors.New("another operation of the object is running")

// errStopped means that the tracker was stopped.
var errStopped = errors.New("the tracker was stopped and starts no more operations")

// errTakenOver means that another process makes the same attempt.
var errTakenOver = errors.New("another process has taken the operation over")

// errNotStarted means that the external client was not called: nothing was sent.
var errNotStarted = failure.State(
	errors.New("the operation did not start"), failure.Meaning{Answer: failure.Unserved},
)

// errInterrupted means that the process that ran an operation died.
var errInterrupted = errors.New("interrupted")

// errGone means that there is no managed resource to store anything on.
var errGone = errors.New("the managed resource no longer exists")

// errOverruled means that another writer has changed the record of the operation.
var errOverruled = errors.New("another writer has changed the record of the operation")

// errUnwatched means that the end of operations is noticed late.
var errUnwatched = errors.New(
	"no controller watches the tracker, so the end of an operation is noticed up to 10 seconds later: pass the tracker's Source() to the controller's WatchesRawSource",
)

// errNotEnded means that a client has not returned although its context was cancelled.
var errNotEnded = errors.New("the operation did not end by its deadline")

// errExited means that the external client ended its goroutine.
var errExited error = withUnknownOutcome{errors.New("the external client called runtime.Goexit")}

// errPanicked means that the external client panicked.
var errPanicked error = withUnknownOutcome{errors.New("the external client panicked: see the provider's log")}

// OutcomeUnknown reports whether a request that failed with err may have been carried out:
// err wraps ErrOutcomeUnknown, or the answer was lost. An answer is lost if
//
//   - the time ran out, or the context was cancelled;
//   - the connection broke after it was made, or the answer breaks off or can't be read;
//   - the server failed: HTTP statuses 408, 499 and 5xx, and the gRPC statuses Canceled, Unknown,
//     DeadlineExceeded, Internal, Unavailable and DataLoss;
//   - package net/http returned an error whose cause is unknown to Graft;
//   - the client has given up after several attempts.
//
// All other errors mean that the request was refused or never sent: another HTTP or gRPC status, a
// connection that was not made, and errors that say nothing about a request.
//
// A status is read from a method or field such as StatusCode, from a *http.Response in a field, and from
// the gRPC status. Only if no error in the chain has one, the text decides, without quoted parts and
// JSON: "StatusCode: 503" and "502 Bad Gateway" are lost answers, and a status with a key wins.
//
// A client whose errors show it in neither way wraps ErrOutcomeUnknown, or returns managed.Refused(err).
func OutcomeUnknown(err error) bool { return failure.Lost(err, failure.Text) }

// withUnknownOutcome is an error of an operation whose outcome is unknown.
type withUnknownOutcome struct{ error }

func (u withUnknownOutcome) Unwrap() []error { return []error{u.error, ErrOutcomeUnknown} }

// errorOfCancelled returns the error of an operation that was cancelled for that cause and then
// returned err. The error may be only the client's own words for that, so the outcome is
// unknown. cancellable means that a Create that is cancelled leaves nothing behind, unless the
// client says that the outcome is unknown.
func errorOfCancelled(err, cause error, cancellable bool) error {
	said := failure.Lost(err, failure.Stated)

	// The cause says more than the cancellation.
	if failure.Cancelled(err) {
		err = cause
	} else if !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}

	if cancellable && errors.Is(cause, ErrCancelled) && !said {
		return err
	}
	return withUnknownOutcome{err}
}

// errUnreadable means that the external client returned an error that cannot be read.
var errUnreadable = errors.New("the external client returned an error whose methods panic, such as a nil pointer")

// readable returns err, or an error with an unknown outcome if the methods of err panic.
func readable(err error) (out error) {
	defer func() {
		if recover() != nil {
			out = withUnknownOutcome{errUnreadable}
		}
	}()
	if err != nil {
		_ = err.Error()
		_ = failure.Lost(err, failure.Text)
	}
	return err
}
