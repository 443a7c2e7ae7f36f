package watch

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// This file is all that adapts to controller-runtime's caches and to client-go's informers. It
// works with controller-runtime v0.23 to v0.25.

const (
	watchWorks  = time.Second / 2 // A watch must be open for this long to work. Others may be cut by a proxy.
	streamPause = time.Second     // Between two streamed lists. client-go lists in another way meanwhile.
)

// An informerFactory makes an informer for a kind, in a controller-runtime cache of its own. The
// cache gets the kind's mapping, so it sends no discovery requests.
type informerFactory struct {
	cfg    *rest.Config
	opts   cache.Options
	byKind map[schema.GroupVersionKind]cache.ByObject // As in the options.
}

// newInformerFactory copies the maps of the options, so that later changes by the caller have no
// effect. It refuses objects of unknown kinds, as controller-runtime does.
func newInformerFactory(cfg *rest.Config, opts cache.Options) (*informerFactory, error) {
	opts.ReaderFailOnMissingInformer = false
	opts.DefaultNamespaces = maps.Clone(opts.DefaultNamespaces)
	byKind := make(map[schema.GroupVersionKind]cache.ByObject)
	for obj, by := range opts.ByObject {
		gvk, err := apiutil.GVKForObject(obj, opts.Scheme)
		if err != nil {
			return nil, errors.Wrapf(err, "cannot determine group, version, and kind of %T in ByObject", obj)
		}
		by.Namespaces = maps.Clone(by.Namespaces)
		byKind[gvk] = by
	}
	return &informerFactory{cfg: cfg, opts: opts, byKind: byKind}, nil
}

// An informer is an informer for a kind, or one for each namespace that the cache is restricted
// to, with the cache that reads from it.
type informer struct {
	cache     cache.Cache
	informers []*namespaceInformer

	changed func()          // Is called when health has changed.
	listed  func()          // Is called when objects were listed.
	wg      *sync.WaitGroup // Has all goroutines.
	mu      sync.Mutex      // Guards the fields of the informers, and those below.
	ended   bool            // One of the informers has ended.
}

// newInformer returns an informer for the kind of an object. It isn't started, and its goroutines
// will be in the group. The functions are called without a lock: changed when health has changed,
// and listed when objects were listed.
func (f *informerFactory) newInformer(
	ctx context.Context, wg *sync.WaitGroup, obj client.Object, m *meta.RESTMapping, changed, listed func(),
) (*informer, error) {
	gvk := m.GroupVersionKind
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gvk.GroupVersion()})
	for _, name := range []string{gvk.Kind, gvk.Kind + "List"} {
		mapper.AddSpecific(gvk.GroupVersion().WithKind(name), m.Resource, m.Resource, m.Scope)
	}
	opts := f.opts
	opts.Mapper = mapper

	// Options for other kinds would make the cache look them up.
	opts.ByObject = nil
	if by, ok := f.byKind[gvk]; ok {
		if m.Scope.Name() == meta.RESTScopeNameRoot {
			by.Namespaces = nil // It may have had a namespace when they were given.
		}
		opts.ByObject = map[client.Object]cache.ByObject{obj: by}
	}

	inf := &informer{changed: changed, listed: listed, wg: wg}
	newShared, handle := opts.NewInformer, opts.DefaultWatchErrorHandler
	if newShared == nil {
		newShared = kcache.NewSharedIndexInformer
	}
	opts.DefaultWatchErrorHandler = nil // It is called below.
	opts.NewInformer = func(
		lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers,
	) kcache.SharedIndexInformer {
		p := &namespaceInformer{
			FIFO: newSyncSignal(), informer: inf, lw: kcache.ToListerWatcherWithContext(lw),
		}
		recording := &kcache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.watch}
		p.SharedIndexInformer = newShared(
			kcache.ToListWatcherWithWatchListSemantics(recording, lw), obj, resync, indexers,
		)
		_ = p.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *kcache.Reflector, err error) {
			if ctx.Err() == nil && !expired(err) { // Otherwise it lists again.
				p.failed(err)
			}
			if handle != nil {
				handle(ctx, r, err)
			}
		}) // It fails only if the informer was started before.
		inf.informers = append(inf.informers, p)
		return p
	}
	var err error
	if inf.cache, err = cache.New(f.cfg, opts); err != nil {
		return nil, errors.Wrap(err, "cannot create cache")
	}
	// The cache isn't started, so this sends no request and doesn't wait.
	if _, err = inf.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
		return nil, errors.Wrap(err, "cannot create informer")
	}
	return inf, nil
}

// start starts the informer, which runs until the context ends.
func (i *informer) start(ctx context.Context) {
	i.wg.Go(func() { _ = i.cache.Start(ctx) }) // It fails only if it was started before.

	// client-go logs each retry, so its logs are for debugging: the kind logs its failures.
	quiet := logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).V(1))
	for _, p := range i.informers {
		i.wg.Go(func() {
			p.sharedInformer.RunWithContext(quiet)
			_ = p.Replace(nil, "") // It has nothing to fail with.
			p.record(func() { i.ended = true })
		})
	}
}

// addHandler adds an event handler. The returned function reports whether the handler was called
// for all initial objects, and the cache can be read.
func (i *informer) addHandler(ctx context.Context, h kcache.ResourceEventHandler) (synced func() bool, err error) {
	registrations := make([]kcache.ResourceEventHandlerRegistration, len(i.informers))
	for n, p := range i.informers {
		if registrations[n], err = p.AddEventHandler(h); err != nil {
			return nil, err
		}
	}
	return func() bool {
		for n, p := range i.informers {
			if !p.HasSynced() || !registrations[n].HasSynced() {
				return false
			}
		}
		return i.cache.WaitForCacheSync(ctx) // It waits for its own start only.
	}, nil
}

