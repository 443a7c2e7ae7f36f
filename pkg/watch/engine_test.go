package watch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Concurrent calls of Start may each make a controller. One of them is started, and the calls return
// when it is.
func TestStart_AtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI())
		var made, started atomic.Int64
		o := idleOptions()
		o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
			time.Sleep(time.Second)
			if made.Add(1) == 1 {
				return nil, errors.New("boom")
			}
			c, err := kcontroller.NewUnmanaged(name, o)
			return startCounting{Controller: c, started: &started}, err
		}
		var failed atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := r.Start("c", o); err != nil {
					failed.Add(1)
				} else if !r.IsRunning("c") {
					t.Error("Start(...) returned before the controller runs")
				}
			})
		}
		wg.Wait()
		r.mgr.Elect()
		advance(time.Second)
		expectEqual(
			t, "", "calls that failed, controllers that run", []int64{1, 1}, []int64{failed.Load(), started.Load()},
		)
	})
}

// A startCounting controller counts its starts.
type startCounting struct {
	kcontroller.Controller

	started *atomic.Int64
}

func (c startCounting) Start(ctx context.Context) error {
	c.started.Add(1)
	return c.Controller.Start(ctx)
}

// Before controller-runtime v0.25 priority queues may never end when they are shut down, so controllers
// have none unless they ask for one.
func TestStart_PriorityQueue(t *testing.T) {
	cases := map[string]struct {
		reason string
		option *bool
		want   *bool
	}{
		"Default": {
			reason: "A queue must end when its controller does.",
			want:   ptr.To(false),
		},
		"True":  {reason: "The caller's choice should be kept.", option: ptr.To(true), want: ptr.To(true)},
		"False": {reason: "The caller's choice should be kept.", option: ptr.To(false), want: ptr.To(false)},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newGraftEnv(t, watchtest.NewAPI())
			o := idleOptions()
			o.Runtime.UsePriorityQueue = tc.option
			var got *bool
			o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
				got = o.UsePriorityQueue
				return kcontroller.NewUnmanaged(name, o)
			}
			r.start("c", o)
			expectEqual(t, tc.reason, "UsePriorityQueue", tc.want, got)
		})
	}
}

// A refusing controller can't watch.
type refusing struct {
	kcontroller.Controller

	err error
}

func (c refusing) Watch(source.Source) error { return c.err }

// Code of callers that fails, panics or returns nil fails the call, not the process.
func TestForeignCode(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason string
		do     func(t *testing.T, api *watchtest.API) error
		want   string
	}{
		"NewInformer": {
			reason: "What makes informers for our cache.",
			do: func(t *testing.T, api *watchtest.API) error {
				r := newGraftEnvWith(t, api, api.Config(), cache.Options{
					NewInformer: func(
						kcache.ListerWatcher, runtime.Object, time.Duration, kcache.Indexers,
					) kcache.SharedIndexInformer {
						return nil
					},
				})
				return r.readFor(time.Second, widget, "one")
			},
			want: "panic",
		},
		"Index": {
			reason: "What extracts its values. The kind does without.",
			do: func(t *testing.T, api *watchtest.API) error {
				r := newGraftEnv(t, api)
				api.Put(widget.Object("one"), widget)
				r.mustRead(widget)
				err := r.infs.IndexField(t.Context(), widget.New(), "x", func(client.Object) []string { panic(boom) })
				advance(10 * time.Second)
				r.mustRead(widget)
				return err
			},
			want: "panic: boom",
		},
		"Controller": {
			reason: "What makes controllers.",
			do: func(t *testing.T, api *watchtest.API) error {
				o := idleOptions()
				o.NewController = func(string, kcontroller.Options) (kcontroller.Controller, error) { return nil, nil }
				return newRunningEnv(t, api).Start("none", o)
			},
			want: "got none",
		},
		"Watch": {
			reason: "A controller that refuses a source. It isn't started.",
			do: func(t *testing.T, api *watchtest.API) error {
				o := idleOptions()
				o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
					c, err := kcontroller.NewUnmanaged(name, o)
					return refusing{Controller: c, err: boom}, err
				}
				r := newGraftEnv(t, api)
				err := r.Start("c", o)
				expectEqual(t, "It isn't started.", "IsRunning(...)", false, r.IsRunning("c"))
				return err
			},
			want: "boom",
		},
		"Tracker": {
			reason: "A collector without a tracker.",
			do: func(t *testing.T, api *watchtest.API) error {
				return watch.NewGarbageCollector("c", newRunningEnv(t, api).ours, nil,
					nil).GarbageCollectWatchesNow(t.Context())
			},
			want: "no Dependencies",
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			if err := tc.do(t, watchtest.NewAPI(widget)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\ngot error %v, want %s", tc.reason, err, tc.want)
			}
			advance(time.Minute)
		})
	}
}

