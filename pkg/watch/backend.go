package watch

import (
	"cmp"
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kunstructured "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A representation of objects. A kind has one informer for each that is used.
type representation string

const (
	typed        representation = "typed"
	unstructured representation = "unstructured"
	metadata     representation = "metadata"
)

// representationOf returns which informer an object is for.
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

// exampleOf returns a copy of an object that informers can handle: of unstructured ones
// they take the plain type only.
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

// A backend makes informers. Its methods may wait, until their context ends.
type backend interface {
	// resolve finds out how the API server serves a kind.
	resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)

	// open starts an informer for a kind, which runs until the context ends.
	open(ctx context.Context, k *trackedKind, m *meta.RESTMapping) (*opened, error)
}

// An index that a caller asked for. It is added to each informer of the kind.
type index struct {
	name  string
	addTo func(ctx context.Context, o *opened, obj client.Object) error

	used        bool  // An informer has, or had, it. Guarded by the kind's mutex.
	panics      error // It can't be added. Used by the kind's run alone.
	replaceable bool  // Its call failed, or RemoveInformer was called. Guarded by the set's mutex.
}

// An opened informer, and the last outcomes of its lists and watches.
type opened struct {
	inf     cache.Informer
	reader  client.Reader
	indexer client.FieldIndexer
	close   func()           // Its context has ended.
	parts   []*part          // One for each namespace, if there are some. None if they aren't known.
	indexes map[*index]error // That were added, or couldn't be. Guarded by the kind's mutex.

	// Of the kind's run alone: when a watch ended, if another isn't open by now, and when to
	// look up next what the informer asks for.
	closed time.Time
	next   time.Time
}

// outcomes returns whether all watches are open, when the first was closed that was and
// isn't, and what is wrong with lists, and with watches. The kind's mutex must be held.
func (o *opened) outcomes() (watching bool, closed time.Time, listErr, watchErr error) {
	watching = true
	for _, p := range o.parts {
		open := p.open != nil && (p.closed.IsZero() || !p.open.short())
		watching = watching && open
		if !open && !p.closed.IsZero() && (closed.IsZero() || p.closed.Before(closed)) {
			closed = p.closed
		}
		listErr, watchErr = cmp.Or(p.listErr, listErr), cmp.Or(p.watchErr, watchErr)
	}
	return watching, closed, listErr, watchErr
}

// A cachePerKind makes a controller-runtime cache for each kind, which gets its mapping
// and so looks nothing up.
type cachePerKind struct {
	*discoveryResolver

	cfg    *rest.Config
	opts   cache.Options
	byKind map[schema.GroupVersionKind]cache.ByObject // As in the options.
}

// newCachePerKind returns a backend with copies of the options, so that a caller's
// later changes have no effect. As by controller-runtime, objects whose kind isn't known
// are refused.
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

// copyOf replaces what pointers refer to by copies.
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

func (b *cachePerKind) open(ctx context.Context, k *trackedKind, m *meta.RESTMapping) (*opened, error) {
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

	o := &opened{close: func() {}}
	newInformer := opts.NewInformer
	if newInformer == nil {
		newInformer = kcache.NewSharedIndexInformer
	}
	opts.NewInformer = func(lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers) kcache.SharedIndexInformer {
		p := &part{lw: kcache.ToListerWatcherWithContext(lw), kind: k, running: make(chan struct{}, 1)}
		noting := &kcache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.watch}
		p.SharedIndexInformer = newInformer(kcache.ToListWatcherWithWatchListSemantics(noting, lw), obj, resync, indexers)
		o.parts = append(o.parts, p)
		return p
	}
	if opts.DefaultWatchErrorHandler == nil {
		// Without any client-go logs each error, for ever.
		opts.DefaultWatchErrorHandler = func(context.Context, *kcache.Reflector, error) {}
	}

	c, err := cache.New(b.cfg, opts)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create cache")
	}
	o.reader, o.indexer = c, c
	// Before the cache is started this neither sends nor waits for anything.
	if o.inf, err = c.GetInformer(ctx, k.obj, cache.BlockUntilSynced(false)); err != nil {
		return nil, errors.Wrap(err, "cannot create informer")
	}
	k.set.wg.Go(func() {
		_ = c.Start(ctx) // It fails only if it was started before.
		for _, p := range o.parts {
			// Until it runs no more, and won't.
			p.running <- struct{}{}
			<-p.running
		}
	})
	return o, nil
}

// A part of an informer is for one namespace, or for all. It notes the outcomes of its
// lists and watches, and can be waited for: a cache with namespaces doesn't wait for its
// informers.
type part struct {
	kcache.SharedIndexInformer

	kind    *trackedKind
	lw      kcache.ListerWatcherWithContext
	running chan struct{} // Full while it runs.

	// Outcomes, guarded by the mutex of the kind: a list that works doesn't mean that
	// a watch does.
	listErr, watchErr error
	open              *drainedWatch // Nil if there is none, since it was closed.
	closed            time.Time     // The last that wasn't short, or the first.
}