// addIndexers adds indexes for client-go.
func (i *informer) addIndexers(indexers kcache.Indexers) error {
	for _, p := range i.informers {
		if err := p.AddIndexers(indexers); err != nil {
			return err
		}
	}
	return nil
}

// list lists one object as the informer does.
func (i *informer) list(ctx context.Context) error {
	_, err := i.informers[0].lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// A health is the result of an informer's requests.
type health struct {
	err    error // The last failure, until a watch opens.
	listed bool  // The informer that failed has listed its objects.
	works  bool  // All watches work.
	ended  bool  // An informer has ended.
}

// health returns the results of the informer's last requests.
func (i *informer) health() health {
	i.mu.Lock()
	defer i.mu.Unlock()
	h := health{works: true, listed: true, ended: i.ended}
	for _, p := range i.informers {
		h.works = h.works && !p.opened.IsZero() && time.Since(p.opened) >= watchWorks
		h.err = cmp.Or(h.err, p.err, p.dropped)
		h.listed = h.listed && (p.listed || p.err == nil)
	}
	return h
}

// A namespaceInformer is the informer for one namespace, or for all. It records the results of
// its requests. client-go calls the error handler for most that fail.
//
// It is what a controller-runtime cache gets, which doesn't run it, because start does. controller-runtime's
// cache for namespaces has goroutines that wait for HasSyncedChecker, which later versions of the interface
// have. Here it is the queue's, and done when the informer has ended.
type namespaceInformer struct {
	*kcache.FIFO
	sharedInformer

	informer *informer
	lw       kcache.ListerWatcherWithContext
	streamed time.Time // The last streamed list began.

	// Guarded by the informer's mutex.
	err     error     // Of the last request, until a watch opens.
	listed  bool      // All objects were listed.
	dropped error     // Why an object was dropped since the last list: the store may be wrong.
	opened  time.Time // When the watch was opened; zero if none is open.
}

// A sharedInformer has client-go's methods one level below those of its owner.
type sharedInformer struct{ kcache.SharedIndexInformer }

// HasSynced reports whether the informer has synced.
func (p *namespaceInformer) HasSynced() bool { return p.sharedInformer.HasSynced() }

// RunWithContext does nothing.
func (p *namespaceInformer) RunWithContext(context.Context) {}

// record calls fn with the mutex held, and changed afterwards.
func (p *namespaceInformer) record(fn func()) {
	p.informer.mu.Lock()
	fn()
	p.informer.mu.Unlock()
	p.informer.changed()
}

// failed records an error, which stays until a watch opens.
func (p *namespaceInformer) failed(err error) {
	p.record(func() { p.err = err })
}

// expired reports whether a resource version is too old. The informer lists again at once.
func expired(err error) bool {
	return kerrors.IsResourceExpired(err) || kerrors.IsGone(err)
}

// SetTransform sets a function that changes objects before they are stored. client-go drops the event if it
// fails, so the kind is Degraded then, and the informer lists again when the watch ends.
func (p *namespaceInformer) SetTransform(fn kcache.TransformFunc) error {
	if fn == nil {
		return nil
	}
	return p.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		out, err := fn(obj)
		if err != nil {
			p.record(func() { p.dropped = errors.Errorf("cannot transform an object: %v", err) })
		}
		return out, err
	})
}

func (p *namespaceInformer) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l, err := p.lw.ListWithContext(ctx, opts)
	if err == nil {
		p.relisted()
	}
	return l, err
}

// relisted is called before the objects of a list are stored.
func (p *namespaceInformer) relisted() {
	p.record(func() { p.dropped = nil })
	p.informer.listed()
}

// watch opens a watch. One that streams the list is a list, too: if it fails twice within a moment, client-go lists.
func (p *namespaceInformer) watch(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
	streams, dropped := ptr.Deref(opts.SendInitialEvents, false), false
	p.record(func() { dropped, p.listed = p.dropped != nil, p.listed || !streams })
	switch {
	case streams && time.Since(p.streamed) < streamPause:
		return nil, errors.New("the last streamed list has just begun")
	case streams:
		p.streamed = time.Now()
	case dropped:
		return nil, kerrors.NewResourceExpired("an object was dropped: list again")
	}
	w, err := p.lw.WatchWithContext(ctx, opts)
	switch {
	case err == nil:
	case ctx.Err() == nil && (utilnet.IsConnectionRefused(err) || kerrors.IsTooManyRequests(err)):
		p.failed(err) // client-go sends the request again, and calls no error handler.
		return nil, err
	case kerrors.IsNotFound(err):
		return nil, kerrors.NewResourceExpired(err.Error()) // The list says whether the kind is missing.
	default:
		return nil, err
	}
	if streams {
		p.relisted()
	}
	p.record(func() { p.opened, p.err = time.Now(), nil })
	return &openWatch{Interface: w, informer: p}, nil
}

// An openWatch drains its watch when it is stopped. A watch of metadata passes through a filter
// that sends even the error of a cancelled request, and would wait for a receiver for ever.
type openWatch struct {
	apiwatch.Interface

	informer *namespaceInformer
}

// Stop stops the watch. Its informer has no other one.
func (w *openWatch) Stop() {
	w.Interface.Stop()
	w.informer.informer.wg.Go(func() {
		for range w.ResultChan() { //nolint:revive // Events after Stop have no receiver.
		}
	})
	w.informer.record(func() { w.informer.opened = time.Time{} })
}
