package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// collectEvery is how often watches are collected. Crossplane does it once a minute.
const collectEvery = 200 * time.Millisecond

// An engine runs controllers of composites, whose watches come and go.
type engine interface {
	// run a controller. If used is given, watches of kinds that it doesn't return are
	// collected.
	run(name string, r reconcile.Reconciler, used watch.DependenciesFn) error

	// follow the kind of an object from now on.
	follow(ctx context.Context, name string, t watch.WatchType, o client.Object) error

	// Stop a controller.
	Stop(ctx context.Context, name string) error

	// GarbageCollectCustomResourceInformers lets informers end with their CRDs.
	GarbageCollectCustomResourceInformers(ctx context.Context) error
}

// A collector of watches has an interval of its own.
type collector func(ctx context.Context)

func (c collector) GarbageCollectWatches(ctx context.Context, _ time.Duration) { c(ctx) }

type graftEngine struct{ *watch.ControllerEngine }

func newGraftCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	return watch.NewCache(cfg, o)
}

func newGraftEngine(m manager.Manager, live client.Client) engine {
	c, _ := m.GetCache().(*watch.InformerTrackingCache)
	return graftEngine{watch.New(m, c, m.GetClient(), live)}
}

func (e graftEngine) run(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	opts := []watch.ControllerOption{watch.WithRuntimeOptions(controller.Options{Reconciler: r})}
	if used != nil {
		gc := watch.NewGarbageCollector(name, e.ControllerEngine, used, []watch.WatchType{watch.WatchTypeDependency})
		opts = append(opts, watch.WithWatchGarbageCollector(collector(func(ctx context.Context) {
			gc.GarbageCollectWatches(ctx, collectEvery)
		})))
	}
	return e.Start(name, opts...)
}

func (e graftEngine) follow(ctx context.Context, name string, t watch.WatchType, o client.Object) error {
	return e.StartWatches(ctx, name, watch.WatchFor(o, t, &handler.EnqueueRequestForObject{}))
}

// A baselineEngine has the shape of Crossplane v2.4.0's. Its collector is of the
// shape from before crossplane#6395: it doesn't look at a watch's type, and stops all watches of kinds that
// aren't used, the composites' own among them.
type baselineEngine struct{ *baseline.Engine }

func newBaselineCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	c, err := cache.New(cfg, o)
	return baseline.NewCache(c, o.Scheme, &sync.RWMutex{}), err
}

func newBaselineEngine(m manager.Manager, _ client.Client) engine {
	c, _ := m.GetCache().(*baseline.Cache)
	newLock := func() baseline.Lock { return &sync.RWMutex{} }
	return baselineEngine{baseline.NewEngine(m, c, &watch.NopMetrics{}, newLock)}
}

func (e baselineEngine) run(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	o := baseline.Options{Runtime: controller.Options{Reconciler: r}}
	if used != nil {
		o.Collector = collector(func(ctx context.Context) {
			_ = wait.PollUntilContextCancel(ctx, collectEvery, false, func(ctx context.Context) (bool, error) {
				e.collect(ctx, name, used)
				return false, nil
			})
		})
	}
	return e.Start(name, o)
}

func (e baselineEngine) collect(ctx context.Context, name string, used watch.DependenciesFn) {
	kinds, err := used(ctx)
	if err != nil {
		return
	}
	ids, _ := e.GetWatches(name) // None if it was stopped.
	ids = slices.DeleteFunc(ids, func(id watch.WatchID) bool { return slices.Contains(kinds, id.GVK) })
	_, _ = e.StopWatches(ctx, name, ids...)
}

func (e baselineEngine) follow(ctx context.Context, name string, t watch.WatchType, o client.Object) error {
	return e.StartWatches(ctx, name, baseline.Watch{Kind: o, Type: t, Handler: &handler.EnqueueRequestForObject{}})
}
