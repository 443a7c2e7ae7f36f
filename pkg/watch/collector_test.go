package watch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A needs is a Tracker that a test tells what is needed.
type needs struct {
	mu   sync.Mutex
	gvks []schema.GroupVersionKind
	err  error

	// asked, if set, is called while the collector waits for the answer.
	asked func()
}

func (n *needs) set(err error, ks ...watchtest.Kind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gvks, n.err = nil, err
	for _, k := range ks {
		n.gvks = append(n.gvks, k.GVK)
	}
}

func (n *needs) Needed(context.Context) ([]schema.GroupVersionKind, error) {
	n.mu.Lock()
	gvks, err, asked := n.gvks, n.err, n.asked
	n.mu.Unlock()
	if asked != nil {
		asked()
	}
	return gvks, err
}

// collecting is a rig with a controller that watches a composite kind and two
// composed ones, whose watches are collected.
func collecting(t *testing.T, n *needs) (r *rig, a, b watchtest.Kind) {
	t.Helper()
	xr, a, b := watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
	r = graft(t, watchtest.NewAPI(xr, a, b))
	r.mgr.Elect()
	o := idle()
	o.Collector = watch.NewGarbageCollector("c", r.ours, n, []watch.WatchType{watch.WatchTypeDependency})
	r.start("c", o)
	composite := watchOf(xr, &recorder{})
	composite.Type = watch.WatchTypeCompositeResource
	r.watch("c", composite, watchOf(a, &recorder{}), watchOf(b, &recorder{}))
	return r, a, b
}

// watched returns the kinds that controller c watches.
func (r *rig) watched() []string {
	r.t.Helper()
	ids, err := r.GetWatches("c")
	ok(r.t, err)
	kinds := make([]string, len(ids))
	for i, id := range ids {
		kinds[i] = id.GVK.Kind
	}
	slices.Sort(kinds)
	return kinds
}

// Only types that opted in are collected, and only on the word of a tracker
// that knows something. What was requested since the collector looked stays.
func TestCollectsOnlyWhatItMay(t *testing.T) {
	cases := map[string]struct {
		reason string
		needed string
		err    error

		// requests B while the collector asks what is needed.
		requests bool
		want     []string
	}{
		"NotNeeded":        {reason: "A kind that isn't needed goes; the composite's own never opted in.", needed: "A", want: []string{"A", "XR"}},
		"OnlyOthersNeeded": {reason: "All that opted in may go.", needed: "XR", want: []string{"XR"}},
		"Failing":          {reason: "One that fails says nothing, whatever else it returns.", needed: "A", err: errors.New("boom"), want: []string{"A", "B", "XR"}},
		"Requested":        {reason: "While the collector asks what is needed, B is needed again.", needed: "A", requests: true, want: []string{"A", "B", "XR"}},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			n := &needs{}
			r, _, b := collecting(t, n)
			if tc.requests {
				n.asked = func() { _ = r.StartWatches(t.Context(), "c", watchOf(b, &recorder{})) }
			}
			n.set(tc.err, watchtest.NewKind(tc.needed))
			pass(5 * time.Minute)
			if diff := cmp.Diff(tc.want, r.watched()); diff != "" {
				t.Errorf("\n%s\nwatches: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A tracker that names nothing must do so twice in a row, and what was asked for
// in between stays.
func TestNothingNeededTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &needs{}
		r, a, b := collecting(t, n)
		gc := watch.NewGarbageCollector("c", r.ours, n, []watch.WatchType{watch.WatchTypeDependency})
		look := func(when string, want int, err error, ks ...watchtest.Kind) {
			t.Helper()
			n.set(err, ks...)
			if got := gc.GarbageCollectWatchesNow(t.Context()); (got == nil) != (err == nil) {
				t.Errorf("%s: GarbageCollectWatchesNow(...): %v", when, got)
			}
			if got := r.watched(); len(got) != want {
				t.Errorf("%s: watches %v, want %d", when, got, want)
			}
		}
		look("first", 3, nil)
		look("something is needed", 3, nil, a, b)
		look("first again", 3, nil)
		look("failed", 3, errors.New("boom"))
		look("first after a failure", 3, nil)
		r.watch("c", watchOf(b, &recorder{}))
		look("second, and one was asked for", 2, nil)
		look("third", 1, nil)
	})
}
