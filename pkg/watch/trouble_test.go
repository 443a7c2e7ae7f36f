package watch_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A trouble is a fault of the API server for a kind.
type trouble struct {
	reason string

	// begin starts the trouble, and returns a function that ends it; nil if it is over at once.
	begin func(r *testEnv, k watchtest.Kind) (end func())

	// Whether it can only be there before the watch is, or only come later.
	onlyBefore, onlyLater bool

	// The state of the watch after a minute, if it differs, and after a few minutes. Empty allows
	// all states.
	soon, state watch.State

	// says is a part of the error of the watch at the end.
	says string

	// lists says that lists go on, so that reads do; readable, that reads do if they did
	// before.
	lists, readable bool

	// life says that it is no trouble.
	life bool

	opts cache.Options
	wrap func(http.RoundTripper) http.RoundTripper // The transport, unless it is nil.
}

// silentStreams is a transport that opens streamed lists of widgets and sends no event on them
// while it is on. A proxy ends each stream after a minute.
type silentStreams struct {
	http.RoundTripper

	on *atomic.Bool
}

func (s silentStreams) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.on.Load() || r.URL.Query().Get("sendInitialEvents") != "true" ||
		!strings.HasSuffix(r.URL.Path, widget.Plural) {
		return s.RoundTripper.RoundTrip(r)
	}
	body, w := io.Pipe()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	context.AfterFunc(ctx, func() {
		cancel()
		_ = w.Close() // It never fails.
	})
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body, Request: r}, nil
}

// inject returns a trouble's begin, which injects a fault, and disconnects watches.
func inject(
	m func(k watchtest.Kind) watchtest.Match, f watchtest.Fault,
) func(r *testEnv, k watchtest.Kind) func() {
	return func(r *testEnv, k watchtest.Kind) func() {
		lift := r.api.Inject(m(k), f)
		r.api.Disconnect(watchtest.Of(k))
		return lift
	}
}

// kindTroubles are troubles of a kind, and of the whole API server.
func kindTroubles() map[string]trouble {
	return map[string]trouble{
		"None": {
			reason: "Nothing is wrong.",
			begin:  func(*testEnv, watchtest.Kind) func() { return nil },
			state:  watch.StateActive, lists: true, life: true,
		},
		"Disconnected": {
			reason: "Watches end every few minutes, and are opened again.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				r.api.Disconnect(watchtest.Of(k))
				return nil
			},
			onlyLater: true, state: watch.StateActive, readable: true, life: true,
		},
		"Expired": {
			reason: "A watch that is too old should list again.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
				r.api.Disconnect(watchtest.Of(k))
				r.api.Put(k.Object("other"), k)
				r.api.Compact(k)
				lift()
				return nil
			},
			onlyLater: true, state: watch.StateActive, readable: true, life: true,
		},
		"Gone": {
			reason: "The definition is gone, or never was there.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				r.api.Undefine(k)
				return func() { r.api.Define(k) }
			},
			state: watch.StateDormant,
		},
		"EstablishedLate": {
			reason: "The definition is there before the kind.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				r.api.Undefine(k)
				advance(time.Minute)
				r.api.Announce(k)
				return func() { r.api.Define(k) }
			},
			state: watch.StateDormant,
		},
		"DiscoveryFails": {
			reason: "The kind comes back while discovery fails.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				r.api.Undefine(k)
				advance(time.Minute)
				lift := r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Status(http.StatusServiceUnavailable))
				r.api.Define(k)
				return lift
			},
		},
		"DiscoveryHangs": {
			reason: "Discovery hangs, until the cache's own timeout.",
			begin:  inject(watchtest.DiscoveryOf, watchtest.Hang()),
			state:  watch.StateDegraded, onlyBefore: true,
		},
		"Down": {
			reason: "The API server is away.",
			begin:  func(r *testEnv, _ watchtest.Kind) func() { return r.api.Down() },
			state:  watch.StateDegraded, readable: true,
		},
		"Frozen": {
			reason: "The API server hangs, and open watches stay open.",
			begin:  func(r *testEnv, _ watchtest.Kind) func() { return r.api.Freeze() },
			state:  watch.StateActive, readable: true, onlyLater: true,
		},
		"FrozenAndCut": {
			reason: "The API server hangs, and open watches end. An earlier end should make no difference.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				r.api.Disconnect(watchtest.Of(k))
				advance(10 * time.Minute)
				return inject(watchtest.Of, watchtest.Hang())(r, k)
			},
			soon: watch.StateActive, state: watch.StateDegraded, readable: true, onlyLater: true,
			says: "no watch is open",
		},
		"DiscoveryFailsForARemovedInformer": {
			reason: "The answer of the API server should be in the error.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				lift := r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Status(http.StatusInternalServerError))
				r.remove(k)
				return lift
			},
			state: watch.StateDegraded, onlyLater: true,
			says: "cannot discover widget.example.org/v1: an error on the server",
		},
		"InformerRemoved": {
			reason: "The informer is removed, and the next one has no objects.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
				r.remove(k)
				return lift
			},
			state: watch.StateDegraded, onlyLater: true, soon: watch.StateSyncing,
		},
	}
}

