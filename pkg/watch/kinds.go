package watch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kunstructured "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A kindMap has the kinds of a cache.
type kindMap struct {
	environment

	scheme *runtime.Scheme

	// The mutex is never held across a wait. A kind's mutex may be locked while it is held, not
	// the other way round.
	mu        sync.RWMutex
	kinds     map[kindKey]*kind
	indexes   map[kindKey]map[string]*index // By name. They outlive kinds.
	requested map[kindKey]bool              // Kinds that can be read, if reads don't make informers. Nil if they do.
}

func newKindMap(scheme *runtime.Scheme) *kindMap {
	c := &kindMap{
		scheme:  scheme,
		kinds:   make(map[kindKey]*kind),
		indexes: make(map[kindKey]map[string]*index),
	}
	c.linger, c.readLinger = 30*time.Second, 10*time.Minute
	c.started = make(chan struct{})
	c.retire, c.reindex = c.retireKind, c.forgetIndexes
	c.delivered = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "graft_watch_events_delivered_total",
		Help: "Events that were delivered to handlers.",
	})
	c.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "graft_watch_failures_total",
		Help: "How often a kind couldn't be watched.",
	}, []string{"reason"})
	for _, label := range reasons() {
		c.failures.WithLabelValues(label)
	}
	nop := logging.NewNopLogger()
	c.log.Store(&nop)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// keyOf returns the key of an object's, or a list's, kind.
func (m *kindMap) keyOf(o runtime.Object) (kindKey, error) {
	gvk, err := apiutil.GVKForObject(o, m.scheme)
	if err != nil {
		return kindKey{}, errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	return kindKey{GroupVersionKind: gvk, as: representationOf(o)}, nil
}

// representationOf returns the representation of an object or a list.
func representationOf(o runtime.Object) representation {
	switch o.(type) {
	case runtime.Unstructured:
		return asUnstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return asMetadata
	default:
		return asTyped
	}
}

// objectFor returns an object to make informers with. Informers take unstructured objects of
// the plain type only.
func objectFor(key kindKey, o client.Object) client.Object {
	switch key.as {
	case asUnstructured:
		o = &kunstructured.Unstructured{}
	case asMetadata:
		o = &metav1.PartialObjectMetadata{}
	case asTyped:
		o, _ = o.DeepCopyObject().(client.Object) // It is of the same type.
	}
	o.GetObjectKind().SetGroupVersionKind(key.GroupVersionKind)
	return o
}

// find returns a kind, or nil.
func (m *kindMap) find(key kindKey) *kind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.kinds[key]
}

// all returns all kinds, in no order.
func (m *kindMap) all() []*kind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.kinds))
}

// get returns a kind, which it makes if there is none. The kind can't retire before use, which is
// called with the kind's mutex held.
func (m *kindMap) get(key kindKey, obj client.Object, use func(*kind)) (*kind, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ended(); err != nil {
		return nil, &KindError{GVK: key.GroupVersionKind, Reason: ErrNotSynced, Err: err}
	}
	k, ok := m.kinds[key]
	if !ok {
		k = newKind(&m.environment, key, objectFor(key, obj))
		k.indexes = m.indexes[key]
		m.kinds[key] = k
	}
	if m.requested != nil {
		m.requested[key] = true
	}
	k.update(func() { use(k) })
	if !ok && !k.early {
		m.wg.Go(worker{k}.run)
	}
	return k, nil
}

// retireKind removes a kind unless it is in use.
func (m *kindMap) retireKind(k *kind) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.retiresIn() > 0 {
		return false
	}
	delete(m.kinds, k.key)
	return true
}

// addIndexes adds indexes, all or none, without waiting for the kind. Their functions may panic. An
// informer that hasn't synced, or that has another index of the name, is replaced.
func (m *kindMap) addIndexes(key kindKey, obj client.Object, added ...*index) error {
	var conflict error
	var inf *informer
	replace := false
	k, err := m.get(key, obj, func(k *kind) {
		inf = k.status.Load().informer
		replace = inf == nil && k.stop != nil && len(added) > 0
		for _, i := range added {
			old := k.indexes[i.name]
			replace = replace || old != nil
			if old != nil && !old.replaceable || i.name == kcache.NamespaceIndex {
				conflict = errors.Errorf("indexer conflict: there is an index %s of %s", i.name, key.GroupVersionKind)
				return
			}
		}
		if k.indexes == nil {
			k.indexes = make(map[string]*index)
			m.indexes[key] = k.indexes
		}
		for _, i := range added {
			k.indexes[i.name] = i
		}
	})
	if err := cmp.Or(err, conflict); err != nil {
		return err
	}
	if inf != nil && !replace {
		for _, i := range added {
			err = cmp.Or(err, i.addTo(k.ctx, inf, k.obj))
		}
		if k.status.Load().informer != inf {
			err = nil // It has ended, and the next one gets the indexes.
		}
	}
	if err != nil {
		m.mu.Lock()
		k.update(func() {
			for _, i := range added {
				delete(k.indexes, i.name)
			}
		})
		m.mu.Unlock()
	}
	if err != nil || replace {
		k.replaceInformer()
	}
	return err
}

// forgetIndexes makes a kind's indexes replaceable.
func (m *kindMap) forgetIndexes(key kindKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.indexes[key] {
		i.replaceable = true
	}
}

// register makes a subscription to a kind's events, which owns the kind until it is removed. The context
// is the parent of the contexts of deliveries, and spawn runs their goroutines. Events are delivered once
// the subscription is attached to the broadcaster.
func (m *kindMap) register(
	ctx context.Context, spawn func(func()), key kindKey, obj client.Object, deliver func(context.Context, delivery),
) (*subscription, *kind, error) {
	k, err := m.get(key, obj, func(k *kind) { k.owners++ })
	if err != nil {
		return nil, nil, err
	}
	sub := &subscription{FIFO: newSyncSignal(), deliver: deliver, spawn: spawn, total: m.delivered}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	sub.remove = sync.OnceFunc(func() {
		sub.stop()
		k.broadcaster.detach(sub)
		k.release()
	})
	return sub, k, nil
}

// subscribe makes a subscription, and attaches it.
func (m *kindMap) subscribe(
	key kindKey, obj client.Object, deliver func(context.Context, delivery),
) (*subscription, *kind, error) {
	sub, k, err := m.register(m.ctx, m.wg.Go, key, obj, deliver)
	if err == nil {
		m.mu.RLock() // The cache doesn't end meanwhile.
		defer m.mu.RUnlock()
		k.broadcaster.attach(sub)
	}
	return sub, k, err
}
