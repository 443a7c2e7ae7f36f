package watch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// collecting is a rig with a controller that watches a composite kind and two composed
// ones, whose watches are collected.
func collecting(t *testing.T, needed func(r *rig) ([]schema.GroupVersionKind, error)) *rig {
	t.Helper()
	xr, a, b := watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
	r := graft(t, watchtest.NewAPI(xr, a, b))
	r.mgr.Elect()
	o := idle()
	ask := watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) { return needed(r) })
	o.Collector = watch.NewGarbageCollector("c", r.ours, ask, []watch.WatchType{watch.WatchTypeDependency})
	r.start("c", o)
	composite := watchOf(xr, &recorder{})
	composite.Type = watch.WatchTypeCompositeResource
	r.watch("c", composite, watchOf(a, &recorder{}), watchOf(b, &recorder{}))
	return r
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
			r := collecting(t, func(r *rig) ([]schema.GroupVersionKind, error) {
				if tc.requests {
					_ = r.StartWatches(t.Context(), "c", watchOf(watchtest.NewKind("B"), &recorder{}))
				}
				return []schema.GroupVersionKind{watchtest.NewKind(tc.needed).GVK}, tc.err
			})
			pass(5 * time.Minute)
			if diff := cmp.Diff(tc.want, r.watched()); diff != "" {
				t.Errorf("\n%s\nwatches: -want, +got:\n%s", tc.reason, diff)
			}
			if said := r.lines.all(); tc.err != nil && len(said) != 1 || tc.err == nil && len(said) > 0 {
				t.Errorf("\n%s\n%d log lines: %q", tc.reason, len(said), said)
			}
		})
	}
}

// A tracker that names nothing must do so twice in a row, and what was asked for
// in between stays.
func TestNothingNeededTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var needed []schema.GroupVersionKind
		var failed error
		ask := func(context.Context) ([]schema.GroupVersionKind, error) { return needed, failed }
		r, a, b := collecting(t, func(*rig) ([]schema.GroupVersionKind, error) { return needed, failed }), watchtest.NewKind("A"), watchtest.NewKind("B")
		gc := watch.NewGarbageCollector("c", r.ours, watch.DependenciesFn(ask), []watch.WatchType{watch.WatchTypeDependency})
		look := func(when string, want int, err error, gvks ...schema.GroupVersionKind) {
			t.Helper()
			needed, failed = gvks, err
			if got := gc.GarbageCollectWatchesNow(t.Context()); (got == nil) != (err == nil) {
				t.Errorf("%s: GarbageCollectWatchesNow(...): %v", when, got)
			}
			if got := r.watched(); len(got) != want {
				t.Errorf("%s: watches %v, want %d", when, got, want)
			}
		}
		look("first", 3, nil)
		look("something is needed", 3, nil, a.GVK, b.GVK)
		look("first again", 3, nil)
		look("failed", 3, errors.New("boom"))
		look("first after a failure", 3, nil)
		r.watch("c", watchOf(b, &recorder{}))
		look("second, and one was asked for", 2, nil)
		look("third", 1, nil)
	})
}
