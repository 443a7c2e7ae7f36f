package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestCut(t *testing.T) {
	cases := map[string]struct {
		reason       string
		s            string
		n            int
		want, middle string
	}{
		"Short":   {"What fits stays.", "abc", 3, "abc", "abc"},
		"Long":    {"What doesn't is cut.", "abcdefghijklm", 9, "abcdef…", "abc…klm"},
		"Runes":   {"Never within a rune.", "äöüäöüäöü", 11, "äöüä…", "ä…öü"},
		"Invalid": {"What is no text becomes text.", "a\xffb", 9, "a�b", "a�b"},
		"Nothing": {"Too little room is no reason to panic.", "abcdef", 1, "…", "…"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string{tc.want, tc.middle}, []string{cut(tc.s, tc.n), cutMiddle(tc.s, tc.n)}); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever objects are called, and say, messages are text of a bounded length, and
// the same in whatever order dependents are listed.
func FuzzMessage(f *testing.F) {
	f.Add("XApp", "x", "default", "f", "held", "boom", uint16(5), uint16(3), true)
	f.Add(strings.Repeat("K", 5000), strings.Repeat("ü", 3000), "\xff\xfe", strings.Repeat("f", 9000), strings.Repeat("…", 3333), "a\nb\x00", uint16(50), uint16(60), false)
	f.Add("", "", "", "", orphanHint, "", uint16(0), uint16(0), true)

	f.Fuzz(func(t *testing.T, kind, name, namespace, finalizer, deleting, synced string, total, left uint16, listed bool) {
		total, left = total%64, left%64

		d := dependents{total: int(max(total, left))}
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
				cs = append(cs, map[string]any{"type": "Deleting", "status": "True", "reason": deleting, "message": deleting})
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

		del := &deletion{orphan: []string{finalizer, kind}, deadline: time.Hour}
		got := del.message(del.late(o, d.summary()), o)

		if len(got) > maxMessageLength || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
		}

		// Each blocker takes a bounded part, so that the rest is not cut.
		if n := len(d.summary()); n > maxReasonsLength+maxBlockersNamed*(maxNameLength+2*maxKindLength+40)+200 {
			t.Errorf("a summary of %d bytes", n)
		}

		if more := len(d.blockers) - maxBlockersNamed; more > 0 && !strings.HasSuffix(d.summary(), fmt.Sprintf(" And %d more.", more)) {
			t.Errorf("the rest is not counted: %q", d.summary())
		}
	})
}
