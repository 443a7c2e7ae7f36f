package watch

import (
	"context"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ cache.Cache = &InformerTrackingCache{}

// ErrForeignCache is returned by all methods of a cache that TrackInformers got and
// NewCache didn't make, and by an engine on it.
var ErrForeignCache = errors.New(
	"engine needs a cache of its own: make it with NewCache, in place of controller-runtime's cache.New",
)

// TrackingInformers are informers that list the kinds that are synced.
type TrackingInformers interface {
	cache.Informers
	ActiveInformers() []schema.GroupVersionKind
}

// An InformerTrackingCache is a cache whose kinds don't affect each other. Make
// one with NewCache. All its methods are safe for concurrent use, and none
// outlives its context by more than a moment. Those that wait for the kind to sync
// fail at once, without a request, while it is known that waiting is no use.
type InformerTrackingCache struct{ kinds *kindMap }

// A CacheOption configures a cache.
type CacheOption func(*kindMap)

// WithLinger sets how long an informer runs on after its last watch stopped; 30
// seconds by default. A controller that restarts within that time finds it.
func WithLinger(d time.Duration) CacheOption {
	return func(m *kindMap) { m.linger = d }
}

// WithReadLinger sets how long an informer runs on after it was last read; 10
// minutes by default. One with an index runs on.
func WithReadLinger(d time.Duration) CacheOption {
	return func(m *kindMap) { m.readLinger = d }
}

// NewCache returns a cache to use instead of controller-runtime's. It takes the
// same options and means the same by them, but for Mapper, which it doesn't use:
// a manager's mapper keeps the first scope and plural of a kind, so the cache
// could not watch a kind that came back with others. Clients still use that
// mapper: reads from the cache work then, and requests of the client fail until a
// restart. The cache doesn't send a request until it is started and a kind is
// requested. It logs to the logger of the engine that uses it.
//
// Start runs it, and returns when all its informers have ended.
func NewCache(cfg *rest.Config, opts cache.Options, o ...CacheOption) (*InformerTrackingCache, error) {
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	var err error
	if opts.HTTPClient == nil {
		if opts.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.Wrap(err, "cannot create HTTP client")
		}
	}
	c := newKindMap(opts.Scheme)
	for _, fn := range o {
		fn(c)
	}
	if c.factory, err = newInformerFactory(cfg, opts); err != nil {
		return nil, err
	}
	if c.resolver, err = newResolver(c.ctx, cfg, opts.HTTPClient); err != nil {
		return nil, err
	}
	if opts.ReaderFailOnMissingInformer {
		c.requested = make(map[kindKey]bool)
	}
	return &InformerTrackingCache{kinds: c}, nil
}

// TrackInformers returns a cache that NewCache made as it is, for code that was written for
// Crossplane's engine. It refuses another cache: all methods of the cache that it returns, and
// of an engine on it, fail with ErrForeignCache.
func TrackInformers(ca cache.Cache, s *runtime.Scheme) *InformerTrackingCache {
	if t, ok := ca.(*InformerTrackingCache); ok {
		return t
	}
	c := newKindMap(s)
	c.cancel(ErrForeignCache)
	return &InformerTrackingCache{kinds: c}
}

// ActiveInformers returns the kinds that have a synced informer.
func (c *InformerTrackingCache) ActiveInformers() []schema.GroupVersionKind {
	active := sets.New[schema.GroupVersionKind]()
	for _, k := range c.kinds.all() {
		if k.status.Load().informer != nil {
			active.Insert(k.key.GroupVersionKind)
		}
	}
	return active.UnsortedList()
}

// NeedLeaderElection says that a manager starts the cache before it is elected.
func (c *InformerTrackingCache) NeedLeaderElection() bool {
	return false
}

func (c *InformerTrackingCache) newObject(gvk schema.GroupVersionKind) (client.Object, error) {
	o, err := c.kinds.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := o.(client.Object)
	if !ok {
		return nil, errors.Errorf("%T has no object metadata", o)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk) // Schemes may have kinds as unstructured.
	return obj, nil
}

// syncedInformer waits for a kind's informer. It returns nil without an error if the cache isn't started.
func (c *InformerTrackingCache) syncedInformer(ctx context.Context, key kindKey, obj client.Object) (*informer, error) {
	k, err := c.kinds.get(key, obj, func(k *kind) { k.owners++ })
	if err != nil {
		return nil, err
	}
	defer k.release()
	inf, err := k.wait(ctx)
	if inf != nil {
		k.keepFor(k.readLinger)
	}
	return inf, err
}

// Get an object. The kind's informer is kept running for a while.
func (c *InformerTrackingCache) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	r, err := c.reader(ctx, obj, "")
	if err != nil {
		return err
	}
	return r.Get(ctx, key, obj, opts...)
}

// List objects. The kind's informer is kept running for a while.
func (c *InformerTrackingCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r, err := c.reader(ctx, list, "List")
	if err != nil {
		return err
	}
	return r.List(ctx, list, opts...)
}

