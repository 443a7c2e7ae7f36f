package reconciler_test

import (
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What a reconciler reported isn't in the metrics after its controller was stopped:
// it won't see that its objects no longer exist, as when their kind was deleted.
func TestMetricsWithdraw(t *testing.T) {
	object := func(name string) *unstructured.Unstructured {
		return of(composites, "", name, held("example.org/f"), dying, being(xpv2.Available()))
	}
	requested := func(n int) map[string]int { return map[string]int{"DeletionRequested": n} }

	stays, goes, unseen := object("stays"), object("goes"), object("unseen")
	r := newRig(t, newCluster(stays, goes, unseen), stays)

	check := func(when string, want map[string]int) {
		t.Helper()

		if diff := cmp.Diff(want, blocked(t, r.metrics)); diff != "" {
			t.Errorf("\n%s: -want, +got:\n%s", when, diff)
		}
	}

	for _, o := range []*unstructured.Unstructured{stays, goes, unseen} {
		pass(t, r, o)
	}

	check("three are reported", requested(3))

	// The controller is stopped, and two objects no longer exist. Another
	// controller is started.
	r.c.release(t, goes, "example.org/f")
	r.c.release(t, unseen, "example.org/f")

	stopped := r.Reconciler
	r.restart()
	pass(t, r, stays)
	check("an object that is reported again counts once", requested(3))

	pass(t, r, goes)
	check("another reconciler may see that an object no longer exists", requested(2))

	if n := counter(t, r.metrics, duration); n != 0 {
		t.Errorf("durations of objects that were not seen from the beginning: want 0, got %d", n)
	}

	r.metrics.Withdraw(things)
	check("other kinds stay", requested(2))

	r.metrics.Withdraw(composites)
	check("nothing of the kind is reported", map[string]int{})

	pass(t, stopped, stays)
	pass(t, r, stays)
	check("a reconciler that was withdrawn reports nothing", map[string]int{})

	r.restart()
	pass(t, r, stays)
	check("a later one reports", requested(1))
}
