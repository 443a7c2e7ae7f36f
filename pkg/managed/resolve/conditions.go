package resolve

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
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

	// ReasonResolved means that the outcome is known now.
	ReasonResolved xpv2.ConditionReason = "Resolved"
)

// Event reasons.
const (
	reasonResolvedCreate      event.Reason = "ResolvedCreate"
	reasonCannotResolveCreate event.Reason = "CannotResolveCreate"
)
