package watch

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kunstructured "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// representationOf says which informer an object is for.
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

// exampleOf returns an object that informers know how to handle: they take plain
// unstructured objects, none of the types that are made from them. It is a copy,
// since it outlives the call.
func exampleOf(id kindID, o client.Object) client.Object {
	switch id.as {
	case unstructured:
		u := &kunstructured.Unstructured{}
		u.SetGroupVersionKind(id.GroupVersionKind)
		return u
	case metadata:
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(id.GroupVersionKind)
		return m
	case typed:
	}
	c, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return o // Can't be: it is of the same type.
	}
	return c
}

// A cachePerKind makes a controller-runtime cache for each kind. That cache does
// discovery while it holds the lock that its reads need. With a single kind in
// it, whose mapping is known, nobody meets that lock, and ending the cache ends
// exactly that kind's informer.
type cachePerKind struct {
	cfg      *rest.Config
	opts     cache.Options
	client   *http.Client
	resolver Resolver

	// run a function in a goroutine that is waited for.
	run func(func())
}

func (b *cachePerKind) resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	type answer struct {
		mapping *meta.RESTMapping
		err     error
	}
	// Resolvers are asked to respect their context. One that doesn't must not
	// be able to keep the kind from being stopped.
	ch := make(chan answer, 1)
	b.run(func() {
		m, err := b.resolver.Resolve(ctx, gvk)
		ch <- answer{mapping: m, err: err}
	})
	select {
	case a := <-ch:
		return a.mapping, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *cachePerKind) open(_ context.Context, o opening) (*opened, error) { //nolint:contextcheck // What is opened outlives the call.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{o.id.GroupVersion()})
	for _, kind := range []string{o.id.Kind, o.id.Kind + "List"} {
		mapper.AddSpecific(o.id.GroupVersion().WithKind(kind), o.mapping.Resource, o.mapping.Resource, o.mapping.Scope)
	}

	opts := b.opts
	opts.HTTPClient = b.client
	opts.Mapper = mapper
	opts.ReaderFailOnMissingInformer = false

	// Options for other kinds would make the cache look them up.
	opts.ByObject = nil
	for obj, by := range b.opts.ByObject {
		if gvk, err := apiutil.GVKForObject(obj, opts.Scheme); err == nil && gvk == o.id.GroupVersionKind {
			opts.ByObject = map[client.Object]cache.ByObject{obj: by}
		}
	}
	if o.mapping.Scope.Name() == meta.RESTScopeNameRoot {
		for obj, by := range opts.ByObject {
			by.Namespaces = nil // It may have had a namespace when they were given.
			opts.ByObject[obj] = by
		}
	}

	newInformer := opts.NewInformer
	if newInformer == nil {
		newInformer = kcache.NewSharedIndexInformer
	}
	var informers []*endingInformer // One for each namespace, if there are some.
	opts.NewInformer = func(lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers) kcache.SharedIndexInformer {
		inf := &endingInformer{SharedIndexInformer: newInformer(&observedListerWatcher{
			lw: kcache.ToListerWatcherWithContext(lw), unwrapped: lw, report: o.report, run: b.run,
		}, obj, resync, indexers)}
		informers = append(informers, inf)
		return inf
	}
	report := opts.DefaultWatchErrorHandler
	opts.DefaultWatchErrorHandler = func(ctx context.Context, r *kcache.Reflector, err error) {
		// It hears of what the informer made of an answer, too. Without a
		// handler client-go logs each error, for ever.
		if ctx.Err() == nil && !passing(err) {
			o.report(err)
		}
		if report != nil {
			report(ctx, r, err)
		}
	}

	c, err := cache.New(b.cfg, opts)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create cache")
	}

	// Before the cache is started this neither sends nor waits for anything.
	inf, err := c.GetInformer(o.run, o.obj, cache.BlockUntilSynced(false)) //nolint:contextcheck // As above.
	if err != nil {
		return nil, errors.Wrap(err, "cannot create informer")
	}

	ctx, cancel := context.WithCancel(o.run)
	return &opened{
		informer: inf,
		reader:   c,
		index:    func(ctx context.Context, obj client.Object, i *index) error { return addIndex(ctx, c, inf, obj, i) },
		start: func() {
			b.run(func() {
				if err := c.Start(ctx); err != nil {
					o.report(err)
				}
				for _, inf := range informers {
					inf.end()
				}
			})
		},
		close: cancel,
	}, nil
}

func addIndex(ctx context.Context, c client.FieldIndexer, inf cache.Informer, obj client.Object, i *index) error {
	if i.indexers != nil {
		return inf.AddIndexers(i.indexers)
	}
	return c.IndexField(ctx, obj, i.field, i.extract)
}

// An endingInformer can be waited for. A cache with namespaces doesn't wait for
// its informers.
type endingInformer struct {
	kcache.SharedIndexInformer

	mu      sync.Mutex
	ended   bool
	running chan struct{} // Closed when it has run.
}

// Run the informer, unless it was ended.
func (i *endingInformer) Run(stop <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stop))
}

// RunWithContext runs the informer, unless it was ended.
func (i *endingInformer) RunWithContext(ctx context.Context) {
	i.mu.Lock()
	if i.ended {
		i.mu.Unlock()
		return
	}
	i.running = make(chan struct{})
	i.mu.Unlock()

	defer close(i.running)
	i.SharedIndexInformer.RunWithContext(ctx)
}

// end waits until the informer has run. Its context must have ended.
func (i *endingInformer) end() {
	i.mu.Lock()
	i.ended = true
	running := i.running
	i.mu.Unlock()
	if running != nil {
		<-running
	}
}

// An observedListerWatcher tells how lists and watches turn out.
type observedListerWatcher struct {
	lw        kcache.ListerWatcherWithContext
	unwrapped kcache.ListerWatcher
	report    func(error)

	// run a function in a goroutine that is waited for.
	run func(func())
}

// List is for callers without a context.
func (o *observedListerWatcher) List(opts metav1.ListOptions) (runtime.Object, error) {
	return o.ListWithContext(context.Background(), opts)
}

// Watch is for callers without a context.
func (o *observedListerWatcher) Watch(opts metav1.ListOptions) (apiwatch.Interface, error) {
	return o.WatchWithContext(context.Background(), opts)
}

// ListWithContext lists, and reports.
func (o *observedListerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l, err := o.lw.ListWithContext(ctx, opts)
	o.observe(ctx, err)
	return l, err
}

// WatchWithContext opens a watch, and reports.
func (o *observedListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
	w, err := o.lw.WatchWithContext(ctx, opts)
	o.observe(ctx, err)
	if err != nil {
		return nil, err
	}
	return &drainedWatch{Interface: w, run: o.run}, nil
}

// A drainedWatch takes what a watch has left to say when it is stopped. Watches of
// metadata pass through a filter that hands on even the error of a request that
// was given up, and that would wait for ever for somebody to take it.
type drainedWatch struct {
	apiwatch.Interface

	run  func(func())
	once sync.Once
}

// Stop the watch.
func (w *drainedWatch) Stop() {
	w.Interface.Stop()
	w.once.Do(func() {
		w.run(func() {
			for range w.ResultChan() { //nolint:revive // There is nothing to do with it.
			}
		})
	})
}

// IsWatchListSemanticsUnSupported passes on what the wrapped one says.
func (o *observedListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(o.unwrapped)
}

func (o *observedListerWatcher) observe(ctx context.Context, err error) {
	if ctx.Err() != nil || (err != nil && passing(err)) {
		return
	}
	o.report(err)
}
