package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Options of a cache work as in controller-runtime.
func TestCacheOptions(t *testing.T) {
	cluster := watchtest.NewKind("Gadget").ClusterScoped()
	red := labels.SelectorFromSet(labels.Set{"colour": "red"})
	cases := map[string]struct {
		reason string
		opts   cache.Options
		kind   watchtest.Kind
		want   []string

		// change the options after the cache was made.
		change func(o *cache.Options)
	}{
		"DefaultNamespacesOfAClusterScopedKind": {
			reason: "They don't restrict kinds that have none.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
			kind:   cluster,
			want:   []string{"plain", "red"},
		},
		"Transform": {
			reason: "Objects are transformed before they are cached.",
			opts: cache.Options{DefaultTransform: func(obj any) (any, error) {
				if u, ok := obj.(*unstructured.Unstructured); ok {
					u.SetLabels(map[string]string{"colour": "blue"})
				}
				return obj, nil
			}},
			kind: widget,
			want: []string{"elsewhere", "plain", "red"},
		},
		"ByObjectNamespacesOfAClusterScopedKind": {
			reason: "The kind may have had a namespace when they were given.",
			opts: cache.Options{
				ByObject: map[client.Object]cache.ByObject{
					cluster.New(): {Namespaces: map[string]cache.Config{"default": {}}},
				},
			},
			kind: cluster,
			want: []string{"plain", "red"},
		},
		"ChangedByObject": {
			reason: "An entry that is removed afterwards still restricts, as do its kind and a namespace of it. Those for other kinds are no trouble.",
			opts: cache.Options{ByObject: map[client.Object]cache.ByObject{
				widget.New():                      {Namespaces: map[string]cache.Config{"elsewhere": {}}},
				watchtest.NewKind("Absent").New(): {Label: red},
			}},
			kind: widget,
			want: []string{"elsewhere"},
			change: func(o *cache.Options) {
				for obj, by := range o.ByObject {
					clear(by.Namespaces)
					obj.GetObjectKind().SetGroupVersionKind(cluster.GVK)
				}
				clear(o.ByObject)
			},
		},
		"ChangedDefaultNamespaces": {
			reason: "So does a namespace for all kinds.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"elsewhere": {}}},
			kind:   widget,
			want:   []string{"elsewhere"},
			change: func(o *cache.Options) { clear(o.DefaultNamespaces) },
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(widget, cluster)
			for _, k := range []watchtest.Kind{widget, cluster} {
				o := k.Object("red")
				o.SetLabels(map[string]string{"colour": "red"})
				api.Put(o, k)
				api.Put(k.Object("plain"), k)
			}
			elsewhere := widget.Object("elsewhere")
			elsewhere.SetNamespace("elsewhere")
			api.Put(elsewhere, widget)
			tc.opts.Scheme = scheme()
			ca, err := watch.NewCache(api.Config(), tc.opts)
			mustSucceed(t, err)
			if tc.change != nil {
				tc.change(&tc.opts)
			}
			startCache(t, ca)
			l := tc.kind.NewList()
			expectEqual(t, tc.reason, "List(...)", nil, ca.List(t.Context(), l))
			var got []string
			for _, o := range l.Items {
				got = append(got, o.GetName())
				if tc.opts.DefaultTransform != nil && o.GetLabels()["colour"] != "blue" {
					t.Errorf("\n%s\n%s isn't transformed", tc.reason, o.GetName())
				}
			}
			slices.Sort(got)
			expectEqual(t, tc.reason, "names", tc.want, got)
		})
	}
}

