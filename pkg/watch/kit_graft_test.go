package watch_test

import (
	"context"
	stderrors "errors"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// graft makes a rig with our engine and cache.
func graft(t *testing.T, api *watchtest.API, co ...watch.CacheOption) *rig {
	t.Helper()
	return newGraft(t, api, api.Config(), cache.Options{}, co...)
}

func newGraft(t *testing.T, api *watchtest.API, cfg *rest.Config, o cache.Options, co ...watch.CacheOption) *rig {
	t.Helper()
	o.Scheme = scheme()
	ca, err := watch.NewCache(cfg, o, co...)
	if err != nil {
		t.Fatal(err)
	}

	// What happens must not depend on luck.
	watch.SetRandom(ca, func() float64 { return 0.5 })
	r := graftOn(t, api, cfg, ca)
	startCache(t, ca)
	return r
}

// around makes a rig with our engine around controller-runtime's cache, which isn't
// started.
func around(t *testing.T, api *watchtest.API) (r *rig, plain cache.Cache) {
	t.Helper()
	plain = plainCache(t, api.Config())

	// What is read lingers, and the other cache doesn't say that it has ended.
	t.Cleanup(func() { pass(time.Hour) })
	return graftOn(t, api, api.Config(), watch.TrackInformers(plain, scheme())), plain
}

// graftOn makes a rig with our engine on a cache.
func graftOn(t *testing.T, api *watchtest.API, cfg *rest.Config, ca *watch.InformerTrackingCache) *rig {
	t.Helper()
	live, err := client.New(cfg, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.New(cfg, client.Options{
		Scheme: scheme(), Mapper: live.RESTMapper(),
		Cache: &client.CacheOptions{Reader: ca, Unstructured: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, api: api, infs: ca, reader: ca, cache: ca,
		mgr:     &hooked{Manager: watchtest.NewManager(cfg, scheme())},
		metrics: &counts{}, lines: &logLines{},
	}
	r.ours = watch.New(r.mgr, ca, cached, live, watch.WithMetrics(r.metrics), watch.WithLogger(r.lines))
	r.engine = graftEngine{r.ours}
	t.Cleanup(func() {
		if err := stopAll(context.Background(), r.ours); err != nil {
			t.Errorf("Stop(...): %v", err)
		}
	})
	return r
}

// stopAll stops all controllers of an engine, and waits for those that were stopped.
func stopAll(ctx context.Context, e *watch.ControllerEngine) error {
	s := e.Snapshot()
	errs := make([]error, 0, len(s.Controllers))
	for _, c := range s.Controllers {
		errs = append(errs, e.Stop(ctx, c.Name))
	}
	for _, name := range s.Ending {
		errs = append(errs, e.Stop(ctx, name))
	}
	return stderrors.Join(errs...)
}

// A graftEngine is our engine in the terms that it shares with the baseline.
type graftEngine struct{ *watch.ControllerEngine }

func (e graftEngine) Start(name string, o baseline.Options) error {
	opts := []watch.ControllerOption{watch.WithRuntimeOptions(o.Runtime)}
	if o.NewController != nil {
		opts = append(opts, watch.WithNewControllerFn(o.NewController))
	}
	if o.Collector != nil {
		opts = append(opts, watch.WithWatchGarbageCollector(o.Collector))
	}
	return e.ControllerEngine.Start(name, opts...)
}

func (e graftEngine) StartWatches(ctx context.Context, name string, ws ...baseline.Watch) error {
	return e.ControllerEngine.StartWatches(ctx, name, watchesFor(ws)...)
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// creating is a handler that calls fn with the context and the object of each
// creation.
func creating(fn func(ctx context.Context, o client.Object)) handler.EventHandler {
	return handler.Funcs{CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) { fn(ctx, e.Object) }}
}

// running is a rig with controller c, on a cache with options.
func running(t *testing.T, api *watchtest.API, co ...watch.CacheOption) *rig {
	t.Helper()
	r := graft(t, api, co...)
	r.mgr.Elect()
	r.start("c", idle())
	return r
}

// elected is a rig with a kind with one object, and an elected manager.
func elected(t *testing.T) (*rig, watchtest.Kind) {
	t.Helper()
	k := watchtest.NewKind("Widget")
	r := graft(t, watchtest.NewAPI(k))
	r.api.Put(k.Object("one"), k)
	r.mgr.Elect()
	return r, k
}

// withOne is that with a running controller, c.
func withOne(t *testing.T) (*rig, watchtest.Kind) {
	t.Helper()
	r, k := elected(t)
	r.start("c", idle())
	return r, k
}

// requestsIn counts requests while time passes.
func requestsIn(d time.Duration, api *watchtest.API, m watchtest.Match) int {
	before := len(api.Requests(m))
	pass(d)
	return len(api.Requests(m)) - before
}
