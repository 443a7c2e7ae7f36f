package watch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Benchmarks have all sides in one run, in turn where they report times, so that
// what is compared doesn't depend on the machine, nor on what else it does. One
// iteration is a whole experiment: what it took as a whole means nothing, and
// isn't reported.

// A benchRig is what is measured: a cache, and an engine if there is one.
type benchRig struct {
	api    *watchtest.API
	mgr    *watchtest.Manager // Not elected.
	reader cache.Cache
	engine engine // Nil if there is none.

	// Of ours only.
	ours *watch.ControllerEngine

	// informers are those below the engine.
	informers cache.Cache
}

// A benchSide is one of those that are compared.
type benchSide struct {
	name string
	make func(b *testing.B, api *watchtest.API, co ...watch.CacheOption) *benchRig
}

func controllerRuntime() benchSide { return benchSide{"ControllerRuntime", benchPlain} }
func engineShaped() benchSide      { return benchSide{"Baseline", benchBaseline} }
func ours() benchSide              { return benchSide{"Graft", benchGraft} }

// benchGraft is our engine on our cache.
func benchGraft(b *testing.B, api *watchtest.API, co ...watch.CacheOption) *benchRig {
	b.Helper()
	ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()}, co...)
	if err != nil {
		b.Fatal(err)
	}
	startCache(b, ca)
	mgr := watchtest.NewManager(api.Config(), scheme())
	e := watch.New(mgr, ca, nil, nil)
	b.Cleanup(func() { _ = stopAll(context.Background(), e) })
	return &benchRig{api: api, mgr: mgr, reader: ca, informers: ca, engine: graftEngine{e}, ours: e}
}

// benchPlain is controller-runtime's cache.
func benchPlain(b *testing.B, api *watchtest.API, _ ...watch.CacheOption) *benchRig {
	b.Helper()
	ca := plainCache(b, api.Config())
	startCache(b, ca)
	return &benchRig{api: api, mgr: watchtest.NewManager(api.Config(), scheme()), reader: ca, informers: ca}
}

// benchBaseline is an engine of the shape that ours replaces, on
// controller-runtime's cache.
func benchBaseline(b *testing.B, api *watchtest.API, _ ...watch.CacheOption) *benchRig {
	b.Helper()
	newLock := func() baseline.Lock { return &sync.RWMutex{} }
	r := benchPlain(b, api)
	infs := baseline.NewCache(r.informers, scheme(), newLock())
	r.reader = infs
	r.engine = baseline.NewEngine(r.mgr, infs, &watch.NopMetrics{}, newLock)
	b.Cleanup(func() {
		_ = r.engine.Stop(context.Background(), benchController)

		// Controllers that wait for an election would wait for ever.
		r.mgr.Elect()
	})
	return r
}

// benchController is the name of the only controller there is.
const benchController = "c"

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

// startController starts a controller with watches. up is closed when it has
// reconciled something, ended when it runs no more: of the controllers that it
// stops, the baseline doesn't know. Without an engine there is no controller.
func (r *benchRig) startController(b *testing.B, ws ...baseline.Watch) (up, ended <-chan struct{}) {
	b.Helper()
	first, last := make(chan struct{}), make(chan struct{})
	tell := sync.OnceFunc(func() { close(first) })
	o := reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		tell()
		return reconcile.Result{}, nil
	})
	o.NewController = func(name string, ko kcontroller.Options) (kcontroller.Controller, error) {
		c, err := kcontroller.NewUnmanaged(name, ko)
		return &benchRun{Controller: c, ended: last}, err
	}
	if r.engine != nil {
		if err := r.engine.Start(benchController, o); err != nil {
			b.Fatal(err)
		}
	}
	r.startWatches(b, ws...)
	return first, last
}

// startWatches of the controller. Without an engine handlers are added to informers.
func (r *benchRig) startWatches(b *testing.B, ws ...baseline.Watch) {
	b.Helper()
	if r.engine != nil {
		if err := r.engine.StartWatches(context.Background(), benchController, ws...); err != nil {
			b.Fatal(err)
		}
		return
	}
	for _, w := range ws {
		inf, err := r.informers.GetInformer(context.Background(), w.Kind)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := inf.AddEventHandler((&recorder{}).funcs()); err != nil {
			b.Fatal(err)
		}
	}
}

// warm makes sure that the kinds of all watches have informers that are synced.
// controller-runtime looks only every 100 ms whether one is, and the baseline
// waits for one after the other.
func (r *benchRig) warm(b *testing.B, ws []baseline.Watch) {
	b.Helper()
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			if _, err := r.informers.GetInformer(context.Background(), w.Kind); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// manyKinds returns kinds that the API serves.
func manyKinds(api *watchtest.API, n int) []watchtest.Kind {
	ks := make([]watchtest.Kind, n)
	for i := range ks {
		ks[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
		api.Define(ks[i])
	}
	return ks
}

// watchesOf returns a watch of each kind.
func watchesOf(ks []watchtest.Kind) []baseline.Watch {
	ws := make([]baseline.Watch, len(ks))
	for i, k := range ks {
		ws[i] = watchOf(k, &handler.EnqueueRequestForObject{})
	}
	return ws
}

// A sample of how long calls took.
type sample []time.Duration

// sorted returns the p50, the p99 and the longest of a sample, which isn't empty.
func (s sample) sorted() (p50, p99, most time.Duration) {
	slices.Sort(s)
	return s[len(s)/2], s[len(s)*99/100], s[len(s)-1]
}

// noTotals says that the time and memory of an iteration mean nothing.
func noTotals(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
}
