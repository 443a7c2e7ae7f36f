package watch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Edges that were found by using the package: each was wrong once.

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// creating is a handler that calls fn with the context and the object of each
// creation.
func creating(fn func(ctx context.Context, o client.Object)) handler.EventHandler {
	return handler.Funcs{CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) { fn(ctx, e.Object) }}
}

// running is a rig with controller c, on a cache with options.
func running(t *testing.T, api *watchtest.API, co ...watch.CacheOption) *rig {
	t.Helper()

	r := newGraft(t, api, api.Config(), co)
	r.mgr.Elect()
	r.start("c", idle())

	return r
}

// A handler that heeds its context lets StopWatches return.
func TestStopWatches_EndsContextsOfHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)
		r := running(t, api)

		h := creating(func(ctx context.Context, _ client.Object) { <-ctx.Done() })
		r.watch("c", watchOf(k, h))

		pass(time.Second)

		if took, err := timed(func() error { _, err := r.StopWatches(t.Context(), "c", idOf(k)); return err }); err != nil || took > 0 {
			t.Errorf("StopWatches(...): %v after %s", err, took)
		}
	})
}

// However often a watch is stopped and started behind a handler that doesn't heed its
// context, one handler runs at a time.
func TestStartWatches_WaitsForOldHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)
		r := running(t, api)

		var now, most, calls atomic.Int64

		release := make(chan struct{})
		h := creating(func(context.Context, client.Object) {
			most.Store(max(most.Load(), now.Add(1)))
			calls.Add(1)
			<-release
			now.Add(-1)
		})

		for range 4 {
			r.watch("c", watchOf(k, h))

			pass(time.Second)

			err := limited(t, time.Second, func(ctx context.Context) error { _, err := r.StopWatches(ctx, "c", idOf(k)); return err })
			if !errors.Is(err, watch.ErrNotDrained) {
				t.Errorf("StopWatches(...) while a handler runs: got %v, want %v", err, watch.ErrNotDrained)
			}
		}

		r.watch("c", watchOf(k, h))

		pass(time.Second)
		close(release)
		pass(time.Second)

		if most.Load() != 1 || calls.Load() != 2 {
			t.Errorf("at most %d handlers ran at once, %d in all; want 1, and 2: the first and the last", most.Load(), calls.Load())
		}
	})
}

// What is done to options after the cache was made has no effect, and what
// controller-runtime refuses is refused.
func TestNewCache_OwnsItsOptions(t *testing.T) {
	k := watchtest.NewKind("Widget")
	one := map[string]cache.Config{"one": {}}

	cases := map[string]struct {
		reason string
		opts   cache.Options
		change func(o *cache.Options)
	}{
		"ByObject": {
			reason: "An entry that is removed still restricts.",
			opts:   cache.Options{ByObject: map[client.Object]cache.ByObject{k.New(): {Namespaces: maps.Clone(one)}}},
			change: func(o *cache.Options) { clear(o.ByObject) },
		},
		"ByObjectNamespaces": {
			reason: "So does a namespace that is removed from an entry.",
			opts:   cache.Options{ByObject: map[client.Object]cache.ByObject{k.New(): {Namespaces: maps.Clone(one)}}},
			change: func(o *cache.Options) {
				for _, by := range o.ByObject {
					clear(by.Namespaces)
				}
			},
		},
		"DefaultNamespaces": {
			reason: "And one that is removed for all kinds.",
			opts:   cache.Options{DefaultNamespaces: maps.Clone(one)},
			change: func(o *cache.Options) { clear(o.DefaultNamespaces) },
		},
	}

	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(k)
			tc.opts.Scheme = scheme()

			ca, err := watch.NewCache(api.Config(), tc.opts)
			if err != nil {
				t.Fatal(err)
			}

			tc.change(&tc.opts)
			startCache(t, ca)
			ca.WaitForCacheSync(t.Context())

			if err := ca.List(t.Context(), k.NewList()); err != nil {
				t.Fatal(err)
			}

			for _, req := range api.Requests(watchtest.Of(k)) {
				if req.Namespace != "one" {
					t.Errorf("\n%s\na %s is for namespace %q, want one", tc.reason, req.Verb, req.Namespace)
				}
			}
		})
	}
}

