package watch

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newKindSet(scheme *runtime.Scheme) *kindSet {
	s := &kindSet{
		scheme:     scheme,
		random:     rand.Float64,
		delivered:  prometheus.NewCounter(prometheus.CounterOpts{Name: "graft_watch_events_delivered_total", Help: "Events that were delivered to handlers."}),
		counts:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "graft_watch_failures_total", Help: "How often a kind couldn't be watched."}, []string{"reason"}),
		linger:     30 * time.Second,
		readLinger: 10 * time.Minute,
		starting:   make(chan struct{}),
		kinds:      make(map[kindID]*trackedKind),
		indexes:    make(map[kindID]map[string]*index),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, label := range reasons() {
		s.counts.WithLabelValues(label)
	}
	nop := logging.NewNopLogger()
	s.log.Store(&nop)
	return s
}

// shutdown stops everything, and waits for it.
func (s *kindSet) shutdown() {
	// Under the lock, so that nothing is added to the group that is waited for.
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}

// find a kind that is there.
func (s *kindSet) find(id kindID) *trackedKind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kinds[id]
}

// A registration is a subscription to a kind's events. It owns the kind until it is
// removed.
type registration struct {
	*subscription

	kind   *trackedKind
	remove func()
}

// register what delivers a kind's events, with contexts of the supplied one, in goroutines
// that run starts. It gets none before it is attached to the fan.
func (s *kindSet) register(ctx context.Context, run func(func()), id kindID, obj client.Object, deliver func(context.Context, delivery)) (*registration, error) {
	k, err := s.get(id, obj, func(k *trackedKind) { k.owners++ })
	if err != nil {
		return nil, err
	}
	sub := &subscription{deliver: deliver, run: run, all: s.delivered}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	return &registration{subscription: sub, kind: k, remove: sync.OnceFunc(func() {
		sub.stop()
		k.fan.detach(sub)
		k.disown(&k.owners)
	})}, nil
}

// subscribe to a kind's events.
func (s *kindSet) subscribe(id kindID, obj client.Object, deliver func(context.Context, delivery)) (*registration, error) {
	r, err := s.register(s.ctx, s.wg.Go, id, obj, deliver)
	if err == nil {
		r.kind.fan.attach(r.subscription)
	}
	return r, err
}

// HasSynced reports whether the handler was called for all objects that there were.
func (r *registration) HasSynced() bool {
	return r.synced.Load()
}

// get a kind, making it if need be. What is done with it by use happens before
// it can retire.
func (s *kindSet) get(id kindID, obj client.Object, use func(*trackedKind)) (*trackedKind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, &KindError{GVK: id.GroupVersionKind, Reason: ErrNotSynced, Err: ErrShutDown}
	}
	k, ok := s.kinds[id]
	if !ok {
		now := time.Now()
		k = &trackedKind{
			set:       s,
			id:        id,
			obj:       exampleOf(id, obj),
			fan:       newFan(),
			indexes:   s.indexes[id],
			wake:      make(chan struct{}, 1),
			state:     StatePending,
			since:     now,
			idleSince: now,
			epoch:     1, // So that nothing was noted yet.
			changed:   make(chan struct{}),
			cancel:    func() {},
		}
		s.kinds[id] = k
	}
	if s.asked != nil {
		s.asked[id] = true
	}
	k.note(func() { use(k) })
	if !ok && isClosed(s.starting) {
		s.wg.Go(k.run)
	}
	return k, nil
}

// all kinds, in no order.
func (s *kindSet) all() []*trackedKind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.kinds))
}

// synced waits for a kind's informer, and the index if it isn't nil, and owns the kind
// meanwhile. It returns nil without an error if the cache isn't started.
func (s *kindSet) synced(ctx context.Context, id kindID, obj client.Object, i *index) (*opened, error) {
	k, err := s.get(id, obj, func(k *trackedKind) { k.waiting++ })
	if err != nil {
		return nil, err
	}
	defer k.disown(&k.waiting)
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
					conflict = errors.Errorf("indexer conflict: there is an index %s of %s", i.name, id.GroupVersionKind)
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
		k.move(k.state, k.err) // A call may wait for one that was replaced.
	})
	if err == nil && conflict == nil && used {
		k.raise(true, false) // Its informer has the other index.
	}
	return cmp.Or(err, conflict)
}
