package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// Get an object from the cache.
	Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error

	// Start a controller. If used is given, watches of kinds that it doesn't return
	// are collected.
	Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error

	// Watch a kind from now on.
	Watch(ctx context.Context, name string, t watch.WatchType, k schema.GroupVersionKind) error

	// Stop a controller.
	Stop(ctx context.Context, name string) error

	// GarbageCollectCustomResourceInformers lets informers end with their CRDs.
	GarbageCollectCustomResourceInformers(ctx context.Context) error
}

// An engineMaker makes an engine in two steps, since a manager makes its cache.
type engineMaker struct {
	cache  func(cfg *rest.Config, o cache.Options) (cache.Cache, error)
	engine func(m manager.Manager, live client.Client) engine
}

func graftsEngine() engineMaker {
	return engineMaker{
		cache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) { return watch.NewCache(cfg, o) },
		engine: func(m manager.Manager, live client.Client) engine {
			c, _ := m.GetCache().(*watch.InformerTrackingCache)
			return &graftEngine{Reader: c, ControllerEngine: watch.New(m, c, m.GetClient(), live)}
		},
	}
}

func engineOfUpstreamsShape() engineMaker {
	newLock := func() baseline.Lock { return &sync.RWMutex{} }
	return engineMaker{
		cache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(cfg, o)
			return baseline.NewCache(c, o.Scheme, newLock()), err
		},
		engine: func(m manager.Manager, _ client.Client) engine {
			c, _ := m.GetCache().(*baseline.Cache)
			return &upstreamsEngine{Reader: c, Engine: baseline.NewEngine(m, c, &watch.NopMetrics{}, newLock)}
		},
	}
}

// graftEngine is Graft's.
type graftEngine struct {
	client.Reader
	*watch.ControllerEngine
}

// A prompt collector doesn't wait a minute.
type prompt struct{ *watch.GarbageCollector }

func (p prompt) GarbageCollectWatches(ctx context.Context, _ time.Duration) {
	p.GarbageCollector.GarbageCollectWatches(ctx, collectEvery)
}

func (e *graftEngine) Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	opts := []watch.ControllerOption{watch.WithRuntimeOptions(controller.Options{Reconciler: r})}
	if used != nil {
		c := watch.NewGarbageCollector(name, e.ControllerEngine, used, []watch.WatchType{watch.WatchTypeDependency})
		opts = append(opts, watch.WithWatchGarbageCollector(prompt{c}))
	}
	return e.ControllerEngine.Start(name, opts...)
}

func (e *graftEngine) Watch(ctx context.Context, name string, t watch.WatchType, k schema.GroupVersionKind) error {
	w := watch.WatchFor(objectOf(k, client.ObjectKey{}), t, &handler.EnqueueRequestForObject{})
	return e.ControllerEngine.StartWatches(ctx, name, w)
}

// upstreamsEngine is of the shape of Crossplane v2.4.0's. Its collector is of the shape
// from before crossplane#6395: it stops all watches of kinds that aren't used, the
// composites' own among them.
type upstreamsEngine struct {
	client.Reader
	*baseline.Engine
}

func (e *upstreamsEngine) Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	o := baseline.Options{Runtime: controller.Options{Reconciler: r}}
	if used != nil {
		o.Collector = &oldCollector{engine: e.Engine, controller: name, used: used}
	}
	return e.Engine.Start(name, o)
}

func (e *upstreamsEngine) Watch(ctx context.Context, name string, t watch.WatchType, k schema.GroupVersionKind) error {
	w := baseline.Watch{Kind: objectOf(k, client.ObjectKey{}), Type: t, Handler: &handler.EnqueueRequestForObject{}}
	return e.Engine.StartWatches(ctx, name, w)
}

// An oldCollector doesn't look at a watch's type.
type oldCollector struct {
	engine     *baseline.Engine
	controller string
	used       watch.DependenciesFn
}

func (c *oldCollector) GarbageCollectWatches(ctx context.Context, _ time.Duration) {
	t := time.NewTicker(collectEvery)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}

		kinds, err := c.used(ctx)
		if err != nil {
			continue
		}
		ids, _ := c.engine.GetWatches(c.controller) // None if it was stopped.
		ids = slices.DeleteFunc(ids, func(id watch.WatchID) bool { return slices.Contains(kinds, id.GVK) })
		_, _ = c.engine.StopWatches(ctx, c.controller, ids...)
	}
}
