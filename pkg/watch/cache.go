package watch

import (
	"context"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	_ cache.Cache       = &InformerTrackingCache{}
	_ TrackingInformers = &InformerTrackingCache{}
)

// TrackingInformers are informers of which one can ask which are active.
type TrackingInformers interface {
	cache.Informers
	ActiveInformers() []schema.GroupVersionKind
}

// An InformerTrackingCache is a cache whose kinds don't affect each other. Make
// one with NewCache. All its methods are safe for concurrent use, and none
// outlives its context by more than a moment.
//
// Get, List, GetInformer, GetInformerForKind and IndexField wait for the kind to
// sync, as any cache's do. Their errors match ErrNoSuchKind, ErrNotWatchable,
// ErrForbidden, ErrNotSynced or ErrUnreachable. They come at once, without a
// request, while it is known that waiting is no use.
type InformerTrackingCache struct {
	// Cache is what TrackInformers was given. A cache that NewCache made has
	// itself here.
	cache.Cache

	scheme *runtime.Scheme
	set    *kindSet

	// A read doesn't make an informer.
	readsFail bool

	// The cache is somebody else's.
	wraps bool
}

// A CacheOption configures a cache.
type CacheOption func(*cacheOptions)

type cacheOptions struct {
	linger         *time.Duration
	readLinger     *time.Duration
	resolveTimeout *time.Duration
	clock          clock.WithTicker
	random         func() float64
	log            logging.Logger
	resolver       Resolver
}

// WithLinger sets how long an informer runs on after its last watch went; 30
// seconds by default. A controller that restarts within that time finds it.
func WithLinger(d time.Duration) CacheOption {
	return func(o *cacheOptions) { o.linger = &d }
}

// WithReadLinger sets how long an informer runs on after it was last read; 10
// minutes by default.
func WithReadLinger(d time.Duration) CacheOption {
	return func(o *cacheOptions) { o.readLinger = &d }
}

// WithResolveTimeout sets how long looking up a kind may take; 30 seconds by
// default. It bounds the cache's own attempts. Callers are bounded by their
// context.
func WithResolveTimeout(d time.Duration) CacheOption {
	return func(o *cacheOptions) { o.resolveTimeout = &d }
}

// WithResolver sets how to find out how the API server serves a kind. The
// default is NewDiscoveryResolver. The Mapper of the cache's options isn't used:
// the mappers that managers have never forget, so a kind that came back with
// another scope or plural would stay broken.
func WithResolver(r Resolver) CacheOption {
	return func(o *cacheOptions) { o.resolver = r }
}

// WithCacheLogger sets where the cache logs; nowhere by default. It writes a
// line when a kind begins to fail, not for each attempt.
func WithCacheLogger(l logging.Logger) CacheOption {
	return func(o *cacheOptions) { o.log = l }
}

// WithClock sets the clock for all that happens in the background, also in an
// engine on the cache: lingering, backoff, saving, and asking informers, every 1
// to 100 ms, whether they have synced. So with a clock that stands still, none
// does. It is the system's by default. Timeouts are those of contexts, which know
// no other.
func WithClock(c clock.WithTicker) CacheOption {
	return func(o *cacheOptions) { o.clock = c }
}

// WithRandom sets what spreads backoffs, so that kinds that failed together don't
// all try again together; math/rand/v2's Float64 by default. It returns numbers
// from 0 up to 1, and must be safe for concurrent use.
func WithRandom(fn func() float64) CacheOption {
	return func(o *cacheOptions) { o.random = fn }
}

// NewCache returns a cache to use instead of controller-runtime's. It takes the
// same options and means the same by them, but for Mapper: see WithResolver. It
// doesn't send a request until it is started and asked for something.
//
// Start runs it, and returns when all its informers have ended.
func NewCache(cfg *rest.Config, opts cache.Options, o ...CacheOption) (*InformerTrackingCache, error) {
	co := &cacheOptions{}
	for _, fn := range o {
		fn(co)
	}
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}

	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	hc := opts.HTTPClient
	if hc == nil {
		var err error
		if hc, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.Wrap(err, "cannot create HTTP client")
		}
	}
	if co.resolver == nil {
		r, err := NewDiscoveryResolver(cfg, hc)
		if err != nil {
			return nil, err
		}
		co.resolver = r
	}

	b := &cachePerKind{cfg: cfg, opts: opts, client: hc, resolver: co.resolver}
	set := newKindSet(b)
	b.run = set.wg.Go
	if co.linger != nil {
		set.linger = *co.linger
	}
	if co.readLinger != nil {
		set.readLinger = *co.readLinger
	}
	if co.resolveTimeout != nil {
		set.resolveTimeout = *co.resolveTimeout
	}
	if co.clock != nil {
		set.clock = co.clock
	}
	if co.random != nil {
		set.random = co.random
	}
	if co.log != nil {
		set.log = co.log
	}

	c := &InformerTrackingCache{scheme: opts.Scheme, set: set, readsFail: opts.ReaderFailOnMissingInformer}
	c.Cache = c
	return c, nil
}

// TrackInformers returns a tracking cache for the supplied one. A cache that
// NewCache made is returned as it is.
//
// Any other cache is wrapped: its informers are used, and followed as they come
// and go, so nobody who waits for one kind makes others wait in here. What that
// cache does inside stays as it is. controller-runtime's does discovery while it
// holds its lock, and doesn't heal when a kind comes back with another scope.
func TrackInformers(c cache.Cache, s *runtime.Scheme) *InformerTrackingCache {
	if t, ok := c.(*InformerTrackingCache); ok {
		return t
	}
	set := newWrappedSet(c, c)
	// Whoever made the cache starts it, so we aren't told when. Its informers
	// sync when it is.
	set.start()
	return &InformerTrackingCache{Cache: c, scheme: s, set: set, wraps: true}
}

