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
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// TypeOperation is the type of the condition that describes an object's operation. Its status
// is True while an operation runs. An object that never had an operation lacks it.
//
// upjet has a condition AsyncOperation, which is True when an operation has ended.
const TypeOperation = deletion.TypeOperation

// Reasons of the OperationRunning condition.
const (
	// ReasonRunning means that an operation runs. The message has its start, its deadline
	// and its progress.
	ReasonRunning xpv2.ConditionReason = "Running"

	// ReasonQueued means that an operation waits for operations of other objects.
	ReasonQueued = deletion.ReasonQueued

	// ReasonFinished means that the last operation succeeded, or that nothing was left to
	// do.
	ReasonFinished xpv2.ConditionReason = "Finished"

	// ReasonFailed means that the last operation failed. It is repeated if it is still
	// needed.
	ReasonFailed xpv2.ConditionReason = "Failed"

	// ReasonInterrupted means that an operation was interrupted, by a crash or because it
	// took too long, and that its outcome is being determined.
	ReasonInterrupted xpv2.ConditionReason = "Interrupted"

	// ReasonOutcomeUnknown means that the outcome of a create is unknown. Nothing is created
	// until it is determined. The message has the next step for a person.
	ReasonOutcomeUnknown xpv2.ConditionReason = "OutcomeUnknown"

	// ReasonRecordUnusable means that the record of an operation cannot be used. Nothing is
	// done until a person has looked at it.
	ReasonRecordUnusable xpv2.ConditionReason = "RecordUnusable"
)

// Messages change only with the state of the operation, so that they cause no writes.
const (
	messageFinished = "No operation is running."
	messageQueued   = "Waiting for operations of other objects to end."
	messageEnded    = "its operation has ended meanwhile"

	bothAnnotations = "the annotations " + creation.AnnotationKeyRecord + " and " + creation.AnnotationKeyPending

	messageWaiting = "No external resource found for the create started at %s. It may still be in progress, or not be shown yet, until %s; after that it is treated as failed and retried. " +
		"To retry at once if it is not in progress, remove " + bothAnnotations + "."

	messageRepeated = "Another request of the create started at %s may be in progress. The deletion waits until %s. " +
		"If none is in progress, end the wait: remove " + bothAnnotations + "."

	messageUnknown = "The create started at %s%s was interrupted, and it is unknown whether the external resource was created: %s. " +
		"Look for the external resource in the external system%s%s. Then remove " + bothAnnotations +
		"; if it exists, set " + meta.AnnotationKeyExternalName + " to its name in the same command."
)

// maxHint is how many bytes of a SearchHint a condition has.
const maxHint = 1 << 10

// reasonClause says why the outcome of a create is unknown.
func reasonClause(r creation.Reason) string {
	switch r {
	case creation.LookUpFailed:
		return "looking it up failed, see the events of this object"
	case creation.NotAllowed:
		return "its management policies do not allow to repeat it"
	case creation.NoLookUp:
		return "this provider cannot look it up"
	case creation.NoResult:
		return "its operation has had its time, and still gives no result"
	default:
		return "the provider cannot tell yet whether there is an external resource"
	}
}

// setOperation sets the condition, unless it says the same already. Each reason has one status.
func setOperation(mg resource.Managed, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	if had := mg.GetCondition(TypeOperation); had.Reason == reason && had.Message == message {
		return
	}
	mg.SetConditions(xpv2.Condition{
		Type:               TypeOperation,
		Status:             status,
		LastTransitionTime: metav1.Now(),
		Reason:             reason,
		Message:            message,
	})
}

// setRunning says that an operation runs.
func setRunning(mg resource.Managed, s Status) {
	m := fmt.Sprintf(
		"%s, attempt %d, since %s, deadline %s", s.Type, s.Number, seam.Stamp(s.Started), seam.Stamp(s.Deadline),
	)
	if !time.Now().Before(s.Deadline) {
		m += " (past its deadline, and not ended yet)"
	}
	if s.Percent > 0 || s.Message != "" {
		m += fmt.Sprintf(": %d%%", s.Percent)
	}
	if s.Message != "" {
		m += " " + s.Message
	}
	setOperation(mg, corev1.ConditionTrue, ReasonRunning, m)
}

// setEnded says that no operation runs. r is the record of the last one if it failed with err.
func setEnded(mg resource.Managed, r *creation.Record, err operationError, b backoff) {
	switch {
	case r != nil && r.Error != "":
		setFailed(mg, ReasonFailed, r, err, b)
	case mg.GetCondition(TypeOperation).Status != corev1.ConditionUnknown:
		setOperation(mg, corev1.ConditionFalse, ReasonFinished, messageFinished)
	}
}

// setFailed says which attempt failed, and when the next begins. err is the zero value if this
// process does not know the error. Then the stored condition, which has it, stays.
func setFailed(mg resource.Managed, reason xpv2.ConditionReason, r *creation.Record, err operationError, b backoff) {
	text := err.text
	if text == "" {
		had := mg.GetCondition(TypeOperation)
		if (had.Reason == ReasonFailed || had.Reason == ReasonInterrupted) && r.Ended != nil &&
			!had.LastTransitionTime.Before(r.Ended) {
			return
		}
		text = r.Error
	}

	m := ""
	if r.Ended != nil {
		m = fmt.Sprintf("%s, attempt %d, failed at %s", r.Type, r.Attempt, seam.Stamp(r.Ended.Time))
		if next := b.end(r); !err.terminal && !next.IsZero() && mayRepeat(mg, r.Type) {
			m += ", next attempt at " + seam.Stamp(next)
		}
		m += ": "
	}
	setOperation(mg, corev1.ConditionFalse, reason, m+text)
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

// hasFailure reports whether the stored Synced condition has the error of the last operation
// that failed: no reconcile has failed since the OperationRunning condition changed.
func hasFailure(stored resource.Managed) bool {
	synced, operation := stored.GetCondition(xpv2.TypeSynced), stored.GetCondition(TypeOperation)
	return synced.Reason == xpv2.ReasonReconcileError &&
		!synced.LastTransitionTime.After(operation.LastTransitionTime.Add(time.Second))
}
