package watch

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// An operation is the type of an event.
type operation int

const (
	created operation = iota
	updated
	deleted
)

// A delivery is one event for one subscription.
type delivery struct {
	op      operation
	old     client.Object
	object  client.Object // Nil marks the end of the initial objects.
	initial bool          // The object existed before the subscription.
	unseen  bool          // The deletion was missed. This is the last known state.
}

// handle calls the handler if all predicates pass. The context ends when handle returns.
func (d delivery) handle(
	ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], h handler.EventHandler,
	ps []predicate.Predicate,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := predicate.And(ps...)
	switch d.op {
	case created:
		if e := (event.CreateEvent{Object: d.object, IsInInitialList: d.initial}); p.Create(e) {
			h.Create(ctx, e, q)
		}
	case updated:
		if e := (event.UpdateEvent{ObjectOld: d.old, ObjectNew: d.object}); p.Update(e) {
			h.Update(ctx, e, q)
		}
	case deleted:
		if e := (event.DeleteEvent{Object: d.object, DeleteStateUnknown: d.unseen}); p.Delete(e) {
			h.Delete(ctx, e, q)
		}
	}
}

// A subscription delivers the events of a kind to one receiver, in order. It has a queue, so
// that a slow receiver delays no other one, and a goroutine only while the queue isn't empty.
type subscription struct {
	deliver     func(ctx context.Context, d delivery) // Called for one event at a time.
	run         func(fn func())                       // Runs fn in a goroutine that its owner waits for.
	total       prometheus.Counter                    // Counts the deliveries of all subscriptions.
	delivered   atomic.Uint64
	firstSync   *kcache.FIFO    // Synced when the initial objects were delivered.
	predecessor <-chan struct{} // Closed when the handler of an earlier watch has returned; may be nil.
	ctx         context.Context //nolint:containedctx // Ends when the subscription is stopped.
	cancel      context.CancelFunc

	mu    sync.Mutex
	queue []delivery
	done  <-chan struct{} // Closed when the goroutine has ended; nil if there is none.
}

// doneKey is the context key of the done channel of the subscription that calls a handler.
type doneKey struct{}

func (s *subscription) enqueue(ds ...delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.queue = append(s.queue, ds...)
	if s.done == nil || isClosed(s.done) {
		done := make(chan struct{})
		s.done = done
		s.run(func() {
			defer close(done) // A handler may end its goroutine.
			s.dispatch(context.WithValue(s.ctx, doneKey{}, s.done))
		})
	}
}

func (s *subscription) dispatch(ctx context.Context) {
	_ = await(ctx, s.predecessor)
	for {
		s.mu.Lock()
		if len(s.queue) == 0 || s.ctx.Err() != nil {
			s.queue, s.done = nil, nil
			s.mu.Unlock()
			return
		}
		d := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if d.object == nil {
			_ = s.firstSync.Replace(nil, "") // It has nothing to fail with.
			continue
		}
		s.deliver(ctx, d)
		s.delivered.Add(1)
		s.total.Inc()
	}
}

// stop stops delivery. The handler that may be running gets a context that has ended. The
// returned channel is closed when it has returned; it is nil if none is running.
func (s *subscription) stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	return s.done
}

// A knownObject is an object that was delivered, and the handler of the informer that has it.
type knownObject struct {
	object client.Object
	source *informerHandler
}

// A broadcaster delivers the events of a kind to all subscriptions. It outlives informers: it
// has the objects that were delivered, so that it can deliver deletions that were missed
// between two informers.
type broadcaster struct {
	mu            sync.Mutex
	source        *informerHandler // Of the current informer; nil if there is none.
	settled       bool             // The source has delivered its initial objects.
	objects       map[types.NamespacedName]knownObject
	subscriptions map[*subscription]struct{}
}

func newBroadcaster() *broadcaster {
	return &broadcaster{
		objects:       make(map[types.NamespacedName]knownObject),
		subscriptions: make(map[*subscription]struct{}),
	}
}

