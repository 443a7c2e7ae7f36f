package watch

import (
	"context"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kunstructured "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// A representation is a Go type of objects. A kind has an informer for each that is used.
type representation string

const (
	typed        representation = "typed"
	unstructured representation = "unstructured"
	metadata     representation = "metadata"
)

// representationOf returns the representation of an object or a list.
func representationOf(o runtime.Object) representation {
	switch o.(type) {
	case runtime.Unstructured:
		return unstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return metadata
	default:
		return typed
	}
}

// A kindID identifies an informer.
type kindID struct {
	schema.GroupVersionKind
	as representation
}

// exampleOf returns an object to make informers with. Informers take unstructured objects of
// the plain type only.
func exampleOf(id kindID, o client.Object) client.Object {
	switch id.as {
	case unstructured:
		o = &kunstructured.Unstructured{}
	case metadata:
		o = &metav1.PartialObjectMetadata{}
	case typed:
		o, _ = o.DeepCopyObject().(client.Object) // It is of the same type.
	}
	o.GetObjectKind().SetGroupVersionKind(id.GroupVersionKind)
	return o
}

// An index is added to each informer of its kind.
type index struct {
	name  string
	addTo func(ctx context.Context, inf *informer, obj client.Object) error

	used        bool  // An informer has, had, or is getting the index. Guarded by the kind's mutex.
	panics      error // Why the index can't be added. Used by the kind's run alone.
	replaceable bool  // Another index may take its place. Guarded by the set's mutex.
}

// An informer is a running informer with its reader.
type informer struct {
	cache.Informer

	reader  client.Reader
	indexer client.FieldIndexer
	parts   []*part          // One for each namespace that the cache is restricted to.
	indexes map[*index]error // Results of adding indexes. Guarded by the kind's mutex.
}

// list lists one object as the informer does.
func (i *informer) list(ctx context.Context) error {
	_, err := i.parts[0].lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// A cachePerKind makes a controller-runtime cache for each kind. The cache gets the kind's
// mapping, so it sends no discovery requests.
type cachePerKind struct {
	*discoveryResolver

	cfg    *rest.Config
	opts   cache.Options
	byKind map[schema.GroupVersionKind]cache.ByObject // As in the options.
}

// newCachePerKind copies the options, so that later changes by the caller have no effect. It
// refuses objects of unknown kinds, as controller-runtime does.
func newCachePerKind(cfg *rest.Config, opts cache.Options) (*cachePerKind, error) {
	opts.ReaderFailOnMissingInformer = false
	copyOf(&opts.SyncPeriod)
	copyOf(&opts.DefaultUnsafeDisableDeepCopy, &opts.DefaultEnableWatchBookmarks)
	opts.DefaultNamespaces = copiedConfigs(opts.DefaultNamespaces)
	byKind := make(map[schema.GroupVersionKind]cache.ByObject)
	for obj, by := range opts.ByObject {
		gvk, err := apiutil.GVKForObject(obj, opts.Scheme)
		if err != nil {
			return nil, errors.Wrapf(err, "cannot determine group, version, and kind of %T in ByObject", obj)
		}
		copyOf(&by.SyncPeriod)
		copyOf(&by.UnsafeDisableDeepCopy, &by.EnableWatchBookmarks)
		by.Namespaces = copiedConfigs(by.Namespaces)
		byKind[gvk] = by
	}
	r, err := newDiscoveryResolver(cfg, opts.HTTPClient)
	return &cachePerKind{discoveryResolver: r, cfg: cfg, opts: opts, byKind: byKind}, err
}

// copyOf makes pointers point to copies of their values.
func copyOf[T any](ps ...**T) {
	for _, p := range ps {
		if *p != nil {
			*p = ptr.To(**p)
		}
	}
}

func copiedConfigs(m map[string]cache.Config) map[string]cache.Config {
	m = maps.Clone(m)
	for namespace, c := range m {
		copyOf(&c.SyncPeriod)
		copyOf(&c.UnsafeDisableDeepCopy, &c.EnableWatchBookmarks)
		m[namespace] = c
	}
	return m
}

// open starts an informer for a kind, which runs until the context ends.
func (b *cachePerKind) open(ctx context.Context, k *trackedKind, m *meta.RESTMapping) (*informer, error) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{k.id.GroupVersion()})
	for _, name := range []string{k.id.Kind, k.id.Kind + "List"} {
		mapper.AddSpecific(k.id.GroupVersion().WithKind(name), m.Resource, m.Resource, m.Scope)
	}
	opts := b.opts
	opts.Mapper = mapper

	// Options for other kinds would make the cache look them up.
	opts.ByObject = nil
	if by, ok := b.byKind[k.id.GroupVersionKind]; ok {
		if m.Scope.Name() == meta.RESTScopeNameRoot {
			by.Namespaces = nil // It may have had a namespace when they were given.
		}
		opts.ByObject = map[client.Object]cache.ByObject{k.obj: by}
	}

	inf := &informer{indexes: make(map[*index]error)}
	newInformer := opts.NewInformer
	if newInformer == nil {
		newInformer = kcache.NewSharedIndexInformer
	}
	opts.NewInformer = func(
		lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers,
	) kcache.SharedIndexInformer {
		p := &part{
			lw:      kcache.ToListerWatcherWithContext(lw),
			kind:    k,
			running: make(chan struct{}, 1),
			ended:   newSyncSignal(),
			worked:  time.Now(),
		}
		p.ResourceEventHandlerRegistration = p.ended
		recording := &kcache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.watch}
		p.SharedIndexInformer = newInformer(
			kcache.ToListWatcherWithWatchListSemantics(recording, lw), obj, resync, indexers,
		)
		inf.parts = append(inf.parts, p)
		return p
	}
	if opts.DefaultWatchErrorHandler == nil {
		// The default handler logs every error of a retry.
		opts.DefaultWatchErrorHandler = func(context.Context, *kcache.Reflector, error) {}
	}

	c, err := cache.New(b.cfg, opts)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create cache")
	}
	inf.reader, inf.indexer = c, c
	// The cache isn't started, so this sends no request and doesn't wait.
	if inf.Informer, err = c.GetInformer(ctx, k.obj, cache.BlockUntilSynced(false)); err != nil {
		return nil, errors.Wrap(err, "cannot create informer")
	}
	k.set.wg.Go(func() {
		_ = c.Start(ctx) // It fails only if it was started before.
		for _, p := range inf.parts {
			p.running <- struct{}{} // When the informer has ended. It doesn't start any more.
			<-p.running
			_ = p.ended.Replace(nil, "") // It has nothing to fail with.
		}
	})
	return inf, nil
}