// requestTroubles are troubles of some requests for a kind.
func requestTroubles() map[string]trouble {
	refused := func(reason string, f watchtest.Fault) trouble {
		return trouble{reason: reason, begin: inject(watchtest.Of, f), state: watch.StateDegraded, readable: true}
	}
	watches := func(k watchtest.Kind) watchtest.Match { return watchtest.Of(k).Only(watchtest.Watch) }
	silent := &atomic.Bool{}
	return map[string]trouble{
		"ConnectionsEnd": refused(
			"Behind a proxy that has no API server. Of a watch client-go tells no error.", watchtest.Break(io.EOF),
		),
		"Unprocessable": refused(
			"An answer that is normal to a list that is to be streamed isn't to others.",
			watchtest.Status(http.StatusUnprocessableEntity),
		),
		"ListExpires": {
			reason: "Nor is one to a list of another version to a list of the last.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				lists := r.api.Inject(watchtest.Of(k), watchtest.Status(http.StatusGone))
				unstreamed := r.api.Inject(watchtest.Of(k).Initial(), watchtest.Status(http.StatusUnprocessableEntity))
				r.api.Disconnect(watchtest.Of(k))
				return func() { lists(); unstreamed() }
			},
			state: watch.StateDegraded, readable: true,
		},
		"Forbidden": refused("We may not list.", watchtest.Status(http.StatusForbidden)),
		"Throttled": refused(
			"The API server has too much to do. No error handler of client-go is called for that.",
			watchtest.TooManyRequests(0),
		),
		"WatchForbidden": {
			reason: "A list that works doesn't mean that a watch does.",
			begin:  inject(watches, watchtest.Status(http.StatusForbidden)),
			state:  watch.StateDegraded, lists: true,
		},
		"WatchNotFound": {
			reason: "A kind should exist while it can be listed, although its watch is not found.",
			begin:  inject(watches, watchtest.Status(http.StatusNotFound)),
			state:  watch.StateDegraded, lists: true,
		},
		"StreamsNotFound": {
			reason: "The answer to a streamed list says nothing of other lists, while a watch takes its time to open.",
			begin: func(r *testEnv, k watchtest.Kind) func() {
				lift := inject(watches, watchtest.Delay(50*time.Millisecond))(r, k)
				unstreamed := r.api.Inject(watchtest.Of(k).Initial(), watchtest.Status(http.StatusNotFound))
				return func() { lift(); unstreamed() }
			},
			state: watch.StateActive, lists: true,
		},
		"StreamsExpire": {
			reason: "To a streamed list of the last version that is no answer. Others are.",
			begin: inject(func(k watchtest.Kind) watchtest.Match {
				return watchtest.Of(k).Initial()
			}, watchtest.Status(http.StatusGone)),
			state: watch.StateActive, lists: true,
		},
		"WatchesEndAtOnce": {
			reason: "One that is opened isn't one that tells anything.",
			begin:  inject(watches, watchtest.Status(http.StatusOK)), // It isn't an event.
			state:  watch.StateDegraded, lists: true,
		},
		"OneNamespaceForbidden": {
			reason: "What works in one namespace says nothing about another.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}, "secret": {}}},
			begin: inject(func(watchtest.Kind) watchtest.Match {
				in := func(r watchtest.Request) bool { return r.Namespace == "secret" }
				return watchtest.Match(in).Only(watchtest.List, watchtest.Watch)
			}, watchtest.Status(http.StatusForbidden)),
			state: watch.StateDegraded, onlyBefore: true,
		},
		"ListNotFound": {
			reason: "Discovery says that the kind is served, so its objects may exist.",
			begin:  inject(watchtest.Of, watchtest.Status(http.StatusNotFound)),
			state:  watch.StateDegraded,
		},
		"ListHangs": {
			reason: "A list that never comes is an error after a while.",
			begin:  inject(watchtest.Of, watchtest.Hang()),
			soon:   watch.StateSyncing, state: watch.StateDegraded, onlyBefore: true,
		},
		"StreamedListNeverEnds": {
			reason: "An open stream that never sends the end of the list should be an error after a while.",
			wrap:   func(rt http.RoundTripper) http.RoundTripper { return silentStreams{rt, silent} },
			begin: func(*testEnv, watchtest.Kind) func() {
				silent.Store(true)
				return func() { silent.Store(false) }
			},
			soon: watch.StateSyncing, state: watch.StateDegraded, onlyBefore: true,
		},
		"WatchHangs": {
			reason: "So is a watch that is never opened, also of one namespace.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}, "secret": {}}},
			begin: func(r *testEnv, k watchtest.Kind) func() {
				unstreamed := r.api.Inject(watchtest.Of(k).Initial(), watchtest.Status(http.StatusUnprocessableEntity))
				one := func(r watchtest.Request) bool { return !r.Initial && r.Namespace == "default" }
				hang := r.api.Inject(watchtest.Match(one).Only(watchtest.Watch), watchtest.Hang())
				return func() { hang(); unstreamed() }
			},
			soon: watch.StateSyncing, state: watch.StateDegraded, onlyBefore: true, lists: true,
		},
	}
}

