package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A kind that was asked for while discovery didn't tell of it, though
// it is served, is found soon after discovery does.
func TestHiccupsOfDiscovery(t *testing.T) {
	spread := func(d time.Duration) time.Duration { return d * 6 / 5 }
	cases := map[string]struct {
		reason string
		crds   bool
		ended  bool // The watch of CRDs.
		kind   watchtest.Kind
		hiccup time.Duration
		within time.Duration
	}{
		"Short": {
			reason: "What failed for a moment is tried again at once.",
			crds:   true, kind: widget, hiccup: time.Second, within: 2 * time.Second,
		},
		"NoDefinition": {
			reason: "No event says when a kind without a CRD comes.",
			crds:   true, kind: watchtest.ConfigMap(), hiccup: 5 * time.Hour, within: spread(2 * time.Minute),
		},
		"DefinitionsNotWatched": {
			reason: "Without CRDs no event says so.",
			kind:   widget, hiccup: 5 * time.Hour, within: spread(time.Minute),
		},
		"DefinitionsNotWatchedAnyMore": {
			reason: "Nor does one when they aren't watched any more.",
			crds:   true, ended: true, kind: widget, hiccup: 5 * time.Hour, within: spread(time.Minute),
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(widget)
			r := newRunningEnv(t, api)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if tc.crds {
				mustSucceed(t, r.GarbageCollectCustomResourceInformers(ctx))
			}
			if tc.ended {
				inf, err := r.infs.GetInformer(t.Context(), &extv1.CustomResourceDefinition{})
				mustSucceed(t, err)
				_, err = inf.AddEventHandler((&recorder{}).funcs()) // Another use of the informer.
				mustSucceed(t, err)
				end()
			}
			advance(time.Hour)
			lift := api.Inject(watchtest.DiscoveryOf(tc.kind), watchtest.Status(http.StatusNotFound))
			_ = r.StartWatches(t.Context(), "c", newWatch(tc.kind, &recorder{}))
			expectState(t, r, tc.reason, "without discovery", watch.StateDormant)
			advance(tc.hiccup)
			lift()
			advance(tc.within + time.Second)
			expectState(t, r, tc.reason, "after the hiccup", watch.StateActive)
		})
	}
}

// Backoffs double up to a minute. Each kind's are longer by a part of its own, a fifth at most.
func TestBackoffIsSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, watchtest.NewAPI())
		var parts []float64
		for _, name := range []string{"A", "B"} {
			k := watchtest.NewKind(name)
			_ = r.StartWatches(t.Context(), "c", newWatch(k, &recorder{}))
			advance(6 * time.Minute)
			tries := r.api.Requests(watchtest.DiscoveryOf(k))
			for i, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
				part := tries[i+1].At.Sub(tries[i].At).Seconds()/want - 1
				expectBetween(t, "", fmt.Sprintf("how much longer backoff %d of %s is", i, name), 0, 0.2, part)
				parts = append(parts, part)
			}
		}
		expectEqual(t, "Kinds that fail together are retried apart.", "same backoffs", false, parts[0] == parts[8])
	})
}

// A kind that can be listed once, and then not again, is tried as seldom as one that can't
// be listed. One that works for a moment each time is tried less and less often.
func TestLostAgainAndAgain(t *testing.T) {
	for crds, name := range map[bool]string{true: "DefinitionsWatched", false: "DefinitionsNotWatched"} {
		inBubble(t, name, func(t *testing.T) {
			r, rec := newWatchingEnv(t, crds)

			// An informer syncs from its first list, which isn't streamed, and is lost at its second.
			defer r.api.Inject(watchtest.Of(widget).Initial(), watchtest.Status(http.StatusUnprocessableEntity))()
			lose := func() (lift func()) {
				var lists atomic.Int64
				m := func(r watchtest.Request) bool {
					return watchtest.Of(widget)(r) && !r.Initial && (r.Verb == watchtest.Watch || lists.Add(1)%2 == 1)
				}
				lift = r.api.Inject(
					watchtest.Match(m).Only(watchtest.List, watchtest.Watch),
					watchtest.Status(http.StatusNotFound).After(50*time.Millisecond),
				)
				r.api.Disconnect(watchtest.Of(widget))
				return lift
			}
			lift := lose()
			advance(10 * time.Minute)
			r.api.Forget()
			said := len(r.lines.all())
			advance(time.Hour)

			// Each time it is looked up, listed in two ways, watched, and listed in two ways again.
			expectBetween(
				t, "It is tried about once a minute.", "look-ups in an hour", 30, 60,
				len(r.api.Requests(watchtest.DiscoveryOf(widget))),
			)
			expectBetween(t, "", "requests in an hour", 0, 60*5, len(r.api.Requests(watchtest.Of(widget))))
			expectBetween(t, "Some are logged at first, and no more.", "log lines", 1, said, len(r.lines.all()))
			expectState(t, r, "It is no kind that works.", "lost again and again", watch.StateDegraded)

			// It comes back. A loss much later is a new trouble.
			lift()
			advance(5 * time.Minute)
			rec.forget()
			r.api.Put(widget.Object("two"), widget)
			advance(time.Second)
			expectState(t, r, "", "when all is well", watch.StateActive)
			expectEqual(t, "", "events when all is well", 1, rec.count("create", "two"))
			var took []time.Duration
			for range 3 {
				// The wait is before the informer is replaced, or, if the watch of that is lost too, after it.
				began, generation := time.Now(), stateOf(t, r).Generation
				lift = lose()
				eventually(t, "the informer is replaced", func() bool { return stateOf(t, r).Generation > generation })
				lift()
				eventually(t, "the watch is Active", func() bool { return stateOf(t, r).State == watch.StateActive })
				took = append(took, time.Since(began))
			}
			expectBetween(t, "It was lost once.", "time until the watch is Active", 0, 5*time.Second, took[0])
			expectBetween(
				t, "It was lost three times.", "time until the watch is Active", 5*time.Second, time.Hour, took[2],
			)
		})
	}
}

