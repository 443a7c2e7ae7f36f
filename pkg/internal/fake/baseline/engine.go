// Package baseline has an engine and a cache of the shape that Crossplane's have at
// v2.4.0. They are written to have the faults that pkg/watch ends, in the places where they
// were found, so that a test or a demo can show the same schedule with and without them.
package baseline

import (
	"context"
	"fmt"
	"sync"
	"time"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

// A Watch is a watch to start.
type Watch struct {
	Kind       client.Object
	Type       watch.WatchType
	Handler    handler.EventHandler
	Predicates []predicate.Predicate
}

// Options say how to start a controller.
type Options struct {
	Runtime       kcontroller.Options
	NewController watch.NewControllerFn
	Collector     watch.WatchGarbageCollector
}

// An Engine starts and stops controllers and their watches.
type Engine struct {
	mgr     manager.Manager
	infs    watch.TrackingInformers
	metrics watch.Metrics
	newLock func() Lock

	lock        Lock
	controllers map[string]*controller
}

type controller struct {
	ctrl   kcontroller.Controller
	cancel context.CancelFunc

	lock    Lock
	sources map[watch.WatchID]*Source
}

// NewEngine returns an engine whose locks newLock makes.
func NewEngine(mgr manager.Manager, infs watch.TrackingInformers, m watch.Metrics, newLock func() Lock) *Engine {
	return &Engine{
		mgr: mgr, infs: infs, metrics: m,
		newLock: newLock, lock: newLock(),
		controllers: make(map[string]*controller),
	}
}

func (e *Engine) find(name string) (*controller, error) {
	e.lock.RLock()
	defer e.lock.RUnlock()
	if c := e.controllers[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("controller %q is not running", name)
}

// Start a controller.
func (e *Engine) Start(name string, o Options) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.controllers[name] != nil {
		return nil
	}
	create := kcontroller.NewUnmanaged
	if o.NewController != nil {
		create = o.NewController
	}
	ko := o.Runtime
	ko.SkipNameValidation = ptr.To(true)

	// A priority queue that is shut down while it hands out a key may leave a
	// goroutine behind, which isn't the fault of an engine.
	ko.UsePriorityQueue = ptr.To(false)
	ctrl, err := create(name, ko)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())

	// Waits for election even when the controller was stopped meanwhile.
	go func() {
		<-e.mgr.Elected()
		e.metrics.ControllerStarted(name)
		if err := ctrl.Start(ctx); err != nil {
			// Stops the controller that has the name by now, and counts nothing.
			_ = e.Stop(ctx, name)
			return
		}
		e.metrics.ControllerStopped(name)
	}()
	if o.Collector != nil {
		go func() {
			<-e.mgr.Elected()
			o.Collector.GarbageCollectWatches(ctx, time.Minute)
		}()
	}
	e.controllers[name] = &controller{
		ctrl: ctrl, cancel: cancel,
		lock: e.newLock(), sources: make(map[watch.WatchID]*Source),
	}
	return nil
}

// Source returns a watch that was started, or nil.
func (e *Engine) Source(name string, id watch.WatchID) *Source {
	c, err := e.find(name)
	if err != nil {
		return nil
	}
	c.lock.RLock()
	defer c.lock.RUnlock()
	return c.sources[id]
}

// Stop holds the engine's lock while it waits for the controller's, gives up at
// the first error, and waits for nothing that runs.
func (e *Engine) Stop(ctx context.Context, name string) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	c := e.controllers[name]
	if c == nil {
		return nil
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for id, src := range c.sources {
		if err := src.Stop(ctx); err != nil {
			return fmt.Errorf("cannot stop watch for %q: %w", id.GVK, err)
		}
		delete(c.sources, id)
	}
	c.cancel()
	delete(e.controllers, name)
	return nil
}

// IsRunning reports whether a controller was started, and not stopped.
func (e *Engine) IsRunning(name string) bool {
	_, err := e.find(name)
	return err == nil
}

