package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Benchmarks have all sides in one run, in turn where they report times, so that the comparison
// doesn't depend on the machine. One iteration is a whole experiment: its time means nothing, and
// isn't reported.

// A benchSide is one of those that are compared.
type benchSide struct {
	name string
	make func(t testing.TB, api *watchtest.API, co ...watch.CacheOption) *testEnv
}

// benchSides are controller-runtime's cache alone, an engine of the shape that ours
// replaces on that cache, and ours.
func benchSides() []benchSide {
	shaped := func(t testing.TB, api *watchtest.API, _ ...watch.CacheOption) *testEnv {
		return newBaselineEnvWith(t, api, func() baseline.Lock { return &sync.RWMutex{} })
	}
	return []benchSide{
		{name: "ControllerRuntime", make: func(t testing.TB, api *watchtest.API, _ ...watch.CacheOption) *testEnv {
			r := shaped(t, api)
			if c, ok := r.infs.(*baseline.Cache); ok {
				r.engine, r.reader = nil, c.Cache
			}
			return r
		}},
		{name: "Baseline", make: shaped},
		{name: "Graft", make: newGraftEnv},
	}
}

// startAll starts watches. Without an engine handlers are added to informers.
func (r *testEnv) startAll(ws []baseline.Watch) {
	r.t.Helper()
	if r.engine != nil {
		r.watch("c", ws...)
		return
	}
	for _, w := range ws {
		inf, err := r.informers().GetInformer(r.t.Context(), w.Kind)
		mustSucceed(r.t, err)
		_, err = inf.AddEventHandler((&recorder{}).funcs())
		mustSucceed(r.t, err)
	}
}

// warm makes sure that the kinds of all watches have informers that are synced: the
// baseline waits for one after the other.
func (r *testEnv) warm(ws []baseline.Watch) {
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			_, err := r.informers().GetInformer(r.t.Context(), w.Kind)
			expectEqual(r.t, "", "GetInformer(...)", nil, err)
		})
	}
	wg.Wait()
}

// usage is the memory and the goroutines in use.
type usage struct {
	heap, stacks uint64 // Bytes.
	goroutines   int
}

// settled returns the usage when goroutines of the start have ended. A garbage collection may
// leave finalizers and pools, so settled collects until the usage has been the same a few times.
func settled() (u usage) {
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
		return same == 10
	})
	return u
}