func TestNewCache_RefusesInvalidOptions(t *testing.T) {
	for name, obj := range map[string]client.Object{
		"UnknownType":        &unknown{},
		"UnstructuredNoKind": partial(watchtest.Kind{}),
	} {
		opts := cache.Options{Scheme: scheme(), ByObject: map[client.Object]cache.ByObject{obj: {Label: labels.Everything()}}}
		if _, err := watch.NewCache(watchtest.NewAPI().Config(), opts); err == nil {
			t.Errorf("%s: NewCache(...) accepts a ByObject entry that can't apply to anything", name)
		}
	}
}

// A CRD that drops out of sight isn't deleted.
func TestCRDs_OutOfSightIsNotDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, rec := watching(t, k, true)
		generation := stateOf(t, r).Generation

		r.api.Remove(watchtest.CRD(), client.ObjectKey{Name: k.CRDName()})
		pass(2 * time.Hour)

		if s, n := stateOf(t, r), rec.count("delete", "one"); s.State != watch.StateActive || s.Generation != generation || n != 0 {
			t.Errorf("the watch is %s in generation %d (before: %d), an object that exists was deleted %d times", s.State, s.Generation, generation, n)
		}

		r.api.Put(k.Object("two"), k)
		pass(time.Second)

		if n := rec.count("create", "two"); n != 1 {
			t.Errorf("an object that came got %d events", n)
		}

		// It goes and comes back out of sight.
		r.api.Undefine(k)
		pass(10 * time.Minute)

		if s := stateOf(t, r); s.State != watch.StateDormant || rec.count("delete", "one") != 1 {
			t.Errorf("when the kind is gone the watch is %s, and %d objects were deleted", s.State, rec.count("delete", "one"))
		}

		r.api.Define(k)
		r.api.Remove(watchtest.CRD(), client.ObjectKey{Name: k.CRDName()})
		pass(3 * time.Minute)

		if s := stateOf(t, r); s.State != watch.StateActive {
			t.Errorf("when the kind is back the watch is %s: %s", s.State, s.Error)
		}
	})
}

// CRDs that can't be watched any more don't hide that a kind comes back.
func TestCRDs_ForbiddenDoesNotHideReturn(t *testing.T) {
	faults := map[string]watchtest.Fault{
		"Forbidden": watchtest.Status(http.StatusForbidden), "Refused": watchtest.Refuse(), "NotFound": watchtest.Status(http.StatusNotFound),
	}
	for name, fault := range faults {
		inBubble(t, name, func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			r, _ := watching(t, k, true)

			r.api.Undefine(k)
			pass(time.Minute)

			defer r.api.Inject(watchtest.Of(watchtest.CRD()), fault)()

			r.api.Disconnect(watchtest.Of(watchtest.CRD()))
			pass(time.Minute)
			r.api.Define(k)
			pass(2 * time.Minute)

			if s := stateOf(t, r); s.State != watch.StateActive {
				t.Errorf("two minutes after the kind came back the watch is %s: %s", s.State, s.Error)
			}
		})
	}
}

