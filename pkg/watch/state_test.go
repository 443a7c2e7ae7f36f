package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// stateOf returns how the only watch of controller c does.
func stateOf(t *testing.T, r *rig) watch.WatchSnapshot {
	t.Helper()
	for _, c := range r.ours.Snapshot().Controllers {
		if c.Name == "c" && len(c.Watches) == 1 {
			return c.Watches[0]
		}
	}
	t.Fatal("the controller doesn't have one watch")
	return watch.WatchSnapshot{}
}

// A watch says how it does, and it is so.
func TestStatesAreTrue(t *testing.T) {
	k := watchtest.NewKind("Widget")
	cases := map[string]struct {
		reason  string
		trouble func(api *watchtest.API) (heal func())
		want    watch.State

		// Whether an object that comes now is delivered now.
		delivers bool

		// Whether it was asked for when the trouble was there already.
		before bool
	}{
		"Healthy": {
			reason:  "Nothing is wrong.",
			trouble: func(*watchtest.API) func() { return func() {} },
			want:    watch.StateActive, delivers: true,
		},
		"Gone": {
			reason: "The definition is gone.",
			trouble: func(api *watchtest.API) func() {
				api.Undefine(k)
				return func() { api.Define(k) }
			},
			want: watch.StateDormant,
		},
		"NeverThere": {
			reason: "There never was a definition.",
			trouble: func(api *watchtest.API) func() {
				api.Undefine(k)
				return func() { api.Define(k) }
			},
			want: watch.StateDormant, before: true,
		},
		"Hanging": {
			reason:  "The list hangs.",
			trouble: func(api *watchtest.API) func() { return api.Inject(watchtest.Of(k), watchtest.Hang()) },
			want:    watch.StateSyncing, before: true,
		},
		"DiscoveryHangs": {
			reason:  "Discovery hangs, until the cache's own timeout.",
			trouble: func(api *watchtest.API) func() { return api.Inject(watchtest.DiscoveryOf(k), watchtest.Hang()) },
			want:    watch.StateDegraded, before: true,
		},
		"Down": {
			reason:  "The API server is away.",
			trouble: (*watchtest.API).Down,
			want:    watch.StateDegraded,
		},
		"DownBefore": {
			reason:  "The API server was away when the watch was asked for.",
			trouble: (*watchtest.API).Down,
			want:    watch.StateDegraded, before: true,
		},
		"Forbidden": {
			reason: "We may not list any more.",
			trouble: func(api *watchtest.API) func() {
				lift := api.Inject(watchtest.Of(k), watchtest.Status(http.StatusForbidden))
				api.Disconnect(watchtest.Of(k))
				return lift
			},
			want: watch.StateDegraded,
		},
		"ForbiddenBefore": {
			reason: "We never might.",
			trouble: func(api *watchtest.API) func() {
				return api.Inject(watchtest.Of(k), watchtest.Status(http.StatusForbidden))
			},
			want: watch.StateDegraded, before: true,
		},
		"Throttled": {
			reason: "The API server has too much to do. No error handler of client-go is called for that.",
			trouble: func(api *watchtest.API) func() {
				lift := api.Inject(watchtest.Of(k), watchtest.TooManyRequests(0))
				api.Disconnect(watchtest.Of(k))
				return lift
			},
			want: watch.StateDegraded,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(k)
			r := graft(t, api)
			r.mgr.Elect()
			r.watchCRDs()
			r.start("c", idle())
			heal := func() {}
			if tc.before {
				heal = tc.trouble(api)
			}
			rec := &recorder{}
			_ = limited(t, time.Second, func(ctx context.Context) error { return r.StartWatches(ctx, "c", watchOf(k, rec)) })
			if !tc.before {
				heal = tc.trouble(api)
			}
			defer func() { heal() }()
			pass(time.Minute)
			s := stateOf(t, r)
			if s.State != tc.want {
				t.Errorf("\n%s\nstate: got %s (%s), want %s", tc.reason, s.State, s.Error, tc.want)
			}
			if bad := tc.want == watch.StateDormant || tc.want == watch.StateDegraded; bad != (s.Error != "") {
				t.Errorf("\n%s\nin state %s the error is %q", tc.reason, s.State, s.Error)
			}
			active := false
			for _, gvk := range r.infs.ActiveInformers() {
				active = active || gvk == k.GVK
			}
			if tc.want == watch.StateActive && !active || tc.want == watch.StateDormant && active {
				t.Errorf("\n%s\nin state %s the informer is active: %t", tc.reason, s.State, active)
			}
			if tc.delivers {
				api.Put(k.Object("now"), k)
				pass(time.Second)
				if n := rec.count("create", "now"); n != 1 {
					t.Errorf("\n%s\nin state %s an event was delivered %d times", tc.reason, s.State, n)
				}
			}
			heal()
			pass(2 * time.Minute)
			if s := stateOf(t, r); s.State != watch.StateActive || s.Error != "" {
				t.Errorf("\n%s\nwhen all is well again: got %s (%s), want %s", tc.reason, s.State, s.Error, watch.StateActive)
			}
			before := stateOf(t, r).Delivered
			api.Put(k.Object("then"), k)
			pass(time.Second)
			if n := rec.count("create", "then"); n != 1 {
				t.Errorf("\n%s\nwhen all is well again an event was delivered %d times", tc.reason, n)
			}
			if n := stateOf(t, r).Delivered - before; n != 1 {
				t.Errorf("\n%s\n%d events are counted, want 1", tc.reason, n)
			}
		})
	}
}

