package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// labelInUse is what Crossplane puts on a resource that a Usage protects.
	// Its deletion is refused by a webhook, so it has no deletionTimestamp.
	labelInUse = "crossplane.io/in-use"

	// maxBlockersNamed is how many blockers a message names, and maxReasonLength
	// how long what it says of each may be.
	maxBlockersNamed = 3
	maxReasonLength  = 200
)

// dependents is what became of an object's dependents.
type dependents struct {
	total    int
	blockers []blocker

	// unknown says why the list may lack some.
	unknown string
}

// A blocker is a dependent that still exists, or may.
type blocker struct {
	Dependent

	// why it is still there, in its own words where it has any.
	why string

	// reason is a reason code of the Deleting condition that says more than
	// that somebody waits for a dependent.
	reason xpv2.ConditionReason

	since time.Time
}

// observe o's dependents. It never fails: what can't be known is part of what it
// returns.
func observe(ctx context.Context, c client.Reader, l DependentLister, o client.Object) dependents {
	if l == nil {
		return dependents{}
	}

	list, err := l.ListDependents(ctx, c, o)

	out := dependents{total: len(list)}
	if err != nil {
		out.unknown = why(err)
	}

	for _, d := range list {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(d.GroupVersionKind)

		err := c.Get(ctx, d.NamespacedName, u)

		switch {
		case kerrors.IsNotFound(err):
		case err != nil:
			out.blockers = append(out.blockers, blocker{Dependent: d, why: "unknown: " + why(err)})
		case d.takenOver(u):
		default:
			out.blockers = append(out.blockers, blockerOf(d, u))
		}
	}

	slices.SortStableFunc(out.blockers, func(a, b blocker) int { return strings.Compare(a.String(), b.String()) })

	return out
}

// takenOver tells whether the name belongs to an object of somebody else's.
func (d Dependent) takenOver(u *unstructured.Unstructured) bool {
	c := metav1.GetControllerOf(u)
	return d.Owner != "" && c != nil && c.UID != d.Owner
}

// String names the dependent as kubectl does.
func (d Dependent) String() string {
	n := d.Kind + "/" + d.Name
	if d.Namespace != "" {
		n += " in " + d.Namespace
	}

	return n
}

// why puts an error into a word or two that don't change from one try to the
// next, and give nothing away.
func why(err error) string {
	switch {
	case kerrors.IsForbidden(err):
		return "forbidden"
	case kmeta.IsNoMatchError(err):
		return "no such kind"
	case kerrors.IsTimeout(err), kerrors.IsServerTimeout(err), kerrors.IsServiceUnavailable(err), kerrors.IsInternalError(err):
		return "the API server did not answer"
	default:
		return "cannot be read"
	}
}

// blockerOf says why u is still there.
func blockerOf(d Dependent, u *unstructured.Unstructured) blocker {
	b := blocker{Dependent: d}

	if !meta.WasDeleted(u) {
		b.why = "its deletion was not requested yet"

		if u.GetLabels()[labelInUse] == "true" {
			b.why, b.reason = "protected by a Usage", ReasonBlockedByProtection
		}

		return b
	}

	b.since = u.GetDeletionTimestamp().Time

	if c := conditionOf(u, TypeDeleting); c.Status == corev1.ConditionTrue {
		b.why, b.reason, b.since = string(c.Reason), c.Reason, c.LastTransitionTime.Time
		if c.Message != "" {
			b.why += ": " + c.Message
		}

		return b
	}

	if meta.IsPaused(u) {
		b.why, b.reason = "its reconciliation is paused", ReasonBlockedByPause
		return b
	}

	b.why = "held by " + strings.Join(slices.Sorted(slices.Values(u.GetFinalizers())), ", ")

	if c := conditionOf(u, xpv2.TypeSynced); c.Status == corev1.ConditionFalse {
		b.why += "; " + string(c.Reason)
		if c.Message != "" {
			b.why += ": " + c.Message
		}
	}

	return b
}

// summary says how far the deletion of the dependents is, and what is in the
// way.
func (d dependents) summary() string {
	gone := d.total - len(d.blockers)

	var s strings.Builder

	if d.total > 0 {
		fmt.Fprintf(&s, "%d of %d dependents deleted, %d%%.", gone, d.total, 100*gone/d.total)
	}

	if d.unknown != "" {
		fmt.Fprintf(&s, " Some may be unknown: %s.", d.unknown)
	}

	for i, b := range d.blockers {
		if i == maxBlockersNamed {
			fmt.Fprintf(&s, " And %d more.", len(d.blockers)-maxBlockersNamed)
			break
		}

		fmt.Fprintf(&s, " %s", b.Dependent)

		if !b.since.IsZero() {
			fmt.Fprintf(&s, " since %s", b.since.UTC().Format(time.RFC3339))
		}

		fmt.Fprintf(&s, ": %s.", strings.TrimSuffix(cut(b.why, maxReasonLength), "."))
	}

	return strings.TrimSpace(s.String())
}

// reason returns the reason code for what is in the way.
func (d dependents) reason() xpv2.ConditionReason {
	// Somebody has to act on protection, whatever else is in the way.
	for _, b := range d.blockers {
		if b.reason == ReasonBlockedByProtection {
			return b.reason
		}
	}

	return ReasonWaitingForDependents
}

// cut s to at most n bytes, at the end of a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}

	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}

	return s[:n] + "…"
}

func conditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	if c, ok := seam.Conditioned(o); ok {
		return c.GetCondition(t)
	}

	return xpv2.Condition{}
}