// Crossplane writes the error to a condition, and has the watches in a map. A text that depends on
// their order would change the condition in each reconcile, and so trigger the next one.
func TestErrors_HaveOneTextInAnyOrder(t *testing.T) {
	cases := map[string]struct {
		reason string
		setUp  func(t *testing.T, r *testEnv, k watchtest.Kind) baseline.Watch
		stops  bool
	}{
		"StartWatchesOfKindsThatHang": {
			reason: "The watches should be waited for in the same order: all but the first find the time over.",
			setUp: func(_ *testing.T, r *testEnv, k watchtest.Kind) baseline.Watch {
				r.api.Inject(watchtest.Of(k), watchtest.Hang())
				return newWatch(k, &recorder{})
			},
		},
		"StartWatchesThatAreRefused": {
			reason: "Errors of watches that are refused should be sorted.",
			setUp:  func(_ *testing.T, _ *testEnv, k watchtest.Kind) baseline.Watch { return newWatch(k, nil) },
		},
		"StopWatches": {
			reason: "Errors of handlers that still run should be sorted.",
			setUp: func(t *testing.T, r *testEnv, k watchtest.Kind) baseline.Watch {
				r.api.Put(k.Object("one"), k)
				hang, cancel := context.WithCancel(context.Background())
				t.Cleanup(cancel)
				w := newWatch(k, onCreate(func(context.Context, client.Object) { <-hang.Done() }))
				r.watch("c", w)
				advance(time.Second)
				return w
			},
			stops: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var texts []string
			for _, backwards := range []bool{false, true} {
				bubble(t, func(t *testing.T) {
					r := newRunningEnv(t, watchtest.NewAPI())
					var ws []baseline.Watch
					var ids []watch.WatchID
					for _, k := range manyKinds(r.api, 8) {
						ws, ids = append(ws, tc.setUp(t, r, k)), append(ids, watchIDOf(k))
					}
					if backwards {
						slices.Reverse(ws)
						slices.Reverse(ids)
					}
					var err error
					if tc.stops {
						_, err = r.StopWatches(t.Context(), "c", ids...)
					} else {
						err = r.StartWatches(t.Context(), "c", ws...)
					}
					expectEqual(t, tc.reason, "the call", anError, err)
					texts = append(texts, fmt.Sprint(err))
				})
			}
			expectEqual(t, tc.reason, "the text of the error", texts[0], texts[1])
		})
	}
}

// Types that aren't in any scheme.
type (
	unknown     struct{ corev1.Pod }
	unknownList struct{ corev1.PodList }
)

// Bad input is refused, with a typed error, and leaves nothing.
func TestBadInput(t *testing.T) {
	var none *recorder
	cases := map[string]struct {
		reason string
		spec   baseline.Watch
	}{
		"NilHandler": {
			reason: "A watch without a handler is of no use.",
			spec:   baseline.Watch{Kind: widget.New()},
		},
		"NilPointerHandler": {reason: "A nil pointer is no handler.", spec: newWatch(widget, none)},
		"NilObject": {
			reason: "A watch needs an object to determine its kind.",
			spec:   baseline.Watch{Handler: &recorder{}},
		},
		"NoKind": {
			reason: "An unstructured object must have a kind.",
			spec:   newWatch(watchtest.Kind{}, &recorder{}),
		},
		"UnknownType": {
			reason: "The scheme must know the type of an object.",
			spec:   baseline.Watch{Kind: &unknown{}, Handler: &recorder{}},
		},
		"NilPredicate": {
			reason: "A nil predicate would panic at the first event.",
			spec:   baseline.Watch{Kind: widget.New(), Handler: &recorder{}, Predicates: []predicate.Predicate{nil}},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, watchtest.NewAPI(widget))
			expectEqual(
				t, tc.reason, "StartWatches(...)", watch.ErrInvalidWatch,
				r.StartWatches(t.Context(), "c", tc.spec, newWatch(widget, &recorder{})),
			)
			ids, err := r.GetWatches("c")
			expectEqual(t, tc.reason, "GetWatches(...): the valid one", []any{1, nil}, []any{len(ids), err})
		})
	}
}

// An engine whose scheme has no CRDs can't watch them.
func TestGarbageCollectCustomResourceInformers_WithoutCRDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: runtime.NewScheme()})
		mustSucceed(t, err)
		r := newGraftEnvOn(t, api, api.Config(), ca)
		startCache(t, ca)
		err = r.GarbageCollectCustomResourceInformers(t.Context())
		expectEqual(
			t, "The error should say what to add to the scheme.", "not registered", true,
			runtime.IsNotRegisteredError(errors.Cause(err)),
		)
	})
}