// With ReaderFailOnMissingInformer a read doesn't make an informer.
func TestReadsThatMakeNoInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newAPIWithObject()
		ca := newGraftEnvWith(t, api, api.Config(), cache.Options{ReaderFailOnMissingInformer: true}).cache
		refused := func() bool {
			return errors.As(ca.Get(t.Context(), widget.Key("one"), widget.New()), new(*cache.ErrResourceNotCached))
		}
		expectEqual(t, "It isn't cached.", "Get(...) says so", true, refused())
		expectEqual(t, "", "requests", 0, len(api.Requests(watchtest.Everything())))
		_, err := ca.GetInformer(t.Context(), widget.New())
		mustSucceed(t, err)

		// A kind that was requested once can be read after its informer was removed.
		advance(time.Hour)
		expectEqual(t, "", "Get(...) of what is cached", nil, ca.Get(t.Context(), widget.Key("one"), widget.New()))
		mustSucceed(t, ca.RemoveInformer(t.Context(), widget.New()))
		expectEqual(t, "It was removed.", "Get(...) says so", true, refused())
	})
}

// wrapInformers returns an option NewInformer that wraps client-go's informers.
func wrapInformers(wrap func(kcache.SharedIndexInformer) kcache.SharedIndexInformer) func(
	kcache.ListerWatcher, runtime.Object, time.Duration, kcache.Indexers,
) kcache.SharedIndexInformer {
	return func(
		lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers,
	) kcache.SharedIndexInformer {
		return wrap(kcache.NewSharedIndexInformer(lw, obj, resync, indexers))
	}
}

// A lingeringInformer takes a while to end.
type lingeringInformer struct {
	kcache.SharedIndexInformer

	end <-chan struct{}
}

func (i lingeringInformer) RunWithContext(ctx context.Context) {
	i.SharedIndexInformer.RunWithContext(ctx)
	<-i.end
}

// When a cache's Start returns its informers have ended, also those for single
// namespaces, which controller-runtime's cache doesn't wait for.
func TestStartWaitsForInformers(t *testing.T) {
	for name, namespaces := range map[string]map[string]cache.Config{
		"AllNamespaces": nil, "TwoNamespaces": {"default": {}, "other": {}},
	} {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(widget)
			end := make(chan struct{})
			ca, err := watch.NewCache(api.Config(), cache.Options{
				Scheme: scheme(), DefaultNamespaces: namespaces,
				NewInformer: wrapInformers(func(inf kcache.SharedIndexInformer) kcache.SharedIndexInformer {
					return lingeringInformer{SharedIndexInformer: inf, end: end}
				}),
			})
			mustSucceed(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := background(func() error { return ca.Start(ctx) })
			ca.WaitForCacheSync(ctx)
			inf, err := ca.GetInformer(ctx, widget.New())
			mustSucceed(t, err)
			cancel()
			advance(time.Hour)
			expectEqual(t, "The cache ends.", "IsStopped(...)", true, inf.IsStopped())
			select {
			case err := <-done:
				t.Errorf("Start(...) returned while an informer runs: %v", err)
			default:
			}
			close(end)
			expectEqual(t, "", "Start(...)", nil, <-done)
		})
	}
}

// An endingInformer can be ended.
type endingInformer struct {
	kcache.SharedIndexInformer

	end *hook
}

func (i endingInformer) RunWithContext(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i.end.set(cancel)
	i.SharedIndexInformer.RunWithContext(ctx)
}

// An informer of the caller's that ends by itself is replaced.
func TestInformer_ThatEndsIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var end hook
		api := newAPIWithObject()
		r := newGraftEnvWith(t, api, api.Config(), cache.Options{
			NewInformer: wrapInformers(func(inf kcache.SharedIndexInformer) kcache.SharedIndexInformer {
				return endingInformer{SharedIndexInformer: inf, end: &end}
			}),
		})
		r.startController()
		rec := &recorder{}
		r.watch("c", newWatch(widget, rec))
		for _, name := range []string{"two", "three"} { // The second time there is a backoff.
			advance(time.Second)
			end.call()
			api.Put(widget.Object(name), widget)
			advance(5 * time.Second)
			expectState(t, r, "The next informer works.", "after the end", watch.StateActive)
			expectEqual(t, "", "events of an object that came", 1, rec.count("create", name))
		}
	})
}