// That a watch ends, or is too old to go on, is its life. It is no trouble, and
// isn't told as some.
func TestWhatPassesIsNoTrouble(t *testing.T) {
	k := watchtest.NewKind("Widget")
	cases := map[string]struct {
		reason string
		happen func(api *watchtest.API)
	}{
		"Disconnected": {"Watches end every few minutes.", func(api *watchtest.API) { api.Disconnect(watchtest.Of(k)) }},
		"Expired": {"The API server forgets what was long ago.", func(api *watchtest.API) {
			lift := api.Inject(watchtest.Of(k), watchtest.Hang())
			api.Disconnect(watchtest.Of(k))
			api.Put(k.Object("other"), k)
			api.Compact(k)
			lift()
		}},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			lines := &logLines{}
			api := watchtest.NewAPI(k)
			r := newGraft(t, api, api.Config(), nil, watch.WithLogger(lines))
			r.mgr.Elect()
			r.start("c", idle())
			r.watch("c", watchOf(k, &recorder{}))
			pass(time.Minute)
			before := stateOf(t, r)
			tc.happen(api)
			pass(time.Minute)
			if diff := cmp.Diff(before.Since, stateOf(t, r).Since); diff != "" {
				t.Errorf("\n%s\nit isn't %s since then: -want, +got:\n%s", tc.reason, before.State, diff)
			}
			if got := lines.all(); len(got) != 0 {
				t.Errorf("\n%s\nlog lines: %q", tc.reason, got)
			}
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(r.ours.Collector())
			if want := "graft_watch_failures_total reason=Unreachable 0"; !slices.Contains(gather(t, reg), want) {
				t.Errorf("\n%s\nno %q in:\n%s", tc.reason, want, strings.Join(gather(t, reg), "\n"))
			}
		})
	}
}

