package deletion

import xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

// Reasons of the Deleting condition. Package reconciler documents them.
const (
	ReasonDeletionRequested          xpv2.ConditionReason = "DeletionRequested"
	ReasonWaitingForDependents       xpv2.ConditionReason = "WaitingForDependents"
	ReasonBlockedByProtection        xpv2.ConditionReason = "BlockedByProtection"
	ReasonDeadlineExceeded           xpv2.ConditionReason = "DeadlineExceeded"
	ReasonForceOrphaned              xpv2.ConditionReason = "ForceOrphaned"
	ReasonBlockedByPause             xpv2.ConditionReason = "BlockedByPause"
	ReasonWaitingForFinalizers       xpv2.ConditionReason = "WaitingForFinalizers"
	ReasonInitializeFailed           xpv2.ConditionReason = "InitializeFailed"
	ReasonConnectFailed              xpv2.ConditionReason = "ConnectFailed"
	ReasonNamespaceTerminating       xpv2.ConditionReason = "NamespaceTerminating"
	ReasonObserveFailed              xpv2.ConditionReason = "ObserveFailed"
	ReasonCreateResultUnknown        xpv2.ConditionReason = "CreateResultUnknown"
	ReasonConfirmingAbsence          xpv2.ConditionReason = "ConfirmingAbsence"
	ReasonExternalDeleteRequested    xpv2.ConditionReason = "ExternalDeleteRequested"
	ReasonExternalDeleteFailed       xpv2.ConditionReason = "ExternalDeleteFailed"
	ReasonWaitingForExternalResource xpv2.ConditionReason = "WaitingForExternalResource"
	ReasonWaitingForAsyncOperation   xpv2.ConditionReason = "WaitingForAsyncOperation"
	ReasonNotDeleting                xpv2.ConditionReason = "NotDeleting"
	ReasonReconcileFailed            xpv2.ConditionReason = "ReconcileFailed"
)

// TypeOperation is the type of the condition of asynchronous operations, ReasonQueued its reason while one waits for
// others. Package asyncstate documents them.
const (
	TypeOperation xpv2.ConditionType   = "OperationRunning"
	ReasonQueued  xpv2.ConditionReason = "Queued"
)