// What controller-runtime refuses is refused.
func TestNewCache_RefusesInvalidOptions(t *testing.T) {
	byObject := func(o client.Object) cache.Options {
		return cache.Options{
			Scheme:   scheme(),
			ByObject: map[client.Object]cache.ByObject{o: {Label: labels.Everything()}},
		}
	}
	cases := map[string]struct {
		reason string
		config *rest.Config
		opts   cache.Options
		want   string
	}{
		"UnknownType": {
			reason: "A ByObject entry should apply to a type of the scheme.",
			config: watchtest.NewAPI().Config(),
			opts:   byObject(&unknown{}),
			want:   "no kind is registered",
		},
		"UnstructuredNoKind": {
			reason: "A ByObject entry should apply to a kind.",
			config: watchtest.NewAPI().Config(),
			opts:   byObject(newPartialMetadata(watchtest.Kind{})),
			want:   "kind",
		},
		"NoCertificate": {
			reason: "The error should say which file of the kubeconfig is missing.",
			config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing.crt"}},
			want:   "cannot create HTTP client: open missing.crt",
		},
		"NoHost": {
			reason: "The error should say that the address of the API server can't be used.",
			config: &rest.Config{Host: "http://[::1"},
			want:   "cannot create discovery client: host must be a URL",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := watch.NewCache(tc.config, tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nNewCache(...): want an error with %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// When RemoveInformer returns the informer isn't used any more.
func TestRemoveInformer_IsOutOfUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		for i := range 100 {
			r.mustRead(widget)
			expectEqual(
				t, "Each Get is answered by a new informer.", "informers", i+1,
				len(r.api.Requests(watchtest.Of(widget).Initial())),
			)
			r.remove(widget)
			expectEqual(t, "It was removed.", "active", false, slices.Contains(r.infs.ActiveInformers(), widget.GVK))
		}

		// Reads don't keep it.
		advance(time.Second)
		expectEqual(t, "It was removed.", "informers", 0, r.api.Open(watchtest.Of(widget)))
	})
}

// An interruptedInformer calls a function before a handler is added, and another one before it
// delivers an object.
type interruptedInformer struct {
	kcache.SharedIndexInformer

	handler, object func()
}

func (i interruptedInformer) AddEventHandler(
	h kcache.ResourceEventHandler,
) (kcache.ResourceEventHandlerRegistration, error) {
	i.handler()
	return i.SharedIndexInformer.AddEventHandler(kcache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			i.object()
			h.OnAdd(o, initial)
		},
	})
}

// An informer that is removed before it has synced delivers nothing more, and didn't fail.
func TestRemoveInformer_BeforeItHasSynced(t *testing.T) {
	nothing := func() {}
	cases := map[string]struct {
		reason string
		hooks  func(remove func()) (handler, object func())
		lists  int
	}{
		"NotStarted": {
			reason: "It is removed while the kind's handler is added, so it should send no request.",
			lists:  1,
			hooks: func(remove func()) (handler, object func()) {
				return func() {
					time.Sleep(time.Second)
					remove()
					time.Sleep(time.Second)
				}, nothing
			},
		},
		"FirstObject": {
			reason: "It is about to deliver an object, which the next one delivers.",
			lists:  2,
			hooks:  func(remove func()) (handler, object func()) { return nothing, remove },
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := newAPIWithObject()
			var infs cache.Informers
			handler, object := tc.hooks(sync.OnceFunc(func() {
				mustSucceed(t, infs.RemoveInformer(t.Context(), widget.New()))
			}))
			r := newGraftEnvWith(t, api, api.Config(), cache.Options{
				NewInformer: wrapInformers(func(inf kcache.SharedIndexInformer) kcache.SharedIndexInformer {
					return interruptedInformer{SharedIndexInformer: inf, handler: handler, object: object}
				}),
			})
			infs = r.infs
			rec := &recorder{}
			inf, err := infs.GetInformer(t.Context(), widget.New(), cache.BlockUntilSynced(false))
			mustSucceed(t, err)
			_, err = inf.AddEventHandler(rec.funcs())
			mustSucceed(t, err)
			advance(time.Minute)
			expectEqual(t, tc.reason, "lists", tc.lists, len(api.Requests(watchtest.Of(widget).Initial())))
			expectEqual(t, tc.reason, "events", 1, rec.count("create", "one"))
			expectEqual(t, tc.reason, "failures are counted", false, r.failed())
		})
	}
}