// A part is the informer for one namespace, or for all. It records the results of its lists and
// watches. It can be waited for: controller-runtime's cache for namespaces doesn't wait for its
// informers.
type part struct {
	wrappedInformer
	kcache.ResourceEventHandlerRegistration // HasSyncedChecker is done when the part has ended.

	kind    *trackedKind
	lw      kcache.ListerWatcherWithContext
	running chan struct{} // Full while the informer runs.
	ended   *kcache.FIFO

	// Guarded by the kind's mutex. A list may work while watches fail.
	listErr, watchErr error
	open              *openWatch
	worked            time.Time // When a watch worked last, or else when the part was made.
}

// A wrappedInformer is embedded below the methods of a part, which hide its methods.
type wrappedInformer struct{ kcache.SharedIndexInformer }

// HasSynced reports whether the informer has synced.
func (p *part) HasSynced() bool { return p.SharedIndexInformer.HasSynced() }

// AddEventHandler adds a handler. controller-runtime's cache for namespaces has a goroutine that
// waits for the registration to sync, which it may never do, so that is done when the part has
// ended.
func (p *part) AddEventHandler(h kcache.ResourceEventHandler) (kcache.ResourceEventHandlerRegistration, error) {
	reg, err := p.SharedIndexInformer.AddEventHandler(h)
	return &partRegistration{ResourceEventHandlerRegistration: p.ended, handle: reg}, err
}

