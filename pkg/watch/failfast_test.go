package watch_test

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A kind that is in trouble before it has synced must not occupy the workers of a
// controller whose reconciles start a watch on it.
func TestKindInTrouble_FailsAtOnce(t *testing.T) {
	lists, discovery := watchtest.Of, watchtest.DiscoveryOf
	cases := map[string]struct {
		reason string
		match  func(k watchtest.Kind) watchtest.Match
		fault  watchtest.Fault
		want   error

		// first is how long the calls may take that find out about the trouble.
		first time.Duration

		// again is how long calls may fail after it is over; two seconds if it is zero.
		again time.Duration
	}{
		"ListInternalError": {
			reason: "Lists that answer 500 should fail calls with the first answer.",
			match:  lists,
			fault:  watchtest.Status(http.StatusInternalServerError), want: watch.ErrUnreachable, first: time.Second,
		},
		"ListUnavailableLate": {
			reason: "A slow answer should delay only the calls that wait for the first one.",
			match:  lists,
			fault:  watchtest.Status(http.StatusServiceUnavailable).After(20 * time.Second),
			want:   watch.ErrUnreachable, first: 2 * time.Minute, again: 22 * time.Second,
		},
		"Down": {
			reason: "Refused connections should fail calls at once.",
			match:  func(watchtest.Kind) watchtest.Match { return watchtest.Everything() },
			fault:  watchtest.Refuse(), want: watch.ErrUnreachable, first: time.Second,
		},
		"ListThrottled": {
			reason: "An API server that refuses a list with 429 should fail calls with the first answer.",
			match:  lists, fault: watchtest.TooManyRequests(0), want: watch.ErrUnreachable, first: time.Second,
		},
		"ListNotFound": {
			reason: "Lists that answer 404 while discovery serves the kind should fail calls with the first answer.",
			match:  lists, fault: watchtest.Status(http.StatusNotFound), want: watch.ErrUnreachable, first: time.Second,
		},
		"ListHangs": {
			reason: "A list that hangs should delay only calls of the first minute.",
			match:  lists, fault: watchtest.Hang(), want: watch.ErrNotSynced, first: time.Minute,
		},
		"ListForbidden": {
			reason: "A list that is forbidden should fail calls with the first answer.",
			match:  lists,
			fault:  watchtest.Status(http.StatusForbidden),
			want:   watch.ErrForbidden, first: time.Second, again: 70 * time.Second,
		},
		"DiscoveryHangs": {
			reason: "Discovery that hangs should delay only the calls of its first request.",
			match:  discovery, fault: watchtest.Hang(), want: watch.ErrUnreachable, first: time.Minute,
		},
		"DiscoveryInternalError": {
			reason: "Discovery that answers 500 should fail calls with the first answer.",
			match:  discovery,
			fault:  watchtest.Status(http.StatusInternalServerError), want: watch.ErrUnreachable, first: time.Second,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, newAPIWithObject())
			lift := r.api.Inject(tc.match(widget), tc.fault)
			calls := map[string]func(ctx context.Context) error{
				"StartWatches": func(ctx context.Context) error {
					return r.StartWatches(ctx, "c", newWatch(widget, &recorder{}))
				},
				"Get": func(ctx context.Context) error { return r.read(ctx, widget, "one") },
				"GetInformer": func(ctx context.Context) error {
					_, err := r.infs.GetInformer(ctx, widget.New())
					return err
				},
			}

			// A worker reconciles every ten seconds for an hour.
			var busy, late time.Duration
			for began := time.Now(); time.Since(began) < time.Hour; advance(10 * time.Second) {
				for what, call := range calls {
					since := time.Since(began)
					took, err := timed(func() error { return withTimeout(t, 10*time.Minute, call) })
					expectEqual(t, tc.reason, what, anError, err)
					busy += took
					if since > 3*time.Minute {
						late += took
						expectEqual(t, tc.reason, what, tc.want, err)
					}
				}
			}
			expectBetween(t, tc.reason, "time that a worker is busy", 0, tc.first, busy)
			expectBetween(t, tc.reason, "time that a worker is busy when the trouble is known", 0, 0, late)
			expectState(t, r, tc.reason, "after an hour", watch.StateDegraded)

			// Calls make the kind try again soon.
			lift()
			working := func() bool { return withTimeout(t, time.Second, calls["Get"]) == nil }
			if again := cmp.Or(tc.again, 2*time.Second); !within(again, working) {
				t.Errorf("\n%s\nGet(...) still fails %s after the trouble is over", tc.reason, again)
			}
		})
	}
}