// A source waits for its own kind, not for others, nor for one that was asked for before
// the cache was started, and went since.
func TestWaitForCacheSync_DoesNotWaitForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stuck := watchtest.NewKind("Stuck")
		api := watchtest.NewAPI(widget, stuck)
		defer api.Inject(watchtest.Of(stuck), watchtest.Hang())()
		ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()})
		mustSucceed(t, err)
		_, err = ca.GetInformer(t.Context(), watchtest.NewKind("Gone").New(), cache.BlockUntilSynced(false))
		mustSucceed(t, err)
		startCache(t, ca)
		advance(time.Hour)
		inf, err := ca.GetInformer(t.Context(), stuck.New(), cache.BlockUntilSynced(false))
		mustSucceed(t, err)
		_, err = inf.AddEventHandler((&recorder{}).funcs())
		mustSucceed(t, err)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		src := source.Kind[client.Object](ca, widget.New(), &handler.EnqueueRequestForObject{})
		ctx, cancel := context.WithCancel(t.Context())
		mustSucceed(t, src.Start(ctx, q))
		expectWithin(
			t, "", "WaitForSync(...) of a healthy kind", quick+100*time.Millisecond, nil,
			func() error { return withTimeout(t, time.Minute, src.WaitForSync) },
		)
		cancel()
		advance(time.Hour) // What is wrong with the other is logged, nowhere.
	})
}

// A kind that was asked for before the start is waited for while the API server is in trouble.
func TestWaitForCacheSync_Outage(t *testing.T) {
	lists, discovery := watchtest.Of(widget), watchtest.DiscoveryOf(widget)
	cases := map[string]struct {
		reason string
		absent bool // There is no such kind. It is asked for by an index alone.
		match  watchtest.Match
		fault  watchtest.Fault
		want   bool // It returns before the fault is lifted.
	}{
		"Unavailable": {
			reason: "The kind may be read when the API server is back.",
			match:  lists,
			fault:  watchtest.Status(http.StatusServiceUnavailable),
			want:   false,
		},
		"Hangs": {
			reason: "The kind may be read when the API server answers.",
			match:  lists,
			fault:  watchtest.Hang(),
			want:   false,
		},
		"Forbidden": {
			reason: "An operator must grant access, which may take for ever.",
			match:  lists,
			fault:  watchtest.Status(http.StatusForbidden),
			want:   true,
		},
		"UnavailableAndMissing": {
			reason: "The API server says that there is no such kind when it is back. An index alone doesn't ask for it.",
			absent: true,
			match:  discovery,
			fault:  watchtest.Status(http.StatusServiceUnavailable),
			want:   false,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := newAPIWithObject()
			lift := api.Inject(tc.match, tc.fault)
			ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()})
			mustSucceed(t, err)
			if tc.absent {
				api.Undefine(widget)
				index := func(client.Object) []string { return nil }
				mustSucceed(t, ca.IndexField(t.Context(), widget.New(), "spec.x", index))
			} else {
				_, err = ca.GetInformer(t.Context(), widget.New(), cache.BlockUntilSynced(false))
				mustSucceed(t, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := background(func() error { return ca.Start(ctx) })
			synced := make(chan bool, 1)
			go func() { synced <- ca.WaitForCacheSync(ctx) }()
			advance(5 * time.Minute)
			expectEqual(t, tc.reason, "WaitForCacheSync(...) has returned", tc.want, len(synced) > 0)
			lift()
			advance(5 * time.Minute)
			returned := len(synced) > 0
			expectEqual(t, tc.reason, "WaitForCacheSync(...) has returned afterwards", true, returned)
			cancel()
			expectEqual(t, tc.reason, "WaitForCacheSync(...)", returned, <-synced)
			mustSucceed(t, <-done)
		})
	}
}

