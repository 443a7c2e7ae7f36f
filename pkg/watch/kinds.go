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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A kindSet is all the kinds of a cache. Its mutex guards the maps, and is never
// held across anything that waits. A kind's mutex may be taken while it is held,
// not the other way round.
type kindSet struct {
	*host

	// handlers of GetInformer's callers that run.
	handlers dispatcher

	mu    sync.RWMutex
	kinds map[kindID]*trackedKind

	// indexes outlive kinds.
	indexes map[kindID][]*index

	// asked are the kinds that were asked for and not removed since: only they can be
	// read. Nil if all can.
	asked map[kindID]bool

	// initial are the kinds that there were when the cache was started.
	initial []*trackedKind
}

func newKindSet() *kindSet {
	h := &host{
		random:     rand.Float64,
		delivered:  prometheus.NewCounter(prometheus.CounterOpts{Name: "graft_watch_events_delivered_total", Help: "Events that were delivered to handlers."}),
		counts:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "graft_watch_failures_total", Help: "How often a kind couldn't be watched."}, []string{"reason"}),
		linger:     30 * time.Second,
		readLinger: 10 * time.Minute,
		starting:   make(chan struct{}),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for label := range reasons() {
		h.counts.WithLabelValues(label)
	}
	nop := logging.NewNopLogger()
	h.log.Store(&nop)
	return &kindSet{
		host:     h,
		handlers: dispatcher{ctx: h.ctx, run: h.wg.Go, delivered: h.delivered},
		kinds:    make(map[kindID]*trackedKind),
		indexes:  make(map[kindID][]*index),
	}
}

// start running kinds.
func (s *kindSet) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.starting) || s.ctx.Err() != nil {
		return
	}
	close(s.starting)
	for _, k := range s.kinds {
		s.initial = append(s.initial, k)
		s.wg.Go(k.run)
	}
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

// readable reports whether a read may make an informer.
func (s *kindSet) readable(id kindID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.asked == nil || s.asked[id]
}

// remove a kind's informer. If it has owners it gets another one. It returns whether
// there was such a kind.
func (s *kindSet) remove(id kindID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.kinds[id]
	if ok {
		k.raise(true, false)
	}
	if !ok || k.unused() {
		delete(s.asked, id)
	}
	for _, i := range s.indexes[id] {
		i.replaceable = true
	}
	return ok
}

// acquire a kind for a subscription, which must be released.
func (s *kindSet) acquire(id kindID, obj client.Object, sub *subscription) (*trackedKind, error) {
	return s.get(id, obj, func(k *trackedKind) { k.own(sub) })
}

// release what was acquired for a subscription that was stopped.
func (s *kindSet) release(k *trackedKind, sub *subscription) {
	k.fan.detach(sub)
	k.disown(sub)
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
		k = newKind(s.host, id, exampleOf(id, obj))
		k.indexes = s.indexes[id]
		k.retire = func() bool { return s.retire(k) }
		s.kinds[id] = k
	}
	if s.asked != nil {
		s.asked[id] = true
	}
	k.mu.Lock()
	use(k)
	k.mu.Unlock()
	if !ok && isClosed(s.starting) {
		s.wg.Go(k.run)
	}
	return k, nil
}

// retire a kind, unless it is used by now.
func (s *kindSet) retire(k *trackedKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.unused() {
		return false
	}
	delete(s.kinds, k.id)
	return true
}

// all kinds, in no order.
func (s *kindSet) all() []*trackedKind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.kinds))
}

// raise the epochs of a group and kind, in all versions and representations.
func (s *kindSet) raise(gk schema.GroupKind, crdDeleted bool) {
	for _, k := range s.all() {
		if k.id.GroupKind() == gk {
			k.raise(false, crdDeleted)
		}
	}
}

// index adds an index and waits for it.
func (s *kindSet) index(ctx context.Context, id kindID, obj client.Object, i *index) error {
	err := s.addIndex(id, obj, i)
	if err != nil {
		return err
	}
	if _, err = s.synced(ctx, id, obj, i); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		i.replaceable = true // The caller will try again.
	}
	return err
}

// synced waits for a kind's informer, and the index if it isn't nil, and owns the kind
// meanwhile. It returns nil without an error if the cache isn't started.
func (s *kindSet) synced(ctx context.Context, id kindID, obj client.Object, i *index) (*opened, error) {
	k, err := s.get(id, obj, (*trackedKind).join)
	if err != nil {
		return nil, err
	}
	defer k.leave()
	defer k.touch()
	return k.wait(ctx, i)
}

// addIndex adds an index without waiting for it.
func (s *kindSet) addIndex(id kindID, obj client.Object, i *index) error {
	var conflict error
	used := false
	k, err := s.get(id, obj, func(k *trackedKind) {
		var indexes []*index
		for _, other := range k.indexes {
			switch {
			case !i.conflicts(other):
				indexes = append(indexes, other)
			case other.replaceable:
				used = used || other.used
			default:
				conflict = errors.Errorf("indexer conflict: there is an index on %s of %s", i.names, id.GroupVersionKind)
				return
			}
		}
		indexes = append(indexes, i)
		k.indexes, s.indexes[id] = indexes, indexes
		k.poke()
	})
	if err == nil && conflict == nil && used {
		k.raise(true, false) // Its informer has the other index.
	}
	return cmp.Or(err, conflict)
}
