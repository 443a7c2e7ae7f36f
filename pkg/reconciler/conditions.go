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

// Reasons of the Deleting condition of any object. The message says more.
const (
	ReasonDeletionRequested    = deletion.ReasonDeletionRequested    // It waits for nothing that is known yet.
	ReasonWaitingForDependents = deletion.ReasonWaitingForDependents // Other objects must be deleted first.
	ReasonBlockedByProtection  = deletion.ReasonBlockedByProtection  // A Usage protects one of those objects.
	ReasonWaitingForFinalizers = deletion.ReasonWaitingForFinalizers // Other controllers' finalizers hold it.
	ReasonBlockedByPause       = deletion.ReasonBlockedByPause       // An annotation or a management policy pauses it.
	ReasonReconcileFailed      = deletion.ReasonReconcileFailed      // See the Synced condition.
	ReasonDeadlineExceeded     = deletion.ReasonDeadlineExceeded     // The deletion takes longer than its deadline.
	ReasonForceOrphaned        = deletion.ReasonForceOrphaned        // An operator asked to remove finalizers.
	ReasonNotDeleting          = deletion.ReasonNotDeleting          // The status is False: see NotDeleting.
)

// Reasons of the Deleting condition of a managed resource. The Synced condition has the
// error of a reason that ends in Failed, and the object that ReasonNamespaceTerminating is
// about.
const (
	ReasonInitializeFailed           = deletion.ReasonInitializeFailed           // It could not be initialized.
	ReasonConnectFailed              = deletion.ReasonConnectFailed              // No connection to the provider.
	ReasonNamespaceTerminating       = deletion.ReasonNamespaceTerminating       // The namespace takes no new object.
	ReasonObserveFailed              = deletion.ReasonObserveFailed              // The external resource is unknown.
	ReasonCreateResultUnknown        = deletion.ReasonCreateResultUnknown        // A create's result is unknown.
	ReasonConfirmingAbsence          = deletion.ReasonConfirmingAbsence          // Not found, to be confirmed.
	ReasonExternalDeleteRequested    = deletion.ReasonExternalDeleteRequested    // The external system deletes it.
	ReasonExternalDeleteFailed       = deletion.ReasonExternalDeleteFailed       // The external system refuses that.
	ReasonWaitingForExternalResource = deletion.ReasonWaitingForExternalResource // It exists after that.
	ReasonWaitingForAsyncOperation   = deletion.ReasonWaitingForAsyncOperation   // An operation runs.
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
