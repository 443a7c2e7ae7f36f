package reservation

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
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

const (
	messageOnlyObserved   = "The management policies allow no change of the external resource."
	messageUnconfirmed    = "Nothing is reserved: no create has confirmed the external name."
	messageChanged        = "it has changed since it was read"
	messageMayHaveCreated = "its failed create may have created an external resource under another name: look for it, " +
		"and then remove the annotation " + creation.AnnotationKeyPending
)

// reportHeld reports that another managed resource holds the lease.
func (r *reservation) reportHeld(c *layer.Call, message string) {
	setCondition(c, corev1.ConditionFalse, ReasonReservedByOther, message)
}

// reportReserved sets the condition to True if the managed resource has the condition. It is
// called in each reconcile, because the last write of status may have failed.
func (r *reservation) reportReserved(c *layer.Call) {
	if had := seam.ConditionOf(c.Managed, TypeReserved); had.Reason != "" && had.Status != corev1.ConditionTrue {
		setCondition(c, corev1.ConditionTrue, ReasonReserved, "")
	}
}

// reportNotNeeded sets the condition to Unknown if the managed resource has the condition.
func (r *reservation) reportNotNeeded(c *layer.Call, message string) {
	if seam.ConditionOf(c.Managed, TypeReserved).Reason != "" {
		setCondition(c, corev1.ConditionUnknown, ReasonNotNeeded, message)
	}
}

func setCondition(c *layer.Call, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	c.SetConditions(c.Managed, xpv2.Condition{
		Type:               TypeReserved,
		Status:             status,
		LastTransitionTime: metav1.NewTime(c.Now()),
		Reason:             reason,
		Message:            message,
	})
}