// reader returns a reader for the kind of an object, or of a list, whose kind has a suffix.
func (c *InformerTrackingCache) reader(ctx context.Context, of runtime.Object, suffix string) (client.Reader, error) {
	key, err := c.kinds.keyOf(of)
	if err != nil {
		return nil, err
	}
	key.Kind = strings.TrimSuffix(key.Kind, suffix)
	c.kinds.mu.RLock()
	k, readable := c.kinds.kinds[key], c.kinds.requested == nil || c.kinds.requested[key]
	c.kinds.mu.RUnlock()
	if k != nil {
		if inf := k.status.Load().informer; inf != nil {
			k.keepFor(k.readLinger)
			return inf.cache, nil
		}
	}
	if !readable {
		return nil, &cache.ErrResourceNotCached{GVK: key.GroupVersionKind}
	}
	var obj client.Object
	if key.as == asTyped {
		if obj, err = c.newObject(key.GroupVersionKind); err != nil {
			return nil, err
		}
	}
	inf, err := c.syncedInformer(ctx, key, obj)
	switch {
	case err != nil:
		return nil, err
	case inf == nil:
		return nil, &cache.ErrCacheNotStarted{}
	default:
		return inf.cache, nil
	}
}

// GetInformer returns an informer whose handlers get events again when the kind has
// come back.
func (c *InformerTrackingCache) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	key, err := c.kinds.keyOf(obj)
	if err != nil {
		return nil, err
	}
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}
	use := func(*kind) {}
	if !ptr.Deref(o.BlockUntilSynced, true) {
		use = func(k *kind) { k.keepFor(k.readLinger) }
	} else if _, err = c.syncedInformer(ctx, key, obj); err != nil {
		return nil, err
	}
	k, err := c.kinds.get(key, obj, use)
	if err != nil {
		return nil, err
	}
	return &kindInformer{ResourceEventHandlerRegistration: k.firstSync, cache: c.kinds, key: key, obj: obj}, nil
}

// GetInformerForKind returns an informer like GetInformer does. The scheme must
// know the kind.
func (c *InformerTrackingCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	obj, err := c.newObject(gvk)
	if err != nil {
		return nil, err
	}
	return c.GetInformer(ctx, obj, opts...)
}

// RemoveInformer stops a kind's informer. It is out of use when RemoveInformer
// returns, and ends soon. Earlier reads don't keep it running. If there are
// watches, handlers or indexes on the kind, a new informer takes its place, and
// delivers all objects.
func (c *InformerTrackingCache) RemoveInformer(_ context.Context, obj client.Object) error {
	key, err := c.kinds.keyOf(obj)
	if err != nil {
		return err
	}
	c.kinds.forgetIndexes(key)
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	k, ok := c.kinds.kinds[key]
	if ok {
		k.replaceInformer()
	}
	if !ok || k.retiresIn() <= 0 {
		delete(c.kinds.requested, key)
	}
	return nil
}

// IndexField adds an index to a kind's informer, and to later ones. It doesn't wait for the kind, which
// need not exist. An index keeps the kind's informer running while the kind is served.
func (c *InformerTrackingCache) IndexField(
	_ context.Context, obj client.Object, field string, extract client.IndexerFunc,
) error {
	key, err := c.kinds.keyOf(obj)
	if err != nil {
		return err
	}
	return c.kinds.addIndexes(key, obj, &index{
		name: "field:" + field,
		add: func(ctx context.Context, inf *informer, obj client.Object) error {
			return inf.cache.IndexField(ctx, obj, field, extract)
		},
	})
}

// Start runs the cache until the context ends, and returns when all its goroutines have ended.
// Controllers of an engine on it are stopped then: ControllerEngine.Stop waits for them. A cache
// can be started once.
func (c *InformerTrackingCache) Start(ctx context.Context) error {
	c.kinds.mu.Lock()
	err := c.kinds.ended()
	if err == nil && isClosed(c.kinds.started) {
		err = errors.New("cache was started before")
	}
	if err == nil {
		close(c.kinds.started)
		for _, k := range c.kinds.kinds {
			c.kinds.wg.Go(worker{k}.run)
		}
	}
	c.kinds.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	c.kinds.mu.Lock() // Nothing is added to the group afterwards: see get and subscribe.
	c.kinds.cancel(ErrShutDown)
	c.kinds.mu.Unlock()
	c.kinds.wg.Wait()
	return nil
}

// WaitForCacheSync waits for the cache to start, and for the kinds that were requested before,
// unless they can't be watched. It returns false if the context ends first, or the cache.
func (c *InformerTrackingCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.kinds.ctx, cancel)() //nolint:contextcheck // It is the cache that may end.
	if await(ctx, c.kinds.started) != nil {
		return false
	}
	for _, k := range c.kinds.all() {
		if !k.early {
			continue
		}
		_ = wait.PollUntilContextCancel(ctx, firstBackoff, true, func(ctx context.Context) (bool, error) {
			_, err := k.wait(ctx)
			gone := k.status.Load().state == StateStopped // It is missing, and nothing asks for it any more.
			return err == nil || gone || classify(k.key.GroupVersionKind, err).permanent(), nil
		})
	}
	return ctx.Err() == nil && c.kinds.ended() == nil
}
