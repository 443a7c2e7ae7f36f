package reconciler_test

import (
	"runtime"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// collected waits until the garbage collector has found that all but so many
// objects are reported by nobody who is in use.
func collected(t *testing.T, m *reconciler.Metrics, left int) {
	t.Helper()

	for late := time.Now().Add(time.Minute); reconciler.Reported(m) > left; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("want %d objects left, got %d", left, reconciler.Reported(m))
		}

		runtime.GC()
	}
}

// What a reconciler reported isn't in the metrics for longer than the reconciler:
// its controller was stopped before it saw objects go, as when their kind was
// deleted, and nobody will tell.
func TestMetricsOutliveNoReconciler(t *testing.T) {
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

	// The controller is stopped, and two go. Another one is started.
	r.c.release(t, goes, "example.org/f")
	r.c.release(t, unseen, "example.org/f")

	stopped := r.Reconciler
	r.restart()
	pass(t, r, stays)
	check("one is reported again, which counts once", requested(3))

	pass(t, r, goes)
	check("one is seen to be gone by one who never reported it", requested(2))

	if n := counter(t, r.metrics, duration); n != 0 {
		t.Errorf("durations of what nobody saw from the beginning: want 0, got %d", n)
	}

	runtime.KeepAlive(stopped)
	collected(t, r.metrics, 1)
	check("one whom nobody told of is gone with the reconciler that reported it", requested(1))

	// There is none any more.
	r.Reconciler = nil
	collected(t, r.metrics, 0)
	check("nothing is reported any more", map[string]int{})
}
