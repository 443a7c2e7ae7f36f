package reconciler

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Blockers are always named in the same order, or a message would change, and be
// written, whenever a list comes in another. Each is told from the next by one
// thing alone.
func TestReportInOrder(t *testing.T) {
	is := func(u urgency, group, kind, namespace, name string) blocker {
		return blocker{urgency: u, Dependent: Dependent{
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
		}}
	}

	want := []blocker{
		is(urgencyProtected, "b.org", "B", "b", "b"),
		is(urgencyStuck, "b.org", "A", "b", "b"),
		is(urgencyStuck, "b.org", "B", "b", "a"),
		is(urgencyStuck, "b.org", "B", "a", "b"),
		is(urgencyStuck, "a.org", "B", "b", "b"),
		is(urgencyStuck, "b.org", "B", "b", "b"),
		is(urgencyDeleting, "a.org", "A", "a", "a"),
		is(urgencyNotRequested, "a.org", "A", "", "a"),
	}

	// Every rotation, and its reverse.
	for i := range want {
		got := slices.Concat(want[i:], want[:i])

		for range 2 {
			slices.Reverse(got)

			sorted := slices.Clone(got)
			slices.SortStableFunc(sorted, byUrgency)

			if diff := cmp.Diff(want, sorted, cmp.AllowUnexported(blocker{})); diff != "" {
				t.Fatalf("from %v: -want, +got:\n%s", got, diff)
			}
		}
	}
}
