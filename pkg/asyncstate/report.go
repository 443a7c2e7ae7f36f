package asyncstate

import (
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A progressReport has the facts of a reconcile that decide about the condition when its status is written.
type progressReport struct {
	// reason and message say why the object waits. Without a message that is the error of its last operation.
	reason  xpv2.ConditionReason
	message string

	// observed means that the external resource was observed, so no outcome is unknown.
	observed bool

	// stopped is why the reconcile stopped at an interrupted create. Upstream reports it as an error of Observe.
	stopped error

	// failed means that the reconcile returned the error of an operation.
	failed bool
}

// A situation has everything that decides about the condition OperationRunning of an object.
type situation struct {
	// object is about to be stored, or is on the API server. It is not changed.
	object resource.Managed
	record *creation.Record

	// running is the operation that runs in this process, or nil.
	running *Status

	// failure is the error of the last operation, if this process knows it.
	failure operationError

	report  progressReport
	backoff backoff
	now     time.Time
}

// condition returns the condition OperationRunning. It is the one that the object has if nothing more is known.
func (s situation) condition() xpv2.Condition {
	had := s.object.GetCondition(TypeOperation)

	switch r := s.record; {
	case s.running != nil && untilReported(*s.running, s.object, s.now) > 0:
		return had
	case s.running != nil:
		return s.because(corev1.ConditionTrue, ReasonRunning, runningMessage(*s.running, s.now))
	case s.report.message != "":
		return s.because(corev1.ConditionFalse, s.report.reason, s.report.message)
	case s.report.reason != "":
		return s.failed(s.report.reason)
	case !s.report.observed && had.Status != corev1.ConditionTrue:
		return had
	case !s.report.observed && (r != nil && r.Phase != creation.RecordFailed || creation.Last(s.object).Incomplete()):
		return s.because(corev1.ConditionFalse, ReasonInterrupted, interruptedMessage(r, s.object))
	case r.HasFailed():
		return s.failed(ReasonFailed)
	case had.Reason == "":
		return had // The object never had an operation.
	default:
		return s.because(corev1.ConditionFalse, ReasonFinished, messageFinished)
	}
}

// because returns a condition. It is the one that the object has if that says the same: each reason has one status.
func (s situation) because(status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) xpv2.Condition {
	if had := s.object.GetCondition(TypeOperation); had.Reason == reason && had.Message == message {
		return had
	}
	return xpv2.Condition{
		Type:               TypeOperation,
		Status:             status,
		LastTransitionTime: metav1.NewTime(s.now),
		Reason:             reason,
		Message:            message,
	}
}

// failed says which attempt failed, and when the next begins. If this process does not know the error, the stored
// condition, which has it, stays.
func (s situation) failed(reason xpv2.ConditionReason) xpv2.Condition {
	r, text, had := s.record, s.failure.text, s.object.GetCondition(TypeOperation)
	if text == "" {
		if (had.Reason == ReasonFailed || had.Reason == ReasonInterrupted) && r.Ended != nil &&
			!had.LastTransitionTime.Before(r.Ended) {
			return had
		}
		text = r.Error
	}

	m := ""
	if r.Ended != nil {
		m = fmt.Sprintf("%s, attempt %d, failed at %s", r.Type, r.Attempt, seam.Stamp(r.Ended.Time))
		if next := s.backoff.end(r, s.now); !s.failure.terminal && !next.IsZero() && mayRepeat(s.object, r.Type) {
			m += ", next attempt at " + seam.Stamp(next)
		}
		m += ": "
	}
	return s.because(corev1.ConditionFalse, reason, m+text)
}

// untilReported returns how long a running operation is not reported yet. A short update is not worth two writes of
// status.
func untilReported(running Status, mg resource.Managed, now time.Time) time.Duration {
	if running.Type != Update || meta.WasDeleted(mg) {
		return 0
	}
	return reportInterval - now.Sub(running.Started)
}

func runningMessage(s Status, now time.Time) string {
	m := fmt.Sprintf(
		"%s, attempt %d, since %s, deadline %s", s.Type, s.Number, seam.Stamp(s.Started), seam.Stamp(s.Deadline),
	)
	if !now.Before(s.Deadline) {
		m += " (past its deadline, and not ended yet)"
	}
	if s.Percent > 0 || s.Message != "" {
		m += fmt.Sprintf(": %d%%", s.Percent)
	}
	if s.Message != "" {
		m += " " + s.Message
	}
	return m
}

func interruptedMessage(r *creation.Record, mg resource.Managed) string {
	typ, when := creation.Create, "the external resource can be observed"
	if r != nil {
		typ = r.Type
	}
	if mg.GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused {
		when = "reconciliation is no longer paused"
	}
	return "The " + string(typ) + " was interrupted. Its outcome is determined when " + when + "."
}

// mayRepeat reports whether an operation of mg may be repeated.
func mayRepeat(mg resource.Managed, typ creation.OperationType) bool {
	switch {
	case typ == creation.Delete:
		return true
	case meta.WasDeleted(mg):
		return false
	case typ == creation.Create:
		return seam.Allows(mg, xpv2.ManagementActionCreate)
	default:
		return seam.Allows(mg, xpv2.ManagementActionUpdate)
	}
}
