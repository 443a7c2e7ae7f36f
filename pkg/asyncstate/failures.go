package asyncstate

import (
	"context"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// maxMessage is how many bytes of an error a condition quotes.
	maxMessage = 4 << 10

	// keepFailure is how long the text of an error is kept.
	keepFailure = time.Hour
)

// classOf returns of what kind the error is that an operation ended with. That is all
// a record has of it: users may read annotations who may not read a status.
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

// failures keeps the texts of the errors that operations ended with, for conditions to
// quote.
type failures struct{ kept kept[failureText] }

type failureText struct {
	typ    Type
	number int
	text   string
}

// keep the text of the error that r ended with.
func (f *failures) keep(r *record, err error) {
	f.kept.keep(r.UID, func(failureText) (failureText, time.Duration) {
		return failureText{typ: r.Type, number: r.Failures, text: clean(err.Error(), maxMessage)}, keepFailure
	})
}

// text of the error that r ended with, if it is known.
func (f *failures) text(r *record) (text string, ok bool) {
	f.kept.see(r.UID, func(had *failureText) bool {
		text, ok = had.text, had.typ == r.Type && had.number == r.Failures
		return true
	})
	return text, ok
}

// failure is what the last attempt ended with. The text comes from memory, or from
// the conditions of mg as they are stored; the record has its class alone.
func (t *Tracker) failure(mg resource.Managed, r *record) error {
	if text, ok := t.failures.text(r); ok {
		return errors.New(text)
	}
	if c := mg.GetCondition(TypeOperation); c.Reason == ReasonFailed || c.Reason == ReasonInterrupted {
		if text, ok := strings.CutPrefix(c.Message, t.attemptFailed(mg, r)); ok && text != c.Message {
			return errors.New(text)
		}
	}

	// While the next attempt runs, that condition says something else.
	if c := mg.GetCondition(xpv2.TypeSynced); c.Reason == xpv2.ReasonReconcileError && r.Phase == phaseRunning {
		if _, text, ok := strings.Cut(c.Message, prefixFailed(r)); ok {
			return errors.New(text)
		}
	}
	return errors.New(r.Error)
}

func prefixFailed(r *record) string { return string(r.Type) + " failed: " }

// attemptFailed says which attempt failed, and when the next is made.
func (t *Tracker) attemptFailed(mg resource.Managed, r *record) string {
	if r.Ended == nil {
		return ""
	}
	m := attemptOf(r.attempt()) + ", failed at " + seam.Stamp(r.Ended.Time)
	if next := t.retryAt(r); !next.IsZero() && (r.Type == Delete || !meta.WasDeleted(mg)) {
		m += ", next attempt at " + seam.Stamp(next)
	}
	return m + ": "
}
