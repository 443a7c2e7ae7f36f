package watch_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
func collecting(t *testing.T, n *needs) (r *rig, xr, a, b watchtest.Kind, recs map[string]*recorder) {
	t.Helper()
	xr, a, b = watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
	r = graft(t, watchtest.NewAPI(xr, a, b))
	r.mgr.Elect()
	o := idle()
	o.gc = watch.NewGarbageCollector("c", r.ours, n, []watch.WatchType{watch.WatchTypeDependency})
	r.start("c", o)
	recs = map[string]*recorder{}
	specs := []spec{}
	for name, k := range map[string]watchtest.Kind{"XR": xr, "A": a, "B": b} {
		recs[name] = &recorder{}
		w := watchOf(k, recs[name])
		if name == "XR" {
			w.typ = watch.WatchTypeCompositeResource
		}
		specs = append(specs, w)
	}
	r.watch("c", specs...)
	return r, xr, a, b, recs
}

// Only types that opted in are collected, and only on the word of a tracker
// that knows something.
func TestCollectsOnlyWhatItMay(t *testing.T) {
	cases := map[string]struct {
		reason string
		tell   func(n *needs, xr, a, b watchtest.Kind)
		want   []string
	}{
		"NotNeeded": {
			reason: "A kind that isn't needed goes; the composite's own never opted in.",
			tell:   func(n *needs, _, a, _ watchtest.Kind) { n.set(nil, a) },
			want:   []string{"XR", "A"},
		},
		"AllNeeded": {
			reason: "What is needed stays.",
			tell:   func(n *needs, _, a, b watchtest.Kind) { n.set(nil, a, b) },
			want:   []string{"XR", "A", "B"},
		},
		"OnlyOthersNeeded": {
			reason: "All that opted in may go.",
			tell:   func(n *needs, xr, _, _ watchtest.Kind) { n.set(nil, xr) },
			want:   []string{"XR"},
		},
		"Empty": {
			reason: "A tracker that names nothing twice in a row needs nothing.",
			tell:   func(n *needs, _, _, _ watchtest.Kind) { n.set(nil) },
			want:   []string{"XR"},
		},
		"Failing": {
			reason: "One that fails says nothing, whatever else it returns.",
			tell:   func(n *needs, _, a, _ watchtest.Kind) { n.set(errors.New("boom"), a) },
			want:   []string{"XR", "A", "B"},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			n := &needs{}
			r, xr, a, b, recs := collecting(t, n)
			tc.tell(n, xr, a, b)
			pass(5 * time.Minute)
			for name, k := range map[string]watchtest.Kind{"XR": xr, "A": a, "B": b} {
				r.api.Put(k.Object("one"), k)
				pass(time.Second)
				want := 0
				for _, w := range tc.want {
					if w == name {
						want = 1
					}
				}
				if got := recs[name].count("create", "one"); got != want {
					t.Errorf("\n%s\nthe watch of %s got %d events, want %d", tc.reason, name, got, want)
				}
			}
			ids, err := r.GetWatches("c")
			if err != nil || len(ids) != len(tc.want) {
				t.Errorf("\n%s\nGetWatches(...): %v, %v; want those of %v", tc.reason, ids, err, tc.want)
			}
		})
	}
}

// A watch that was requested since the collector looked is never collected.
func TestRequestedWatchesStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &needs{}
		r, _, a, b, recs := collecting(t, n)
		n.set(nil, a)

		// While the collector asks what is needed, b is needed again.
		n.mu.Lock()
		n.asked = func() {
			if err := r.StartWatches(t.Context(), "c", watchOf(b, recs["B"])); err != nil {
				t.Errorf("StartWatches(...): %v", err)
			}
		}
		n.mu.Unlock()
		pass(5 * time.Minute)
		r.api.Put(b.Object("one"), b)
		pass(time.Second)
		if got := recs["B"].count("create", "one"); got != 1 {
			t.Errorf("the watch got %d events, want 1", got)
		}
	})
}

// A tracker that names nothing must do so twice in a row, and what was asked for
// in between stays.
func TestNothingNeededTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &needs{}
		r, _, a, b, recs := collecting(t, n)
		gc := watch.NewGarbageCollector("c", r.ours, n, []watch.WatchType{watch.WatchTypeDependency})
		look := func(when string, want int, err error, ks ...watchtest.Kind) {
			t.Helper()
			n.set(err, ks...)
			if got := gc.GarbageCollectWatchesNow(t.Context()); (got == nil) != (err == nil) {
				t.Errorf("%s: GarbageCollectWatchesNow(...): %v", when, got)
			}
			if ids, err := r.GetWatches("c"); err != nil || len(ids) != want {
				t.Errorf("%s: %d watches, %v; want %d", when, len(ids), err, want)
			}
		}
		look("first", 3, nil)
		look("something is needed", 3, nil, a, b)
		look("first again", 3, nil)
		look("failed", 3, errors.New("boom"))
		look("first after a failure", 3, nil)
		r.watch("c", watchOf(b, recs["B"]))
		look("second, and one was asked for", 2, nil)
		look("third", 1, nil)
	})
}

// However a collector and those who need a watch meet, the watch is there
// for as long as it is needed.
func TestCollectorsMeetRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := watchtest.NewKind("A"), watchtest.NewKind("B")
		r := running(t, watchtest.NewAPI(a, b))
		rec := &recorder{}
		r.watch("c", watchOf(a, rec))
		var needed atomic.Int64
		tracker := watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) {
			if needed.Load() > 0 {
				return []schema.GroupVersionKind{a.GVK, b.GVK}, nil
			}
			return []schema.GroupVersionKind{a.GVK}, nil
		})
		gc := watch.NewGarbageCollector("c", r.ours, tracker, []watch.WatchType{watch.WatchTypeDependency})
		ctx, cancel := context.WithCancel(t.Context())
		rest := func(most int) { time.Sleep(time.Duration(rand.N(most)) * time.Millisecond) } //nolint:gosec // Chance is all we want.
		var collectors, users sync.WaitGroup
		for range 2 {
			collectors.Go(func() {
				for ; ctx.Err() == nil; rest(3) {
					if err := gc.GarbageCollectWatchesNow(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		for range 4 {
			users.Go(func() {
				for range 200 {
					needed.Add(1)
					if err := r.StartWatches(t.Context(), "c", watchOf(b, rec)); err != nil {
						t.Error(err)
					}
					for range 3 {
						if ids, err := r.GetWatches("c"); err != nil || !slices.Contains(ids, idOf(b)) {
							t.Errorf("a watch that is needed isn't there: %v, %v", ids, err)
						}
						rest(3)
					}
					needed.Add(-1)
					rest(10)
				}
			})
		}
		users.Wait()
		cancel()
		collectors.Wait()
	})
}
