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

// TypeOperation is the type of the condition that describes an object's operation.
// Its status is True while one runs. An object that never had one lacks it.
//
// It is not called AsyncOperation, as a condition of upjet's is: that is True when the
// operation has ended.
const TypeOperation xpv2.ConditionType = "OperationRunning"

// Reasons of the OperationRunning condition.
const (
	// ReasonRunning means that an operation runs. The message says which, since
	// when, and how far it is if it says so.
	ReasonRunning xpv2.ConditionReason = "Running"

	// ReasonQueued means that an operation waits for others of other objects to
	// end.
	ReasonQueued xpv2.ConditionReason = "Queued"

	// ReasonFinished means that the last operation succeeded, or that there was
	// nothing left to do.
	ReasonFinished xpv2.ConditionReason = "Finished"

	// ReasonFailed means that the last operation failed. It will be tried once
	// more, if there is still reason to.
	ReasonFailed xpv2.ConditionReason = "Failed"

	// ReasonInterrupted means that an operation was interrupted, by a crash or
	// because it took too long, and that its outcome is being determined.
	ReasonInterrupted xpv2.ConditionReason = "Interrupted"

	// ReasonResultUnknown means that the outcome of a create is unknown. Nothing
	// is created until it is determined. The message says what a person can do.
	ReasonResultUnknown xpv2.ConditionReason = "ResultUnknown"

	// ReasonRecordUnusable means that there is a record of an operation that
	// can't be used. Nothing is done until a person has looked at it.
	ReasonRecordUnusable xpv2.ConditionReason = "RecordUnusable"
)

const messageFinished = "No operation is running."

// Messages of interrupted creates. They change only when there is something new to
// say, so that they cost no writes.
const (
	messageWaiting = "No external resource found for the create started at %s. It may still be in progress until %s; after that it is treated as failed and retried. " +
		"To retry at once if it is not in progress, remove the annotations " + AnnotationKeyOperation + " and " + meta.AnnotationKeyExternalCreatePending + "."

	messageRepeated = "Another process repeats the create started at %s. The external resource is deleted at %s, when that can no longer be in progress. " +
		"To delete it at once if it is not in progress, remove the annotations " + AnnotationKeyOperation + " and " + meta.AnnotationKeyExternalCreatePending + "."

	messageUnknown = "The create started at %s%s was interrupted, and %v: %s. " +
		"Look for the external resource in the external system. Then remove the annotations " + AnnotationKeyOperation + " and " + meta.AnnotationKeyExternalCreatePending +
		"; if it exists, set " + meta.AnnotationKeyExternalName + " to its name in the same command."
)

func condition(status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) xpv2.Condition {
	return xpv2.Condition{
		Type:               TypeOperation,
		Status:             status,
		LastTransitionTime: metav1.Now(),
		Reason:             reason,
		Message:            message,
	}
}

// say in which state an object's operation is. Each reason goes with one status.
func say(mg resource.Managed, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	c := condition(status, reason, message)
	if had := mg.GetCondition(TypeOperation); had.Reason == c.Reason && had.Message == c.Message {
		return
	}
	mg.SetConditions(c)
}

// nameOf returns the name of an attempt.
func nameOf(a Attempt) string { return fmt.Sprintf("%s, attempt %d", a.Type, a.Number) }

// sayRunning says that an operation runs, and since when.
func sayRunning(mg resource.Managed, s Status) {
	m := nameOf(s.Attempt) + ", since " + seam.Stamp(s.Started)
	if s.Percent > 0 || s.Message != "" {
		m += fmt.Sprintf(": %d%%", s.Percent)
	}

	if s.Message != "" {
		m += " " + s.Message
	}

	if !time.Now().Before(s.Deadline) {
		m += fmt.Sprintf(" (past its deadline, %s, and not ended yet)", seam.Stamp(s.Deadline))
	}
	say(mg, corev1.ConditionTrue, ReasonRunning, m)
}

// sayEnded says how the last operation ended if it failed; r is its record, or nil.
func (t *Tracker) sayEnded(mg resource.Managed, r *creation.Record) {
	switch {
	case r != nil && r.Error != "":
		say(mg, corev1.ConditionFalse, ReasonFailed, t.attemptFailed(mg, r)+t.failure(mg, r).Error())
	case mg.GetCondition(TypeOperation).Status != corev1.ConditionUnknown:
		say(mg, corev1.ConditionFalse, ReasonFinished, messageFinished)
	}
}
