package watch_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// heap returns the bytes that are reachable.
// goroutines that there are.
func goroutines() int { return runtime.NumGoroutine() }

// heap returns the bytes that are reachable.
func heap() uint64 {
	runtime.GC()
	runtime.GC()

	var m runtime.MemStats

	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// W17: of a thousand cycles nothing is left.
func TestW17CyclesLeaveNothing(t *testing.T) {
	cycles := map[string]struct {
		reason string
		times  int
		cycle  func(t *testing.T, r *rig, i int)
	}{
		"Controllers": {
			reason: "Controllers start, watch, and stop.",
			times:  1000,
			cycle: func(t *testing.T, r *rig, i int) {
				t.Helper()

				name := fmt.Sprintf("c%d", i%7)
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i%5))

				if err := r.Start(name, idle()); err != nil {
					t.Fatal(err)
				}

				if err := r.StartWatches(t.Context(), name, watchOf(k, &recorder{})); err != nil {
					t.Fatal(err)
				}

				if err := r.Stop(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			},
		},
		"KindsThatDontExist": {
			reason: "Controllers watch kinds that don't exist, each another one.",
			times:  300,
			cycle: func(t *testing.T, r *rig, i int) {
				t.Helper()

				if err := r.Start("c", idle()); err != nil {
					t.Fatal(err)
				}

				_ = r.StartWatches(t.Context(), "c", watchOf(watchtest.NewKind(fmt.Sprintf("None%d", i)), &recorder{}))

				if err := r.Stop(t.Context(), "c"); err != nil {
					t.Fatal(err)
				}

				// It lingers. A thousand at once would leave a large map behind.
				pass(time.Minute)
			},
		},
		"Definitions": {
			reason: "Kinds come and go under a watch.",
			times:  300,
			cycle: func(t *testing.T, r *rig, i int) {
				t.Helper()

				k := watchtest.NewKind("Widget0")
				if err := r.Start("c", idle()); err != nil {
					t.Fatal(err)
				}

				_ = r.StartWatches(t.Context(), "c", watchOf(k, &recorder{}))

				r.api.Undefine(k)
				time.Sleep(time.Duration(i) * time.Millisecond)
				r.api.Define(k)
				pass(time.Second)

				if i%10 == 9 {
					if err := r.Stop(t.Context(), "c"); err != nil {
						t.Fatal(err)
					}
				}
			},
		},
	}

	for name, tc := range cycles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := watchtest.NewAPI()
				for i := range 5 {
					api.Define(watchtest.NewKind(fmt.Sprintf("Widget%d", i)))
				}

				r := graft(t, api)
				r.mgr.Elect()

				if err := r.GarbageCollectCustomResourceInformers(t.Context()); err != nil {
					t.Fatal(err)
				}

				// What is made once, and kept, is made now.
				for i := range 30 {
					tc.cycle(t, r, i)
				}

				rest := func() (int, uint64) {
					if err := r.Stop(t.Context(), "c"); err != nil {
						t.Fatal(err)
					}

					pass(time.Hour)
					api.Forget()
					api.Compact(watchtest.CRD())

					return runtime.NumGoroutine(), heap()
				}

				goroutines, bytes := rest()

				for i := range tc.times {
					tc.cycle(t, r, i)
				}

				g, b := rest()
				// The runtime has one or two that come and go, for cleanups.
				if g > goroutines+2 {
					t.Errorf("\n%s\n%d goroutines before, %d after", tc.reason, goroutines, g)
				}

				// A kind, forgotten, is ten times that.
				if b > bytes+uint64(tc.times)*500 {
					t.Errorf("\n%s\n%d bytes before, %d after", tc.reason, bytes, b)
				}

				s := r.ours.Snapshot()
				if len(s.Controllers) > 0 || len(s.Ending) > 0 || len(s.Kinds) > 1 {
					t.Errorf("\n%s\nafterwards there are %d controllers, %d ending, %d kinds", tc.reason, len(s.Controllers), len(s.Ending), len(s.Kinds))
				}
			})
		})
	}
}