// An API server that is busy isn't asked ten times for each look-up.
func TestLookUps_OfABusyAPIServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.TooManyRequests(1))()
		_ = r.watchFor(time.Second, "c", newWatch(widget, &recorder{}))
		advance(10 * time.Minute)
		expectBetween(
			t, "At most two a minute.", "requests in an hour", 30, 120,
			requestsIn(time.Hour, r.api, watchtest.DiscoveryOf(widget)),
		)
	})
}

// Failures that take turns are one trouble: each is logged once. Failures of reads aren't
// logged, because the callers get them.
func TestLogs_OfFailuresThatTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		for range 60 {
			_ = r.read(t.Context(), watchtest.NewKind("Absent"), "one")
			advance(time.Minute)
		}
		r.watch("c", newWatch(widget, &recorder{}))
		fail := func(f watchtest.Fault) {
			defer r.api.Inject(watchtest.Of(widget), f)()
			r.api.Disconnect(watchtest.Of(widget))
			advance(time.Minute)
		}
		for _, want := range []int{2, 4} {
			for range 30 {
				fail(watchtest.Status(http.StatusForbidden))
				fail(watchtest.Status(http.StatusServiceUnavailable))
				advance(5 * time.Minute) // All is well, but not for long.
			}
			expectEqual(t, "", "log lines", want, len(r.lines.all()))
			advance(time.Hour) // All is well.
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
			specs := make([]baseline.Watch, kinds)
			for i := range specs {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				k.GVK.Group = fmt.Sprintf("g%d.example.org", i%groups)
				api.Define(k)
				specs[i] = newWatch(k, &recorder{})
			}
			cfg := api.Config()
			cfg.QPS, cfg.Burst = 10, 10
			r := newGraftEnvWith(t, api, cfg, cache.Options{})
			r.startController()
			r.watch("c", specs...)
			requests := api.Requests(watchtest.Everything().Only(watchtest.Discover))
			expectBetween(t, "", "look-ups", 0, 3*groups, len(requests))
			least, took := time.Duration(len(requests)-10)*time.Second/10,
				requests[len(requests)-1].At.Sub(requests[0].At)
			expectBetween(t, "The rate is configured.", "time of the look-ups", least, time.Hour, took)

			// Periodic look-ups of kinds that work are spread.
			defer api.Inject(watchtest.Everything().Only(watchtest.Discover), watchtest.Delay(10*time.Millisecond))()
			api.Forget()
			advance(time.Hour)
			requests = api.Requests(watchtest.Everything().Only(watchtest.Discover))
			expectBetween(t, "", "look-ups in an hour", 3*groups, 9*groups, len(requests))
			for i, r := range requests[10:] {
				expectBetween(t, "", "time of 10 look-ups", time.Second, time.Hour, r.At.Sub(requests[i].At))
			}
		})
	}
}

// A kind that worked for hours logs its next failure, also if the failure ends the informer.
func TestLogs_AgainAfterHours(t *testing.T) {
	answer := func(status int) func(r *testEnv) func() {
		return func(r *testEnv) func() {
			heal := r.api.Inject(watchtest.Of(widget), watchtest.Status(status))
			r.api.Disconnect(watchtest.Of(widget))
			return heal
		}
	}
	cases := map[string]struct {
		reason string
		fail   func(r *testEnv) (heal func())
	}{
		"CRDDeleted": {
			reason: "Each deletion of the CRD should be logged.",
			fail: func(r *testEnv) func() {
				r.api.Undefine(widget)
				return func() { r.api.Define(widget) }
			},
		},
		"ListNotFound": {
			reason: "Each time that lists answer 404 should be logged, though discovery serves the kind.",
			fail:   answer(http.StatusNotFound),
		},
		"Forbidden": {
			reason: "Each time that requests are forbidden should be logged, though the informer stays.",
			fail:   answer(http.StatusForbidden),
		},
		"InformerRemoved": {
			reason: "Each failure to replace a removed informer should be logged.",
			fail: func(r *testEnv) func() {
				heal := r.api.Inject(watchtest.Of(widget), watchtest.Status(http.StatusForbidden))
				r.remove(widget)
				return heal
			},
		},
	}
	for name, tc := range cases {
		for mode, crds := range map[string]bool{"CRDsWatched": true, "CRDsNotWatched": false} {
			inBubble(t, name+"/"+mode, func(t *testing.T) {
				r, _ := newWatchingEnv(t, crds)
				for before := range 3 {
					heal := tc.fail(r)
					advance(10 * time.Minute)
					expectEqual(t, tc.reason, "log lines after the failure", before+1, len(r.lines.all()))
					heal()
					advance(2 * time.Hour)
					expectState(t, r, tc.reason, "when all is well", watch.StateActive)
				}
			})
		}
	}
}