// A failure that lasts is one state and one line.
func TestFailureThatLasts(t *testing.T) {
	k := watchtest.NewKind("Widget")
	notInitial := func(r watchtest.Request) bool { return !r.Initial }

	cases := map[string]struct {
		reason   string
		opts     cache.Options
		inject   func(api *watchtest.API) (lift func())
		want     watch.State
		readable bool
	}{
		"WatchForbidden": {
			reason: "A list that works doesn't mean that a watch does.",
			inject: func(api *watchtest.API) func() {
				lift := api.Inject(watchtest.Of(k).Only(watchtest.Watch), watchtest.Status(http.StatusForbidden))
				api.Disconnect(watchtest.Of(k))

				return lift
			},
			want: watch.StateDegraded, readable: true,
		},
		"WatchFails": {
			reason: "Nor if it isn't for a lack of permission.",
			inject: func(api *watchtest.API) func() {
				lift := api.Inject(watchtest.Of(k).Only(watchtest.Watch), watchtest.Status(http.StatusInternalServerError))
				api.Disconnect(watchtest.Of(k))

				return lift
			},
			want: watch.StateDegraded, readable: true,
		},
		"OneNamespaceForbidden": {
			reason: "What works in one namespace says nothing about another.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}, "secret": {}}},
			inject: func(api *watchtest.API) func() {
				in := func(r watchtest.Request) bool { return r.Namespace == "secret" }
				return api.Inject(watchtest.Match(in).Only(watchtest.List, watchtest.Watch), watchtest.Status(http.StatusForbidden))
			},
			want: watch.StateDegraded,
		},
		"ListNotFound": {
			reason: "Discovery says that the kind is served, so its objects may exist.",
			inject: func(api *watchtest.API) func() {
				lift := api.Inject(watchtest.Of(k), watchtest.Status(http.StatusNotFound))
				api.Disconnect(watchtest.Of(k))

				return lift
			},
			want: watch.StateDegraded,
		},
		"Hanging": {
			reason: "A list that never comes is an error after a while.",
			inject: func(api *watchtest.API) func() { return api.Inject(watchtest.Of(k), watchtest.Hang()) },
			want:   watch.StateDegraded,
		},
		"HangingWatch": {
			reason: "So is a watch that is never opened.",
			inject: func(api *watchtest.API) func() {
				unstreamed := api.Inject(watchtest.Of(k).Initial(), watchtest.Status(http.StatusUnprocessableEntity))
				hang := api.Inject(watchtest.Match(notInitial).Only(watchtest.Watch), watchtest.Hang())

				return func() { hang(); unstreamed() }
			},
			want: watch.StateDegraded, readable: true,
		},
	}

	for name, tc := range cases {
		for when, before := range map[string]bool{"FromTheStart": true, "Later": false} {
			if !before && (name == "Hanging" || name == "HangingWatch" || name == "OneNamespaceForbidden") {
				continue // Open watches stay open.
			}

			inBubble(t, name+"/"+when, func(t *testing.T) {
				api := watchtest.NewAPI(k)
				api.Put(k.Object("one"), k)

				tc.opts.Scheme = scheme()

				ca, err := watch.NewCache(api.Config(), tc.opts)
				if err != nil {
					t.Fatal(err)
				}

				startCache(t, ca)
				ca.WaitForCacheSync(t.Context())

				lines := &logLines{}
				r := graftOn(t, api, api.Config(), ca, watch.WithLogger(lines))
				r.mgr.Elect()
				r.start("c", idle())

				rec := &tally{}
				start := func() {
					_ = limited(t, time.Second, func(ctx context.Context) error { return r.StartWatches(ctx, "c", watchOf(k, rec)) })
				}

				if !before {
					start()
					pass(time.Second)
				}

				lift := tc.inject(api)
				start()
				pass(3 * time.Minute)

				states := make(map[watch.State]int)

				for range 3600 {
					pass(time.Second)

					states[stateOf(t, r).State]++
				}

				if states[tc.want] != 3600 {
					t.Errorf("\n%s\nseconds in states: %v, want all in %s", tc.reason, states, tc.want)
				}

				if n := len(lines.all()); n != 1 {
					t.Errorf("\n%s\n%d lines in an hour, want 1:\n%s", tc.reason, n, strings.Join(lines.all(), "\n"))
				}

				if s := stateOf(t, r); s.Error == "" {
					t.Errorf("\n%s\nno error in state %s", tc.reason, s.State)
				}

				if n := rec.count("delete", "one"); n != 0 {
					t.Errorf("\n%s\nan object that exists was deleted %d times", tc.reason, n)
				}

				if err := limited(t, time.Second, func(ctx context.Context) error { return r.read(ctx, k, "one") }); tc.readable != (err == nil) {
					t.Errorf("\n%s\nGet(...): %v", tc.reason, err)
				}

				reg := prometheus.NewPedanticRegistry()
				reg.MustRegister(r.ours.Collector())

				if !slices.ContainsFunc(gather(t, reg), func(l string) bool {
					return strings.HasPrefix(l, "graft_watch_failures_total") && !strings.HasSuffix(l, " 0")
				}) {
					t.Errorf("\n%s\nno failure is counted", tc.reason)
				}

				// What went meanwhile is deleted once, when the API server says so.
				api.Remove(k, k.Key("one"))
				lift()
				pass(10 * time.Minute)

				if s := stateOf(t, r); s.State != watch.StateActive {
					t.Errorf("\n%s\nwhen all is well the watch is %s: %s", tc.reason, s.State, s.Error)
				}

				if there, wrong := rec.objects(); len(there)+len(wrong) > 0 {
					t.Errorf("\n%s\nof an object that went the handler knows %v %v", tc.reason, there, wrong)
				}
			})
		}
	}
}