// A partRegistration is the registration of a handler with a part.
type partRegistration struct {
	kcache.ResourceEventHandlerRegistration // HasSyncedChecker is done when the part has ended.

	handle kcache.ResourceEventHandlerRegistration
}

// HasSynced reports whether the handler was called for the initial objects.
func (r *partRegistration) HasSynced() bool { return r.handle.HasSynced() }

// RunWithContext runs the informer unless its context has ended. client-go logs each retry, so
// its logs are for debugging: the kind logs its failures.
func (p *part) RunWithContext(ctx context.Context) {
	p.running <- struct{}{}
	defer func() { <-p.running }()
	if ctx.Err() == nil {
		p.SharedIndexInformer.RunWithContext(logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).V(1)))
	}
}

// SetWatchErrorHandlerWithContext sets the handler of errors, which the part records first: an
// informer may fail though its requests work, because a transform fails for example.
func (p *part) SetWatchErrorHandlerWithContext(h kcache.WatchErrorHandlerWithContext) error {
	return p.SharedIndexInformer.SetWatchErrorHandlerWithContext(
		func(ctx context.Context, r *kcache.Reflector, err error) {
			p.failed(err)
			h(ctx, r, err)
		},
	)
}

// failed records an error of the informer unless list or watch has recorded it, or a list decides.
func (p *part) failed(err error) {
	p.kind.update(func() {
		if p.listErr == nil && !errors.Is(err, p.watchErr) && !listDecides(err) {
			p.listErr = err
		}
	})
}

func (p *part) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l, err := p.lw.ListWithContext(ctx, opts)
	again := expired(err) && (opts.ResourceVersion != "" || opts.Continue != "") // The informer lists without.
	if ctx.Err() == nil && !again {
		p.listed(err)
	}
	return l, err
}

// listed records the result of a list. An informer that has synced lists again if it missed
// events: the kind may have been replaced in between.
func (p *part) listed(err error) {
	p.kind.update(func() {
		p.listErr = err
		if err == nil && p.kind.synced.Load() != nil {
			p.kind.epoch++
		}
	})
}

// watch opens a watch. One that streams the list is a list, too.
func (p *part) watch(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
	w, err := p.lw.WatchWithContext(ctx, opts)
	streams := ptr.Deref(opts.SendInitialEvents, false)
	switch {
	case err == nil:
	case streams && (utilnet.IsConnectionRefused(err) || kerrors.IsTooManyRequests(err)):
		if ctx.Err() == nil {
			p.listed(err) // The informer doesn't list, but streams again.
		}
		return nil, err
	case streams && expired(err):
		return nil, errors.New(err.Error()) // Otherwise client-go streams again at once.
	default:
		if ctx.Err() == nil && !streams && !listDecides(err) { // Otherwise the informer lists.
			p.kind.update(func() { p.watchErr = err })
		}
		return nil, err
	}
	out := &openWatch{Interface: w, part: p, since: time.Now()}
	if streams {
		p.listed(nil)
	}
	p.kind.update(func() { p.listErr, p.watchErr, p.open = nil, nil, out })
	return out, nil
}

// An openWatch drains its watch when it is stopped. A watch of metadata passes through a filter
// that sends even the error of a cancelled request, and would wait for a receiver for ever.
type openWatch struct {
	apiwatch.Interface

	part  *part
	since time.Time
}

// Stop stops the watch.
func (w *openWatch) Stop() {
	w.Interface.Stop()
	p := w.part
	p.kind.set.wg.Go(func() {
		for range w.ResultChan() { //nolint:revive // Events after Stop have no receiver.
		}
	})
	p.kind.update(func() {
		if p.open != w {
			return
		}
		p.open = nil
		if time.Since(w.since) >= watchWorks {
			p.worked = time.Now()
		}
	})
}

// survive turns a panic into an error, as controller-runtime does in a reconcile.
func survive(err *error) {
	if r := recover(); r != nil {
		*err = errors.Errorf("panic: %v", r)
	}
}
