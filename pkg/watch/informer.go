package watch

import (
	"context"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ cache.Informer = &informer{}

// An informer is what callers of GetInformer get. It stands for whatever informer
// the kind has at the time.
type informer struct {
	set *kindSet
	id  kindID
	obj client.Object
}

// AddEventHandler adds a handler that owns the kind until it is removed.
func (i *informer) AddEventHandler(h kcache.ResourceEventHandler) (kcache.ResourceEventHandlerRegistration, error) {
	if isNil(h) {
		return nil, errors.Wrap(ErrInvalidWatch, "no handler")
	}
	r := &registration{sub: newSubscription(&handlerSink{handler: h}, &i.set.handlers, &i.set.delivered)}
	k, err := i.set.acquire(i.id, i.obj, r.sub)
	if err != nil {
		return nil, err
	}
	r.kind = k
	k.fan.attach(r.sub)
	return r, nil
}

// AddEventHandlerWithResyncPeriod is AddEventHandler: resyncs come at the period
// that the cache's options say.
func (i *informer) AddEventHandlerWithResyncPeriod(h kcache.ResourceEventHandler, _ time.Duration) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// AddEventHandlerWithOptions is AddEventHandler: resyncs come at the period that
// the cache's options say.
func (i *informer) AddEventHandlerWithOptions(h kcache.ResourceEventHandler, _ kcache.HandlerOptions) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// RemoveEventHandler removes a handler. The handler may still be running when it
// returns, as that of any informer may, but isn't called again.
func (i *informer) RemoveEventHandler(handle kcache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return errors.Errorf("handler was registered with another informer: %T", handle)
	}
	r.once.Do(func() {
		r.sub.stop()
		r.kind.fan.detach(r.sub)
		i.set.release(r.kind, r.sub)
	})
	return nil
}

// AddIndexers adds indexes to the kind's informer and to each that takes its
// place. It doesn't wait for the kind.
func (i *informer) AddIndexers(indexers kcache.Indexers) error {
	return i.set.addIndex(i.id, i.obj, &index{indexers: indexers})
}

// HasSynced reports whether the kind has a synced informer.
func (i *informer) HasSynced() bool {
	k := i.set.find(i.id)
	return k != nil && k.current.Load() != nil
}

// IsStopped reports whether no informer will run for the kind again, unless
// somebody asks for one.
func (i *informer) IsStopped() bool {
	return i.set.ctx.Err() != nil || i.set.find(i.id) == nil
}

// A registration of a handler.
type registration struct {
	sub  *subscription
	kind *kind
	once sync.Once
}

// HasSynced reports whether the handler was told all that was there.
func (r *registration) HasSynced() bool {
	return r.sub.synced.Load()
}

// index adds an index and waits for it.
func (s *kindSet) index(ctx context.Context, id kindID, obj client.Object, i *index) error {
	if err := s.addIndex(id, obj, i); err != nil {
		return err
	}
	for {
		k, err := s.get(id, obj, func(*kind) {})
		if err != nil {
			return err
		}
		o, err := k.wait(ctx)
		if errors.Is(err, errRetired) {
			continue
		}
		if err != nil || o == nil {
			return err
		}
		k.mu.Lock()
		changed, added, err := k.changed, i.added, i.err
		k.mu.Unlock()
		if added != 0 || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return k.late(ctx)
		}
	}
}

// addIndex adds an index without waiting for it. One that can't have been used
// yet is replaced by one for the same field.
func (s *kindSet) addIndex(id kindID, obj client.Object, i *index) error {
	var conflict error
	_, err := s.get(id, obj, func(k *kind) {
		k.owners[indexOwner{}] = struct{}{}
		for n, other := range k.indexes {
			if i.indexers != nil || other.indexers != nil || other.field != i.field {
				continue
			}
			if other.added != 0 {
				conflict = errors.Errorf("indexer conflict: there is an index on field %q of %s", i.field, id.GroupVersionKind)
				return
			}
			k.indexes[n] = i
			return
		}
		k.indexes = append(k.indexes, i)
		k.poke()
	})
	if err != nil {
		return err
	}
	return conflict
}

// An indexOwner owns a kind that has indexes.
type indexOwner struct{}

// remove a kind's informer, and what reads had on it.
func (s *kindSet) remove(id kindID) {
	k := s.find(id)
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastRead.Store(0)
	if len(k.owners) == 0 {
		k.idleSince = k.set.clock.Now().Add(-s.linger)
	}
	k.command(reopen)
}