// StartWatches holds the controller's lock while it waits for informers, and
// gives up at the first error.
func (e *Engine) StartWatches(ctx context.Context, name string, ws ...Watch) error {
	c, err := e.find(name)
	if err != nil {
		return err
	}
	ids := make([]watch.WatchID, len(ws))
	for i, w := range ws {
		gvk, err := apiutil.GVKForObject(w.Kind, e.mgr.GetScheme())
		if err != nil {
			return err
		}
		ids[i] = watch.WatchID{Type: w.Type, GVK: gvk}
	}
	c.lock.RLock()
	missing := e.missing(c, ids)
	c.lock.RUnlock()
	if !missing {
		return nil
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for i, w := range ws {
		if !e.missing(c, ids[i:i+1]) {
			continue
		}
		inf, err := e.infs.GetInformer(ctx, w.Kind, cache.BlockUntilSynced(true))
		if err != nil {
			return fmt.Errorf("cannot get informer for %q: %w", ids[i].GVK, err)
		}
		src := &Source{Informer: inf, Watch: w}
		if err := c.ctrl.Watch(src); err != nil {
			return err
		}
		c.sources[ids[i]] = src
		e.metrics.WatchStarted(name, w.Type)
	}
	return nil
}

// missing reports whether there is a watch to start. The controller's lock must
// be held. That a kind is active is all it asks of its informer.
func (e *Engine) missing(c *controller, ids []watch.WatchID) bool {
	active := make(map[schema.GroupVersionKind]bool)
	for _, gvk := range e.infs.ActiveInformers() {
		active[gvk] = true
	}
	for _, id := range ids {
		if c.sources[id] == nil || !active[id.GVK] {
			return true
		}
	}
	return false
}

// GetWatches returns the watches of a controller.
func (e *Engine) GetWatches(name string) ([]watch.WatchID, error) {
	c, err := e.find(name)
	if err != nil {
		return nil, err
	}
	c.lock.RLock()
	defer c.lock.RUnlock()
	out := make([]watch.WatchID, 0, len(c.sources))
	for id := range c.sources {
		out = append(out, id)
	}
	return out, nil
}

// StopWatches stops watches, up to the first error.
func (e *Engine) StopWatches(ctx context.Context, name string, ids ...watch.WatchID) (int, error) {
	c, err := e.find(name)
	if err != nil {
		return 0, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	n := 0
	for _, id := range ids {
		src := c.sources[id]
		if src == nil {
			continue
		}
		if err := src.Stop(ctx); err != nil {
			return n, err
		}
		delete(c.sources, id)
		e.metrics.WatchStopped(name, id.Type)
		n++
	}
	return n, nil
}

// GarbageCollectCustomResourceInformers knows deleted definitions only, and
// unstructured informers only.
func (e *Engine) GarbageCollectCustomResourceInformers(ctx context.Context) error {
	inf, err := e.infs.GetInformer(ctx, &extv1.CustomResourceDefinition{})
	if err != nil {
		return err
	}
	_, err = inf.AddEventHandler(kcache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if t, ok := obj.(kcache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			crd, ok := obj.(*extv1.CustomResourceDefinition)
			if !ok {
				return
			}
			for _, v := range crd.Spec.Versions {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(schema.GroupVersionKind{
					Group:   crd.Spec.Group,
					Version: v.Name,
					Kind:    crd.Spec.Names.Kind,
				})
				_ = e.infs.RemoveInformer(ctx, u)
			}
		},
	})
	return err
}

// A Source is a source that can be stopped. Upstream's Start and Stop have a data race. These have a lock,
// so that tests with the race detector can run them.
type Source struct {
	Informer cache.Informer
	Watch    Watch

	mu  sync.Mutex
	reg kcache.ResourceEventHandlerRegistration
}

// Start adds the handler.
func (s *Source) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	reg, err := s.Informer.AddEventHandler(s.handlerFuncs(ctx, q))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reg = reg
	return nil
}

// handlerFuncs calls the watch's handler if all its predicates pass.
func (s *Source) handlerFuncs(
	ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) kcache.ResourceEventHandler {
	h, p := s.Watch.Handler, predicate.And(s.Watch.Predicates...)
	return kcache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			o, _ := obj.(client.Object) // Informers have objects.
			if e := (event.CreateEvent{Object: o, IsInInitialList: initial}); p.Create(e) {
				h.Create(ctx, e, q)
			}
		},
		UpdateFunc: func(was, obj any) {
			old, _ := was.(client.Object)
			o, _ := obj.(client.Object)
			if e := (event.UpdateEvent{ObjectOld: old, ObjectNew: o}); p.Update(e) {
				h.Update(ctx, e, q)
			}
		},
		DeleteFunc: func(obj any) {
			u, unknown := obj.(kcache.DeletedFinalStateUnknown)
			if unknown {
				obj = u.Obj
			}
			o, _ := obj.(client.Object)
			if e := (event.DeleteEvent{Object: o, DeleteStateUnknown: unknown}); p.Delete(e) {
				h.Delete(ctx, e, q)
			}
		},
	}
}

// Stop removes the handler if Start has added it.
func (s *Source) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reg == nil || s.Informer.IsStopped() {
		return nil
	}
	if err := s.Informer.RemoveEventHandler(s.reg); err != nil {
		return err
	}
	s.reg = nil
	return nil
}