// A generation is an informer.
func TestGenerationsCountInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, _ := watching(t, k, true)
		first := stateOf(t, r)
		r.api.Disconnect(watchtest.Of(k))
		pass(time.Minute)
		if s := stateOf(t, r); s.Generation != first.Generation || !s.Since.Equal(first.Since) {
			t.Errorf("a watch that was cut is another generation: got %d since %s, want %d since %s", s.Generation, s.Since, first.Generation, first.Since)
		}
		r.api.Undefine(k)
		pass(time.Minute)
		gone := stateOf(t, r)
		if gone.State != watch.StateDormant || time.Since(gone.Since) > time.Minute {
			t.Errorf("got %s since %s, want %s for a minute", gone.State, gone.Since, watch.StateDormant)
		}
		r.api.Define(k)
		pass(time.Minute)
		if s := stateOf(t, r); s.State != watch.StateActive || s.Generation <= first.Generation {
			t.Errorf("got %s in generation %d, want %s in a later one than %d", s.State, s.Generation, watch.StateActive, first.Generation)
		}
	})
}

// The page shows to a person and to a program what the snapshot has.
func TestDebugPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, _ := watching(t, k, true)
		r.start("other", idle())
		gone := watchtest.NewKind("Gone")
		_ = limited(t, time.Second, func(ctx context.Context) error {
			return r.StartWatches(ctx, "other", watchOf(gone, &recorder{}))
		})

		// The page is compared with what is a moment later.
		pass(time.Millisecond)
		get := func(accept string) string {
			t.Helper()
			req := httptest.NewRequest(http.MethodGet, "/debug/watches", nil)
			req.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			r.ours.DebugHandler().ServeHTTP(w, req)
			b, err := io.ReadAll(w.Result().Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		var got watch.Snapshot
		if err := json.Unmarshal([]byte(get("application/json")), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.ours.Snapshot(), got); diff != "" {
			t.Errorf("-snapshot, +page:\n%s", diff)
		}
		text := get("text/plain")
		for _, want := range []string{"Widget", "Gone", "Dormant", "Active", "other"} {
			if !contains(text, want) {
				t.Errorf("the page doesn't say %q:\n%s", want, text)
			}
		}
	})
}

// Gauges say what runs; of started and stopped the difference does.
func TestMetricsMatchWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		r := graft(t, api)
		r.mgr.Elect()
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(r.ours.Collector())
		gauge := func(name, label, value string) float64 {
			t.Helper()
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, f := range all {
				if f.GetName() != name {
					continue
				}
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == label && l.GetValue() == value {
							sum += m.GetGauge().GetValue()
						}
					}
				}
			}
			return sum
		}
		check := func(when string, controllers, watches int) {
			t.Helper()
			pass(time.Second)
			if c, w := r.metrics.running(); c != controllers || w != watches {
				t.Errorf("%s: started minus stopped: %d controllers, %d watches; want %d, %d", when, c, w, controllers, watches)
			}
			if c, w := gauge("graft_watch_controllers", "state", "Running"), gauge("graft_watch_watches", "state", "Active"); int(c) != controllers || int(w) != watches {
				t.Errorf("%s: gauges: %v controllers, %v watches; want %d, %d", when, c, w, controllers, watches)
			}
		}
		check("at first", 0, 0)
		for i := range 3 {
			name := fmt.Sprintf("c%d", i)
			r.start(name, idle())
			for j := range 4 {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", j))
				api.Define(k)
				for range 2 { // Once is all that counts.
					r.watch(name, watchOf(k, &recorder{}))
				}
			}
		}
		check("when all run", 3, 12)
		r.unwatch("c0", idOf(watchtest.NewKind("Widget0")), idOf(watchtest.NewKind("Widget0")), idOf(watchtest.NewKind("None")))
		check("when a watch is stopped", 3, 11)
		r.stop("c1")
		check("when a controller is stopped", 2, 7)

		// A watch that waits for its kind is a watch.
		_ = limited(t, time.Second, func(ctx context.Context) error {
			return r.StartWatches(ctx, "c2", watchOf(watchtest.NewKind("None"), &recorder{}))
		})
		if _, w := r.metrics.running(); w != 8 {
			t.Errorf("with one that waits: %d watches, want 8", w)
		}
		if err := stopAll(t.Context(), r.ours); err != nil {
			t.Fatal(err)
		}
		check("at last", 0, 0)
	})
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
