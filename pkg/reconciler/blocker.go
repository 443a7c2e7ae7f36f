package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// labelInUse is what Crossplane puts on a resource that a Usage protects.
	// Its deletion is refused by a webhook, so it has no deletionTimestamp.
	labelInUse = "crossplane.io/in-use"

	// maxBlockersNamed is how many blockers a message names.
	maxBlockersNamed = 3

	// maxReasonsLength bounds the reasons of all blockers in a message, without their names, in
	// bytes.
	maxReasonsLength = 1200
	maxKindLength    = 63
)

// An observation is the state of an object's dependents.
type observation struct {
	total    int
	blockers []blocker

	// unknown says why the list may lack some of them.
	unknown string
}

// A blocker is a dependent that still exists, or may.
type blocker struct {
	Dependent

	// why it still exists: its own Deleting condition, if it has one, and the error in its Synced condition, if the
	// former lacks that.
	why string

	// reason is a reason code of the Deleting condition that says more than
	// WaitingForDependents.
	reason xpv2.ConditionReason

	// urgency says how soon it is named: few are.
	urgency urgency

	// since is when its deletion was requested. It is not when its situation
	// last changed, which would change this object's with it.
	since time.Time
}

// urgency is lower for a blocker that a person must act on.
type urgency int

const (
	urgencyProtected urgency = iota
	urgencyStuck
	urgencyDeleting
	urgencyNotRequested
)

// blocker returns what a report about o says of u, which has the name of d. It is nil if u is treated as if it did not
// exist. Only objects that o controls, and the composite resource that is bound to a claim, are quoted.
func (d Dependent) blocker(l DependentLister, o client.Object, u *unstructured.Unstructured) *blocker {
	controller := types.UID("")
	if c := metav1.GetControllerOf(u); c != nil {
		controller = c.UID
	}
	claim, ofClaim := l.(compositeOfClaim)

	switch {
	case ofClaim && !claim.binds(o, u):
		return &blocker{Dependent: d, why: errNotBound.Error(), urgency: urgencyStuck}
	case ofClaim:
	case d.Owner != "" && (d.Owner != controller || d.Namespace != u.GetNamespace()):
		return nil // A reader ignores the namespace if the kind is cluster-scoped.
	case controller == "" || controller != o.GetUID():
		return &blocker{Dependent: d, why: "it still exists", urgency: urgencyDeleting}
	}
	b := blockerOf(d, u)
	return &b
}

// byUrgency orders blockers, and always in the same way.
func byUrgency(a, b blocker) int {
	return cmp.Or(cmp.Compare(a.urgency, b.urgency), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Group, b.Group))
}

// waiting reports whether there are dependents left, or may be.
func (d observation) waiting() bool { return len(d.blockers) > 0 || d.unknown != "" }

// String names the dependent as kubectl does.
func (d Dependent) String() string {
	n := deletion.Cut(oneLine(d.Kind), maxKindLength) + "/" + deletion.Cut(oneLine(d.Name), deletion.MaxNameLength)
	if d.Namespace != "" {
		n += " in " + deletion.Cut(oneLine(d.Namespace), maxKindLength)
	}
	return n
}

// unreadable puts an error into a few words that don't change from one try to the next,
// and quote nothing of the error.
func unreadable(err error) string {
	switch {
	case errors.Is(err, errNotBound):
		return errNotBound.Error()
	case errors.Is(err, errLate):
		return errLate.Error()
	case kerrors.IsForbidden(err):
		return "forbidden"
	case kmeta.IsNoMatchError(err):
		return "no such kind"
	case isLate(err), kerrors.IsServerTimeout(err), kerrors.IsServiceUnavailable(err), kerrors.IsInternalError(err),
		kerrors.IsTooManyRequests(err):
		return "the API server did not answer"
	default:
		return "cannot be read"
	}
}