// Reads of kinds that can't be read cost a few requests each, and none afterwards.
func TestReads_OfKindsThatCannotBeRead(t *testing.T) {
	cases := map[string]struct {
		reason string
		served bool
		fault  watchtest.Fault
		want   error
		most   int // Requests for each kind.
	}{
		"Absent": {reason: "A look-up says that there is no such kind.", want: watch.ErrNoSuchKind, most: 1},
		"Forbidden": {
			reason: "A look-up and a list should be all requests.",
			served: true,
			fault:  watchtest.Status(http.StatusForbidden),
			want:   watch.ErrForbidden,
			most:   3,
		},
		"Unlistable": {
			reason: "A look-up and a list should be all requests.",
			served: true,
			fault:  watchtest.Status(http.StatusMethodNotAllowed),
			want:   watch.ErrNotWatchable,
			most:   3,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI()
			r := newGraftEnv(t, api)
			for i := range 100 {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				if tc.served {
					api.Define(k)
					t.Cleanup(api.Inject(watchtest.Of(k), tc.fault))
				}
				expectEqual(t, tc.reason, "Get(...)", tc.want, r.read(t.Context(), k, "one"))
			}

			// A kind has a goroutine.
			advance(time.Minute)
			expectEqual(t, tc.reason, "kinds that are left", 0, len(r.ours.Snapshot().Kinds))
			advance(time.Hour)
			expectBetween(
				t, tc.reason, "requests in an hour", 0, 100*tc.most, len(api.Requests(watchtest.Everything())),
			)
		})
	}
}

// When the cache ends, so do calls that wait for it, and it isn't started again.
func TestStart_Ends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI(widget)
		defer api.Inject(watchtest.Of(widget), watchtest.Hang())()
		ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()})
		mustSucceed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		expectEqual(
			t, "", "Get(...) before Start", anError,
			withTimeout(
				t, time.Second,
				func(ctx context.Context) error { return ca.Get(ctx, widget.Key("one"), widget.New()) },
			),
		)
		advance(time.Second)
		expectEqual(t, "", "requests before Start", 0, len(api.Requests(watchtest.Everything())))
		done := background(func() error { return ca.Start(ctx) })
		advance(time.Second)
		get := func() error { return ca.Get(t.Context(), widget.Key("one"), widget.New()) }
		waiting := background(get)
		advance(time.Second)
		expectEqual(t, "The cache runs.", "Start(...)", anError, withTimeout(t, time.Second, ca.Start))
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		expectEqual(
			t, "It waits for a kind that was asked for before.", "WaitForCacheSync(...)", false,
			ca.WaitForCacheSync(short),
		)
		cancel()
		expectEqual(t, "", "Start(...)", nil, <-done)
		expectEqual(t, "The cache has ended.", "WaitForCacheSync(...)", false, ca.WaitForCacheSync(t.Context()))
		_, late := ca.GetInformer(t.Context(), widget.New(), cache.BlockUntilSynced(false))
		e := watch.New(watchtest.NewManager(api.Config(), scheme()), ca, nil, nil)
		started := e.Start("c", watch.WithRuntimeOptions(idleOptions().Runtime))
		for what, err := range map[string]error{
			"Get(...) that waits": <-waiting,
			"Get(...) afterwards": get(), "GetInformer(...) afterwards": late, "Start(...) of a controller": started,
		} {
			expectEqual(t, "The cache has ended.", what, watch.ErrShutDown, err)
		}
	})
}