// A call that waits owns what it waits for, however short the linger is.
func TestLinger_WaitingCallsOwn(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		inBubble(t, linger.String(), func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			api := watchtest.NewAPI(k)
			api.Put(k.Object("one"), k)
			r := running(t, api, watch.WithLinger(linger), watch.WithReadLinger(linger))

			lift := api.Inject(watchtest.Of(k).Only(watchtest.List, watchtest.Watch), watchtest.Delay(5*time.Second))

			if err := limited(t, time.Minute, func(ctx context.Context) error { return r.read(ctx, k, "one") }); err != nil {
				t.Errorf("Get(...): %v", err)
			}

			if n := len(api.Requests(watchtest.Of(k).Initial())); n != 1 {
				t.Errorf("%d lists for one Get, want 1", n)
			}

			lift()
			pass(time.Minute)

			if n := api.Open(watchtest.Of(k)); n != 0 {
				t.Errorf("%d informers linger", n)
			}

			// Nothing else that waits needs a linger.
			if err := r.infs.IndexField(t.Context(), k.New(), "x", func(client.Object) []string { return nil }); err != nil {
				t.Errorf("IndexField(...): %v", err)
			}

			inf, err := r.infs.GetInformer(t.Context(), k.New())
			if err != nil {
				t.Fatal(err)
			}

			rec := &recorder{}
			if _, err := inf.AddEventHandler(rec.funcs()); err != nil {
				t.Fatal(err)
			}

			pass(time.Second)

			if n := rec.count("create", "one"); n != 1 {
				t.Errorf("a handler got %d events, want 1", n)
			}
		})
	}
}

// After an outage a call that waits for a kind that hadn't synced asks the API server.
func TestOutage_CallsAsk(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, time.Hour} {
		inBubble(t, away.String(), func(t *testing.T) {
			k, watched := watchtest.NewKind("Widget"), watchtest.NewKind("Watched")
			api := watchtest.NewAPI(k, watched)
			api.Put(k.Object("one"), k)
			r := running(t, api)
			up := api.Down()

			get := func() error {
				return limited(t, time.Minute, func(ctx context.Context) error { return r.read(ctx, k, "one") })
			}
			start := func() error {
				return limited(t, time.Minute, func(ctx context.Context) error {
					return r.StartWatches(ctx, "c", watchOf(watched, &recorder{}))
				})
			}

			for began := time.Now(); time.Since(began) < away; pass(7 * time.Second) {
				if get() == nil || start() == nil {
					t.Fatal("a call succeeds without an API server")
				}
			}

			up()

			for name, call := range map[string]func() error{"Get": get, "StartWatches": start} {
				began := time.Now()
				for call() != nil && time.Since(began) < time.Hour {
					time.Sleep(10 * time.Millisecond)
				}

				if took := time.Since(began); took > time.Second {
					t.Errorf("%s(...) fails for %s after the API server is back", name, took)
				}
			}
		})
	}
}

// When RemoveInformer returns the informer isn't used any more.
func TestRemoveInformer_IsOutOfUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)
		r := running(t, api)

		for i := range 100 {
			r.reads(k, "one")

			if n := len(api.Requests(watchtest.Of(k).Initial())); n != i+1 {
				t.Fatalf("Get %d was answered by informer %d", i+1, n)
			}

			r.remove(k)

			if got := r.infs.ActiveInformers(); slices.Contains(got, k.GVK) {
				t.Fatalf("round %d: the informer is active after it was removed", i)
			}
		}
	})
}

