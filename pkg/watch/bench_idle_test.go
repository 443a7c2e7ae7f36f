package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// usage is what is in use.
type usage struct {
	heap, stacks uint64 // Bytes.
	goroutines   int
}

// settled returns what is in use when what only starting or stopping needed has
// ended. What a collection finds may have a finalizer, or be in a pool: so it looks
// until it has been the same a few times. Stacks it can't wait for: of goroutines
// that have ended, the runtime keeps them for others for a while.
func settled() usage {
	const enough = 10
	var u usage
	same := 0
	within(3*time.Second, func() bool {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		now := usage{heap: m.HeapAlloc, stacks: m.StackInuse, goroutines: runtime.NumGoroutine()}
		if same++; now.goroutines != u.goroutines || now.heap < u.heap {
			same = 0
		}
		u = now
		return same == enough
	})
	return u
}

// report what came to be in use since, for each of n. What was in use before, and
// isn't needed any more, is kept.
func (u usage) report(b *testing.B, n int, what string, keep ...any) {
	b.Helper()
	now := settled()
	runtime.KeepAlive(keep)
	noTotals(b)
	for unit, grown := range map[string]float64{
		"heap-B":     float64(now.heap) - float64(u.heap),
		"stack-B":    float64(now.stacks) - float64(u.stacks),
		"goroutines": float64(now.goroutines - u.goroutines),
	} {
		b.ReportMetric(grown/float64(n), unit+"/"+what)
	}
}

// What a watch costs that has nothing to do: one on a kind that is watched
// already, and one on a kind of its own. Of what the latter costs, the part of the
// API server is measured alone: it is in the same process.
func BenchmarkIdleWatch(b *testing.B) {
	const kinds = 200
	cases := []struct {
		name string
		n    int

		// watches to start, after those that aren't measured.
		watches func(api *watchtest.API) (first, then []baseline.Watch)
	}{
		{"OnAKindThatIsWatched", 10 * kinds, func(api *watchtest.API) (first, then []baseline.Watch) {
			k := watchtest.NewKind("Widget")
			api.Define(k)

			// One watch has a type and kind for itself.
			ws := make([]baseline.Watch, 10*kinds+1)
			for i := range ws {
				ws[i] = watchOf(k, &handler.EnqueueRequestForObject{})
				ws[i].Type = watch.WatchType(fmt.Sprintf("Type%d", i))
			}
			return ws[:1], ws[1:]
		}},
		{"OnAKindOfItsOwn", kinds, func(api *watchtest.API) (first, then []baseline.Watch) {
			return nil, watchesOf(manyKinds(api, kinds))
		}},
	}
	for _, tc := range cases {
		for _, side := range []benchSide{controllerRuntime(), engineShaped(), ours()} {
			b.Run(tc.name+"/"+side.name, func(b *testing.B) {
				for b.Loop() {
					api := watchtest.NewAPI()
					first, then := tc.watches(api)
					r := side.make(b, api)
					r.mgr.Elect()
					r.warm(b, first)
					r.startController(b, first...)
					before := settled()
					r.warm(b, then)
					r.startWatches(b, then...)
					before.report(b, tc.n, "watch", then)
				}
			})
		}
	}
	b.Run("OnAKindOfItsOwn/APIServerAlone", func(b *testing.B) {
		for b.Loop() {
			api := watchtest.NewAPI()
			ks := manyKinds(api, kinds)
			before := settled()
			for _, k := range ks {
				openWatch(b, api, k)
			}
			before.report(b, kinds, "watch", ks)
		}
	})
}

// openWatch asks for a watch, and reads nothing of it.
func openWatch(b *testing.B, api *watchtest.API, k watchtest.Kind) {
	b.Helper()
	cfg := api.Config()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	url := fmt.Sprintf("%s/apis/%s/%s?watch=true", cfg.Host, k.GVK.GroupVersion(), k.Plural)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := cfg.Transport.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
}

// What is left when controllers with watches have come and gone many times: on the
// same few kinds, each on another kind, stopped while they start, and before the
// manager is elected.
func BenchmarkResidue(b *testing.B) {
	cases := []struct {
		name   string
		cycles int

		// kinds that there are. Each cycle watches the next watched of them.
		kinds, watched int
		notElected     bool

		// early stops a controller when its watches are started. It may not run yet.
		early bool
	}{
		{name: "OnThreeKinds", cycles: 1000, kinds: 3, watched: 3},
		{name: "EachOnAnotherKind", cycles: 200, kinds: 200, watched: 1},
		{name: "StoppedEarly", cycles: 1000, kinds: 3, watched: 3, early: true},
		{name: "NotElected", cycles: 1000, kinds: 3, watched: 3, early: true, notElected: true},
	}
	for _, tc := range cases {
		for _, side := range []benchSide{engineShaped(), ours()} {
			b.Run(tc.name+"/"+side.name, func(b *testing.B) {
				for b.Loop() {
					api := watchtest.NewAPI()
					r := side.make(b, api, watch.WithLinger(0), watch.WithReadLinger(0))
					if !tc.notElected {
						r.mgr.Elect()
					}
					cycle := func(ws ...baseline.Watch) {
						up, ended := r.startController(b, ws...)
						if !tc.early {
							<-up
						}
						if err := r.engine.Stop(context.Background(), benchController); err != nil {
							b.Fatal(err)
						}

						// One that was stopped before it ran may never have.
						if !tc.early {
							<-ended
						}
					}
					kinds := append(manyKinds(api, tc.kinds), watchtest.NewKind("First"))
					for _, k := range kinds {
						api.Define(k)
						api.Put(k.Object("one"), k)
					}
					ws := watchesOf(kinds)

					// What is made once, like pools and metrics, is no residue.
					for range 50 {
						cycle(ws[tc.kinds])
					}
					r.rest()
					before := settled()
					if r.ours == nil {
						r.warm(b, ws)
					}
					for i := range tc.cycles {
						n := i * tc.watched % tc.kinds
						cycle(ws[n : n+tc.watched]...)
					}
					r.rest()
					before.report(b, tc.cycles, "cycle", ws, kinds)
				}
			})
		}
	}
}

// rest until there are no watches and nothing lingers.
func (r *benchRig) rest() {
	if r.ours != nil {
		within(10*time.Second, func() bool { return len(r.ours.Snapshot().Kinds) == 0 })
	}
	r.api.Forget()
}