// W10 and W20: kinds that aren't there cost next to nothing, and calls for them
// fail at once and without a request.
func TestW20KindsThatArentThereAreCheap(t *testing.T) {
	const n = 30

	for crds, name := range map[bool]string{true: "DefinitionsWatched", false: "DefinitionsNotWatched"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := watchtest.NewAPI()
				lines := &logLines{}
				r := newGraft(t, api, api.Config(), nil, watch.WithLogger(lines))
				r.mgr.Elect()

				if crds {
					if err := r.GarbageCollectCustomResourceInformers(t.Context()); err != nil {
						t.Fatal(err)
					}
				}

				r.start("c", idle())

				specs := make([]spec, n)
				for i := range specs {
					specs[i] = watchOf(watchtest.NewKind(fmt.Sprintf("None%d", i)), &recorder{})
				}

				start := func() (time.Duration, error) {
					return timed(func() error {
						return limited(t, time.Second, func(ctx context.Context) error { return r.StartWatches(ctx, "c", specs...) })
					})
				}
				_, _ = start()

				pass(10 * time.Minute)

				before, said := len(api.Requests(watchtest.Everything())), len(lines.all())

				// Somebody asks again and again, as reconcilers do.
				for range 60 {
					if took, err := start(); err == nil || took > quick {
						t.Fatalf("StartWatches(...) of kinds that don't exist: %v after %s", err, took)
					}

					if took, err := timed(func() error { return r.read(t.Context(), watchtest.NewKind("None0"), "one") }); err == nil || took > quick {
						t.Fatalf("Get(...) of a kind that doesn't exist: %v after %s", err, took)
					}

					pass(time.Minute)
				}

				requests := len(api.Requests(watchtest.Everything())) - before
				t.Logf("%d requests in an hour for %d kinds", requests, n)

				most := n * 60
				if crds {
					most = n * 30
				}

				if requests > most+n {
					t.Errorf("%d requests in an hour for %d kinds, want at most %d", requests, n, most)
				}

				if l := len(lines.all()) - said; l > 0 {
					t.Errorf("%d lines were logged in an hour in which nothing happened", l)
				}
			})
		})
	}
}

// W20: a kind in trouble is tried less and less often, and a second one isn't
// tried less often for it.
func TestW20BackoffIsPerKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := watchtest.NewKind("A"), watchtest.NewKind("B")
		api := watchtest.NewAPI(a)

		lift := api.Inject(watchtest.DiscoveryOf(a).Or(watchtest.DiscoveryOf(b)), watchtest.Refuse())
		defer lift()

		r := graft(t, api)
		r.mgr.Elect()
		r.start("c", idle())

		rec := &recorder{}
		_ = r.StartWatches(t.Context(), "c", watchOf(a, &recorder{}))

		pass(time.Hour)

		tries := api.Requests(watchtest.DiscoveryOf(a))
		if n := len(tries); n < 30 || n > 130 {
			t.Errorf("%d tries in an hour", n)
		}

		if first := tries[1].At.Sub(tries[0].At); first > 5*time.Second {
			t.Errorf("it was tried again after %s", first)
		}

		for i := 2; i < len(tries); i++ {
			if was, is := tries[i-1].At.Sub(tries[i-2].At), tries[i].At.Sub(tries[i-1].At); is < was/2 {
				t.Errorf("try %d came %s after the one before, which came after %s", i, is, was)
			}
		}

		// Another begins anew.
		_ = r.StartWatches(t.Context(), "c", watchOf(b, rec))
		lift()
		api.Define(b)
		api.Put(b.Object("one"), b)
		pass(10 * time.Second)

		if n := rec.count("create", "one"); n != 1 {
			t.Errorf("a kind that was in trouble for a moment got %d events", n)
		}
	})
}
