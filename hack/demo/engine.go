package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

// collectEvery is how often watches are collected. Crossplane does it once a minute.
const collectEvery = 200 * time.Millisecond

// An engine runs controllers of composites, whose watches come and go.
type engine interface {
	// Get an object from the cache.
	Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error

	// Start a controller. Its watches are collected, if used is given: those of
	// kinds that it doesn't return.
	Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error

	// Watch a kind from now on.
	Watch(ctx context.Context, name string, t watch.WatchType, k schema.GroupVersionKind) error

	// Stop a controller.
	Stop(ctx context.Context, name string) error

	// FollowCRDs lets informers end with their CRDs.
	FollowCRDs(ctx context.Context) error
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
			return &graftEngine{InformerTrackingCache: c, engine: watch.New(m, c, m.GetClient(), live)}
		},
	}
}

func engineOfUpstreamsShape() engineMaker {
	return engineMaker{
		cache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(cfg, o)
			return &baselineCache{Cache: c, active: map[schema.GroupVersionKind]bool{}}, err
		},
		engine: func(m manager.Manager, _ client.Client) engine {
			c, _ := m.GetCache().(*baselineCache)
			return &baselineEngine{baselineCache: c, controllers: map[string]*baselineController{}}
		},
	}
}

// graftEngine is Graft's.
type graftEngine struct {
	*watch.InformerTrackingCache

	engine *watch.ControllerEngine
}

// A prompt collector doesn't wait a minute.
type prompt struct{ *watch.GarbageCollector }

func (p prompt) GarbageCollectWatches(ctx context.Context, _ time.Duration) {
	p.GarbageCollector.GarbageCollectWatches(ctx, collectEvery)
}

func (e *graftEngine) Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	opts := []watch.ControllerOption{watch.WithRuntimeOptions(controller.Options{Reconciler: r})}
	if used != nil {
		opts = append(opts, watch.WithWatchGarbageCollector(prompt{watch.NewGarbageCollector(name, e.engine, used, []watch.WatchType{watch.WatchTypeDependency})}))
	}

	return e.engine.Start(name, opts...)
}

func (e *graftEngine) Watch(ctx context.Context, name string, t watch.WatchType, k schema.GroupVersionKind) error {
	return e.engine.StartWatches(ctx, name, watch.WatchFor(objectOf(k, client.ObjectKey{}), t, &handler.EnqueueRequestForObject{}))
}

func (e *graftEngine) Stop(ctx context.Context, name string) error { return e.engine.Stop(ctx, name) }

func (e *graftEngine) FollowCRDs(ctx context.Context) error {
	return e.engine.GarbageCollectCustomResourceInformers(ctx)
}

// A baselineCache is controller-runtime's cache within a lock of the shape that
// Crossplane v2.4.0 has around it: the first call for a kind holds it for writing,
// also while it waits for an informer.
type baselineCache struct {
	cache.Cache

	mx     sync.RWMutex
	active map[schema.GroupVersionKind]bool
}

func (c *baselineCache) holding(k schema.GroupVersionKind, fn func() error) error {
	c.mx.RLock()

	if c.active[k] {
		defer c.mx.RUnlock()
		return fn()
	}

	c.mx.RUnlock()
	c.mx.Lock()
	defer c.mx.Unlock()

	c.active[k] = true

	return fn()
}

func (c *baselineCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.holding(o.GetObjectKind().GroupVersionKind(), func() error { return c.Cache.Get(ctx, key, o, opts...) })
}

func (c *baselineCache) remove(ctx context.Context, k schema.GroupVersionKind) error {
	c.mx.Lock()
	defer c.mx.Unlock()

	delete(c.active, k)

	return c.Cache.RemoveInformer(ctx, objectOf(k, client.ObjectKey{}))
}

// A baselineEngine is an engine of the shape of Crossplane v2.4.0's, as far as the
// stories go. Its collector is of the shape from before crossplane#6395: it stops all
// watches of kinds that aren't used, the composites' own among them.
type baselineEngine struct {
	*baselineCache

	mx          sync.Mutex
	controllers map[string]*baselineController
}