// attach adds a subscription, and delivers the objects that are known. If an informer is being
// replaced, some may no longer exist; settle delivers their deletion.
func (b *broadcaster) attach(s *subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ctx.Err() != nil { // A stopped subscription isn't detached again.
		return
	}
	b.subscriptions[s] = struct{}{}
	replay := make([]delivery, 0, len(b.objects)+1)
	for _, k := range b.objects {
		replay = append(replay, delivery{op: created, object: k.object, initial: true})
	}
	if b.settled {
		replay = append(replay, delivery{})
	}
	s.enqueue(replay...)
}

func (b *broadcaster) detach(s *subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscriptions, s)
}

// follow makes the broadcaster ignore the events of all handlers but one, which may be nil.
func (b *broadcaster) follow(h *informerHandler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.settled = h, false
}

// settle is called when the informer of the handler has synced. Objects that only an earlier
// informer had were deleted.
func (b *broadcaster) settle(h *informerHandler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.source != h {
		return
	}
	for key, k := range b.objects {
		if k.source != h {
			b.remove(key, k)
		}
	}
	b.settled = true
	b.broadcast(delivery{})
}

// clear delivers the deletion of all objects.
func (b *broadcaster) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, k := range b.objects {
		b.remove(key, k)
	}
	b.objects = make(map[types.NamespacedName]knownObject) // Maps don't shrink.
}

func (b *broadcaster) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.objects)
}

// replaces reports whether an object has the name of an earlier one. If so, it delivers the
// deletion of the earlier one.
func (b *broadcaster) replaces(key types.NamespacedName, o client.Object) bool {
	k, ok := b.objects[key]
	if !ok || k.object.GetUID() == o.GetUID() {
		return false
	}
	b.remove(key, k)
	return true
}

func (b *broadcaster) remove(key types.NamespacedName, k knownObject) {
	delete(b.objects, key)
	b.broadcast(delivery{op: deleted, object: k.object, unseen: true})
}

func (b *broadcaster) broadcast(d delivery) {
	for s := range b.subscriptions {
		s.enqueue(d)
	}
}

// An informerHandler is the event handler that a broadcaster adds to an informer.
type informerHandler struct {
	broadcaster *broadcaster
	kind        *trackedKind

	// contradicted is set by an object that disagrees with namespaced, which discovery says.
	namespaced   bool
	contradicted atomic.Bool
}

// with calls fn with the broadcaster's mutex held, unless that follows another handler.
func (h *informerHandler) with(obj any, fn func(b *broadcaster, o client.Object, key types.NamespacedName)) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	h.broadcaster.mu.Lock()
	defer h.broadcaster.mu.Unlock()
	if h.broadcaster.source != h {
		return
	}
	fn(h.broadcaster, o, client.ObjectKeyFromObject(o))
	if (o.GetNamespace() != "") != h.namespaced && !h.contradicted.Swap(true) {
		h.kind.signal()
	}
}

// OnAdd delivers a new object.
func (h *informerHandler) OnAdd(obj any, isInInitialList bool) {
	h.with(obj, func(b *broadcaster, o client.Object, key types.NamespacedName) {
		b.replaces(key, o)
		b.objects[key] = knownObject{object: o, source: h}
		b.broadcast(delivery{op: created, object: o, initial: isInInitialList})
	})
}

// OnUpdate delivers a changed object. If the informer missed a deletion, the object is another
// one of the same name.
func (h *informerHandler) OnUpdate(_, obj any) {
	h.with(obj, func(b *broadcaster, o client.Object, key types.NamespacedName) {
		d := delivery{op: updated, old: b.objects[key].object, object: o}
		if b.replaces(key, o) {
			d = delivery{op: created, object: o}
		}
		b.objects[key] = knownObject{object: o, source: h}
		b.broadcast(d)
	})
}

// OnDelete delivers a deletion, once.
func (h *informerHandler) OnDelete(obj any) {
	u, unseen := obj.(kcache.DeletedFinalStateUnknown)
	if unseen {
		obj = u.Obj
	}
	h.with(obj, func(b *broadcaster, o client.Object, key types.NamespacedName) {
		if _, ok := b.objects[key]; ok {
			delete(b.objects, key)
			b.broadcast(delivery{op: deleted, object: o, unseen: unseen})
		}
	})
}