// Kinds of one group share look-ups, and the client's own rate limit doesn't make the
// API server look unreachable.
func TestLookUps_AreShared(t *testing.T) {
	const kinds = 400 // At 10 a second one look-up each takes longer than one may.

	for _, groups := range []int{20, kinds} {
		inBubble(t, fmt.Sprint(groups), func(t *testing.T) {
			api := watchtest.NewAPI()
			specs := make([]spec, kinds)

			for i := range specs {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				k.GVK.Group = fmt.Sprintf("g%d.example.org", i%groups)
				api.Define(k)
				specs[i] = watchOf(k, &recorder{})
			}

			cfg := api.Config()
			cfg.QPS, cfg.Burst = 10, 10
			r := newGraft(t, api, cfg, nil)
			r.mgr.Elect()
			r.start("c", idle())

			if err := r.StartWatches(t.Context(), "c", specs...); err != nil {
				t.Errorf("StartWatches(...) of kinds that are served: %v", err)
			}

			requests := api.Requests(watchtest.Everything().Only(watchtest.Discover))
			if n := len(requests); n > 3*groups {
				t.Errorf("%d look-ups, want at most %d", n, 3*groups)
			}

			if took := requests[len(requests)-1].At.Sub(requests[0].At); took < time.Duration(len(requests)-10)*time.Second/10 {
				t.Errorf("%d look-ups in %s: that is more than the configured rate", len(requests), took)
			}
		})
	}
}

// Without CRDs, and without a request that fails, a kind that is served in another
// way is noticed.
func TestMovedKinds_AreNoticedWithoutCRDs(t *testing.T) {
	was := watchtest.NewKind("Widget")

	for name, is := range map[string]watchtest.Kind{"Scope": was.ClusterScoped(), "Plural": was.Named("widgetry")} {
		for _, quiet := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/Quiet=%t", name, quiet), func(t *testing.T) {
				r, rec := watching(t, was, false)

				var lift func()
				if quiet {
					// The watch stays open and silent.
					lift = r.api.Inject(watchtest.Of(was), watchtest.Hang())
					defer lift()
				}

				r.api.Undefine(was)
				r.api.Define(is)
				r.api.Put(is.Object("two"), is)

				if quiet && is.Plural == was.Plural {
					time.AfterFunc(20*time.Minute, lift)
				}

				pass(25 * time.Minute)

				s := r.ours.Snapshot()
				if k := s.Kinds[0]; k.Resource != is.Plural || k.Namespaced == is.Cluster || k.State != watch.StateActive {
					t.Errorf("the kind is %s as %s, namespaced: %t", k.State, k.Resource, k.Namespaced)
				}

				// Its informer may have found the new object before the look-up did.
				if d, c := rec.count("delete", "one"), rec.count("create", "two"); d != 1 || c < 1 {
					t.Errorf("the old object was deleted %d times, the new one created %d times", d, c)
				}

				if err := r.read(t.Context(), is, "two"); err != nil {
					t.Errorf("Get(...): %v", err)
				}
			})
		}
	}
}

// Controllers that are started and stopped behind one that hangs leave nothing, and
// the last one waits for it.
func TestStart_BehindAHangingController(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)
		r := graft(t, api)
		r.mgr.Elect()

		release, hangs := make(chan struct{}), make(chan struct{})
		r.start("c", reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			close(hangs)
			<-release

			return reconcile.Result{}, nil
		}))

		r.watch("c", watchOf(k, &recorder{}))

		<-hangs

		stop := func() error {
			return limited(t, time.Second, func(ctx context.Context) error { return r.Stop(ctx, "c") })
		}
		if err := stop(); !errors.Is(err, watch.ErrNotDrained) {
			t.Errorf("Stop(...): %v", err)
		}

		pass(time.Minute)

		before := goroutines()

		for range 50 {
			r.start("c", idle())

			if err := stop(); !errors.Is(err, watch.ErrNotDrained) {
				t.Errorf("Stop(...) while an earlier controller runs: %v", err)
			}
		}

		pass(time.Minute)

		if n := goroutines() - before; n > 25 { // Others have some that come and go.
			t.Errorf("50 controllers that never ran left %d goroutines", n)
		}

		var ran atomic.Bool

		r.start("c", reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			ran.Store(true)
			return reconcile.Result{}, nil
		}))

		r.watch("c", watchOf(k, &recorder{}))

		pass(time.Minute)

		if ran.Load() {
			t.Error("a controller reconciles while the one before it does")
		}

		close(release)
		pass(time.Minute)

		if !ran.Load() {
			t.Error("a controller doesn't reconcile after the one before it ended")
		}

		if err := stop(); err != nil {
			t.Errorf("Stop(...): %v", err)
		}

		if s := r.ours.Snapshot(); len(s.Ending) > 0 {
			t.Errorf("still ending: %v", s.Ending)
		}
	})
}