// An informer may fail for a reason other than a request, such as a transform that fails.
func TestFailingTransform_IsDescribed(t *testing.T) {
	cases := map[string]struct {
		reason string
		synced bool // The transform fails after the informer has synced.
		event  bool // It fails for an event of a watch, too.
		stream bool // Lists are streamed.
		handle bool // The caller has an error handler.
	}{
		"NotSynced": {
			reason: "The first call should return the transform's error.",
		},
		"Synced": {
			reason: "The watch should be Degraded because of the transform.",
			synced: true,
		},
		"Event": {
			reason: "client-go drops the event, so the watch should be Degraded until the objects are listed again.",
			synced: true,
			event:  true,
		},
		"Streamed": {
			reason: "client-go drops the object, so the watch should be Degraded, and other objects should stay readable.",
			stream: true,
		},
		"ErrorHandler": {
			reason: "The caller's error handler should get the error, too.",
			handle: true,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			var fails atomic.Bool
			var handled atomic.Int64
			o := cache.Options{DefaultTransform: func(obj any) (any, error) {
				if fails.Load() {
					return nil, errors.New("boom")
				}
				return obj, nil
			}}
			if tc.handle {
				o.DefaultWatchErrorHandler = func(context.Context, *kcache.Reflector, error) { handled.Add(1) }
			}
			api := newAPIWithObject()
			r := newGraftEnvWith(t, api, api.Config(), o)
			r.startController()

			if !tc.stream {
				api.Inject(watchtest.Of(widget).Initial(), watchtest.Status(http.StatusUnprocessableEntity))
			}
			if tc.synced {
				r.mustRead(widget)
				advance(time.Second)
			}
			fails.Store(true)
			err := r.readFor(time.Second, widget, "one")
			if tc.stream {
				expectEqual(t, tc.reason, "Get(...)", nil, client.IgnoreNotFound(err))
			} else if !tc.synced && (err == nil || !strings.Contains(err.Error(), "boom")) {
				t.Errorf("\n%s\nGet(...): %v", tc.reason, err)
			}
			_ = r.watchFor(time.Second, "c", newWatch(widget, &recorder{}))

			// The informer lists again.
			api.Put(widget.Object("two"), widget)
			if tc.event {
				advance(time.Second)
				expectState(t, r, tc.reason, "after the event", watch.StateDegraded)
			}
			api.Compact(widget)
			api.Disconnect(watchtest.Of(widget))
			advance(10 * time.Second)
			if s := stateOf(t, r); s.State != watch.StateDegraded || !strings.Contains(s.Error, "boom") {
				t.Errorf("\n%s\nwant the watch Degraded because of the transform, got %+v", tc.reason, s)
			}
			expectEqual(t, tc.reason, "the caller's handler is called", tc.handle, handled.Load() > 0)
			fails.Store(false)
			if tc.stream { // The next list delivers what was dropped.
				api.Disconnect(watchtest.Of(widget))
			}
			advance(2 * time.Minute)
			expectState(t, r, tc.reason, "when the transform works", watch.StateActive)
			expectEqual(t, tc.reason, "Get(...)", nil, r.read(t.Context(), widget, "two"))
		})
	}
}

// Calls make a kind in trouble retry once a second at most, however often they are made.
func TestKindInTrouble_IsRetriedOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		match := watchtest.DiscoveryOf(widget)
		slow := watchtest.Status(http.StatusServiceUnavailable).After(50 * time.Millisecond)
		defer r.api.Inject(match, slow)()
		for began := time.Now(); time.Since(began) < 10*time.Second; advance(10 * time.Millisecond) {
			expectEqual(t, "", "Get(...)", anError, r.read(t.Context(), widget, "one"))
		}
		lookUps := len(r.api.Requests(match))
		expectBetween(t, "Calls that are made during one don't count.", "look-ups", 5, 11, lookUps)
	})
}

// Discovery that hangs must not hold up calls for a kind that works.
func TestHangingDiscovery_DoesNotHoldUpKindsThatWork(t *testing.T) {
	cases := map[string]struct {
		reason string
		crds   bool
		look   func(r *testEnv) // Makes the kind look itself up.
	}{
		"CRDEvent": {
			reason: "An event of the CRD starts a look-up.",
			crds:   true,
			look:   func(r *testEnv) { r.api.Define(widget) },
		},
		"Periodic": {
			reason: "Kinds that work are looked up now and then.",
			look:   func(*testEnv) { advance(20 * time.Minute) },
		},
		"Relist": {
			reason: "A list after a watch starts a look-up.",
			look: func(r *testEnv) {
				r.api.Put(widget.Object("two"), widget)
				r.api.Compact(widget)
				r.api.Disconnect(watchtest.Of(widget))
				advance(2 * time.Second)
			},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := newWatchingEnv(t, tc.crds)
			defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Hang())()
			tc.look(r)
			r.await(watchtest.DiscoveryOf(widget))
			expectWithin(
				t, tc.reason, "IndexField(...)", quick, nil,
				func() error { return r.indexAs(time.Second, widget, "x", "x") },
			)
			r.indexed(widget, "x", "x", len(r.api.Objects(widget)))
			expectWithin(
				t, tc.reason, "StartWatches(...)", quick, nil,
				func() error { return r.StartWatches(t.Context(), "c", newWatch(widget, rec)) },
			)
			r.api.Put(widget.Object("late"), widget)
			advance(quick)
			expectEqual(t, tc.reason, "events of an object that came", 1, rec.count("create", "late"))
			up := r.api.Inject(watchtest.Of(widget), watchtest.Status(http.StatusForbidden))
			r.api.Disconnect(watchtest.Of(widget))
			advance(5 * time.Second)
			expectState(t, r, tc.reason, "when the kind is forbidden meanwhile", watch.StateDegraded)
			up()
		})
	}
}

