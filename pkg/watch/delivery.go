package watch

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What happened to an object.
type operation int

const (
	created operation = iota
	updated
	deleted
	synced // Marks the end of what was there when a subscription began.
)

// A delivery is one event on its way to a subscription.
type delivery struct {
	op      operation
	old     client.Object
	object  client.Object
	initial bool // It was there before we looked.
	unseen  bool // It went while we didn't look: this is the last that we saw.

	// What has taken the name of an object that went, and is delivered next.
	successor client.Object
}

// A sink handles deliveries, one at a time.
type sink interface {
	deliver(d delivery)
}

// A subscription brings the events of a kind to one sink, in order. It keeps
// what is waiting, so that a slow sink holds up nobody else, and has a goroutine
// only while something waits: an idle watch costs none.
type subscription struct {
	sink      sink
	group     *sync.WaitGroup // Of goroutines that deliver.
	total     *atomic.Uint64  // Of all subscriptions.
	delivered atomic.Uint64
	synced    atomic.Bool
	stopped   atomic.Bool

	mu      sync.Mutex
	waiting []delivery
	running chan struct{} // Closed when the goroutine ends; nil if there is none.
}

func newSubscription(s sink, group *sync.WaitGroup, total *atomic.Uint64) *subscription {
	return &subscription{sink: s, group: group, total: total}
}

func (s *subscription) enqueue(ds ...delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return
	}
	s.waiting = append(s.waiting, ds...)
	if s.running == nil && len(s.waiting) > 0 {
		s.running = make(chan struct{})
		s.group.Go(s.dispatch)
	}
}

func (s *subscription) dispatch() {
	for {
		s.mu.Lock()
		batch := s.waiting
		s.waiting = nil
		if len(batch) == 0 || s.stopped.Load() {
			close(s.running)
			s.running = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()

		for _, d := range batch {
			if s.stopped.Load() {
				break
			}
			if d.op == synced {
				s.synced.Store(true)
				continue
			}
			s.sink.deliver(d)
			s.delivered.Add(1)
			s.total.Add(1)
		}
	}
}

// stop makes sure that no delivery begins after it returned. One that is under
// way may still run: see drained. The channel is nil if none does.
func (s *subscription) stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped.Store(true)
	s.waiting = nil
	return s.running
}

// A known object, and the generation of the informer that told us of it last.
type known struct {
	object     client.Object
	generation uint64
}

// A fan hands the events of a kind to all its subscriptions. It outlives the
// informers that come and go below it: it knows what was delivered, so what went
// between two informers is delivered as deleted, once.
type fan struct {
	mu         sync.Mutex
	generation uint64
	settled    bool
	closed     bool
	known      map[types.NamespacedName]known
	subs       map[*subscription]struct{}
}

func newFan() *fan {
	return &fan{known: make(map[types.NamespacedName]known), subs: make(map[*subscription]struct{})}
}

// attach starts delivering to a subscription, beginning with what is there.
func (f *fan) attach(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subs[s]; ok || f.closed {
		return
	}
	f.subs[s] = struct{}{}

	replay := make([]delivery, 0, len(f.known)+1)
	for _, k := range f.known {
		// Some may be gone, if an informer is being replaced. Then the next one
		// tells, and the newcomer is told as all others are.
		replay = append(replay, delivery{op: created, object: k.object, initial: true})
	}
	if f.settled {
		replay = append(replay, delivery{op: synced})
	}
	s.enqueue(replay...)
}

// close the fan: nothing is delivered any more.
func (f *fan) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation = 0
	f.settled = false
	f.closed = true
	f.known = nil
	f.subs = nil
}

func (f *fan) detach(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
}

// begin makes the fan listen to an informer's tap, and to no earlier one.
func (f *fan) begin(generation uint64) kcache.ResourceEventHandler {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation = generation
	f.settled = false
	return &tap{fan: f, generation: generation}
}

// settle is called when the current informer has told all that there is. What
// only an earlier one knew is gone.
func (f *fan) settle(generation uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != generation {
		return
	}
	for key, k := range f.known {
		if k.generation != generation {
			f.forget(key, k, nil)
		}
	}
	f.settled = true
	f.send(delivery{op: synced})
}

// clear is called when the kind is gone, and all its objects with it.
func (f *fan) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation = 0
	f.settled = false
	for key, k := range f.known {
		f.forget(key, k, nil)
	}
	if !f.closed {
		// Maps don't shrink.
		f.known = make(map[types.NamespacedName]known)
	}
}

func (f *fan) objects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known)
}

func (f *fan) forget(key types.NamespacedName, k known, successor client.Object) {
	delete(f.known, key)
	f.send(delivery{op: deleted, object: k.object, unseen: true, successor: successor})
}

func (f *fan) send(d delivery) {
	for s := range f.subs {
		s.enqueue(d)
	}
}

// A tap is what a fan hangs into an informer.
type tap struct {
	fan        *fan
	generation uint64
}

// OnAdd hands out a new object.
func (t *tap) OnAdd(obj any, isInInitialList bool) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	f := t.fan
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != t.generation {
		return
	}
	key := client.ObjectKeyFromObject(o)
	if k, ok := f.known[key]; ok && k.object.GetUID() != o.GetUID() {
		f.forget(key, k, o)
	}
	f.known[key] = known{object: o, generation: t.generation}
	f.send(delivery{op: created, object: o, initial: isInInitialList})
}

// OnUpdate hands out a changed object. An informer that missed a deletion tells
// of another object of the same name as of a change.
func (t *tap) OnUpdate(oldObj, newObj any) {
	o, ok := oldObj.(client.Object)
	if !ok {
		return
	}
	n, ok := newObj.(client.Object)
	if !ok {
		return
	}
	f := t.fan
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != t.generation {
		return
	}
	key := client.ObjectKeyFromObject(n)
	replaced := o.GetUID() != n.GetUID()
	if replaced {
		f.forget(key, known{object: o}, n)
	}
	f.known[key] = known{object: n, generation: t.generation}
	if replaced {
		f.send(delivery{op: created, object: n})
		return
	}
	f.send(delivery{op: updated, old: o, object: n})
}

// OnDelete hands out that an object is gone, unless that was handed out.
func (t *tap) OnDelete(obj any) {
	unseen := false
	if u, ok := obj.(kcache.DeletedFinalStateUnknown); ok {
		obj, unseen = u.Obj, true
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	f := t.fan
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != t.generation {
		return
	}
	key := client.ObjectKeyFromObject(o)
	if _, ok := f.known[key]; !ok {
		return
	}
	delete(f.known, key)
	f.send(delivery{op: deleted, object: o, unseen: unseen})
}

// handlerSink delivers to a handler of client-go.
type handlerSink struct {
	handler kcache.ResourceEventHandler
}

func (h *handlerSink) deliver(d delivery) {
	switch d.op {
	case created:
		h.handler.OnAdd(d.object, d.initial)
	case updated:
		h.handler.OnUpdate(d.old, d.object)
	case deleted:
		if !d.unseen {
			h.handler.OnDelete(d.object)
			return
		}
		name, err := kcache.MetaNamespaceKeyFunc(d.object)
		if err != nil {
			name = d.object.GetName()
		}
		h.handler.OnDelete(kcache.DeletedFinalStateUnknown{Key: name, Obj: d.object})
	case synced:
	}
}

// await waits for a channel that may be nil, or for the context's end.
func await(ctx context.Context, ch <-chan struct{}) error {
	if ch == nil {
		return nil
	}
	select {
	case <-ch:
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
