package watch

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A kindSet is a cache: all kinds, and their settings. It embeds nothing, so that the compiler
// reports methods that a later controller-runtime adds to the interface.
type kindSet struct {
	scheme     *runtime.Scheme
	backend    *cachePerKind
	linger     time.Duration
	readLinger time.Duration
	random     func() float64 // In [0, 1). Spreads backoffs.
	log        atomic.Pointer[logging.Logger]
	delivered  prometheus.Counter           // Events.
	counts     *prometheus.CounterVec       // Failures by reason.
	starting   chan struct{}                // Closed when the cache starts.
	crds       atomic.Pointer[registration] // The last that watches CRDs for the other kinds. Nil if none ever did.

	// The context ends when the cache is shut down. The group has all goroutines of the cache.
	ctx    context.Context //nolint:containedctx // Kinds outlive the call that requests them.
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	// The mutex is never held across a wait. A kind's mutex may be locked while it is held, not
	// the other way round.
	mu        sync.RWMutex
	kinds     map[kindID]*trackedKind
	indexes   map[kindID]map[string]*index // By name. They outlive kinds.
	requested map[kindID]bool              // Kinds that can be read, if reads don't make informers. Nil if they do.
}

func newKindSet(scheme *runtime.Scheme) *kindSet {
	s := &kindSet{
		scheme: scheme,
		random: rand.Float64,
		delivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "graft_watch_events_delivered_total",
			Help: "Events that were delivered to handlers.",
		}),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "graft_watch_failures_total",
			Help: "How often a kind couldn't be watched.",
		}, []string{"reason"}),
		linger:     30 * time.Second,
		readLinger: 10 * time.Minute,
		starting:   make(chan struct{}),
		kinds:      make(map[kindID]*trackedKind),
		indexes:    make(map[kindID]map[string]*index),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	for _, label := range reasons() {
		s.counts.WithLabelValues(label)
	}
	nop := logging.NewNopLogger()
	s.log.Store(&nop)
	return s
}

// shutdown stops all goroutines of the cache, and waits for them.
func (s *kindSet) shutdown() {
	s.mu.Lock() // Nothing is added to the group afterwards: see get and subscribe.
	s.cancel(ErrShutDown)
	s.mu.Unlock()
	s.wg.Wait()
}

// ended returns why the cache has ended, or nil.
func (s *kindSet) ended() error {
	return context.Cause(s.ctx)
}

// find returns a kind, or nil.
func (s *kindSet) find(id kindID) *trackedKind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kinds[id]
}

// A registration is a subscription to a kind's events. It owns the kind until it is
// removed.
type registration struct {
	// HasSynced, and HasSyncedChecker in later versions of the interface, report whether the
	// handler was called for the initial objects.
	kcache.ResourceEventHandlerRegistration
	*subscription

	kind   *trackedKind
	remove func()
}

// newSyncSignal returns a queue that stays empty. Its Replace method makes HasSynced true, and
// HasSyncedChecker done: client-go's versions differ in that method, and the queue has it.
func newSyncSignal() *kcache.FIFO {
	return kcache.NewFIFO(kcache.MetaNamespaceKeyFunc)
}

// register makes a registration. The context is the parent of the contexts of deliveries, and
// run runs their goroutines. Events are delivered once it is attached to the broadcaster.
func (s *kindSet) register(
	ctx context.Context, run func(func()), id kindID, obj client.Object, deliver func(context.Context, delivery),
) (*registration, error) {
	k, err := s.get(id, obj, func(k *trackedKind) { k.subscribers++ })
	if err != nil {
		return nil, err
	}
	sub := &subscription{deliver: deliver, run: run, total: s.delivered, firstSync: newSyncSignal()}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	return &registration{
		ResourceEventHandlerRegistration: sub.firstSync,
		subscription:                     sub,
		kind:                             k,
		remove: sync.OnceFunc(func() {
			sub.stop()
			k.broadcaster.detach(sub)
			k.release(&k.subscribers)
		}),
	}, nil
}

// subscribe makes a registration, and attaches it.
func (s *kindSet) subscribe(
	id kindID, obj client.Object, deliver func(context.Context, delivery),
) (*registration, error) {
	r, err := s.register(s.ctx, s.wg.Go, id, obj, deliver)
	if err == nil {
		s.mu.RLock() // The cache doesn't end meanwhile.
		defer s.mu.RUnlock()
		r.kind.broadcaster.attach(r.subscription)
	}
	return r, err
}

// get returns a kind, which it makes if there is none. The kind can't retire before use is
// called.
func (s *kindSet) get(id kindID, obj client.Object, use func(*trackedKind)) (*trackedKind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended() != nil {
		return nil, &KindError{GVK: id.GroupVersionKind, Reason: ErrNotSynced, Err: s.ended()}
	}
	started := isClosed(s.starting)
	k, ok := s.kinds[id]
	if !ok {
		now := time.Now()
		k = &trackedKind{
			set:         s,
			id:          id,
			obj:         exampleOf(id, obj),
			beforeStart: !started,
			broadcaster: newBroadcaster(),
			firstSync:   newSyncSignal(),
			indexes:     s.indexes[id],
			wake:        make(chan struct{}, 1),
			idleSince:   now,
			epoch:       1, // The last attempt was in epoch 0.
			changed:     make(chan struct{}),
			stop:        func() {},
		}
		k.status.Store(&kindStatus{state: StatePending, since: now})
		s.kinds[id] = k
	}
	if s.requested != nil {
		s.requested[id] = true
	}
	k.update(func() { use(k) })
	if !ok && started {
		s.wg.Go(k.run)
	}
	return k, nil
}

// all returns all kinds, in no order.
func (s *kindSet) all() []*trackedKind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.kinds))
}

// synced waits for a kind's informer, and for the index if it isn't nil. It returns nil without
// an error if the cache isn't started.
func (s *kindSet) synced(ctx context.Context, id kindID, obj client.Object, i *index) (*informer, error) {
	k, err := s.get(id, obj, func(k *trackedKind) { k.waiters++ })
	if err != nil {
		return nil, err
	}
	defer k.release(&k.waiters)
	defer k.touch()
	return k.wait(ctx, i)
}

// addIndexes adds indexes, all or none, without waiting for them.
func (s *kindSet) addIndexes(id kindID, obj client.Object, added ...*index) error {
	var conflict error
	used := false
	k, err := s.get(id, obj, func(k *trackedKind) {
		for _, i := range added {
			if old := k.indexes[i.name]; old != nil {
				used = used || old.used
				if !old.replaceable {
					conflict = errors.Errorf(
						"indexer conflict: there is an index %s of %s", i.name, id.GroupVersionKind,
					)
					return
				}
			}
		}
		if k.indexes == nil {
			k.indexes = make(map[string]*index)
			s.indexes[id] = k.indexes
		}
		for _, i := range added {
			k.indexes[i.name] = i
		}
		k.notify() // A call may wait for an index that was replaced.
	})
	if err == nil && conflict == nil && used {
		k.replaceInformer() // It has the other index.
	}
	return cmp.Or(err, conflict)
}

// forgetIndexers makes a kind's indexes replaceable. The mutex must be held.
func (s *kindSet) forgetIndexers(id kindID) {
	for _, i := range s.indexes[id] {
		i.replaceable = true
	}
}
