package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// A subscription delivers the events of a kind to one receiver, in order. It has a queue, so
// that a slow receiver delays no other one, and a goroutine only while the queue isn't empty.
// HasSynced, and HasSyncedChecker in later versions of the interface, report whether the receiver was
// called for the initial objects.
type subscription struct {
	*kcache.FIFO

	remove    func()                                // Stops the subscription, and releases the kind.
	deliver   func(ctx context.Context, d delivery) // Called for one event at a time.
	spawn     func(fn func())                       // Runs fn in a goroutine that its owner waits for.
	total     prometheus.Counter                    // Counts the deliveries of all subscriptions.
	delivered atomic.Uint64
	ctx       context.Context //nolint:containedctx // Ends when the subscription is stopped.
	cancel    context.CancelFunc

	mu        sync.Mutex
	queue     []delivery
	done      <-chan struct{} // Closed when the goroutine has ended; nil if there is none.
	busySince time.Time       // When the receiver was called; zero while it isn't.
}

// handlerKey is a key that the contexts of handlers have.
type handlerKey struct{}

func (s *subscription) enqueue(ds []delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.queue = append(s.queue, ds...)
	if s.done == nil {
		s.start()
	}
}

// start starts the goroutine. It starts another one if a handler ends it. The mutex must be held.
func (s *subscription) start() {
	done := make(chan struct{})
	s.done = done
	s.spawn(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.done, s.busySince = nil, time.Time{}
			if len(s.queue) > 0 && s.ctx.Err() == nil {
				s.start()
			}
			close(done)
		}()
		ctx := context.WithValue(s.ctx, handlerKey{}, true)
		for d, ok := s.next(); ok; d, ok = s.next() {
			if d.object == nil {
				_ = s.Replace(nil, "") // It has nothing to fail with.
				continue
			}
			s.deliver(ctx, d)
			s.delivered.Add(1)
			s.total.Inc()
		}
	})
}

// next removes the first event from the queue.
func (s *subscription) next() (delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.ctx.Err() != nil {
		s.queue = nil
		return delivery{}, false
	}
	d := s.queue[0]
	s.queue, s.busySince = s.queue[1:], time.Now()
	return d, true
}

// backlog returns how many events wait, and since when the receiver handles the one before.
func (s *subscription) backlog() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue), s.busySince
}

// stop stops delivery. The handler that may be running gets a context that has ended. The
// returned channel is closed when it has returned; it is nil if none is running.
func (s *subscription) stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	return s.done
}

// A broadcaster delivers the events of a kind to all subscriptions. It outlives informers: it
// has the objects that were delivered, so that it can deliver deletions that were missed
// between two informers.
type broadcaster struct {
	mu            sync.Mutex
	source        *informerHandler         // Of the current informer; nil if there is none.
	objects       map[string]client.Object // That were delivered, by UID.
	subscriptions map[*subscription]struct{}
}

func newBroadcaster() *broadcaster {
	return &broadcaster{
		objects:       make(map[string]client.Object),
		subscriptions: make(map[*subscription]struct{}),
	}
}

// uidOf returns an object's UID, or its name if the API server gives none.
func uidOf(o client.Object) string {
	if uid := o.GetUID(); uid != "" {
		return string(uid)
	}
	return client.ObjectKeyFromObject(o).String()
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
	for _, o := range b.objects {
		replay = append(replay, delivery{op: created, object: o, initial: true})
	}
	if b.source != nil && b.source.listed == nil {
		replay = append(replay, delivery{})
	}
	s.enqueue(replay)
}

func (b *broadcaster) detach(s *subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscriptions, s)
}

// counts returns how many objects and subscriptions there are.
func (b *broadcaster) counts() (objects, subscriptions int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.objects), len(b.subscriptions)
}

// follow makes the broadcaster ignore the events of all handlers but one, which may be nil.
func (b *broadcaster) follow(h *informerHandler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source = h
}

// settle is called when the informer of the handler has synced. It delivers the deletion of the
// objects that only an earlier informer had, and then all objects that exist.
func (b *broadcaster) settle(h *informerHandler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.source != h || h.listed == nil {
		return
	}
	ds := make([]delivery, 0, len(h.listed)+1)
	for uid, o := range b.objects {
		if _, ok := h.listed[uid]; !ok {
			ds = append(ds, delivery{op: deleted, object: o, unseen: true})
		}
	}
	for _, o := range h.listed {
		ds = append(ds, delivery{op: created, object: o, initial: true})
	}
	b.objects, h.listed = h.listed, nil
	b.broadcast(append(ds, delivery{})...)
}

// clear delivers the deletion of all objects.
func (b *broadcaster) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.objects {
		b.broadcast(delivery{op: deleted, object: o, unseen: true})
	}
	b.objects = make(map[string]client.Object) // Maps don't shrink.
}

func (b *broadcaster) broadcast(ds ...delivery) {
	for s := range b.subscriptions {
		s.enqueue(ds)
	}
}

// An informerHandler is the event handler that a broadcaster adds to an informer.
type informerHandler struct {
	broadcaster *broadcaster
	listed      map[string]client.Object // Objects by UID until the informer has synced, then nil.

	// disagrees is called for an object that disagrees with namespaced, which discovery says.
	namespaced bool
	disagrees  func()
}

func newInformerHandler(b *broadcaster, namespaced bool, disagrees func()) *informerHandler {
	listed := make(map[string]client.Object)
	return &informerHandler{broadcaster: b, listed: listed, namespaced: namespaced, disagrees: disagrees}
}

// with calls fn with the broadcaster's mutex held, unless that follows another handler.
func (h *informerHandler) with(obj any, fn func(b *broadcaster, o client.Object, uid string)) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	h.broadcaster.mu.Lock()
	defer h.broadcaster.mu.Unlock()
	if h.broadcaster.source != h {
		return
	}
	fn(h.broadcaster, o, uidOf(o))
	if (o.GetNamespace() != "") != h.namespaced {
		h.disagrees()
	}
}

// OnAdd delivers a new object.
func (h *informerHandler) OnAdd(obj any, isInInitialList bool) {
	h.store(obj, delivery{op: created, initial: isInInitialList})
}

// OnUpdate delivers a changed object. If the informer missed a deletion, the object is another
// one of the same name.
func (h *informerHandler) OnUpdate(old, obj any) {
	was, ok := old.(client.Object)
	if !ok {
		return
	}
	if o, ok := obj.(client.Object); !ok || uidOf(was) != uidOf(o) {
		h.OnDelete(kcache.DeletedFinalStateUnknown{Obj: old})
		h.OnAdd(obj, false)
		return
	}
	h.store(obj, delivery{op: updated, old: was})
}

// store keeps an object, and delivers it once the informer has synced.
func (h *informerHandler) store(obj any, d delivery) {
	h.with(obj, func(b *broadcaster, o client.Object, uid string) {
		if h.listed != nil {
			h.listed[uid] = o
			return
		}
		b.objects[uid], d.object = o, o
		b.broadcast(d)
	})
}

// OnDelete delivers a deletion, once.
func (h *informerHandler) OnDelete(obj any) {
	u, unseen := obj.(kcache.DeletedFinalStateUnknown)
	if unseen {
		obj = u.Obj
	}
	h.with(obj, func(b *broadcaster, o client.Object, uid string) {
		delete(h.listed, uid)
		if _, ok := b.objects[uid]; ok && h.listed == nil {
			delete(b.objects, uid)
			b.broadcast(delivery{op: deleted, object: o, unseen: unseen})
		}
	})
}