// BenchmarkIdleWatch measures the cost of a watch without events: on a kind that is watched
// already, and on a kind of its own. The API server is in the same process.
func BenchmarkIdleWatch(b *testing.B) {
	const kinds = 200
	cases := map[string]struct {
		first   int // Those that aren't measured.
		watches func(api *watchtest.API) []baseline.Watch
	}{
		"OnAKindThatIsWatched": {first: 1, watches: func(api *watchtest.API) []baseline.Watch {
			k := manyKinds(api, 1)[0]
			ws := make([]baseline.Watch, 10*kinds+1)
			for i := range ws {
				ws[i] = newWatch(k, &handler.EnqueueRequestForObject{})
				ws[i].Type = watch.WatchType(fmt.Sprintf("Type%d", i))
			}
			return ws
		}},
		"OnAKindOfItsOwn": {
			first:   0,
			watches: func(api *watchtest.API) []baseline.Watch { return watchesOf(manyKinds(api, kinds)) },
		},
	}
	for name, tc := range cases {
		for _, side := range benchSides() {
			b.Run(name+"/"+side.name, func(b *testing.B) {
				for b.Loop() {
					api := watchtest.NewAPI()
					ws := tc.watches(api)
					first, then := ws[:tc.first], ws[tc.first:]
					r := side.make(b, api)
					r.mgr.Elect()
					if r.engine != nil {
						r.start("c", idleOptions())
					}
					r.warm(first)
					r.startAll(first)
					before := settled()
					r.warm(then)
					r.startAll(then)
					now := settled()
					runtime.KeepAlive(then)
					each := func(grown float64, unit string) { b.ReportMetric(grown/float64(len(then)), unit+"/watch") }
					each(float64(now.heap)-float64(before.heap), "heap-B")
					each(float64(now.stacks)-float64(before.stacks), "stack-B")
					each(float64(now.goroutines-before.goroutines), "goroutines")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

const (
	// readWindow is how long reads are sampled before it is the other environment's turn, and
	// readTurns how often each has its turn in an iteration.
	readWindow = 50 * time.Millisecond
	readTurns  = 7

	// troubleLasts is how long calls ask for a kind that is in trouble: all the while,
	// also if it takes a moment to see that they do.
	troubleLasts = 2 * readWindow
)

// benchTroubles are what happens to another kind while a healthy one is read: each asks
// for the other kind until it is over, in the i-th window, and calls asked when a call
// waits for it. Nothing is the control:
// the distance of its result from 1 is the error of the figures.
func benchTroubles() map[string]func(r *testEnv, i int, asked func()) {
	request := func(r *testEnv, d time.Duration, k watchtest.Kind, m watchtest.Match, asked func()) {
		ctx, cancel := context.WithTimeout(r.t.Context(), d)
		defer cancel()
		read := background(func() error { return r.read(ctx, k, "x") })
		expectEqual(r.t, "", "a request for the other kind", nil, r.api.AwaitOpen(ctx, m))
		asked()
		<-read
	}
	return map[string]func(r *testEnv, i int, asked func()){
		"Nothing": func(_ *testEnv, _ int, asked func()) { asked() },
		"NeverSyncs": func(r *testEnv, i int, asked func()) {
			// One that was asked for before may be known to be in trouble.
			k := watchtest.NewKind(fmt.Sprintf("Stuck%d", i))
			r.api.Define(k)
			r.t.Cleanup(r.api.Inject(watchtest.Of(k), watchtest.Hang()))
			request(r, troubleLasts, k, watchtest.Of(k), asked)
		},
		"IsLookedUpSlowly": func(r *testEnv, i int, asked func()) {
			k := watchtest.NewKind("Other")
			k.GVK.Version = fmt.Sprintf("v%d", i+2) // It has to be looked up.
			defer r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Delay(troubleLasts))()
			request(r, time.Minute, k, watchtest.DiscoveryOf(k), asked) // The delay ends it.
		},
	}
}

// A readSample has the measurements of all windows of an environment.
type readSample struct {
	p99s          []time.Duration // Of each window.
	waited, total time.Duration   // In reads that aren't merely slow, and in all.
}

// sample reads for a while, during the i-th trouble.
func (s *readSample) sample(r *testEnv, read func(r *testEnv) error, i int, ask func(r *testEnv, i int, asked func())) {
	asked, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ask(r, i, sync.OnceFunc(func() { close(asked) }))
	}()
	<-asked
	var all []time.Duration
	began := time.Now()
	for time.Since(began) < readWindow {
		took, err := timed(func() error { return read(r) })
		if err != nil {
			r.t.Errorf("cannot read the healthy kind: %v", err)
		}
		if took > readWindow/10 {
			s.waited += took
		}
		all = append(all, took)
	}
	s.total += time.Since(began)
	<-done
	slices.Sort(all)
	s.p99s = append(s.p99s, all[len(all)*99/100])
}

// Cached reads of a healthy kind while calls ask for another one, which never syncs, or
// which is looked up slowly. One environment has the trouble, the other none; they take turns, so
// that other processes slow down both. x-quiet is the ratio of the p99 in trouble to the p99
// without, as the median of all turns; waiting-% is the share of the time spent waiting. One
// goroutine reads, so a read that waits for the whole time is the only one.
func BenchmarkReadWhileAnotherKind(b *testing.B) {
	healthy := watchtest.NewKind("Healthy")
	reads := map[string]func(r *testEnv) error{
		"Get":  func(r *testEnv) error { return r.read(context.Background(), healthy, "o1") },
		"List": func(r *testEnv) error { return r.list(context.Background(), healthy) },
	}
	for op, read := range reads {
		for name, ask := range benchTroubles() {
			for _, side := range benchSides() {
				b.Run(fmt.Sprintf("%s/%s/%s", op, name, side.name), func(b *testing.B) {
					newRig := func() *testEnv {
						api := watchtest.NewAPI(healthy, watchtest.NewKind("Other"))
						for i := range 10 {
							api.Put(healthy.Object(fmt.Sprintf("o%d", i)), healthy)
						}
						return side.make(b, api, watch.WithReadLinger(time.Hour))
					}
					calm := benchTroubles()["Nothing"]
					quiet, troubled := newRig(), newRig()
					without, with := &readSample{}, &readSample{}
					for _, r := range []*testEnv{quiet, troubled} { // What happens only once doesn't count.
						(&readSample{}).sample(r, read, 0, calm)
					}
					turns := []func(i int){
						func(i int) { without.sample(quiet, read, i, calm) },
						func(i int) { with.sample(troubled, read, i, ask) },
					}
					for i := 0; b.Loop(); {
						for range readTurns {
							for _, turn := range turns {
								turn(i)
							}
							slices.Reverse(turns) // Neither is always first.
							i++
						}
					}
					ratios := make([]float64, len(with.p99s))
					for i := range ratios {
						ratios[i] = float64(with.p99s[i]) / float64(without.p99s[i])
					}
					slices.Sort(ratios)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(ratios[len(ratios)/2], "x-quiet")
					b.ReportMetric(100*with.waited.Seconds()/with.total.Seconds(), "waiting-%")
				})
			}
		}
	}
}

// BenchmarkStop stops controllers with many watches while the API server works, hangs or is
// down: the baseline's and ours in turn. Our Stop returns when nothing runs any more. The baseline's waits for
// nothing.
func BenchmarkStop(b *testing.B) {
	// Each begins a trouble, and returns a function that ends it and waits.
	troubles := map[string]func(r *testEnv, round int) (settle func()){
		"Healthy":                      func(*testEnv, int) func() { return func() {} },
		"Refusing":                     func(r *testEnv, _ int) func() { return r.api.Down() },
		"Hanging":                      func(r *testEnv, _ int) func() { return r.api.Freeze() },
		"HangingWhileOneMoreIsStarted": startWhileHanging,
	}
	for _, n := range []int{1, 100, 200, 1000} {
		b.Run(fmt.Sprintf("Watches=%d", n), func(b *testing.B) {
			sides := benchSides()[1:]
			rigs := make([]*testEnv, len(sides))
			watches := make([][]baseline.Watch, len(sides))
			for i, side := range sides {
				api := watchtest.NewAPI()
				kinds := manyKinds(api, n)
				api.Put(kinds[0].Object("one"), kinds[0])
				watches[i] = watchesOf(kinds)
				rigs[i] = side.make(b, api)
				rigs[i].mgr.Elect()
				rigs[i].warm(watches[i])
			}
			for name, trouble := range troubles {
				b.Run(name, func(b *testing.B) {
					stopped := make([][]time.Duration, len(sides))
					for round := 0; b.Loop(); round++ {
						for i, r := range rigs {
							stopped[i] = append(stopped[i], r.startAndStop(
								watches[i], func() func() { return trouble(r, round) },
							))
						}
					}
					b.ReportMetric(0, "ns/op")
					for i, side := range sides {
						slices.Sort(stopped[i])
						for what, d := range map[string]time.Duration{"p50": stopped[i][len(
							stopped[i],
						)/2], "max": stopped[i][len(stopped[i])-1]} {
							b.ReportMetric(float64(d)/float64(time.Millisecond), side.name+"-"+what+"-ms")
						}
					}
				})
			}
		})
	}
}

// A benchRun is a controller that says when it has ended.
type benchRun struct {
	kcontroller.Controller

	ended chan struct{}
}

// Start runs the controller.
func (c *benchRun) Start(ctx context.Context) error {
	defer close(c.ended)
	return c.Controller.Start(ctx)
}

// startAndStop starts a controller, stops it while there is trouble, and waits until it
// has ended: of the controllers that it stops, the baseline doesn't know. It returns how
// long Stop took.
func (r *testEnv) startAndStop(ws []baseline.Watch, trouble func() (settle func())) time.Duration {
	up, ended := make(chan struct{}), make(chan struct{})
	tell := sync.OnceFunc(func() { close(up) })
	o := withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		tell()
		return reconcile.Result{}, nil
	})
	o.NewController = func(name string, ko kcontroller.Options) (kcontroller.Controller, error) {
		c, err := kcontroller.NewUnmanaged(name, ko)
		return &benchRun{Controller: c, ended: ended}, err
	}
	mustSucceed(r.t, r.Start("c", o))
	r.startAll(ws)
	<-up
	defer trouble()()
	took, err := timed(func() error { return r.Stop(context.Background(), "c") })
	mustSucceed(r.t, err)
	<-ended
	return took
}

// startWhileHanging asks for one watch more while the API server doesn't answer, for
// half a second if Stop waits for it.
func startWhileHanging(r *testEnv, round int) (settle func()) {
	k := watchtest.NewKind(fmt.Sprintf("OneMore%d", round))
	r.api.Define(k)
	thaw := r.api.Freeze()
	end := time.AfterFunc(500*time.Millisecond, thaw)

	// Ours says that the controller was stopped. The baseline has started it.
	started := background(func() error { return r.StartWatches(context.Background(), "c", newWatch(k, &recorder{})) })
	mustSucceed(r.t, r.api.AwaitOpen(context.Background(), watchtest.DiscoveryOf(k)))
	return func() {
		end.Stop()
		thaw()
		<-started
	}
}

// Missing kinds, each requested once a minute as by reconciles, should cost few requests. It is a
// test, not a benchmark: simulated time costs nothing, and the requests are the same on each machine.
func TestRequestsForKindsThatArentThere(t *testing.T) {
	const kinds = 25
	cases := map[string]struct {
		reason string

		// were says that the kinds are there first, and watched; crds that CRDs are.
		were, crds bool

		most    float64 // Requests a second. Fewer than the baseline's, if they went.
		minutes int
	}{
		"NeverWere": {
			reason:  "Each is looked up once a minute at most, however often it is asked for.",
			most:    kinds / 50.,
			minutes: 15,
		},
		"NeverWere/CRDsAreWatched": {
			reason:  "We are told when their CRDs come.",
			crds:    true,
			most:    kinds / 100.,
			minutes: 15,
		},
		"Went": {
			reason:  "Nothing says that they went.",
			were:    true,
			most:    kinds / 50.,
			minutes: 15,
		},
		"Went/CRDsAreWatched": {
			reason:  "What went with its CRD is looked for every ten minutes.",
			were:    true,
			crds:    true,
			most:    kinds / 100.,
			minutes: 75,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// requests returns how many there are a second, once all kinds are tried as
			// seldom as they ever are.
			requests := func(t *testing.T, r *testEnv, minutes int) float64 {
				t.Helper()
				r.startController()
				if tc.crds {
					r.watchCRDs()
				}
				ks := manyKinds(watchtest.NewAPI(), kinds)
				ask := func() {
					for _, k := range ks { // The baseline gives up at the first error.
						took, _ := timed(func() error {
							return r.watchFor(200*time.Millisecond, "c", newWatch(k, &recorder{}))
						})
						if r.ours != nil && r.api.Objects(k) == nil && took > quick {
							t.Errorf("\n%s\na call for a kind that doesn't exist took %s", tc.reason, took)
						}
					}
				}
				if tc.were {
					for _, k := range ks {
						r.api.Define(k)
					}
					ask()
					for _, k := range ks {
						r.api.Undefine(k)
					}
				}
				for range 5 {
					ask()
					advance(time.Minute)
				}
				r.api.Forget()
				said, began := len(r.lines.all()), time.Now()
				for range minutes {
					ask()
					advance(time.Minute)
				}
				expectBetween(t, tc.reason, "log lines while nothing happens", 0, said, len(r.lines.all()))
				return float64(len(r.api.Requests(watchtest.Everything()))) / time.Since(began).Seconds()
			}
			var baselines, ours float64
			bubble(t, func(t *testing.T) { baselines = requests(t, newBaselineEnv(t, watchtest.NewAPI()), 15) })
			bubble(t, func(t *testing.T) { ours = requests(t, newGraftEnv(t, watchtest.NewAPI()), tc.minutes) })
			t.Logf(
				"requests a second for %d kinds that aren't there: baseline %.2f, Graft %.3f", kinds, baselines, ours,
			)
			if ours > tc.most || tc.were && ours >= baselines {
				t.Errorf("\n%s\n%.3f requests a second, want at most %.3f", tc.reason, ours, tc.most)
			}
		})
	}
}

// cpuTime returns the CPU time of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	try(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkKindsInTrouble measures the CPU time of 500 kinds in ten seconds. 146 kinds have been
// in trouble for minutes: half of them can't be watched since they have synced, the
// others never sync. A third of them gets errors, a third is forbidden, and a third gets no
// answers. It includes the CPU time of the API server.
func BenchmarkKindsInTrouble(b *testing.B) {
	faults := []watchtest.Fault{
		watchtest.Status(http.StatusServiceUnavailable), watchtest.Status(http.StatusForbidden), watchtest.Hang(),
	}
	for b.Loop() {
		simulate(b, func(t *testing.T) {
			api := watchtest.NewAPI()
			kinds := manyKinds(api, 500)
			r := newRunningEnv(t, api)
			r.watch("c", watchesOf(kinds[:427])...)
			for i, k := range kinds[354:] {
				t.Cleanup(api.Inject(watchtest.Of(k), faults[i%len(faults)]))
				api.Disconnect(watchtest.Of(k))
			}
			_ = r.watchFor(time.Second, "c", watchesOf(kinds[427:])...)
			advance(5 * time.Minute)
			before := cpuTime()
			advance(5 * time.Minute)
			b.ReportMetric(float64((cpuTime()-before).Milliseconds())/30, "cpu-ms/10s")
		})
	}
}

// simulate runs a part of a benchmark in a bubble, in which minutes take no time.
func simulate(b *testing.B, fn func(t *testing.T)) {
	b.Helper()
	all := func(string, string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) { bubble(t, fn) }}}) {
		b.Fatal("see above")
	}
}
