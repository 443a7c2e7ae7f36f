package asyncstate

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

var (
	// ErrOutcomeUnknown is for external clients to return, or to wrap, from a
	// Create whose request may have been carried out although it failed: the
	// answer was lost. Any other error means that nothing was created, as in
	// upstream, except for panics and those that OutcomeUnknown describes. A Finder
	// is asked even so, before the create is repeated or the managed resource goes.
	ErrOutcomeUnknown = errors.New("the outcome of the operation is not known")

	// ErrNotInOperation is returned by what can be called in an operation only:
	// with the context that the operation was given.
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

// OutcomeUnknown reports whether a call of an external system that ended with err may
// have been carried out although it failed: the error says so (ErrOutcomeUnknown),
// or that time ran out, or that the connection broke when it had been made.
//
// Of the statuses of gRPC, those say so that it gives a call to which it has no
// answer, or none that it understands: Canceled, DeadlineExceeded, Unavailable and
// Internal. Unavailable may also mean that nothing was sent, which can't be told.
// All others are answers: Unknown, too, is that of a server whose handler returned
// some error.
//
// A call that is known not to have been carried out returns an error that wraps
// none of these.
func OutcomeUnknown(err error) bool {
	for _, target := range []error{ErrOutcomeUnknown, errPanicked, errExited, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, target) {
			return true
		}
	}

	if s, ok := status.FromError(err); ok {
		switch s.Code() { //nolint:exhaustive // All others are answers.
		case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal:
			return true
		}
	}

	for e := err; e != nil; e = errors.Unwrap(e) {
		// One of several is enough: what is looked for below is the first of its kind.
		if several, ok := e.(interface{ Unwrap() []error }); ok && slices.ContainsFunc(several.Unwrap(), OutcomeUnknown) {
			return true
		}
	}

	var broken *net.OpError
	if errors.As(err, &broken) {
		// Nothing is sent before a connection is made.
		return broken.Op != "dial"
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || brokenHTTP(err)
}

// brokenHTTP reports whether err says that an HTTP connection broke. Package net/http
// does not export the types of these errors.
func brokenHTTP(err error) bool {
	var u *url.Error
	if !errors.As(err, &u) || u.Err == nil {
		return false
	}
	return slices.ContainsFunc([]string{
		"transport connection broken", "server closed idle connection",
		"http2: client connection lost", "http2: client connection force closed", "http2: server sent GOAWAY", "stream error: stream ID",
	}, func(text string) bool { return strings.Contains(u.Err.Error(), text) })
}

// resultUnknown is an ErrResultUnknown with a complete message of its own.
type resultUnknown struct{ message string }

func (r resultUnknown) Error() string { return r.message }

func (r resultUnknown) Unwrap() error { return ErrResultUnknown }

// outcomeUnknownOf returns an error that says of which create the outcome is unknown,
// why, and what a person can do.
func outcomeUnknownOf(r *record, why string) error {
	token := ""
	if r.Token != "" {
		token = " with token " + r.Token
	}
	return resultUnknown{fmt.Sprintf(messageUnknown, seam.Stamp(r.Started.Time), token, ErrResultUnknown, why)}
}
