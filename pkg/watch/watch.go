package watch

import (
	"context"
	"fmt"
	"sync"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A WatchType tells apart the watches that a controller has on one kind. There
// is one watch for a type and kind: to handle the events of a kind in two ways,
// use two types.
type WatchType string //nolint:revive // It is the name that forks know.

// Watch types that Crossplane uses.
const (
	WatchTypeClaim               WatchType = "Claim"
	WatchTypeCompositeResource   WatchType = "CompositeResource"
	WatchTypeDependency          WatchType = "Dependency"
	WatchTypeCompositionRevision WatchType = "CompositionRevision"
	WatchTypeManagedResource     WatchType = "ManagedResource"

	// WatchTypeComposedResource is what Crossplane called WatchTypeDependency
	// before it watched more than composed resources.
	WatchTypeComposedResource WatchType = "ComposedResource"
)

// A Watch is what a controller wants to be told about.
type Watch struct {
	obj        client.Object
	wt         WatchType
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

// A WatchID identifies a watch of a controller.
type WatchID struct { //nolint:revive // It is the name that forks know.
	Type WatchType
	GVK  schema.GroupVersionKind
}

// WatchFor returns a watch for objects of the supplied object's kind, in its
// representation: a typed object, an *unstructured.Unstructured, or a
// *metav1.PartialObjectMetadata, which costs least memory. Events that pass all
// predicates are handled by the handler, one at a time.
func WatchFor(kind client.Object, wt WatchType, h handler.EventHandler, p ...predicate.Predicate) Watch { //nolint:revive // It is the name that forks know.
	return Watch{obj: kind, wt: wt, handler: h, predicates: p}
}

// id returns the watch's identity, or why there can't be one.
func (w *Watch) id(s *runtime.Scheme) (WatchID, error) {
	if is.Nil(w.obj) {
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch has no object", w.wt)
	}
	gvk, err := gvkFor(w.obj, s)
	if err != nil {
		return WatchID{}, fmt.Errorf("cannot determine group, version, and kind for %T: %w: %w", w.obj, ErrInvalidWatch, err)
	}
	if is.Nil(w.handler) {
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has no handler", w.wt, gvk)
	}
	for _, p := range w.predicates {
		if is.Nil(p) {
			return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has a nil predicate", w.wt, gvk)
		}
	}
	return WatchID{Type: w.wt, GVK: gvk}, nil
}

// An EventHandler turns what an informer says into events for a handler.
type EventHandler struct {
	ctx        context.Context //nolint:containedctx // Informers call their handlers without one.
	handler    handler.EventHandler
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	predicates []predicate.Predicate
}

// NewEventHandler returns an event handler. The handler is called with the
// supplied context.
func NewEventHandler(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], h handler.EventHandler, ps ...predicate.Predicate) *EventHandler {
	return &EventHandler{ctx: ctx, handler: h, queue: q, predicates: ps}
}

// HandlerFuncs returns functions to add to an informer.
func (e *EventHandler) HandlerFuncs() kcache.ResourceEventHandlerFuncs {
	return kcache.ResourceEventHandlerFuncs{AddFunc: e.OnAdd, UpdateFunc: e.OnUpdate, DeleteFunc: e.OnDelete}
}

// OnAdd handles an object that is new. What isn't an object is ignored, here and
// below.
func (e *EventHandler) OnAdd(obj any) {
	if o, ok := obj.(client.Object); ok {
		e.handle(delivery{op: created, object: o})
	}
}

// OnUpdate handles an object that changed.
func (e *EventHandler) OnUpdate(oldObj, newObj any) {
	o, ok := oldObj.(client.Object)
	if !ok {
		return
	}
	if n, ok := newObj.(client.Object); ok {
		e.handle(delivery{op: updated, old: o, object: n})
	}
}

// OnDelete handles an object that was deleted. If that wasn't seen, it is the last
// known state.
func (e *EventHandler) OnDelete(obj any) {
	u, unseen := obj.(kcache.DeletedFinalStateUnknown)
	if unseen {
		obj = u.Obj
	}
	if o, ok := obj.(client.Object); ok {
		e.handle(delivery{op: deleted, object: o, unseen: unseen})
	}
}

// handle one event, if all predicates let it pass.
func (e *EventHandler) handle(d delivery) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	p := predicate.And(e.predicates...)
	switch d.op {
	case created:
		if ev := (event.CreateEvent{Object: d.object, IsInInitialList: d.initial}); p.Create(ev) {
			e.handler.Create(ctx, ev, e.queue)
		}
	case updated:
		if ev := (event.UpdateEvent{ObjectOld: d.old, ObjectNew: d.object}); p.Update(ev) {
			e.handler.Update(ctx, ev, e.queue)
		}
	case deleted:
		if ev := (event.DeleteEvent{Object: d.object, DeleteStateUnknown: d.unseen}); p.Delete(ev) {
			e.handler.Delete(ctx, ev, e.queue)
		}
	case synced:
	}
}

var _ source.Source = &StoppableSource{}

// A StoppableSource is a source of events that can be stopped, also before it is
// started: then it never starts. The engine doesn't use it, since its watches follow a
// kind through all its informers. It is here for code that made sources of its own.
type StoppableSource struct {
	inf        cache.Informer
	handler    handler.EventHandler
	predicates []predicate.Predicate

	mu      sync.Mutex
	reg     kcache.ResourceEventHandlerRegistration
	stopped bool
}

// NewStoppableSource returns a source of the informer's events that pass the
// predicates, for the handler.
func NewStoppableSource(inf cache.Informer, h handler.EventHandler, ps ...predicate.Predicate) *StoppableSource {
	return &StoppableSource{inf: inf, handler: h, predicates: ps}
}

// Start is called by the controller. The handler adds to the queue.
func (s *StoppableSource) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.reg != nil {
		return nil
	}
	reg, err := s.inf.AddEventHandler(NewEventHandler(ctx, q, s.handler, s.predicates...).HandlerFuncs())
	if err != nil {
		return errors.Wrap(err, "cannot add event handler")
	}
	s.reg = reg
	return nil
}

// Stop the source: the informer sends it no more events. A handler that runs may
// go on for a moment.
func (s *StoppableSource) Stop(_ context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.reg == nil || s.inf.IsStopped() {
		return nil
	}
	if err := s.inf.RemoveEventHandler(s.reg); err != nil {
		return errors.Wrap(err, "cannot remove event handler")
	}
	s.reg = nil
	return nil
}
