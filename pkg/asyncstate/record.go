package asyncstate

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// AnnotationKeyOperation is the annotation that holds the record of an object's operation,
// graft.crossplane.io/async-operation, from before the operation can reach the external
// system until its result is stored. Only Graft writes it. Removing it settles the
// operation: see docs/async.md first.
const AnnotationKeyOperation = creation.AnnotationKeyRecord

// maxHandle is how many bytes a handle may have. The API server allows 256 KiB for all
// annotations of an object together.
const maxHandle = 32 << 10

// maxProgress is how many bytes a progress message may have.
const maxProgress = 1 << 10

// attemptOf returns the public form of a record.
func attemptOf(r *creation.Record) Attempt {
	return Attempt{Type: Type(r.Type), Number: r.Attempt, Token: r.Token, Handle: r.Handle, Started: r.Started.Time}
}

// endedWith returns the record of an operation that ended with err.
func endedWith(r *creation.Record, err error, at time.Time) *creation.Record {
	return r.EndedWith(creation.Outcome{At: at, Class: classOf(err), Unknown: OutcomeUnknown(err), Resumable: errors.Is(err, ErrStopped)})
}

// classOf returns the class of the error that an operation ended with. A record has no text
// of errors: more users may read annotations than status.
func classOf(err error) string {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}

	switch {
	case is(errPanicked, errExited):
		return "panic"
	case is(errInterrupted, ErrStopped):
		return "interrupted"
	case is(ErrCancelled):
		return "cancelled"
	case is(ErrDeadline, errNotEnded, context.DeadlineExceeded):
		return "deadline exceeded"
	}

	if s, ok := status.FromError(err); ok {
		return s.Code().String()
	}
	if OutcomeUnknown(err) {
		return "no answer"
	}
	return "error"
}
