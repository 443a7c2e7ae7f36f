package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Benchmarks run both sides in one run, so that what they report is a ratio that
// doesn't depend on the machine. Run them with -benchtime of your choice; those
// that need a number of rounds to mean something make them in one iteration.

// A benchRig is a cache, and an engine if it is ours.
type benchRig struct {
	reader cache.Cache
	engine *watch.ControllerEngine
	api    *watchtest.API
}

// benchGraft is our engine on our cache.
func benchGraft(b *testing.B, api *watchtest.API) *benchRig {
	b.Helper()

	cfg := api.Config()

	ca, err := watch.NewCache(cfg, cache.Options{Scheme: scheme(), HTTPClient: benchHTTP(b, cfg)}, watch.WithLinger(0), watch.WithReadLinger(time.Hour))
	if err != nil {
		b.Fatal(err)
	}

	startBenchCache(b, ca)

	mgr := watchtest.NewManager(cfg, scheme())
	mgr.Elect()

	e := watch.New(mgr, ca, nil, nil)
	b.Cleanup(func() { _ = e.Shutdown(context.Background()) })

	return &benchRig{reader: ca, engine: e, api: api}
}

// benchPlain is controller-runtime's cache.
func benchPlain(b *testing.B, api *watchtest.API) *benchRig {
	b.Helper()

	cfg := api.Config()
	h := benchHTTP(b, cfg)

	m, err := apiutil.NewDynamicRESTMapper(cfg, h)
	if err != nil {
		b.Fatal(err)
	}

	ca, err := cache.New(cfg, cache.Options{HTTPClient: h, Scheme: scheme(), Mapper: m})
	if err != nil {
		b.Fatal(err)
	}

	startBenchCache(b, ca)

	return &benchRig{reader: ca, api: api}
}

func benchHTTP(b *testing.B, cfg *rest.Config) *http.Client {
	b.Helper()

	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		b.Fatal(err)
	}

	return h
}

func startBenchCache(b *testing.B, c cache.Cache) {
	b.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	done := background(func() error { return c.Start(ctx) })

	b.Cleanup(func() {
		cancel()
		<-done
	})

	if !c.WaitForCacheSync(context.Background()) {
		b.Fatal("the cache doesn't start")
	}
}

// distribution returns percentiles of n calls, each of which may take a while at
// most.
func distribution(n int, fn func(ctx context.Context)) (p50, p99, most time.Duration) {
	took := make([]time.Duration, n)

	for i := range took {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		start := time.Now()
		fn(ctx)
		took[i] = time.Since(start)

		cancel()
	}

	slices.Sort(took)

	return took[n/2], took[n*99/100], took[n-1]
}

