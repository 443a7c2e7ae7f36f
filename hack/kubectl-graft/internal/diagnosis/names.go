package diagnosis

// Annotations of crossplane-runtime.
const (
	AnnotationExternalName       = "crossplane.io/external-name"
	AnnotationCreatePending      = "crossplane.io/external-create-pending"
	AnnotationPaused             = "crossplane.io/paused"
	AnnotationReconcileRequested = "crossplane.io/reconcile-requested-at"

	annotationCreateSucceeded = "crossplane.io/external-create-succeeded"
	annotationCreateFailed    = "crossplane.io/external-create-failed"
)

// Annotations of Graft.
const (
	AnnotationOperation     = "graft.crossplane.io/async-operation"
	AnnotationReserves      = "graft.crossplane.io/reserves"
	AnnotationHolder        = "graft.crossplane.io/holder"
	AnnotationCreateRefused = "graft.crossplane.io/create-refused"
)

const (
	// LabelInUse is what Crossplane puts on an object that a Usage protects.
	LabelInUse = "crossplane.io/in-use"

	// FinalizerUsage holds a ProviderConfigUsage for Graft.
	FinalizerUsage = "graft.crossplane.io/in-use"

	// FinalizerManaged is set by crossplane-runtime's reconciler of managed resources.
	FinalizerManaged = "finalizer.managedresource.crossplane.io"

	// FinalizerConfig holds a ProviderConfig that managed resources use.
	FinalizerConfig = "in-use.crossplane.io"

	// FinalizerComposite is set by Crossplane's reconciler of composites.
	FinalizerComposite = "composite.apiextensions.crossplane.io"

	// FinalizerClaim is set by Crossplane's reconciler of claims.
	FinalizerClaim = "finalizer.apiextensions.crossplane.io"
)

// Types of conditions.
const (
	typeReady    = "Ready"
	typeSynced   = "Synced"
	typeHealthy  = "Healthy"
	typeDeleting = "Deleting"

	// Crossplane v2 reports these of a package revision, in place of Healthy.
	typeRevisionHealthy = "RevisionHealthy"
	typeRuntimeHealthy  = "RuntimeHealthy"

	typeOperation = "OperationRunning"
	typeResolved  = "CreateResolved"
	typeReserved  = "ExternalNameReserved"
	typeConflict  = "ConflictingWrites"
)

// Reasons of Graft's conditions. A guess about an object without these conditions has the same reasons.
const (
	ReasonDeletionRequested          = "DeletionRequested"
	ReasonBlockedByPause             = "BlockedByPause"
	ReasonWaitingForFinalizers       = "WaitingForFinalizers"
	ReasonInitializeFailed           = "InitializeFailed"
	ReasonConnectFailed              = "ConnectFailed"
	ReasonObserveFailed              = "ObserveFailed"
	ReasonReconcileFailed            = "ReconcileFailed"
	ReasonNamespaceTerminating       = "NamespaceTerminating"
	ReasonCreateResultUnknown        = "CreateResultUnknown"
	ReasonConfirmingAbsence          = "ConfirmingAbsence"
	ReasonExternalDeleteRequested    = "ExternalDeleteRequested"
	ReasonExternalDeleteFailed       = "ExternalDeleteFailed"
	ReasonWaitingForExternalResource = "WaitingForExternalResource"
	ReasonWaitingForAsyncOperation   = "WaitingForAsyncOperation"
	ReasonWaitingForDependents       = "WaitingForDependents"
	ReasonBlockedByProtection        = "BlockedByProtection"
	ReasonDeadlineExceeded           = "DeadlineExceeded"
	ReasonForceOrphaned              = "ForceOrphaned"

	ReasonRunning          = "Running"
	ReasonQueued           = "Queued"
	ReasonFailed           = "Failed"
	ReasonInterrupted      = "Interrupted"
	ReasonOutcomeUnknown   = "OutcomeUnknown"
	ReasonRecordUnusable   = "RecordUnusable"
	ReasonWaitingForCreate = "WaitingForCreate"
	ReasonFindFailed       = "FindFailed"
	ReasonReservedByOther  = "ReservedByOther"
	ReasonCreateRefused    = "CreateRefused"
	ReasonPaused           = "ReconcilePaused"
	ReasonThrottled        = "Throttled"
	ReasonTerminal         = "Terminal"
	ReasonChangedBack      = "ChangedBack"
)

// createIncomplete begins what crossplane-runtime says in Synced when it stops because a create was interrupted.
const createIncomplete = "cannot determine creation result"

// createFailed is part of what Graft says in Synced if it can't look up the external resource of a create that failed.
const createFailed = "cannot look up the external resource of a create that failed"
