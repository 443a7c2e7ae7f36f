package managed

import "github.com/crossplane/crossplane-runtime/v2/pkg/event"

// Event reasons.
const (
	reasonCannotStoreAnnotations event.Reason = "CannotStoreAnnotations"
	reasonLostManagedResource    event.Reason = "ManagedResourceGone"
	reasonCannotUpdateManaged    event.Reason = "CannotUpdateManagedResource"
	reasonPending                event.Reason = "PendingExternalResource"
)
