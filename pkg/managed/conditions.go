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
// interrupted create is known. A managed resource whose outcome was known at once does
// not have the condition.
const TypeCreateResolved xpv2.ConditionType = "CreateResolved"

// Reasons of the CreateResolved condition. Another is ReasonCreateResultUnknown of
// pkg/reconciler: it is unknown whether there is an external resource, and the
// message says what to do.
const (
	// ReasonWaitingForCreate means that no external resource was found, and that
	// the create may still be in progress. The message says until when.
	ReasonWaitingForCreate xpv2.ConditionReason = "WaitingForCreate"

	// ReasonFindFailed means that the external resource could not be looked up.
	// An event says why.
	ReasonFindFailed xpv2.ConditionReason = "FindFailed"

	// ReasonCreateResolved means that the outcome is known by now.
	ReasonCreateResolved xpv2.ConditionReason = "Resolved"
)

// TypeExternalNameReserved is the type of the condition that says whether a
// managed resource has its external name for itself. One that never had to wait
// for it does not have the condition.
const TypeExternalNameReserved xpv2.ConditionType = "ExternalNameReserved"

// Reasons of the ExternalNameReserved condition.
const (
	// ReasonReservedByOther means that another managed resource has the external
	// resource of this name, and that this one does not act on it until the other
	// no longer exists. The message names the other if it is in the same
	// namespace.
	ReasonReservedByOther xpv2.ConditionReason = "ReservedByOther"

	// ReasonReserved means that the managed resource has the name now.
	ReasonReserved xpv2.ConditionReason = "Reserved"

	// ReasonReservationNotNeeded means that nothing is reserved, and that nothing
	// has to be: the management policies allow no change of the external resource,
	// or no create has confirmed its name.
	ReasonReservationNotNeeded xpv2.ConditionReason = "NotNeeded"
)

// Reasons of the Synced condition, beside upstream's.
const (
	// ReasonThrottled means that the external system throttles the calls of the account. The
	// message says until when.
	ReasonThrottled xpv2.ConditionReason = "Throttled"

	// ReasonTerminal means that the last call failed with an error that the same call returns
	// again. The message says what has to change before it is made again.
	ReasonTerminal xpv2.ConditionReason = "Terminal"
)

// Event reasons.
const (
	reasonCannotStoreAnnotations event.Reason = "CannotStoreAnnotations"
	reasonOverwroteAnnotation    event.Reason = "OverwroteAnnotation"
	reasonUnstableAnnotation     event.Reason = "UnstableAnnotation"
	reasonLostManagedResource    event.Reason = "ManagedResourceGone"
	reasonCannotReportDeletion   event.Reason = "CannotReportDeletion"
	reasonForeignStatus          event.Reason = "StatusWrittenByProvider"
	reasonConfirmingAbsence      event.Reason = "ConfirmingAbsence"
	reasonFoundAfterAll          event.Reason = "FoundAfterAll"
	reasonCannotProtectUsage     event.Reason = "CannotProtectUsage"
	reasonCannotRelease          event.Reason = "CannotReleaseReservation"
	reasonAdopted                event.Reason = "AdoptedExternalResource"
	reasonResolvedCreate         event.Reason = "ResolvedCreate"
	reasonCannotResolveCreate    event.Reason = "CannotResolveCreate"
	reasonThrottled              event.Reason = "Throttled"
)

// messageSettle says how a person settles a create whose outcome is unknown.
const messageSettle = "Look for it in the external system. If it exists, set the annotation " + meta.AnnotationKeyExternalName +
	" to its name. Then remove the annotation " + creation.AnnotationKeyPending +
	", and set " + meta.AnnotationKeyReconcileRequestedAt + " to a new value: removing the annotation alone does not trigger a reconcile."

func deletingCondition(o client.Object) xpv2.Condition {
	return seam.ConditionOf(o, reconciler.TypeDeleting)
}