// ActiveInformers returns the kinds whose informers are synced and running.
func (c *InformerTrackingCache) ActiveInformers() []schema.GroupVersionKind {
	all := c.set.all()
	seen := make(map[schema.GroupVersionKind]struct{}, len(all))
	out := make([]schema.GroupVersionKind, 0, len(all))
	for _, k := range all {
		if k.current.Load() == nil {
			continue
		}
		if _, ok := seen[k.id.GroupVersionKind]; !ok {
			seen[k.id.GroupVersionKind] = struct{}{}
			out = append(out, k.id.GroupVersionKind)
		}
	}
	return out
}

// Get an object. The kind's informer is kept running for a while.
func (c *InformerTrackingCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := gvkFor(obj, c.scheme)
	if err != nil {
		return errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	r, err := c.reader(ctx, kindID{GroupVersionKind: gvk, as: representationOf(obj)}, func() (client.Object, error) { return obj, nil })
	if err != nil {
		return err
	}
	return r.Get(ctx, key, obj, opts...)
}

// List objects. The kind's informer is kept running for a while.
func (c *InformerTrackingCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := gvkFor(list, c.scheme)
	if err != nil {
		return errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	r, err := c.reader(ctx, kindID{GroupVersionKind: gvk, as: representationOf(list)}, func() (client.Object, error) {
		if representationOf(list) != typed {
			return nil, nil //nolint:nilnil // These need no example.
		}
		return c.newObject(gvk)
	})
	if err != nil {
		return err
	}
	return r.List(ctx, list, opts...)
}

func (c *InformerTrackingCache) newObject(gvk schema.GroupVersionKind) (client.Object, error) {
	o, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := o.(client.Object)
	if !ok {
		return nil, errors.Errorf("%T has no object metadata", o)
	}
	return obj, nil
}

// reader returns what can read a kind.
func (c *InformerTrackingCache) reader(ctx context.Context, id kindID, example func() (client.Object, error)) (client.Reader, error) {
	for {
		k := c.set.find(id)
		if k == nil {
			if c.readsFail {
				return nil, &cache.ErrResourceNotCached{GVK: id.GroupVersionKind}
			}
			obj, err := example()
			if err != nil {
				return nil, err
			}
			if k, err = c.set.get(id, obj, (*kind).touch); err != nil {
				return nil, err
			}
		} else {
			k.touch()
		}

		o, err := k.wait(ctx)
		switch {
		case errors.Is(err, errRetired):
			continue
		case err != nil:
			return nil, err
		case o == nil:
			return nil, &cache.ErrCacheNotStarted{}
		default:
			return o.reader, nil
		}
	}
}

// GetInformer returns an informer that outlives what happens below it: handlers
// that are added to it get events again when the kind has come back.
func (c *InformerTrackingCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := gvkFor(obj, c.scheme)
	if err != nil {
		return nil, errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	return c.informer(ctx, kindID{GroupVersionKind: gvk, as: representationOf(obj)}, obj, opts...)
}

// GetInformerForKind returns an informer like GetInformer does. The scheme must
// know the kind.
func (c *InformerTrackingCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := c.newObject(gvk)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, kindID{GroupVersionKind: gvk, as: representationOf(obj)}, obj, opts...)
}

func (c *InformerTrackingCache) informer(ctx context.Context, id kindID, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}
	for {
		k, err := c.set.get(id, obj, (*kind).touch)
		if err != nil {
			return nil, err
		}
		if o.BlockUntilSynced == nil || *o.BlockUntilSynced {
			_, err := k.wait(ctx)
			if errors.Is(err, errRetired) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		return &informer{set: c.set, id: id, obj: obj}, nil
	}
}

// RemoveInformer stops a kind's informer, without waiting for it to end. Reads
// that kept it running don't any more. If there are watches, handlers or indexes
// on the kind, a new informer takes its place, and tells them what is there.
func (c *InformerTrackingCache) RemoveInformer(_ context.Context, obj client.Object) error {
	gvk, err := gvkFor(obj, c.scheme)
	if err != nil {
		return errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	c.set.remove(kindID{GroupVersionKind: gvk, as: representationOf(obj)})
	return nil
}

// IndexField adds an index to a kind's informer, and to each that takes its
// place. An index keeps the kind's informer running.
func (c *InformerTrackingCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	gvk, err := gvkFor(obj, c.scheme)
	if err != nil {
		return errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	return c.set.index(ctx, kindID{GroupVersionKind: gvk, as: representationOf(obj)}, obj, &index{field: field, extract: extract})
}

// Start runs the cache until the context ends, and returns when everything that
// it started has ended. A cache that was shut down can't be started again.
func (c *InformerTrackingCache) Start(ctx context.Context) error {
	if c.wraps {
		defer c.set.shutdown()
		return c.Cache.Start(ctx)
	}
	if c.set.ctx.Err() != nil || c.set.isStarted() {
		return errors.New("cache was started before")
	}
	c.set.start()
	<-ctx.Done()
	c.set.shutdown()
	return nil
}

// NeedLeaderElection says that a manager starts the cache before it is elected.
func (c *InformerTrackingCache) NeedLeaderElection() bool {
	return false
}

// WaitForCacheSync waits for the kinds that are asked for now. Those that can't
// be watched aren't waited for. It returns false if the context ends first.
func (c *InformerTrackingCache) WaitForCacheSync(ctx context.Context) bool {
	if c.wraps {
		return c.Cache.WaitForCacheSync(ctx)
	}
	select {
	case <-c.set.starting:
	case <-ctx.Done():
		return false
	}
	for _, k := range c.set.all() {
		if _, err := k.wait(ctx); err != nil && ctx.Err() != nil {
			return false
		}
	}
	return true
}
