package watch_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

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

// Of a thousand cycles nothing is left.
func TestCyclesLeaveNothing(t *testing.T) {
	cycles := map[string]struct {
		reason string
		times  int
		cycle  func(t *testing.T, r *rig, i int)
	}{
		"Controllers": {
			reason: "Controllers start, watch, and stop.",
			times:  1000,
			cycle: func(t *testing.T, r *rig, i int) {
				name := fmt.Sprintf("c%d", i%7)
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i%5))
				if err := r.Start(name, idle()); err != nil {
					t.Fatal(err)
				}
				r.watch(name, watchOf(k, &recorder{}))
				r.stop(name)
			},
		},
		"KindsThatDontExist": {
			reason: "Controllers watch kinds that don't exist, each another one.",
			times:  300,
			cycle: func(t *testing.T, r *rig, i int) {
				if err := r.Start("c", idle()); err != nil {
					t.Fatal(err)
				}
				_ = r.StartWatches(t.Context(), "c", watchOf(watchtest.NewKind(fmt.Sprintf("None%d", i)), &recorder{}))
				r.stop("c")

				// It lingers. A thousand at once would leave a large map behind.
				pass(time.Minute)
			},
		},
		"Definitions": {
			reason: "Kinds come and go under a watch.",
			times:  300,
			cycle: func(t *testing.T, r *rig, i int) {
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
					r.stop("c")
				}
			},
		},
	}
	for name, tc := range cycles {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI()
			for i := range 5 {
				api.Define(watchtest.NewKind(fmt.Sprintf("Widget%d", i)))
			}
			r := graft(t, api)
			r.mgr.Elect()
			r.watchCRDs()

			// What is made once, and kept, is made now.
			for i := range 30 {
				tc.cycle(t, r, i)
			}
			rest := func() (int, uint64) {
				r.stop("c")
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
	}
}
