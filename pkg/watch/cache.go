package watch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var (
	_ cache.Cache       = &kindSet{}
	_ TrackingInformers = &InformerTrackingCache{}
)

// TrackingInformers are informers of which the active ones are known.
type TrackingInformers interface {
	cache.Informers
	ActiveInformers() []schema.GroupVersionKind
}

// An InformerTrackingCache is a cache whose kinds don't affect each other. Make
// one with NewCache. All its methods are safe for concurrent use, and none
// outlives its context by more than a moment. Those that wait for the kind to sync
// fail at once, without a request, while it is known that waiting is no use.
type InformerTrackingCache struct {
	cache.Cache

	set *kindSet
}

// A CacheOption configures a cache.
type CacheOption func(*kindSet)

// WithLinger sets how long an informer runs on after its last watch stopped; 30
// seconds by default. A controller that restarts within that time finds it.
func WithLinger(d time.Duration) CacheOption {
	return func(s *kindSet) { s.linger = d }
}

// WithReadLinger sets how long an informer runs on after it was last read; 10
// minutes by default. One with an index runs on.
func WithReadLinger(d time.Duration) CacheOption {
	return func(s *kindSet) { s.readLinger = d }
}

// NewCache returns a cache to use instead of controller-runtime's. It takes the
// same options and means the same by them, but for Mapper, which it doesn't use:
// those that managers have never forget, so a kind that came back with another
// scope or plural would stay broken. It doesn't send a request until it is started
// and a kind is asked for. What it logs goes to the logger of the engine that uses it.
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

	set := newKindSet(opts.Scheme)
	for _, fn := range o {
		fn(set)
	}
	if set.backend, err = newCachePerKind(cfg, opts); err != nil {
		return nil, err
	}
	if opts.ReaderFailOnMissingInformer {
		set.asked = make(map[kindID]bool)
	}
	return &InformerTrackingCache{Cache: set, set: set}, nil
}

// TrackInformers makes a cache known to an engine. One that NewCache made is
// returned as it is. Another is wrapped: the engine's calls don't block each other,
// but what such a cache does inside stays as it is. Its discovery blocks its reads, and
// while it hangs a watch is Pending. A kind that comes back in another scope is requested
// where it was. A list that fails is seen after two minutes, and that a kind no longer
// exists only if CRDs are watched. An informer whose last watch was stopped is removed,
// also if others read it. Reads and handlers should go through what is returned. The cache
// is started by starting either.
func TrackInformers(ca cache.Cache, s *runtime.Scheme) *InformerTrackingCache {
	if t, ok := ca.(*InformerTrackingCache); ok {
		return t
	}
	set := newWrappedSet(ca, ca, s)
	return &InformerTrackingCache{Cache: set, set: set}
}

// newWrappedSet returns the kinds of another cache, or of informers that aren't one.
func newWrappedSet(infs cache.Informers, ca cache.Cache, s *runtime.Scheme) *kindSet {
	set := newKindSet(s)
	set.wraps = ca
	set.backend = &wrapped{Informers: infs}
	close(set.starting)
	return set
}

// ActiveInformers returns the kinds that have a synced informer.
func (c *InformerTrackingCache) ActiveInformers() []schema.GroupVersionKind {
	active := sets.New[schema.GroupVersionKind]()
	for _, k := range c.set.all() {
		if k.current.Load() != nil {
			active.Insert(k.id.GroupVersionKind)
		}
	}
	return active.UnsortedList()
}

// NeedLeaderElection says that a manager starts the cache before it is elected.
func (c *InformerTrackingCache) NeedLeaderElection() bool {
	return false
}

// id returns the identity of an object's, or a list's, kind.
func (s *kindSet) id(o runtime.Object) (kindID, error) {
	gvk, err := apiutil.GVKForObject(o, s.scheme)
	if err != nil {
		return kindID{}, errors.Wrap(err, "cannot determine group, version, and kind of supplied object")
	}
	return kindID{GroupVersionKind: gvk, as: representationOf(o)}, nil
}

// Get an object. The kind's informer is kept running for a while.
func (s *kindSet) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r, err := s.reader(ctx, obj, "")
	if err != nil {
		return err
	}
	return r.Get(ctx, key, obj, opts...)
}

// List objects. The kind's informer is kept running for a while.
func (s *kindSet) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r, err := s.reader(ctx, list, "List")
	if err != nil {
		return err
	}
	return r.List(ctx, list, opts...)
}

func (s *kindSet) newObject(gvk schema.GroupVersionKind) (client.Object, error) {
	o, err := s.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := o.(client.Object)
	if !ok {
		return nil, errors.Errorf("%T has no object metadata", o)
	}
	return obj, nil
}

