package asyncstate

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
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