// A watch reports its state: a trouble that lasts is one state and one log line, and delivered
// objects stay readable. When it is over there is exactly one live handler, without a call, and
// it has got the events of objects that came and went meanwhile, once.
func TestTrouble(t *testing.T) {
	troubles := kindTroubles()
	maps.Copy(troubles, requestTroubles())
	for name, tc := range troubles {
		for when, before := range map[string]bool{"Before": true, "Later": false} {
			if before && tc.onlyLater || !before && tc.onlyBefore {
				continue
			}
			for mode, crds := range map[string]bool{"DefinitionsWatched": true, "DefinitionsNotWatched": false} {
				inBubble(
					t, strings.Join([]string{name, when, mode}, "/"),
					func(t *testing.T) { tc.befall(t, before, crds) },
				)
			}
		}
	}
}

func (tc trouble) befall(t *testing.T, before, crds bool) {
	t.Helper()
	api := watchtest.NewAPI(widget)
	for _, name := range []string{"stays", "goes", "again"} {
		api.Put(widget.Object(name), widget)
	}
	cfg := api.Config()
	if tc.wrap != nil {
		cfg.Wrap(tc.wrap)
	}
	r := newGraftEnvWith(t, api, cfg, tc.opts)
	r.mgr.Elect()
	logged := len(others.all())
	if crds {
		r.watchCRDs()
	}
	r.start("c", idleOptions())
	var end func()
	if before {
		end = tc.begin(r, widget)
	}
	rec := &recorder{}
	if err := r.watchFor(time.Second, "c", newWatch(widget, rec)); tc.lists && err != nil {
		t.Errorf("\n%s\nStartWatches(...) of a kind that can be listed: %v", tc.reason, err)
	}
	advance(time.Second)
	at := stateOf(t, r)
	if !before {
		end = tc.begin(r, widget)
	}
	advance(time.Minute)
	if s := stateOf(t, r); tc.soon != "" && s.State != tc.soon {
		t.Errorf("\n%s\nsoon the watch is %s (%s), want %s", tc.reason, s.State, s.Error, tc.soon)
	}
	advance(2 * time.Minute)
	states, first := make(map[watch.State]int), stateOf(t, r)
	const looks = 200
	for range looks {
		advance(17 * time.Second)
		states[stateOf(t, r).State]++
	}
	if tc.state != "" && states[tc.state] != looks {
		t.Errorf("\n%s\nhow often the watch was in which state: %v, want %s", tc.reason, states, tc.state)
	}
	bad := tc.state == watch.StateDormant || tc.state == watch.StateDegraded
	s := stateOf(t, r)
	if tc.state != "" && bad != (s.Error != "") || !strings.Contains(s.Error, tc.says) {
		t.Errorf("\n%s\nin state %s the error is %q, want one with %q", tc.reason, s.State, s.Error, tc.says)
	}
	if tc.state != "" {
		expectEqual(t, tc.reason, "since when the watch is in its state", first.Since, s.Since)
	}
	if tc.life && (s.Since != at.Since || s.Generation != at.Generation) {
		t.Errorf("\n%s\nthe watch is another one: %+v, was %+v", tc.reason, s, at)
	}
	expectEqual(t, tc.reason, "log lines by others", "", strings.Join(others.all()[logged:], "\n"))
	said := slices.DeleteFunc(r.lines.all(), func(l string) bool { return !strings.Contains(l, widget.GVK.Kind) })
	if bad && len(said) != 1 || tc.life && len(said) > 0 {
		t.Errorf("\n%s\nin an hour of %s: %d log lines\n%s", tc.reason, s.State, len(said), strings.Join(said, "\n"))
	}
	if failed := r.failed(); bad && !failed || tc.life && failed {
		t.Errorf("\n%s\nfailures are counted: %t", tc.reason, failed)
	}
	err := r.readFor(time.Second, widget, "stays")
	if readable := tc.lists || tc.readable && !before; tc.state != "" &&
		readable != (client.IgnoreNotFound(err) == nil) {
		t.Errorf("\n%s\nGet(...) in state %s: %v", tc.reason, s.State, err)
	}
	if n := rec.count("delete", "goes"); tc.state == watch.StateDegraded && n != 0 || tc.state == watch.StateDormant &&
		!before && n != 1 {
		t.Errorf("\n%s\nin state %s an object was deleted %d times", tc.reason, s.State, n)
	}

	// What happens meanwhile.
	if len(api.Objects(widget)) > 0 {
		api.Remove(widget, widget.Key("goes"))
		api.Remove(widget, widget.Key("again"))
		api.Put(widget.Object("again"), widget) // Another object of the name.
		api.Put(widget.Object("comes"), widget)
		if api.Open(watchtest.Of(widget)) == 0 {
			api.Compact(widget)
		}
	}
	if end != nil {
		end()
	}
	advance(10 * time.Minute)
	if s := stateOf(t, r); s.State != watch.StateActive || s.Error != "" || tc.state == watch.StateDormant &&
		s.Generation <= at.Generation {
		t.Errorf(
			"\n%s\nwhen all is well the watch is %s in generation %d: %s", tc.reason, s.State, s.Generation, s.Error,
		)
	}
	delivered := stateOf(t, r).Delivered
	api.Put(widget.Object("last"), widget)
	advance(time.Second)
	expectEqual(t, tc.reason, "what the handler was told", "", rec.wrong(api.Objects(widget)))
	expectBetween(t, tc.reason, "creations of an object that came meanwhile", 0, 1, rec.count("create", "comes"))
	expectEqual(t, tc.reason, "events of an object that came, counted", []any{1, delivered + 1}, []any{
		rec.count("", "last"), stateOf(t, r).Delivered,
	})
	expectEqual(t, tc.reason, "informers", max(1, len(tc.opts.DefaultNamespaces)), api.Open(watchtest.Of(widget)))
	expectEqual(t, tc.reason, "Get(...)", nil, r.read(t.Context(), widget, "last"))
	r.stop("c")
	n := len(rec.all())
	api.Put(widget.Object("late"), widget)
	advance(time.Minute)
	expectEqual(t, tc.reason, "events, also after Stop", n, len(rec.all()))
}
