package deletion

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// Messages of the Deleting condition of managed resources.
const (
	MessageManagedPaused = MessagePaused + " To continue, remove the annotation " +
		meta.AnnotationKeyReconciliationPaused +
		", or allow management policies."
	MessageInitializeFailed = "Cannot initialize the managed resource: see the Synced condition. The external resource was not touched."
	MessageConnectFailed    = "Cannot connect to the provider: see the Synced condition. The external resource was not touched."
	MessageObserveFailed    = "Cannot observe the external resource: see the Synced condition."
	MessageCreateUnknown    = "It is unknown whether the external resource was created, so it cannot be deleted safely. " +
		creation.MessageSettle
	MessageGracePeriod  = "The external resource was created moments ago and is not found. Its absence is being confirmed."
	MessageMayBeCreated = "The external resource is not found, but a create without a result may be in progress until %s. " +
		"If that create is not in progress, end the wait: remove the annotation " + creation.AnnotationKeyPending + "."
	MessageOperationRuns   = "The external resource is kept, and the finalizer until no operation runs: %s."
	MessageDeleteRequested = "The external resource is being deleted."
	MessageDeleteFailed    = "Cannot delete the external resource: see the Synced condition."
	MessageCleanupFailed   = "The external resource does not exist, but cleanup failed: see the Synced condition."
	MessageReconcileFailed = "Cannot reconcile the managed resource: see the Synced condition."
	MessageSomeFinalizer   = "Waiting for finalizers to be removed, including one that may be this provider's: "
	MessageTerminating     = "The provider must create an object in this namespace, but the namespace is terminating: see the Synced condition. " +
		"The managed resource stays until the provider does not need that object, or until its finalizers are removed, which leaves the external resource behind."
)