// An index keeps only a kind that exists, and is there when the kind comes back.
func TestIndexes_OfKindsThatWent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		r := graft(t, api)
		kinds := make([]watchtest.Kind, 50)

		for i := range kinds {
			kinds[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
			api.Define(kinds[i])

			if err := r.infs.IndexField(t.Context(), kinds[i].New(), "x", func(o client.Object) []string { return []string{o.GetName()} }); err != nil {
				t.Fatal(err)
			}
		}

		pass(time.Hour)

		if n := len(r.infs.ActiveInformers()); n != len(kinds) {
			t.Errorf("%d informers of kinds with indexes, want %d", n, len(kinds))
		}

		for _, k := range kinds {
			api.Undefine(k)
		}

		pass(time.Hour)
		api.Forget()
		pass(time.Hour)

		if s, n := r.ours.Snapshot(), len(api.Requests(watchtest.Everything())); len(s.Kinds) != 0 || n != 0 {
			t.Errorf("%d kinds that went are kept, with %d requests an hour", len(s.Kinds), n)
		}

		k := kinds[0]
		api.Define(k)
		api.Put(k.Object("one"), k)

		l := k.NewList()
		if err := r.reader.List(t.Context(), l, client.MatchingFields{"x": "one"}); err != nil || len(l.Items) != 1 {
			t.Errorf("List(...) by index after the kind came back: %d objects, %v", len(l.Items), err)
		}
	})
}

// A source waits for its own kind.
func TestWaitForCacheSync_DoesNotWaitForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k, stuck := watchtest.NewKind("Widget"), watchtest.NewKind("Stuck")
		api := watchtest.NewAPI(k, stuck)
		r := graft(t, api)

		defer api.Inject(watchtest.Of(stuck), watchtest.Hang())()

		if _, err := r.infs.GetInformer(t.Context(), stuck.New(), cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}

		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()

		src := source.Kind[client.Object](r.cache, k.New(), &handler.EnqueueRequestForObject{})

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		if err := src.Start(ctx, q); err != nil {
			t.Fatal(err)
		}

		if took, err := timed(func() error { return limited(t, time.Minute, src.WaitForSync) }); err != nil || took > quick+100*time.Millisecond {
			t.Errorf("WaitForSync(...) of a healthy kind: %v after %s", err, took)
		}

		cancel()
		pass(time.Second)
	})
}

// Reads of kinds that can't be read cost a request each, and nothing afterwards.
func TestReads_OfKindsThatCannotBeRead(t *testing.T) {
	cases := map[string]struct {
		reason string
		served bool
		fault  watchtest.Fault
		want   error
		most   int // Requests for each kind.
	}{
		"Absent":    {reason: "A look-up says that there is no such kind.", want: watch.ErrNoSuchKind, most: 1},
		"Forbidden": {reason: "A look-up, and what a list needs.", served: true, fault: watchtest.Status(http.StatusForbidden), want: watch.ErrForbidden, most: 3},
	}

	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI()
			r := graft(t, api)

			for i := range 100 {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				if tc.served {
					api.Define(k)
					t.Cleanup(api.Inject(watchtest.Of(k), tc.fault))
				}

				if err := r.read(t.Context(), k, "one"); !errors.Is(err, tc.want) {
					t.Errorf("\n%s\nGet(...): got %v, want %v", tc.reason, err, tc.want)
				}
			}

			pass(time.Hour)

			if n := len(api.Requests(watchtest.Everything())); n > 100*tc.most {
				t.Errorf("\n%s\n%d requests in an hour, want at most %d", tc.reason, n, 100*tc.most)
			}

			// A kind has a goroutine.
			if n := len(r.ours.Snapshot().Kinds); n > 0 {
				t.Errorf("\n%s\n%d kinds are left", tc.reason, n)
			}
		})
	}
}