// Nor calls that wait for the first list of a kind.
func TestHangingDiscovery_DoesNotHoldUpFirstLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		r.watchCRDs()
		slow := r.api.Inject(watchtest.Of(widget), watchtest.Delay(5*time.Second))
		read := background(func() error { return r.readFor(10*time.Second, widget, "one") })
		advance(time.Second)
		slow()
		defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Hang())()
		r.api.Define(widget) // An event of the CRD makes the look-up obsolete.
		expectEqual(t, "The list takes five seconds.", "Get(...)", nil, <-read)
	})
}

// A syncingSource is a source that syncs when its channel is closed.
type syncingSource struct {
	source.Func

	synced <-chan struct{}
}

func (s syncingSource) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A controller whose own source syncs holds up no call for its watches, and no stop. Its watches deliver to
// its queue meanwhile. It holds a lock of package sync, so this takes real time.
func TestWatches_WhileAnotherSourceSyncs(t *testing.T) {
	for name, syncs := range map[string]bool{"Syncs": true, "NeverSyncs": false} {
		t.Run(name, func(t *testing.T) {
			r := newGraftEnv(t, newAPIWithObject())
			r.mgr.Elect()
			synced, reconciled := make(chan struct{}), make(chan struct{})
			o := withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				close(reconciled)
				return reconcile.Result{}, nil
			})
			o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
				c, err := kcontroller.NewUnmanaged(name, o)
				if err != nil {
					return nil, err
				}
				fn := source.Func(func(context.Context, requestQueue) error { return nil })
				return c, c.Watch(syncingSource{Func: fn, synced: synced})
			}
			r.start("c", o)
			rec := &recorder{}
			mustSucceed(t, r.watchFor(time.Minute, "c", newWatch(widget, rec)))
			eventually(t, "the watch delivers", func() bool { return rec.count("create", "one") == 1 })
			if syncs {
				close(synced)
				<-reconciled
			}
			expectWithin(t, "", "Stop(...)", time.Second, nil, func() error { return r.Stop(t.Context(), "c") })
		})
	}
}

// When the cache ends, so do the controllers of an engine on it, which would reconcile what
// the cache had last.
func TestCacheEnds_ControllersStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newAPIWithObject()
		ca, err := watch.NewCache(api.Config(), cacheOptions())
		mustSucceed(t, err)
		mgr := watchtest.NewManager(api.Config(), scheme())
		mgr.Elect()
		metrics := &countingMetrics{}
		e := watch.New(mgr, ca, nil, nil, watch.WithMetrics(metrics))
		ctx, cancel := context.WithCancel(t.Context())
		done := background(func() error { return ca.Start(ctx) })
		reconciles := 0
		o := kcontroller.Options{
			Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				reconciles++
				return reconcile.Result{RequeueAfter: time.Second}, nil
			}),
		}
		mustSucceed(t, e.Start("c", watch.WithRuntimeOptions(o)))
		mustSucceed(t, e.StartWatches(t.Context(), "c", watch.WatchFor(widget.New(), "x", &recorder{})))
		advance(10 * time.Second)
		expectEqual(t, "The controller runs.", "it reconciles", true, reconciles > 0)
		cancel()
		expectEqual(t, "", "Start(...)", nil, <-done)
		advance(time.Second)
		before := reconciles
		advance(time.Minute)
		expectEqual(
			t, "A controller must not reconcile what a cache had that has ended.", "reconciles", before, reconciles,
		)
		expectEqual(t, "It was stopped.", "IsRunning(...)", false, e.IsRunning("c"))
		expectEqual(t, "The cache has ended.", "state", watch.StateStopped, e.Snapshot().Kinds[0].State)
		expectEqual(
			t, "It can't be started again.", "Start(...)", watch.ErrShutDown,
			e.Start("c", watch.WithRuntimeOptions(o)),
		)
		expectEqual(t, "It isn't there.", "StartWatches(...)", watch.ErrNotRunning, e.StartWatches(t.Context(), "c"))
		controllers, watches := metrics.running()
		expectEqual(
			t, "What was started was stopped.", "controllers, watches", []int64{0, 0}, []int64{controllers, watches},
		)
		mustSucceed(t, e.Stop(t.Context(), "c"))
	})
}