type baselineController struct {
	controller.Controller

	cancel context.CancelFunc

	mx      sync.Mutex
	watches map[schema.GroupVersionKind]*baselineWatch
}

func (e *baselineEngine) Start(name string, r reconcile.Reconciler, used watch.DependenciesFn) error {
	c, err := controller.NewUnmanaged(name, controller.Options{Reconciler: r, SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())
	bc := &baselineController{Controller: c, cancel: cancel, watches: map[schema.GroupVersionKind]*baselineWatch{}}

	e.mx.Lock()
	e.controllers[name] = bc
	e.mx.Unlock()

	go func() { _ = c.Start(ctx) }()

	if used != nil {
		go bc.collect(ctx, used)
	}

	return nil
}

func (c *baselineController) collect(ctx context.Context, used watch.DependenciesFn) {
	t := time.NewTicker(collectEvery)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}

		keep := map[schema.GroupVersionKind]bool{}

		kinds, err := used(ctx)
		if err != nil {
			continue
		}

		for _, k := range kinds {
			keep[k] = true
		}

		c.mx.Lock()

		for k, w := range c.watches {
			if !keep[k] && w.inf.RemoveEventHandler(w.reg) == nil {
				delete(c.watches, k)
			}
		}

		c.mx.Unlock()
	}
}

func (e *baselineEngine) controller(name string) (*baselineController, error) {
	e.mx.Lock()
	defer e.mx.Unlock()

	if c := e.controllers[name]; c != nil {
		return c, nil
	}

	return nil, fmt.Errorf("controller %q is not running", name)
}

func (e *baselineEngine) Watch(ctx context.Context, name string, _ watch.WatchType, k schema.GroupVersionKind) error {
	c, err := e.controller(name)
	if err != nil {
		return err
	}

	c.mx.Lock()
	defer c.mx.Unlock()

	if c.watches[k] != nil {
		return nil
	}

	w := &baselineWatch{}

	err = e.holding(k, func() error {
		w.inf, err = e.Cache.GetInformer(ctx, objectOf(k, client.ObjectKey{}), cache.BlockUntilSynced(true))
		return err
	})
	if err != nil {
		return err
	}

	c.watches[k] = w

	return c.Controller.Watch(w)
}

func (e *baselineEngine) Stop(_ context.Context, name string) error {
	c, err := e.controller(name)
	if err != nil {
		return err
	}

	e.mx.Lock()
	defer e.mx.Unlock()
	c.mx.Lock()
	defer c.mx.Unlock()

	for _, w := range c.watches {
		if err := w.inf.RemoveEventHandler(w.reg); err != nil {
			return err
		}
	}

	c.cancel()
	delete(e.controllers, name)

	return nil
}

func (e *baselineEngine) FollowCRDs(ctx context.Context) error {
	inf, err := e.Cache.GetInformer(ctx, &extv1.CustomResourceDefinition{})
	if err != nil {
		return err
	}

	_, err = inf.AddEventHandler(kcache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if crd, ok := o.(*extv1.CustomResourceDefinition); ok {
			_ = e.remove(ctx, schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind})
		}
	}})

	return err
}

// A baselineWatch is a source that can be stopped.
type baselineWatch struct {
	inf cache.Informer
	reg kcache.ResourceEventHandlerRegistration
}

func (w *baselineWatch) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) (err error) {
	h := &handler.EnqueueRequestForObject{}

	w.reg, err = w.inf.AddEventHandler(kcache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if o, ok := o.(client.Object); ok {
				h.Create(ctx, event.CreateEvent{Object: o}, q)
			}
		},
		UpdateFunc: func(_, o any) {
			if o, ok := o.(client.Object); ok {
				h.Create(ctx, event.CreateEvent{Object: o}, q)
			}
		},
	})

	return err
}