// A controller without requests has no queue metrics that say otherwise.
func TestQueueMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := graft(t, watchtest.NewAPI())
		r.mgr.Elect()

		o := idle()
		o.runtime.MaxConcurrentReconciles = 5
		r.start("queue-metrics", o)
		pass(time.Second)

		r.stop("queue-metrics")

		for _, line := range gather(t, ctrlmetrics.Registry) {
			if !strings.Contains(line, "queue-metrics") {
				continue
			}

			if strings.Contains(line, "9223372036854775807") || strings.HasPrefix(line, "workqueue_adds_total") && !strings.HasSuffix(line, " 0") {
				t.Errorf("after a controller without requests: %s", line)
			}
		}
	})
}

// A bareManager has only what Crossplane's own tests of its engine give it.
type bareManager struct {
	manager.Manager

	elected chan struct{}
}

func (m bareManager) Elected() <-chan struct{}   { return m.elected }
func (m bareManager) GetScheme() *runtime.Scheme { return scheme() }

func TestNew_NeedsLittleOfAManager(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		m := bareManager{elected: make(chan struct{})}
		close(m.elected)

		plain := plainCache(t, watchtest.NewAPI(k).Config())
		startCache(t, plain)
		plain.WaitForCacheSync(t.Context())

		e := watch.New(m, watch.TrackInformers(plain, scheme()), nil, nil)
		if err := e.Start("c", watch.WithRuntimeOptions(idle().runtime)); err != nil {
			t.Fatal(err)
		}

		if err := e.StartWatches(t.Context(), "c", watch.WatchFor(k.New(), "x", &recorder{})); err != nil {
			t.Errorf("StartWatches(...): %v", err)
		}

		if err := e.Stop(t.Context(), "c"); err != nil {
			t.Errorf("Stop(...): %v", err)
		}

		pass(time.Hour)
	})
}

// nothing is what foreign code returns that has neither an answer nor an error.
type nothing struct{ watch.TrackingInformers }

func (nothing) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

func (nothing) ActiveInformers() []schema.GroupVersionKind { return nil }

// Foreign code that returns nothing, without an error, fails calls. It doesn't end the
// process.
func TestForeignCodeThatReturnsNothing(t *testing.T) {
	k := watchtest.NewKind("Widget")

	cases := map[string]struct {
		reason string
		do     func(t *testing.T, api *watchtest.API) error
	}{
		"Informer": {
			reason: "Informers that aren't ours.",
			do: func(t *testing.T, api *watchtest.API) error {
				t.Helper()

				mgr := watchtest.NewManager(api.Config(), scheme())
				mgr.Elect()

				e := watch.New(mgr, nothing{}, nil, nil)
				if err := e.Start("c", watch.WithRuntimeOptions(idle().runtime)); err != nil {
					t.Fatal(err)
				}

				t.Cleanup(func() {
					_ = stopAll(context.Background(), e)

					pass(time.Hour)
				})

				return limited(t, time.Second, func(ctx context.Context) error {
					return e.StartWatches(ctx, "c", watch.WatchFor(k.New(), "x", &recorder{}))
				})
			},
		},
		"Controller": {
			reason: "What makes controllers.",
			do: func(t *testing.T, api *watchtest.API) error {
				t.Helper()

				o := idle()
				o.newController = func(string, kcontroller.Options) (kcontroller.Controller, error) { return nil, nil }

				r := graft(t, api)
				r.mgr.Elect()

				return r.Start("none", o)
			},
		},
		"Tracker": {
			reason: "A collector without a tracker.",
			do: func(t *testing.T, api *watchtest.API) error {
				t.Helper()

				return watch.NewGarbageCollector("c", running(t, api).ours, nil, nil).GarbageCollectWatchesNow(t.Context())
			},
		},
	}

	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			if err := tc.do(t, watchtest.NewAPI(k)); err == nil {
				t.Errorf("\n%s\nno error", tc.reason)
			}

			pass(time.Minute)
		})
	}
}
