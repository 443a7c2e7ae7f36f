package baseline

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Cache remembers which kinds informers were asked for. Its locking is
// that of the cache we replace: one lock, held while the wrapped cache works, and
// a kind counts as active from before its informer was asked for.
type Cache struct {
	cache.Cache

	scheme *runtime.Scheme

	lock   Lock
	active map[schema.GroupVersionKind]bool
}

// NewCache returns a cache that wraps another one.
func NewCache(c cache.Cache, s *runtime.Scheme, l Lock) *Cache {
	return &Cache{Cache: c, scheme: s, lock: l, active: make(map[schema.GroupVersionKind]bool)}
}

// holding runs fn with the lock that the wrapped cache is used under: for
// reading if the kind is as we want it, for writing if that has to be set first.
func (c *Cache) holding(gvk schema.GroupVersionKind, active bool, fn func() error) error {
	c.lock.RLock()
	if c.active[gvk] == active {
		defer c.lock.RUnlock()
		return fn()
	}
	c.lock.RUnlock()
	c.lock.Lock()
	defer c.lock.Unlock()
	if active {
		c.active[gvk] = true
	} else {
		delete(c.active, gvk)
	}
	return fn()
}

// ActiveInformers returns the kinds that informers were asked for.
func (c *Cache) ActiveInformers() []schema.GroupVersionKind {
	c.lock.RLock()
	defer c.lock.RUnlock()
	out := make([]schema.GroupVersionKind, 0, len(c.active))
	for gvk := range c.active {
		out = append(out, gvk)
	}
	return out
}

// Get an object.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return err
	}
	return c.holding(gvk, true, func() error { return c.Cache.Get(ctx, key, obj, opts...) })
}

// List objects.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return c.holding(gvk, true, func() error { return c.Cache.List(ctx, list, opts...) })
}

// GetInformer returns an informer.
func (c *Cache) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (inf cache.Informer, err error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	return inf, c.holding(gvk, true, func() error {
		inf, err = c.Cache.GetInformer(ctx, obj, opts...)
		return err
	})
}

// GetInformerForKind returns an informer.
func (c *Cache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (inf cache.Informer, err error) {
	return inf, c.holding(gvk, true, func() error {
		inf, err = c.Cache.GetInformerForKind(ctx, gvk, opts...)
		return err
	})
}

// RemoveInformer removes an informer.
func (c *Cache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return err
	}
	return c.holding(gvk, false, func() error { return c.Cache.RemoveInformer(ctx, obj) })
}
