package reservation

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// TypeReserved is the type of the condition that says whether a managed resource
// has reserved its external name. A managed resource that never had to wait for its
// reservation does not have the condition.
const TypeReserved xpv2.ConditionType = "ExternalNameReserved"

// Reasons of the ExternalNameReserved condition.
const (
	// ReasonReservedByOther means that another managed resource has reserved the external
	// name. This one does not act on the external resource until the other no longer exists.
	// The message names the other if it is in the same namespace.
	ReasonReservedByOther xpv2.ConditionReason = "ReservedByOther"

	// ReasonReserved means that the managed resource has reserved the name.
	ReasonReserved xpv2.ConditionReason = "Reserved"

	// ReasonNotNeeded means that the managed resource needs no reservation: the
	// management policies allow no change of the external resource, or no create has
	// confirmed its name.
	ReasonNotNeeded xpv2.ConditionReason = "NotNeeded"
)

// Event reasons.
const (
	reasonCannotRelease event.Reason = "CannotReleaseReservation"
)
