package watch

import (
	"context"
	"time"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

var _ cache.Informer = &kindInformer{}

// A kindInformer is returned by GetInformer. It stays valid when the kind's informer is
// replaced.
type kindInformer struct {
	// HasSyncedChecker, which later versions of the interface have, is done when an informer of
	// the kind has synced for the first time.
	kcache.ResourceEventHandlerRegistration

	cache *kindMap
	key   kindKey
	obj   client.Object
}

// AddEventHandler adds a handler that owns the kind until it is removed.
func (i *kindInformer) AddEventHandler(h kcache.ResourceEventHandler) (kcache.ResourceEventHandlerRegistration, error) {
	if is.Nil(h) {
		return nil, errors.Wrap(ErrInvalidWatch, "no handler")
	}
	r, _, err := i.cache.subscribe(i.key, i.obj, func(_ context.Context, d delivery) {
		switch {
		case d.op == created:
			h.OnAdd(d.object, d.initial)
		case d.op == updated:
			h.OnUpdate(d.old, d.object)
		case d.unseen:
			h.OnDelete(kcache.DeletedFinalStateUnknown{Key: kcache.MetaObjectToName(d.object).String(), Obj: d.object})
		default:
			h.OnDelete(d.object)
		}
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// AddEventHandlerWithResyncPeriod is AddEventHandler: the cache's options have the
// period.
func (i *kindInformer) AddEventHandlerWithResyncPeriod(
	h kcache.ResourceEventHandler, _ time.Duration,
) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// AddEventHandlerWithOptions is AddEventHandler: the cache's options have the period.
func (i *kindInformer) AddEventHandlerWithOptions(
	h kcache.ResourceEventHandler, _ kcache.HandlerOptions,
) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// RemoveEventHandler removes a handler. As with any informer, the handler may still be running
// when it returns. It isn't called again.
func (i *kindInformer) RemoveEventHandler(handle kcache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*subscription)
	if !ok {
		return errors.Errorf("handler was registered with another informer: %T", handle)
	}
	r.remove()
	return nil
}

// AddIndexers adds indexes to the kind's informer, and to later ones. It doesn't wait for the
// kind.
func (i *kindInformer) AddIndexers(indexers kcache.Indexers) error {
	var added []*index
	for name, fn := range indexers {
		added = append(added, &index{name: name, add: func(_ context.Context, inf *informer, _ client.Object) error {
			return inf.addIndexers(kcache.Indexers{name: fn})
		}})
	}
	return i.cache.addIndexes(i.key, i.obj, added...)
}

// HasSynced reports whether the kind has a synced informer. It keeps the informer running for a
// while, as a read does, because it may be a health check.
func (i *kindInformer) HasSynced() bool {
	k := i.cache.find(i.key)
	if k == nil || k.status.Load().informer == nil {
		return false
	}
	k.keepFor(k.readLinger)
	return true
}

// IsStopped reports whether the kind has no informer, and gets none unless it is requested.
func (i *kindInformer) IsStopped() bool {
	return i.cache.ctx.Err() != nil || i.cache.find(i.key) == nil
}