// A handler gets the events that its predicates pass.
func TestPredicates(t *testing.T) {
	cases := map[string]struct {
		reason string
		refuse predicate.Funcs
		want   []string
	}{
		"None": {reason: "A handler should get all events.", want: []string{"create", "update", "delete"}},
		"Create": {
			reason: "An object that a predicate refuses to create should still be updated.",
			refuse: predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }},
			want:   []string{"update", "delete"},
		},
		"Update": {
			reason: "A predicate should see the old and the new object.",
			refuse: predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
			}},
			want: []string{"create", "delete"},
		},
		"Delete": {
			reason: "A predicate should see deletions.",
			refuse: predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
			want:   []string{"create", "update"},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, watchtest.NewAPI(widget))
			rec := &recorder{}
			w := newWatch(widget, rec)
			w.Predicates = []predicate.Predicate{tc.refuse}
			r.watch("c", w)
			for range 2 {
				r.api.Put(widget.Object("one"), widget)
				advance(time.Second)
			}
			r.api.Remove(widget, widget.Key("one"))
			advance(time.Second)
			var got []string
			for _, e := range rec.all() {
				got = append(got, e.op)
			}
			expectEqual(t, tc.reason, "events", tc.want, got)
		})
	}
}

// The first handler and predicates of a watch stay until it is stopped.
func TestFirstHandlersStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI(widget)
		r := newRunningEnv(t, api)
		first, second := &recorder{}, &recorder{}
		none := newWatch(widget, second)
		none.Predicates = []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return false })}
		held := newWatch(widget, first)
		held.Predicates = []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return true })}
		for _, w := range []baseline.Watch{held, newWatch(widget, second), none} {
			r.watch("c", w)
		}
		held.Predicates[0] = none.Predicates[0] // A change that comes later has no effect.
		api.Put(widget.Object("one"), widget)
		advance(time.Second)

		// Another representation of the kind is another informer: refused.
		none.Kind = newPartialMetadata(widget)
		expectEqual(
			t, "", "StartWatches(...) of metadata", watch.ErrConflictingWatch, r.StartWatches(t.Context(), "c", none),
		)
		expectEqual(t, "", "events of the first handler, and of the second", []int{1, 0}, []int{
			first.count("create", "one"), second.count("create", "one"),
		})
		none.Kind = widget.New()
		for want, w := range []baseline.Watch{none, newWatch(widget, second)} {
			r.mustStopWatches(watchIDOf(widget))
			r.watch("c", w)
			advance(time.Second)
			expectEqual(
				t, "The watch was stopped.", "events of the first handler, and of the second", []int{1, want},
				[]int{
					first.count("create", "one"), second.count("create", "one"),
				},
			)
		}
	})
}

// A cache that NewCache didn't make is refused. The error names NewCache.
func TestForeignCaches_AreRefused(t *testing.T) {
	api := newAPIWithObject()
	plain := newPlainCache(t, api.Config())
	mgr := watchtest.NewManager(api.Config(), scheme())
	mgr.Elect()
	tracked := watch.TrackInformers(plain, scheme())
	for name, infs := range map[string]watch.TrackingInformers{
		"TrackInformers": tracked,
		"Informers":      baseline.NewCache(plain, scheme(), &baseline.WaitLock{}),
		"Nil":            nil,
	} {
		e := watch.New(mgr, infs, nil, nil)
		err := e.Start("c", watch.WithRuntimeOptions(idleOptions().Runtime))
		expectEqual(t, "An engine needs a cache of its own.", name+": Start(...)", watch.ErrForeignCache, err)
		expectEqual(
			t, "An engine needs a cache of its own.", name+": GarbageCollectCustomResourceInformers(...)",
			watch.ErrForeignCache, e.GarbageCollectCustomResourceInformers(t.Context()),
		)
		expectEqual(t, "The controller wasn't started.", name+": IsRunning(...)", false, e.IsRunning("c"))
		mustSucceed(t, e.Stop(t.Context(), "c"))
		if err == nil || !strings.Contains(err.Error(), "NewCache") {
			t.Errorf("the error doesn't say what to use: %v", err)
		}
	}
	for name, err := range map[string]error{
		"Start":      tracked.Start(t.Context()),
		"Get":        tracked.Get(t.Context(), widget.Key("one"), widget.New()),
		"IndexField": tracked.IndexField(t.Context(), widget.New(), "x", nil),
	} {
		expectEqual(t, "An engine needs a cache of its own.", name, watch.ErrForeignCache, err)
	}
	expectEqual(t, "It never syncs.", "WaitForCacheSync(...)", false, tracked.WaitForCacheSync(t.Context()))
	expectEqual(t, "", "requests", 0, len(api.Requests(watchtest.Everything())))
	ours, err := watch.NewCache(api.Config(), cacheOptions())
	mustSucceed(t, err)
	expectEqual(
		t, "A cache of NewCache is returned as it is.", "TrackInformers(...)", true,
		watch.TrackInformers(ours, scheme()) == ours,
	)
}
