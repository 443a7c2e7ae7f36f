package deletion

import (
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Type is the type of the Deleting condition. Package reconciler documents it.
const Type xpv2.ConditionType = "Deleting"

// Conditions returns the conditions of an object that is being deleted: Ready, which is False
// for the reason Deleting, and Deleting, which has the reason why the object still exists. Both
// have the message, because many tools show only Ready.
func Conditions(at time.Time, reason xpv2.ConditionReason, message string) []xpv2.Condition {
	ready := xpv2.Deleting().WithMessage(message)
	ready.LastTransitionTime = metav1.NewTime(at)
	return []xpv2.Condition{ready, {
		Type:               Type,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(at),
		Reason:             reason,
		Message:            message,
	}}
}

// NotDeleting returns the condition that takes the place of a Deleting condition which
// another writer has restored on an object that is not being deleted.
func NotDeleting(at time.Time) xpv2.Condition {
	return xpv2.Condition{
		Type:               Type,
		Status:             corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(at),
		Reason:             ReasonNotDeleting,
		Message:            "It is not being deleted.",
	}
}

// ConditionOf returns the Deleting condition of o.
func ConditionOf(o client.Object) xpv2.Condition { return seam.ConditionOf(o, Type) }
