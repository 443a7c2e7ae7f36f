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

// What happened to an object.
type operation int

const (
	created operation = iota
	updated
	deleted
)

// A delivery is one event on its way to a subscription.
type delivery struct {
	op      operation
	old     client.Object
	object  client.Object // Nil marks the end of what there was before the subscription.
	initial bool          // It was there before the subscription.
	unseen  bool          // It was deleted in a gap: this is its last known state.
}

// to a handler, if all predicates let it pass. Its context ends when it returns.
func (d delivery) to(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], h handler.EventHandler, ps []predicate.Predicate) {
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

// A subscription brings the events of a kind to one receiver, in order. It keeps
// what is waiting, so that a slow one delays no other, and has a goroutine only
// while something waits: an idle watch costs none.
type subscription struct {
	deliver   func(ctx context.Context, d delivery) // One at a time.
	run       func(fn func())                       // In a goroutine that is waited for.
	all       prometheus.Counter                    // Of deliveries, by all subscriptions.
	delivered atomic.Uint64
	synced    atomic.Bool
	before    <-chan struct{} // Closed when an earlier one has ended; nil if there is none.
	ctx       context.Context //nolint:containedctx // Ends when the subscription is stopped.
	cancel    context.CancelFunc

	mu      sync.Mutex
	waiting []delivery
	done    <-chan struct{} // Closed when its goroutine ends; nil if it has none.
}

// doneKey finds, in a context, what is closed when the goroutine that delivers with it ends.
type doneKey struct{}

func (s *subscription) enqueue(ds ...delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.waiting = append(s.waiting, ds...)
	if s.done == nil || isClosed(s.done) {
		done := make(chan struct{})
		s.done = done
		s.run(func() {
			defer close(done) // A receiver may end the goroutine.
			s.dispatch(context.WithValue(s.ctx, doneKey{}, s.done))
		})
	}
}

func (s *subscription) dispatch(ctx context.Context) {
	_ = await(ctx, s.before)
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 || s.ctx.Err() != nil {
			s.waiting, s.done = nil, nil
			s.mu.Unlock()
			return
		}
		d := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		if d.object == nil {
			s.synced.Store(true)
			continue
		}
		s.deliver(ctx, d)
		s.delivered.Add(1)
		s.all.Inc()
	}
}

// stop makes sure that no delivery begins after it returned, and ends the context
// of one that is in progress. The channel is closed when that, or that of an
// earlier subscription, has returned; it is nil if there is none.
func (s *subscription) stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	if s.before != nil && !isClosed(s.before) {
		return s.before // Until then nothing of this one runs.
	}
	return s.done
}

// A known object, and the tap of the informer that told of it last.
type known struct {
	object client.Object
	by     *tap
}

// A fan hands the events of a kind to all its subscriptions. It outlives the
// informers that come and go below it: it knows what was delivered, so what was
// deleted between two informers is delivered as deleted, once.
type fan struct {
	mu      sync.Mutex
	tap     *tap // In the current informer, if there is one.
	settled bool
	known   map[types.NamespacedName]known
	subs    map[*subscription]struct{}
}

func newFan() *fan {
	return &fan{known: make(map[types.NamespacedName]known), subs: make(map[*subscription]struct{})}
}

// attach starts delivering to a subscription, beginning with what is there.
func (f *fan) attach(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.ctx.Err() != nil { // One that was stopped is not detached again.
		return
	}
	f.subs[s] = struct{}{}
	replay := make([]delivery, 0, len(f.known)+1)
	for _, k := range f.known {
		// Some may no longer exist, if an informer is being replaced. Then the next
		// one says so, to this subscription as to all others.
		replay = append(replay, delivery{op: created, object: k.object, initial: true})
	}
	if f.settled {
		replay = append(replay, delivery{})
	}
	s.enqueue(replay...)
}

func (f *fan) detach(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
}

// listen makes the fan listen to a tap, for an informer, and to no other; to none if it
// is nil.
func (f *fan) listen(t *tap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tap, f.settled = t, false
}

// settle is called when the informer of a tap has told all that there is. What
// only an earlier one knew no longer exists.
func (f *fan) settle(t *tap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tap != t {
		return
	}
	for key, k := range f.known {
		if k.by != t {
			f.forget(key, k)
		}
	}
	f.settled = true
	f.send(delivery{})
}

// clear is called when the kind no longer exists, nor do its objects.
func (f *fan) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, k := range f.known {
		f.forget(key, k)
	}
	f.known = make(map[types.NamespacedName]known) // Maps don't shrink.
}

func (f *fan) objects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known)
}

// replaces reports whether an object takes the place of another one, which is deleted.
func (f *fan) replaces(key types.NamespacedName, o client.Object) bool {
	k, ok := f.known[key]
	if !ok || k.object.GetUID() == o.GetUID() {
		return false
	}
	f.forget(key, k)
	return true
}

func (f *fan) forget(key types.NamespacedName, k known) {
	delete(f.known, key)
	f.send(delivery{op: deleted, object: k.object, unseen: true})
}

func (f *fan) send(d delivery) {
	for s := range f.subs {
		s.enqueue(d)
	}
}

// A tap is what a fan adds to an informer as a handler.
type tap struct {
	fan *fan
}

// with calls fn with the fan and an object, unless the fan doesn't listen any more.
func (t *tap) with(obj any, fn func(f *fan, o client.Object, key types.NamespacedName)) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	t.fan.mu.Lock()
	defer t.fan.mu.Unlock()
	if t.fan.tap == t {
		fn(t.fan, o, client.ObjectKeyFromObject(o))
	}
}

// OnAdd hands out a new object.
func (t *tap) OnAdd(obj any, isInInitialList bool) {
	t.with(obj, func(f *fan, o client.Object, key types.NamespacedName) {
		f.replaces(key, o)
		f.known[key] = known{object: o, by: t}
		f.send(delivery{op: created, object: o, initial: isInInitialList})
	})
}

// OnUpdate hands out a changed object. An informer that missed a deletion reports
// another object of the same name as a change.
func (t *tap) OnUpdate(_, obj any) {
	t.with(obj, func(f *fan, o client.Object, key types.NamespacedName) {
		d := delivery{op: updated, old: f.known[key].object, object: o}
		if f.replaces(key, o) {
			d = delivery{op: created, object: o}
		}
		f.known[key] = known{object: o, by: t}
		f.send(d)
	})
}

// OnDelete hands out that an object was deleted, unless that was handed out.
func (t *tap) OnDelete(obj any) {
	u, unseen := obj.(kcache.DeletedFinalStateUnknown)
	if unseen {
		obj = u.Obj
	}
	t.with(obj, func(f *fan, o client.Object, key types.NamespacedName) {
		if _, ok := f.known[key]; ok {
			delete(f.known, key)
			f.send(delivery{op: deleted, object: o, unseen: unseen})
		}
	})
}
