package reconciler

import (
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
)

// TypeDeleting is the type of the condition that says why an object that is
// being deleted is still there. Its status is True. An object that is not being
// deleted does not have it; if another writer restores it there, from a backup for
// example, the next reconcile sets it to False.
const TypeDeleting = deletion.Type

// Reasons of the Deleting condition.
const (
	// ReasonDeletionRequested means that the deletion was requested, and that it
	// is not known yet to wait for anything.
	ReasonDeletionRequested = deletion.ReasonDeletionRequested

	// ReasonWaitingForDependents means that other objects must be deleted first
	// that still exist. The message counts them, and says why some of them do.
	ReasonWaitingForDependents = deletion.ReasonWaitingForDependents

	// ReasonBlockedByProtection means that an object that must be deleted first is
	// protected by a Usage or ClusterUsage, whose webhook refuses its deletion.
	ReasonBlockedByProtection = deletion.ReasonBlockedByProtection

	// ReasonDeadlineExceeded means that the deletion takes longer than its
	// deadline. The message says why, too.
	ReasonDeadlineExceeded = deletion.ReasonDeadlineExceeded

	// ReasonForceOrphaned means that an operator asked for finalizers to be
	// removed without their cleanup. The message says if that was refused.
	ReasonForceOrphaned = deletion.ReasonForceOrphaned

	// ReasonBlockedByPause means that reconciliation is paused, by annotation
	// or by management policy, and the deletion with it.
	ReasonBlockedByPause = deletion.ReasonBlockedByPause

	// ReasonWaitingForFinalizers means that finalizers of other controllers hold
	// the object. The message names them.
	ReasonWaitingForFinalizers = deletion.ReasonWaitingForFinalizers

	// ReasonInitializeFailed means that the managed resource could not be
	// initialized. The Synced condition says why.
	ReasonInitializeFailed = deletion.ReasonInitializeFailed

	// ReasonConnectFailed means that the provider could not be connected to.
	// The Synced condition says why.
	ReasonConnectFailed = deletion.ReasonConnectFailed

	// ReasonNamespaceTerminating means that something would have to be created in
	// the object's namespace, which is being deleted too, so that the API server
	// creates nothing in it. The Synced condition says what.
	ReasonNamespaceTerminating = deletion.ReasonNamespaceTerminating

	// ReasonObserveFailed means that the external resource could not be
	// observed. The Synced condition says why.
	ReasonObserveFailed = deletion.ReasonObserveFailed

	// ReasonCreateResultUnknown means that it is unknown whether the external
	// resource was created. The message has the steps to resolve it.
	ReasonCreateResultUnknown = deletion.ReasonCreateResultUnknown

	// ReasonConfirmingAbsence means that the external resource was not found,
	// and that this has to be confirmed: it was created moments ago, or the
	// provider wants to be sure.
	ReasonConfirmingAbsence = deletion.ReasonConfirmingAbsence

	// ReasonExternalDeleteRequested means that the external system was asked to
	// delete the external resource.
	ReasonExternalDeleteRequested = deletion.ReasonExternalDeleteRequested

	// ReasonExternalDeleteFailed means that the external system did not accept
	// the deletion of the external resource. The Synced condition says why.
	ReasonExternalDeleteFailed = deletion.ReasonExternalDeleteFailed

	// ReasonWaitingForExternalResource means that the external resource still
	// exists although its deletion was requested.
	ReasonWaitingForExternalResource = deletion.ReasonWaitingForExternalResource

	// ReasonWaitingForAsyncOperation means that an operation of the provider is in
	// progress: the deletion of the external resource, or an operation that was
	// started before the deletion was requested.
	ReasonWaitingForAsyncOperation = deletion.ReasonWaitingForAsyncOperation

	// ReasonNotDeleting is the reason if the status is False.
	ReasonNotDeleting = deletion.ReasonNotDeleting

	// ReasonReconcileFailed means that something else failed. The Synced condition
	// says what.
	ReasonReconcileFailed = deletion.ReasonReconcileFailed
)

// AnnotationKeyForceOrphan is the annotation by which an operator asks that the
// finalizers which WithForceOrphan lists be removed from an object that is being
// deleted. Its value must be the object's own UID.
const AnnotationKeyForceOrphan = deletion.AnnotationKeyForceOrphan

// NotDeleting returns the condition that takes the place of a Deleting condition which
// another writer has restored on an object that is not being deleted.
func NotDeleting(at time.Time) xpv2.Condition { return deletion.NotDeleting(at) }

// Deleting returns the conditions of an object that is being deleted: Ready,
// which is False for the reason Deleting, and Deleting, which says why the
// object still exists. Both carry the message, since many tools show only Ready.
func Deleting(at time.Time, reason xpv2.ConditionReason, message string) []xpv2.Condition {
	return deletion.Conditions(at, reason, message)
}
