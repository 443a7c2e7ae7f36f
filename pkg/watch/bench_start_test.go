package watch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// startAgain starts a controller with watches, and returns what asks for them
// once more. Nothing but the call itself is done then.
func (r *benchRig) startAgain(b *testing.B, ws []baseline.Watch) func() error {
	b.Helper()
	r.mgr.Elect()
	r.warm(b, ws)
	r.startController(b, ws...)
	if r.ours == nil {
		return func() error { return r.engine.StartWatches(context.Background(), benchController, ws...) }
	}
	out := watchesFor(ws)
	return func() error { return r.ours.StartWatches(context.Background(), benchController, out...) }
}

// watchesFor returns the watches as our engine takes them.
func watchesFor(ws []baseline.Watch) []watch.Watch {
	out := make([]watch.Watch, len(ws))
	for i, w := range ws {
		out[i] = watch.WatchFor(w.Kind, w.Type, w.Handler, w.Predicates...)
	}
	return out
}

// Asking for watches that are there, as each reconcile of a composite does, from
// many goroutines at once.
func BenchmarkStartWatchesWithNothingToDo(b *testing.B) {
	sides := []struct {
		benchSide
		goroutines []int
	}{
		{engineShaped(), []int{1, 64}}, // Enough to compare with.
		{ours(), []int{1, 4, 16, 64}},
	}
	for _, n := range []int{1, 50, 500} {
		for _, side := range sides {
			b.Run(fmt.Sprintf("Watches=%d/%s", n, side.name), func(b *testing.B) {
				api := watchtest.NewAPI()
				kinds := manyKinds(api, n)
				again := side.make(b, api).startAgain(b, watchesOf(kinds))
				for _, goroutines := range side.goroutines {
					b.Run(fmt.Sprintf("Goroutines=%d", goroutines), func(b *testing.B) {
						b.ReportAllocs()
						inParallel(b, goroutines, again)
					})
				}
			})
		}
	}
}

// inParallel calls fn b.N times, from so many goroutines. Starting these isn't
// measured.
func inParallel(b *testing.B, goroutines int, fn func() error) {
	b.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for g := range goroutines {
		calls := b.N / goroutines
		if g < b.N%goroutines {
			calls++
		}
		wg.Go(func() {
			<-start
			for range calls {
				if err := fn(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ResetTimer()
	close(start)
	wg.Wait()
	b.StopTimer()
}

// What every reconcile does must not cost memory, whatever the watch is of.
func TestAskingAgainAllocatesNothing(t *testing.T) {
	const n = 50
	cases := map[string]struct {
		reason string
		watch  func(k watchtest.Kind) baseline.Watch
	}{
		"Unstructured": {
			reason: "This is what composites watch what they compose with.",
			watch:  func(k watchtest.Kind) baseline.Watch { return watchOf(k, &handler.EnqueueRequestForObject{}) },
		},
		"Metadata": {
			reason: "Watching metadata is meant to be cheap.",
			watch: func(k watchtest.Kind) baseline.Watch {
				return baseline.Watch{Kind: partial(k), Type: watch.WatchTypeDependency, Handler: &handler.EnqueueRequestForObject{}}
			},
		},
		"Funcs": {
			reason: "Handlers and predicates that are made of functions aren't pointers.",
			watch: func(k watchtest.Kind) baseline.Watch {
				w := watchOf(k, handler.Funcs{})
				w.Predicates = []predicate.Predicate{predicate.Funcs{}, predicate.GenerationChangedPredicate{}}
				return w
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := watchtest.NewAPI()
			r := running(t, api)
			ws := make([]baseline.Watch, n)
			for i, k := range manyKinds(api, n) {
				ws[i] = tc.watch(k)
			}
			watches := watchesFor(ws)
			start := func() {
				if err := r.ours.StartWatches(t.Context(), "c", watches...); err != nil {
					t.Fatal(err)
				}
			}
			start()

			// What runs in the background allocates, too, now and then. What the
			// call allocates it does each time.
			got := testing.AllocsPerRun(100, start)
			for i := 0; i < 10 && got > 0; i++ {
				got = min(got, testing.AllocsPerRun(100, start))
			}
			if got > 0 {
				t.Errorf("\n%s\nStartWatches(...) of %d watches that are there: %.0f allocations, want none", tc.reason, n, got)
			}
		})
	}
}