// Cached reads of a healthy kind, while nothing happens, while another kind never
// syncs, and while another is looked up slowly. The other is asked for all the
// time.
func BenchmarkReadWhileAnotherKind(b *testing.B) {
	const reads = 2000

	troubles := []struct {
		name   string
		inject func(api *watchtest.API, k watchtest.Kind) func()
	}{
		{"Quiet", nil},
		{"NeverSyncs", func(api *watchtest.API, k watchtest.Kind) func() {
			return api.Inject(watchtest.Of(k), watchtest.Hang())
		}},
		{"IsLookedUpSlowly", func(api *watchtest.API, k watchtest.Kind) func() {
			return api.Inject(watchtest.DiscoveryOf(k), watchtest.Delay(300*time.Millisecond))
		}},
	}
	sides := []struct {
		name string
		make func(*testing.B, *watchtest.API) *benchRig
	}{{"ControllerRuntime", benchPlain}, {"Graft", benchGraft}}

	for _, list := range []bool{false, true} {
		for _, side := range sides {
			var quiet time.Duration

			for _, trouble := range troubles {
				b.Run(fmt.Sprintf("List=%t/%s/%s", list, side.name, trouble.name), func(b *testing.B) {
					healthy, other := watchtest.NewKind("Healthy"), watchtest.NewKind("Other")
					api := watchtest.NewAPI(healthy, other)

					for i := range 50 {
						api.Put(healthy.Object(fmt.Sprintf("o%d", i)), healthy)
					}

					r := side.make(b, api)

					read := func(ctx context.Context) {
						if list {
							_ = r.reader.List(ctx, healthy.NewList())
							return
						}

						_ = r.reader.Get(ctx, healthy.Key("o1"), healthy.New())
					}
					read(context.Background())

					if trouble.inject != nil {
						defer trouble.inject(api, other)()

						ctx, cancel := context.WithCancel(context.Background())

						var wg sync.WaitGroup

						wg.Go(func() {
							for i := 0; ctx.Err() == nil; i++ {
								ask, done := context.WithTimeout(ctx, 50*time.Millisecond)
								// Another version each time, so that it is looked
								// up each time.
								u := other.New()
								if trouble.name == "IsLookedUpSlowly" {
									u.SetAPIVersion(fmt.Sprintf("%s/v%d", other.GVK.Group, i+1))
								}

								_ = r.reader.Get(ask, other.Key("x"), u)

								done()
							}
						})
						defer wg.Wait()
						defer cancel()
					}

					b.ResetTimer()

					for range b.N {
						p50, p99, most := distribution(reads, read)
						b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
						b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
						b.ReportMetric(float64(most.Microseconds()), "max-µs")

						if trouble.inject == nil {
							quiet = p99
						}

						if quiet > 0 {
							b.ReportMetric(float64(p99)/float64(quiet), "p99-of-quiet")
						}
					}
				})
			}
		}
	}
}

// many returns n watches of n kinds, which the API serves.
func many(api *watchtest.API, n int) []watch.Watch {
	ws := make([]watch.Watch, n)

	for i := range ws {
		k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
		api.Define(k)
		ws[i] = watch.WatchFor(k.New(), watch.WatchTypeDependency, &recorder{})
	}

	return ws
}

// startController starts a controller "c" that does nothing.
func startController(b *testing.B, e *watch.ControllerEngine) {
	b.Helper()

	nop := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	if err := e.Start("c", watch.WithRuntimeOptions(kcontroller.Options{Reconciler: nop})); err != nil {
		b.Fatal(err)
	}
}

// Stopping controllers with many watches, whatever the API server does.
func BenchmarkStop(b *testing.B) {
	troubles := []struct {
		name   string
		inject func(api *watchtest.API) func()
	}{
		{"Healthy", func(*watchtest.API) func() { return func() {} }},
		{"Refusing", (*watchtest.API).Down},
		{"Hanging", (*watchtest.API).Freeze},
	}

	for _, n := range []int{1, 100, 200, 1000} {
		for _, trouble := range troubles {
			b.Run(fmt.Sprintf("Watches=%d/%s", n, trouble.name), func(b *testing.B) {
				api := watchtest.NewAPI()
				ws := many(api, n)
				r := benchGraft(b, api)

				for range b.N {
					b.StopTimer()
					startController(b, r.engine)

					if err := r.engine.StartWatches(context.Background(), "c", ws...); err != nil {
						b.Fatal(err)
					}

					heal := trouble.inject(api)
					b.StartTimer()

					if err := r.engine.Stop(context.Background(), "c"); err != nil {
						b.Fatal(err)
					}

					b.StopTimer()
					heal()
					b.StartTimer()
				}

				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/stop")
			})
		}
	}
}