// blockerOf returns why u still exists.
func blockerOf(d Dependent, u *unstructured.Unstructured) blocker {
	b := blocker{Dependent: d, urgency: urgencyDeleting}

	if !meta.WasDeleted(u) {
		b.why, b.urgency = "its deletion was not requested yet", urgencyNotRequested
		if u.GetLabels()[labelInUse] == "true" {
			b.why, b.reason, b.urgency = "protected by a Usage", ReasonBlockedByProtection, urgencyProtected
		}
		return b
	}

	b.since = u.GetDeletionTimestamp().Time
	deleting, synced := conditionIn(u, TypeDeleting), conditionIn(u, xpv2.TypeSynced)

	switch {
	case deleting.Status == corev1.ConditionTrue:
		b.why, b.reason, b.urgency = string(deleting.Reason), deleting.Reason, urgencyOf(deleting.Reason)

		// How to orphan it is said on the object itself.
		if m, _, _ := strings.Cut(deleting.Message, deletion.OrphanHint); m != "" {
			b.why += ": " + m
		}
	case meta.IsPaused(u):
		b.why, b.reason, b.urgency = "its reconciliation is paused", ReasonBlockedByPause, urgencyStuck
	case len(u.GetFinalizers()) == 0:
		b.why = "nothing holds it any more"
	default:
		b.why = "held by " + deletion.Names(u.GetFinalizers())
	}

	if saysMore(deleting, synced) && !meta.IsPaused(u) {
		b.why = strings.TrimSuffix(b.why, ".") + "; " + string(synced.Reason) + ": " + synced.Message
		b.urgency = min(b.urgency, urgencyStuck)
	}
	return b
}

// saysMore reports whether the Synced condition has an error that the Deleting condition
// lacks.
func saysMore(deleting, synced xpv2.Condition) bool {
	if synced.Status != corev1.ConditionFalse {
		return false
	}
	if strings.Contains(quoted(deleting.Message), strings.TrimSuffix(quoted(synced.Message), ".")) {
		return false
	}

	// The report about its dependents has the cause.
	return deleting.Reason != ReasonWaitingForDependents && deleting.Reason != ReasonBlockedByProtection
}

// urgencyOf returns the urgency of a dependent whose Deleting condition has that
// reason.
func urgencyOf(r xpv2.ConditionReason) urgency {
	switch r {
	case ReasonBlockedByProtection:
		return urgencyProtected
	case ReasonDeletionRequested, ReasonWaitingForDependents, ReasonExternalDeleteRequested,
		ReasonWaitingForExternalResource, ReasonConfirmingAbsence, ReasonForceOrphaned:
		return urgencyDeleting
	default:
		return urgencyStuck
	}
}

// summary counts the dependents that are deleted, and names some that still exist.
func (d observation) summary() string {
	var s strings.Builder

	switch gone := d.total - len(d.blockers); {
	case d.unknown != "":
		// A count of an incomplete list would be wrong.
		fmt.Fprintf(&s, "Some dependents may be unknown: %s.", d.unknown)
	case d.total > 0:
		fmt.Fprintf(&s, "%d of %d dependents deleted, %d%%.", gone, d.total, 100*gone/d.total)
	}

	// The fewer are named, the more can be said of each: a claim has one dependent,
	// whose message names several.
	room := maxReasonsLength / max(1, min(len(d.blockers), maxBlockersNamed))

	for i, b := range d.blockers {
		if i == maxBlockersNamed {
			fmt.Fprintf(&s, " And %d more.", len(d.blockers)-maxBlockersNamed)
			break
		}
		fmt.Fprintf(&s, " %s", b.Dependent)
		if !b.since.IsZero() {
			fmt.Fprintf(&s, " since %s", seam.Stamp(b.since))
		}
		fmt.Fprintf(&s, ": %s.", strings.TrimSuffix(deletion.CutMiddle(quoted(b.why), room), "."))
	}
	return strings.TrimSpace(s.String())
}

// reason returns the reason code of the Deleting condition.
func (d observation) reason() xpv2.ConditionReason {
	// Only a person can remove protection, so it comes first.
	for _, b := range d.blockers {
		if b.reason == ReasonBlockedByProtection {
			return b.reason
		}
	}
	return ReasonWaitingForDependents
}

// conditionIn returns a condition of u, even if the rest of its status has another
// shape. Unlike seam.ConditionOf, it looks at nothing else: there may be hundreds of
// dependents.
func conditionIn(u *unstructured.Unstructured, t xpv2.ConditionType) xpv2.Condition {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	list, _ := v.([]any)

	for _, v := range list {
		if c, _ := v.(map[string]any); c["type"] == string(t) {
			return conditionFrom(c)
		}
	}
	return xpv2.Condition{}
}

// oneLine returns s without line breaks, control characters and invalid UTF-8, which
// terminals and JSON change.
func oneLine(s string) string {
	ends := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"), ends), " ")
}

// quoted returns another writer's message as part of a message. Errors that are
// wrapped repeatedly, here and by an SDK, say the same twice: "delete failed: delete
// failed: 409".
func quoted(s string) string {
	parts := strings.Split(strings.ReplaceAll(oneLine(s), ".: ", ": "), ": ")
	return strings.Join(slices.Compact(parts), ": ")
}
