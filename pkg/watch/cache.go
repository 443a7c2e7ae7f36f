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
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var (
	_ cache.Cache       = &kindSet{}
	_ TrackingInformers = &InformerTrackingCache{}
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

	set := newKindSet(opts.Scheme)
	for _, fn := range o {
		fn(set)
	}
	if set.backend, err = newCachePerKind(cfg, opts); err != nil {
		return nil, err
	}
	if opts.ReaderFailOnMissingInformer {
		set.requested = make(map[kindID]bool)
	}
	return &InformerTrackingCache{Cache: set, set: set}, nil
}

// TrackInformers returns a cache that NewCache made as it is, for code that was written for
// Crossplane's engine. It refuses another cache: all methods of the cache that it returns, and
// of an engine on it, fail with ErrForeignCache.
func TrackInformers(ca cache.Cache, s *runtime.Scheme) *InformerTrackingCache {
	if t, ok := ca.(*InformerTrackingCache); ok {
		return t
	}
	set := newKindSet(s)
	set.cancel(ErrForeignCache)
	return &InformerTrackingCache{Cache: set, set: set}
}

// ActiveInformers returns the kinds that have a synced informer.
func (c *InformerTrackingCache) ActiveInformers() []schema.GroupVersionKind {
	active := sets.New[schema.GroupVersionKind]()
	for _, k := range c.set.all() {
		if k.synced.Load() != nil {
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
	obj.GetObjectKind().SetGroupVersionKind(gvk) // Schemes may have kinds as unstructured.
	return obj, nil
}

// reader returns a reader for the kind of an object, or of a list, whose kind has a suffix.
func (s *kindSet) reader(ctx context.Context, of runtime.Object, suffix string) (client.Reader, error) {
	id, err := s.id(of)
	if err != nil {
		return nil, err
	}
	id.Kind = strings.TrimSuffix(id.Kind, suffix)
	s.mu.RLock()
	k, readable := s.kinds[id], s.requested == nil || s.requested[id]
	s.mu.RUnlock()
	if k != nil {
		if inf := k.synced.Load(); inf != nil {
			k.touch()
			return inf.reader, nil
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
	inf, err := s.synced(ctx, id, obj, nil)
	switch {
	case err != nil:
		return nil, err
	case inf == nil:
		return nil, &cache.ErrCacheNotStarted{}
	default:
		return inf.reader, nil
	}
}

// GetInformer returns an informer whose handlers get events again when the kind has
// come back.
func (s *kindSet) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	id, err := s.id(obj)
	if err != nil {
		return nil, err
	}
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}
	use := func(*trackedKind) {}
	if !ptr.Deref(o.BlockUntilSynced, true) {
		use = (*trackedKind).touch
	} else if _, err = s.synced(ctx, id, obj, nil); err != nil {
		return nil, err
	}
	k, err := s.get(id, obj, use)
	if err != nil {
		return nil, err
	}
	return &kindInformer{ResourceEventHandlerRegistration: k.firstSync, set: s, id: id, obj: obj}, nil
}

// GetInformerForKind returns an informer like GetInformer does. The scheme must
// know the kind.
func (s *kindSet) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	obj, err := s.newObject(gvk)
	if err != nil {
		return nil, err
	}
	return s.GetInformer(ctx, obj, opts...)
}

// RemoveInformer stops a kind's informer. It is out of use when RemoveInformer
// returns, and ends soon. Earlier reads don't keep it running. If there are
// watches, handlers or indexes on the kind, a new informer takes its place, and
// delivers all objects.
func (s *kindSet) RemoveInformer(_ context.Context, obj client.Object) error {
	id, err := s.id(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.kinds[id]
	if ok {
		k.replaceInformer()
	}
	if !ok || k.retiresIn() <= 0 {
		delete(s.requested, id)
	}
	s.forgetIndexers(id)
	return nil
}

// IndexField adds an index to a kind's informer, and to later ones. An index keeps
// the kind's informer running while the kind is served.
func (s *kindSet) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	id, err := s.id(obj)
	if err != nil {
		return err
	}
	i := &index{name: "field:" + field, addTo: func(ctx context.Context, inf *informer, obj client.Object) error {
		return inf.indexer.IndexField(ctx, obj, field, extract)
	}}
	if err := s.addIndexes(id, obj, i); err != nil {
		return err
	}
	if _, err = s.synced(ctx, id, obj, i); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		i.replaceable = true // The caller will retry.
	}
	return err
}

// Start runs the cache until the context ends, and returns when all its goroutines have ended.
// Controllers of an engine on it are stopped then: ControllerEngine.Stop waits for them. A cache
// can be started once.
func (s *kindSet) Start(ctx context.Context) error {
	s.mu.Lock()
	err := s.ended()
	if err == nil && isClosed(s.starting) {
		err = errors.New("cache was started before")
	}
	if err == nil {
		close(s.starting)
		for _, k := range s.kinds {
			s.wg.Go(k.run)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.shutdown()
	return nil
}

// WaitForCacheSync waits for the cache to start, and for the kinds that were requested before,
// unless they can't be watched. It returns false if the context ends first, or the cache.
func (s *kindSet) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // It is the cache that may end.
	if await(ctx, s.starting) != nil {
		return false
	}
	for _, k := range s.all() {
		if !k.beforeStart {
			continue
		}
		_ = wait.PollUntilContextCancel(ctx, firstBackoff, true, func(ctx context.Context) (bool, error) {
			_, err := k.wait(ctx, nil)
			gone := k.status.Load().state == StateStopped // It is missing, and nothing asks for it any more.
			return err == nil || gone || classify(k.id.GroupVersionKind, err).permanent(), nil
		})
	}
	return ctx.Err() == nil && s.ended() == nil
}