// Asking for watches that are there, as each reconcile of a composite does.
func BenchmarkStartWatchesWithNothingToDo(b *testing.B) {
	for _, n := range []int{1, 50, 500} {
		api := watchtest.NewAPI()
		ws := many(api, n)
		r := benchGraft(b, api)
		startController(b, r.engine)

		if err := r.engine.StartWatches(context.Background(), "c", ws...); err != nil {
			b.Fatal(err)
		}

		for _, goroutines := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("Watches=%d/Goroutines=%d", n, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
				b.ResetTimer()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if err := r.engine.StartWatches(context.Background(), "c", ws...); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// usage returns the heap in use and the goroutines, when what only starting or
// stopping needed has ended.
func usage() (heap uint64, goroutines int) {
	last, same := 0, 0

	within(10*time.Second, func() bool {
		if n := runtime.NumGoroutine(); n != last {
			last, same = n, 0
		}

		same++

		return same > 20
	})

	for range 3 {
		runtime.GC()
	}

	var m runtime.MemStats

	runtime.ReadMemStats(&m)

	return m.HeapAlloc, runtime.NumGoroutine()
}

// What a watch costs that has nothing to do: one on a kind that is watched
// already, and one on a kind of its own.
func BenchmarkIdleWatch(b *testing.B) {
	const n = 200

	cost := func(b *testing.B, watches int, e *watch.ControllerEngine, ws []watch.Watch) {
		b.Helper()

		heap, goroutines := usage()

		if err := e.StartWatches(context.Background(), "c", ws...); err != nil {
			b.Fatal(err)
		}

		heapAfter, after := usage()
		b.ReportMetric((float64(heapAfter)-float64(heap))/float64(watches), "B/watch")
		b.ReportMetric(float64(after-goroutines)/float64(watches), "goroutines/watch")
	}

	b.Run("OnAKindThatIsWatched", func(b *testing.B) {
		for range b.N {
			k := watchtest.NewKind("Widget")
			r := benchGraft(b, watchtest.NewAPI(k))
			startController(b, r.engine)

			ws := make([]watch.Watch, n)
			for i := range ws {
				ws[i] = watch.WatchFor(k.New(), watch.WatchType(fmt.Sprintf("Type%d", i)), &recorder{})
			}

			if err := r.engine.StartWatches(context.Background(), "c", watch.WatchFor(k.New(), "First", &recorder{})); err != nil {
				b.Fatal(err)
			}

			cost(b, n, r.engine, ws)
		}
	})

	b.Run("OnAKindOfItsOwn", func(b *testing.B) {
		for range b.N {
			api := watchtest.NewAPI()
			ws := many(api, n)
			r := benchGraft(b, api)
			startController(b, r.engine)
			cost(b, n, r.engine, ws)
		}
	})

	b.Run("OnAKindOfItsOwn/ControllerRuntime", func(b *testing.B) {
		for range b.N {
			api := watchtest.NewAPI()
			kinds := make([]client.Object, n)

			for i := range kinds {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				api.Define(k)
				kinds[i] = k.New()
			}

			r := benchPlain(b, api)
			heap, goroutines := usage()

			for _, k := range kinds {
				inf, err := r.reader.GetInformer(context.Background(), k)
				if err != nil {
					b.Fatal(err)
				}

				if _, err := inf.AddEventHandler((&recorder{}).funcs()); err != nil {
					b.Fatal(err)
				}
			}

			heapAfter, after := usage()
			b.ReportMetric((float64(heapAfter)-float64(heap))/n, "B/watch")
			b.ReportMetric(float64(after-goroutines)/n, "goroutines/watch")
		}
	})
}

// What is left when controllers with watches have come and gone many times.
func BenchmarkResidueOfCycles(b *testing.B) {
	const cycles = 1000

	for range b.N {
		api := watchtest.NewAPI()
		ws := many(api, 3)
		r := benchGraft(b, api)

		cycle := func() {
			startController(b, r.engine)

			if err := r.engine.StartWatches(context.Background(), "c", ws...); err != nil {
				b.Fatal(err)
			}

			if err := r.engine.Stop(context.Background(), "c"); err != nil {
				b.Fatal(err)
			}
		}

		settle := func() {
			within(10*time.Second, func() bool { return len(r.engine.Snapshot().Kinds) == 0 })
			api.Forget()
		}

		// What is made once, like pools and metrics, is no residue.
		for range 50 {
			cycle()
		}

		settle()

		heap, goroutines := usage()

		for range cycles {
			cycle()
		}

		settle()

		heapAfter, after := usage()
		b.ReportMetric((float64(heapAfter)-float64(heap))/cycles, "B/cycle")
		b.ReportMetric(float64(after-goroutines)/cycles, "goroutines/cycle")
	}
}
