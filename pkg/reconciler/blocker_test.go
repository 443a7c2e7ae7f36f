package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
)

func TestReportOfBlocker(t *testing.T) {
	type is struct {
		Why     string
		Urgency urgency
	}
	condition := func(kind, status, reason, message string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	cases := map[string]struct {
		reason     string
		finalizers []string
		paused     bool
		conditions []any
		want       is
	}{
		"Free": {reason: "What nothing holds is about to go.", want: is{"nothing holds it any more", urgencyDeleting}},
		"FailedAndPaused": {
			reason:     "The pause should be named, because a paused object cannot resolve its error.",
			paused:     true,
			conditions: []any{condition("Synced", "False", "ReconcileError", "boom")},
			want:       is{"its reconciliation is paused", urgencyStuck},
		},
		"Unknown": {
			reason:     "What reports nothing wrong is on its way.",
			finalizers: []string{"f"},
			conditions: []any{condition("Synced", "Unknown", "Whatever", "boom")},
			want:       is{"held by f", urgencyDeleting},
		},
		"WaitingItself": {
			reason:     "What waits for others is quoted on those.",
			finalizers: []string{"f"},
			conditions: []any{
				condition("Synced", "False", "ReconcileError", "boom"),
				condition("Deleting", "True", "WaitingForDependents", "1 of 2"),
			},
			want: is{"WaitingForDependents: 1 of 2", urgencyDeleting},
		},
		"Protected": {
			reason:     "The protection should be named, because it comes before the error.",
			finalizers: []string{"f"},
			conditions: []any{
				condition("Synced", "False", "ReconcileError", "boom"),
				condition("Deleting", "True", "BlockedByProtection", "in use"),
			},
			want: is{"BlockedByProtection: in use", urgencyProtected},
		},
		"OddConditions": {
			reason:     "Odd conditions should not hide the finalizers.",
			finalizers: []string{"f"},
			conditions: []any{"none", int64(3)},
			want:       is{"held by f", urgencyDeleting},
		},
		"Sentences": {
			reason:     "A sentence that an error wraps has no stop before the colon.",
			finalizers: []string{"f"},
			conditions: []any{
				condition("Synced", "False", "ReconcileError", "set both in the same command.: the result is unknown"),
			},
			want: is{
				"held by f; ReconcileError: set both in the same command: the result is unknown", urgencyStuck,
			},
		},
		"Control": {
			reason:     "Control characters are not quoted.",
			finalizers: []string{"f"},
			conditions: []any{condition("Synced", "False", "ReconcileError", "a\x1b[2J\x00b\r\nc\u009bd")},
			want:       is{"held by f; ReconcileError: a [2J b c d", urgencyStuck},
		},
		"SaidAlready": {
			reason:     "An error that the Deleting condition says is not repeated.",
			finalizers: []string{"f"},
			conditions: []any{
				condition("Synced", "False", "ReconcileError", "delete failed: 409."),
				condition(
					"Deleting", "True", "ExternalDeleteFailed",
					"The external system refuses: delete failed: delete failed: 409.",
				),
			},
			want: is{"ExternalDeleteFailed: The external system refuses: delete failed: 409.", urgencyStuck},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{
				Object: map[string]any{"status": map[string]any{"conditions": tc.conditions}},
			}
			u.SetFinalizers(tc.finalizers)
			if tc.paused {
				u.SetAnnotations(map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
			}
			u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
			b := blockerOf(Dependent{}, u)
			Wants(t, tc.reason, "", tc.want, is{quoted(b.why), b.urgency})
		})
	}
}

// A kind has no namespaces if it was read from another one than its reference says. Objects
// without a UID control nothing.
func TestBlockerOfDependent(t *testing.T) {
	us, u := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	us.SetUID("us")
	u.SetOwnerReferences([]metav1.OwnerReference{{UID: "another"}, {UID: "us", Controller: ptr.To(true)}})
	d := Dependent{NamespacedName: types.NamespacedName{Namespace: "ns"}, Owner: "us"}
	owned, empty := OwnedObjects(schema.GroupVersionKind{Kind: "Thing"}), &unstructured.Unstructured{}
	why := func(b *blocker) string {
		if b == nil {
			return ""
		}
		return b.why
	}
	got := []string{
		why(d.blocker(owned, us, u)), why(Dependent{}.blocker(owned, us, u)),
		why(Dependent{}.blocker(owned, empty, empty)),
	}
	want := []string{"", "its deletion was not requested yet", "it still exists"}
	Wants(t, "", "of one that is cluster-scoped, controlled, without UIDs", want, got)
}

// Nothing of three blockers of a composite is lost on the way to its claim.
func TestSummaryHasRoomForWhatFewSay(t *testing.T) {
	for _, tc := range []struct {
		n, long int
		cut     bool
	}{{n: 1, long: 1000}, {n: 3, long: 300}, {n: 3, long: 500, cut: true}} {
		d := observation{total: tc.n}
		for i := range tc.n {
			d.blockers = append(d.blockers, blocker{
				why: fmt.Sprintf("begin%d %s end%d", i, strings.Repeat("x", tc.long), i),
			})
		}
		got := d.summary()
		if cut := strings.Contains(got, deletion.Ellipsis); cut != tc.cut || len(got) > maxReasonsLength+200 {
			t.Errorf("%d say %d bytes each: cut: %t, want %t: %s", tc.n, tc.long, cut, tc.cut, got)
		}
		for i := range tc.n {
			if !strings.Contains(got, fmt.Sprintf("begin%d", i)) || !strings.Contains(got, fmt.Sprintf("end%d", i)) {
				t.Errorf("want the beginning and the end of what blocker %d says, got %s", i, got)
			}
		}
	}
}

// In another order a message would change, and be written, with each list.
func TestReportInOrder(t *testing.T) {
	is := func(u urgency, group, kind, namespace, name string) blocker {
		return blocker{urgency: u, Dependent: Dependent{
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
		}}
	}
	want := []blocker{
		is(urgencyProtected, "b.org", "B", "b", "b"),
		is(urgencyStuck, "b.org", "A", "b", "b"), is(urgencyStuck, "b.org", "B", "b", "a"),
		is(urgencyStuck, "b.org", "B", "a", "b"),
		is(urgencyStuck, "a.org", "B", "b", "b"), is(urgencyStuck, "b.org", "B", "b", "b"),
		is(urgencyDeleting, "a.org", "A", "a", "a"), is(urgencyNotRequested, "a.org", "A", "", "a"),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortStableFunc(got, byUrgency)
	Wants(t, "", "", want, got, cmp.AllowUnexported(blocker{}))
}

// Messages have a bounded length, and do not depend on the order of the list.
func FuzzMessage(f *testing.F) {
	f.Add("XApp", "x", "default", "f", "held", "boom", uint16(5), uint16(3), true)
	f.Add(
		strings.Repeat("K", 5000), strings.Repeat("ü", 3000), "\xff\xfe", strings.Repeat("f", 9000),
		strings.Repeat("…", 3333), "a\nb\x00", uint16(50), uint16(60), false,
	)
	f.Add("", "", "", "", deletion.OrphanHint, "", uint16(0), uint16(0), true)
	f.Fuzz(
		func(t *testing.T, kind, name, namespace, finalizer, deleting, synced string, total, left uint16, listed bool) {
			total, left = total%64, left%64
			d := observation{total: int(max(total, left))}
			if !listed {
				d.unknown = "forbidden"
			}
			for i := range left {
				u := &unstructured.Unstructured{Object: map[string]any{}}
				u.SetFinalizers(slices.Repeat([]string{finalizer}, int(i%9)))
				if i%2 == 0 {
					u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(int64(i), 0)})
				}
				cs := []any{map[string]any{"type": "Synced", "status": "False", "reason": synced, "message": synced}}
				if i%3 == 0 {
					cs = append(cs, map[string]any{
						"type":    "Deleting",
						"status":  "True",
						"reason":  deleting,
						"message": deleting,
					})
				}
				u.Object["status"] = map[string]any{"conditions": cs}
				d.blockers = append(d.blockers, blockerOf(Dependent{
					GroupVersionKind: schema.GroupVersionKind{Kind: kind},
					NamespacedName:   types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(name, i)},
				}, u))
			}
			slices.SortStableFunc(d.blockers, byUrgency)
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(types.UID(name))
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(0, 0)})
			o.SetFinalizers([]string{finalizer, kind})
			e := &deletion.Escape{Removable: []string{finalizer, kind}}
			got := e.Message(time.Now(), "The deadline for the deletion was 2026-01-02T04:04:05Z. "+d.summary(), o)
			if len(got) > deletion.MaxMessageLength || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
			}

			// Each blocker takes a bounded part, so that the rest is not cut.
			if n := len(
				d.summary(),
			); n > maxReasonsLength+maxBlockersNamed*(deletion.MaxNameLength+2*maxKindLength+40)+200 {
				t.Errorf("a summary of %d bytes", n)
			}
			if more := len(d.blockers) - maxBlockersNamed; more > 0 &&
				!strings.HasSuffix(d.summary(), fmt.Sprintf(" And %d more.", more)) {
				t.Errorf("the rest is not counted: %q", d.summary())
			}
		},
	)
}