func TestReads_OfTypedObjects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.ConfigMap()
		r := newGraftEnv(t, watchtest.NewAPI())
		r.api.Put(k.Object("one"), k)
		l := &corev1.ConfigMapList{}
		mustSucceed(t, r.reader.List(t.Context(), l))
		expectEqual(t, "", "objects", 1, len(l.Items))
		_, err := r.infs.GetInformerForKind(t.Context(), k.GVK)
		expectEqual(t, "", "GetInformerForKind(...)", nil, err)
		expectEqual(t, "", "informers that were made", 1, len(r.api.Requests(watchtest.Of(k).Initial())))
	})
}

// A scheme may have a kind as unstructured, or as metadata.
func TestGetInformerForKind_OfSchemes(t *testing.T) {
	cases := map[string]struct {
		reason string
		obj    client.Object
		as     string
	}{
		"Unstructured": {
			reason: "The scheme's unstructured type doesn't know its kind.",
			obj:    &unstructured.Unstructured{},
			as:     "unstructured",
		},
		"Metadata": {
			reason: "The scheme's metadata type doesn't know its kind.",
			obj:    &metav1.PartialObjectMetadata{},
			as:     "metadata",
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := newAPIWithObject()
			s := scheme()
			s.AddKnownTypeWithName(widget.GVK, tc.obj)
			ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: s})
			mustSucceed(t, err)
			r := newGraftEnvOn(t, api, api.Config(), ca)
			startCache(t, ca)
			inf, err := ca.GetInformerForKind(t.Context(), widget.GVK)
			mustSucceed(t, err)
			rec := &recorder{}
			_, err = inf.AddEventHandler(rec.funcs())
			mustSucceed(t, err)
			advance(time.Second)
			expectEqual(t, tc.reason, "events", 1, rec.count("create", "one"))
			k := r.ours.Snapshot().Kinds
			expectEqual(t, tc.reason, "kinds", []any{1, tc.as, widget.GVK}, []any{
				len(k), k[0].Representation, k[0].GVK,
			})
			advance(time.Hour)
		})
	}
}

// A handler that is added while the cache ends gets nothing after the cache's Start has
// returned.
func TestAddEventHandler_WhileTheCacheEnds(t *testing.T) {
	api := newAPIWithObject()
	for range 300 {
		ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()})
		mustSucceed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := background(func() error { return ca.Start(ctx) })
		inf, err := ca.GetInformer(t.Context(), widget.New())
		mustSucceed(t, err)
		var ended, late atomic.Bool
		h := kcache.ResourceEventHandlerFuncs{AddFunc: func(any) { late.Store(late.Load() || ended.Load()) }}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					_, _ = inf.AddEventHandler(h)
				}
			})
		}
		cancel()
		expectEqual(t, "", "Start(...)", nil, <-done)
		ended.Store(true)
		wg.Wait()
		_, err = inf.AddEventHandler(h)
		expectEqual(t, "The cache has ended.", "AddEventHandler(...)", watch.ErrShutDown, err)
		time.Sleep(100 * time.Microsecond)
		if late.Load() {
			t.Fatal("a handler got an event after Start(...) of the cache had returned")
		}
	}
}

// Calls with an object whose kind isn't known fail, and look nothing up.
func TestCalls_WithAnUnknownType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI())
		_, get := r.infs.GetInformer(t.Context(), &unknown{})
		for name, err := range map[string]error{
			"Get":            r.reader.Get(t.Context(), client.ObjectKey{Name: "one"}, &unknown{}),
			"List":           r.reader.List(t.Context(), &unknownList{}),
			"GetInformer":    get,
			"RemoveInformer": r.infs.RemoveInformer(t.Context(), &unknown{}),
			"IndexField":     r.infs.IndexField(t.Context(), &unknown{}, "x", nil),
		} {
			expectEqual(t, "The kind isn't known.", name, anError, err)
		}
		expectEqual(t, "", "kinds that are looked up", 0, len(r.ours.Snapshot().Kinds))
	})
}
