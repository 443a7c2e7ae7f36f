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

// An engine runs controllers of composites, whose watches come and go. It reads objects from
// the cache.
type engine struct {
	client.Reader
	lifecycle

	// run a controller. If used is given, watches of kinds that it doesn't return are
	// collected.
	run func(name string, r reconcile.Reconciler, used watch.DependenciesFn) error

	// follow the kind of an object from now on.
	follow func(ctx context.Context, name string, t watch.WatchType, o client.Object) error
}

// A lifecycle is what both engines have.
type lifecycle interface {
	// Stop a controller.
	Stop(ctx context.Context, name string) error

	// GarbageCollectCustomResourceInformers lets informers end with their CRDs.
	GarbageCollectCustomResourceInformers(ctx context.Context) error
}

// A collector of watches has an interval of its own.
type collector func(ctx context.Context)

func (c collector) GarbageCollectWatches(ctx context.Context, _ time.Duration) { c(ctx) }

func newGraftCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	return watch.NewCache(cfg, o)
}

func newGraftEngine(m manager.Manager, live client.Client) engine {
	c, _ := m.GetCache().(*watch.InformerTrackingCache)
	e := watch.New(m, c, m.GetClient(), live)
	return engine{
		Reader: c, lifecycle: e,
		run: func(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
			opts := []watch.ControllerOption{watch.WithRuntimeOptions(controller.Options{Reconciler: r})}
			if used != nil {
				gc := watch.NewGarbageCollector(name, e, used, []watch.WatchType{watch.WatchTypeDependency})
				opts = append(opts, watch.WithWatchGarbageCollector(collector(func(ctx context.Context) {
					gc.GarbageCollectWatches(ctx, collectEvery)
				})))
			}
			return e.Start(name, opts...)
		},
		follow: func(ctx context.Context, name string, t watch.WatchType, o client.Object) error {
			return e.StartWatches(ctx, name, watch.WatchFor(o, t, &handler.EnqueueRequestForObject{}))
		},
	}
}

func newLock() baseline.Lock { return &sync.RWMutex{} }

func newBaselineCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	c, err := cache.New(cfg, o)
	return baseline.NewCache(c, o.Scheme, newLock()), err
}

// newBaselineEngine returns an engine of the shape of Crossplane v2.4.0's. Its collector is of the
// shape from before crossplane#6395: it doesn't look at a watch's type, and stops all watches of kinds that
// aren't used, the composites' own among them.
func newBaselineEngine(m manager.Manager, _ client.Client) engine {
	c, _ := m.GetCache().(*baseline.Cache)
	e := baseline.NewEngine(m, c, &watch.NopMetrics{}, newLock)
	return engine{
		Reader: c, lifecycle: e,
		run: func(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
			o := baseline.Options{Runtime: controller.Options{Reconciler: r}}
			if used != nil {
				o.Collector = collector(func(ctx context.Context) { collectOfAnyType(ctx, e, name, used) })
			}
			return e.Start(name, o)
		},
		follow: func(ctx context.Context, name string, t watch.WatchType, o client.Object) error {
			w := baseline.Watch{Kind: o, Type: t, Handler: &handler.EnqueueRequestForObject{}}
			return e.StartWatches(ctx, name, w)
		},
	}
}

func collectOfAnyType(ctx context.Context, e *baseline.Engine, controller string, used watch.DependenciesFn) {
	_ = wait.PollUntilContextCancel(ctx, collectEvery, false, func(ctx context.Context) (bool, error) {
		kinds, err := used(ctx)
		if err != nil {
			return false, nil
		}
		ids, _ := e.GetWatches(controller) // None if it was stopped.
		ids = slices.DeleteFunc(ids, func(id watch.WatchID) bool { return slices.Contains(kinds, id.GVK) })
		_, _ = e.StopWatches(ctx, controller, ids...)
		return false, nil
	})
}
