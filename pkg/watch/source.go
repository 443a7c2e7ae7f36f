package watch

import (
	"context"
	"sync"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

var _ source.Source = &StoppableSource{}

// A StoppableSource is a source of events that can be stopped, also before it is
// started: then it never starts. The engine doesn't use it: use it if your code makes
// sources of its own.
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
	s.reg = reg
	return errors.Wrap(err, "cannot add event handler")
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

// An EventHandler hands the events of an informer that pass all predicates to a handler.
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
	o, was := oldObj.(client.Object)
	if n, is := newObj.(client.Object); was && is {
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

func (e *EventHandler) handle(d delivery) {
	d.to(e.ctx, e.queue, e.handler, e.predicates)
}
