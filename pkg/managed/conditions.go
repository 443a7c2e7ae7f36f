package managed

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// TypeCreateResolved is the type of the condition that says whether the outcome of an
// interrupted create is known. A managed resource does not have the condition if its creates
// were not interrupted.
const TypeCreateResolved xpv2.ConditionType = "CreateResolved"

// Reasons of the CreateResolved condition. Another one is ReasonCreateResultUnknown of
// pkg/reconciler: the provider cannot determine whether the external resource exists, and the
// message has the steps to resolve it.
const (
	// ReasonWaitingForCreate means that no external resource was found, and that
	// the create may still be in progress. The message says until when.
	ReasonWaitingForCreate xpv2.ConditionReason = "WaitingForCreate"

	// ReasonFindFailed means that the external resource could not be looked up.
	// An event says why.
	ReasonFindFailed xpv2.ConditionReason = "FindFailed"

	// ReasonCreateResolved means that the outcome is known now.
	ReasonCreateResolved xpv2.ConditionReason = "Resolved"
)

// TypeExternalNameReserved is the type of the condition that says whether a managed resource
// has reserved its external name. A managed resource that never had to wait for its
// reservation does not have the condition.
const TypeExternalNameReserved xpv2.ConditionType = "ExternalNameReserved"

// Reasons of the ExternalNameReserved condition.
const (
	// ReasonReservedByOther means that another managed resource has reserved the external
	// name. This one does not act on the external resource until the other no longer exists.
	// The message names the other if it is in the same namespace.
	ReasonReservedByOther xpv2.ConditionReason = "ReservedByOther"

	// ReasonReserved means that the managed resource has reserved the name.
	ReasonReserved xpv2.ConditionReason = "Reserved"

	// ReasonReservationNotNeeded means that the managed resource needs no reservation: the
	// management policies allow no change of the external resource, or no create has
	// confirmed its name.
	ReasonReservationNotNeeded xpv2.ConditionReason = "NotNeeded"
)

// TypeConflictingWrites is the type of the condition that says whether this controller and
// another writer change a field of spec, labels or annotations back and forth. The message
// names the field and the other field manager. A managed resource without such a field does
// not have the condition.
const TypeConflictingWrites xpv2.ConditionType = "ConflictingWrites"

// Reasons of the ConflictingWrites condition.
const (
	// ReasonChangedBack means that another writer has changed the field back five times.
	ReasonChangedBack xpv2.ConditionReason = "ChangedBack"

	// ReasonWritesAgree means that neither has changed the field for 15 minutes.
	ReasonWritesAgree xpv2.ConditionReason = "WritesAgree"
)

// Reasons of the Synced condition, beside upstream's.
const (
	// ReasonThrottled means that the external system throttles the calls of the account. The
	// message says until when.
	ReasonThrottled xpv2.ConditionReason = "Throttled"

	// ReasonTerminal means that the last call failed with an error that a retry would not
	// resolve. The message says when the call is repeated.
	ReasonTerminal xpv2.ConditionReason = "Terminal"
)

// Reasons of events of upstream's.
const (
	reasonPending             event.Reason = "PendingExternalResource"
	reasonCannotConnect       event.Reason = "CannotConnectToProvider"
	reasonCannotObserve       event.Reason = "CannotObserveExternalResource"
	reasonCannotCreate        event.Reason = "CannotCreateExternalResource"
	reasonCannotUpdate        event.Reason = "CannotUpdateExternalResource"
	reasonCannotDelete        event.Reason = "CannotDeleteExternalResource"
	reasonCannotUpdateManaged event.Reason = "CannotUpdateManagedResource"
)

// Event reasons.
const (
	reasonCannotStoreAnnotations event.Reason = "CannotStoreAnnotations"
	reasonOverwroteAnnotation    event.Reason = "OverwroteAnnotation"
	reasonUnstableAnnotation     event.Reason = "UnstableAnnotation"
	reasonLostManagedResource    event.Reason = "ManagedResourceGone"
	reasonForeignStatus          event.Reason = "StatusWrittenByProvider"
	reasonConfirmingAbsence      event.Reason = "ConfirmingAbsence"
	reasonFoundAfterAll          event.Reason = "FoundAfterAll"
	reasonCannotProtectUsage     event.Reason = "CannotProtectUsage"
	reasonCannotRelease          event.Reason = "CannotReleaseReservation"
	reasonAdopted                event.Reason = "AdoptedExternalResource"
	reasonResolvedCreate         event.Reason = "ResolvedCreate"
	reasonCannotResolveCreate    event.Reason = "CannotResolveCreate"
	reasonConflictingWrites      event.Reason = "ConflictingWrites"
)

// messageSettle has the steps by which a person resolves a create whose outcome is unknown.
const messageSettle = "Look for it in the external system. If it exists, set the annotation " +
	meta.AnnotationKeyExternalName +
	" to its name. Then remove the annotation " + creation.AnnotationKeyPending +
	", and set " + meta.AnnotationKeyReconcileRequestedAt +
	" to a new value: removing the annotation alone does not trigger a reconcile."

func deletingCondition(o client.Object) xpv2.Condition {
	return seam.ConditionOf(o, reconciler.TypeDeleting)
}