// RunWithContext runs the informer, unless its context has ended. What client-go logs at
// each attempt is for debugging: kinds say that they fail.
func (p *part) RunWithContext(ctx context.Context) {
	p.running <- struct{}{}
	defer func() { <-p.running }()
	if ctx.Err() == nil {
		p.SharedIndexInformer.RunWithContext(logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).V(1)))
	}
}

func (p *part) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l, err := p.lw.ListWithContext(ctx, opts)
	again := passing(err) && (opts.ResourceVersion != "" || opts.Continue != "") // Informers do, without.
	if ctx.Err() == nil && !again {
		p.listed(err)
	}
	return l, err
}

// listed notes the outcome of a list. What is listed after a watch may be another kind's
// by now.
func (p *part) listed(err error) {
	again := false
	p.kind.note(func() { p.listErr, again = err, !p.closed.IsZero() && err == nil })
	if again {
		p.kind.raise(false, false)
	}
}

// watch opens a watch. One that works means that lists do: it follows one, or streams it.
func (p *part) watch(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
	w, err := p.lw.WatchWithContext(ctx, opts)
	streams := ptr.Deref(opts.SendInitialEvents, false)
	if err != nil {
		if !passing(err) && ctx.Err() == nil && (!streams || !kerrors.IsInvalid(err)) { // Else the server can't stream. The informer lists.
			p.kind.note(func() { p.watchErr = err })
		}
		if streams && passing(err) {
			err = errors.New(err.Error()) // Else client-go doesn't list, but asks again without a pause.
		}
		return nil, err
	}
	out := &drainedWatch{Interface: w, part: p, opened: time.Now()}
	if streams {
		p.listed(nil)
	}
	p.kind.note(func() { p.listErr, p.watchErr, p.open = nil, nil, out })
	return out, nil
}

// A drainedWatch takes what a watch has left to say when it is stopped. Watches of
// metadata pass through a filter that hands on even the error of a request that
// was given up, and that would wait for ever for a receiver.
type drainedWatch struct {
	apiwatch.Interface

	part   *part
	opened time.Time
}

// short reports whether the watch is, or was, open for a moment only. There may be nothing
// but such ones, behind a proxy that buffers, say.
func (w *drainedWatch) short() bool {
	return time.Since(w.opened) < time.Second
}

// Stop the watch.
func (w *drainedWatch) Stop() {
	w.Interface.Stop()
	w.part.kind.set.wg.Go(func() {
		for range w.ResultChan() { //nolint:revive // There is nothing to do with it.
		}
	})
	w.part.kind.note(func() {
		if w.part.open != w {
			return
		}
		w.part.open = nil
		if w.part.closed.IsZero() || !w.short() {
			w.part.closed = time.Now()
		}
	})
}

// A wrapped backend gets informers from another cache. What that blocks stays
// blocked, and how its lists and watches turn out isn't known.
type wrapped struct {
	cache.Informers

	resolver atomic.Pointer[discoveryResolver] // Nil if no API server is known to ask.
}

func (w *wrapped) get(ctx context.Context, obj client.Object, synced bool) (inf cache.Informer, err error) {
	defer survive(&err)
	return w.GetInformer(ctx, obj, cache.BlockUntilSynced(synced))
}

// survive turns a panic into an error. In a reconcile, controller-runtime does.
func survive(err *error) {
	if r := recover(); r != nil {
		*err = errors.Errorf("panic: %v", r)
	}
}

// resolve finds out whether the kind is served, and whether that changed. The other
// cache uses a mapping of its own.
func (w *wrapped) resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if r := w.resolver.Load(); r != nil {
		return r.resolve(ctx, gvk)
	}
	return nil, nil //nolint:nilnil // As said above.
}

func (w *wrapped) open(ctx context.Context, k *trackedKind, _ *meta.RESTMapping) (*opened, error) {
	inf, err := w.get(ctx, k.obj, false)
	if err != nil {
		return nil, err
	}
	if is.Nil(inf) {
		return nil, errors.Errorf("%T returned no informer", w.Informers)
	}
	// A call that doesn't wait succeeds only in a cache that isn't started.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = w.get(ended, k.obj, true)
	k.note(func() {
		k.unstarted = err == nil && !inf.HasSynced()
		k.move(k.state, k.err)
	})
	return &opened{inf: inf, reader: k.set.wraps, indexer: w.Informers, close: func() {
		if !inf.IsStopped() { // Else it isn't this one that would be removed.
			_ = w.RemoveInformer(context.WithoutCancel(ctx), k.obj)
		}
	}}, nil
}