// reader returns what can read the kind of an object, or of a list, whose kind has a suffix.
func (s *kindSet) reader(ctx context.Context, of runtime.Object, suffix string) (client.Reader, error) {
	id, err := s.id(of)
	if err != nil {
		return nil, err
	}
	id.Kind = strings.TrimSuffix(id.Kind, suffix)
	s.mu.RLock()
	k, readable := s.kinds[id], s.asked == nil || s.asked[id]
	s.mu.RUnlock()
	if k != nil {
		if o := k.current.Load(); o != nil {
			k.touch()
			return o.reader, nil
		}
	}
	if !readable {
		return nil, &cache.ErrResourceNotCached{GVK: id.GroupVersionKind}
	}
	var obj client.Object
	if id.as == typed {
		if obj, err = s.newObject(id.GroupVersionKind); err != nil {
			return nil, err
		}
	}
	o, err := s.synced(ctx, id, obj, nil)
	switch {
	case err != nil:
		return nil, err
	case o == nil && s.wraps != nil:
		return s.wraps, nil // It knows whether it was started since.
	case o == nil:
		return nil, &cache.ErrCacheNotStarted{}
	default:
		return o.reader, nil
	}
}

// GetInformer returns an informer whose handlers get events again when the kind has
// come back.
func (s *kindSet) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	id, err := s.id(obj)
	if err != nil {
		return nil, err
	}
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}
	if ptr.Deref(o.BlockUntilSynced, true) {
		_, err = s.synced(ctx, id, obj, nil)
	} else {
		_, err = s.get(id, obj, (*trackedKind).touch)
	}
	if err != nil {
		return nil, err
	}
	return &kindInformer{set: s, id: id, obj: obj}, nil
}

// GetInformerForKind returns an informer like GetInformer does. The scheme must
// know the kind.
func (s *kindSet) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := s.newObject(gvk)
	if err != nil {
		return nil, err
	}
	return s.GetInformer(ctx, obj, opts...)
}

// RemoveInformer stops a kind's informer. It is out of use when RemoveInformer
// returns, and ends soon. Reads that kept it running don't any more. If there are
// watches, handlers or indexes on the kind, a new informer takes its place, and
// delivers what is there.
func (s *kindSet) RemoveInformer(ctx context.Context, obj client.Object) error {
	id, err := s.id(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	k, ok := s.kinds[id]
	if ok {
		k.raise(true, false)
	}
	if !ok || k.retiresIn() <= 0 {
		delete(s.asked, id)
	}
	for _, i := range s.indexes[id] {
		i.replaceable = true
	}
	s.mu.Unlock()
	if !ok && s.wraps != nil {
		return s.wraps.RemoveInformer(ctx, obj) // It was asked for directly.
	}
	return nil
}

// IndexField adds an index to a kind's informer, and to each that takes its
// place. An index keeps the kind's informer running while the kind is served.
func (s *kindSet) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	id, err := s.id(obj)
	if err != nil {
		return err
	}
	i := &index{name: "field:" + field, addTo: func(ctx context.Context, o *opened, obj client.Object) error {
		return o.indexer.IndexField(ctx, obj, field, extract)
	}}
	if err := s.addIndexes(id, obj, i); err != nil {
		return err
	}
	if _, err = s.synced(ctx, id, obj, i); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		i.replaceable = true // The caller will try again.
	}
	return err
}

// Start runs the cache until the context ends, and returns when everything that
// it started has ended. A cache that was shut down can't be started again.
func (s *kindSet) Start(ctx context.Context) error {
	if s.wraps != nil {
		err := s.wraps.Start(ctx)
		if ctx.Err() != nil { // Else it was started before, or doesn't wait for its end.
			s.shutdown()
		}
		return err
	}
	s.mu.Lock()
	again := isClosed(s.starting)
	if !again {
		s.initial = slices.Collect(maps.Values(s.kinds))
		close(s.starting)
		for _, k := range s.initial {
			s.wg.Go(k.run)
		}
	}
	s.mu.Unlock()
	if again {
		return errors.New("cache was started before")
	}
	<-ctx.Done()
	s.shutdown()
	return nil
}

// WaitForCacheSync waits for the cache to start, and for the kinds that were asked
// for before, unless they can't be watched. It returns false if the context ends first.
func (s *kindSet) WaitForCacheSync(ctx context.Context) bool {
	if s.wraps != nil {
		return s.wraps.WaitForCacheSync(ctx)
	}
	if await(ctx, s.starting) != nil {
		return false
	}
	for _, k := range s.initial {
		_, _ = k.wait(ctx, nil) // It may be that it can't be watched.
	}
	return ctx.Err() == nil
}
