package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A kind in trouble delays no calls but those for it. In a batch each watch succeeds or
// fails on its own, with a typed error. No lock is held while something is logged.
func TestTroubleStaysWithItsKind(t *testing.T) {
	k, healthy, fresh := watchtest.NewKind("Trouble"), watchtest.NewKind("Healthy"), watchtest.NewKind("Fresh")
	cases := map[string]struct {
		reason string
		match  watchtest.Match
		fault  watchtest.Fault
		want   error // Nil if it takes a second.
	}{
		"NoSuchKind": {
			reason: "A kind that discovery doesn't serve doesn't exist.",
			match:  watchtest.DiscoveryOf(k),
			fault:  watchtest.Status(http.StatusNotFound),
			want:   watch.ErrNoSuchKind,
		},
		"ListNotFound": {
			reason: "A list that isn't found contradicts discovery, which serves the kind.",
			match:  watchtest.Of(k),
			fault:  watchtest.Status(http.StatusNotFound),
			want:   watch.ErrUnreachable,
		},
		"Forbidden": {
			reason: "Lists of the kind are forbidden.",
			match:  watchtest.Of(k),
			fault:  watchtest.Status(http.StatusForbidden),
			want:   watch.ErrForbidden,
		},
		"NotWatchable": {
			reason: "The kind can't be listed.",
			match:  watchtest.Of(k),
			fault:  watchtest.Status(http.StatusMethodNotAllowed),
			want:   watch.ErrNotWatchable,
		},
		"HangingList": {
			reason: "There is no error: the list takes too long.",
			match:  watchtest.Of(k),
			fault:  watchtest.Hang(),
			want:   watch.ErrNotSynced,
		},
		"HangingDiscovery": {
			reason: "There is no error: discovery takes too long.",
			match:  watchtest.DiscoveryOf(k),
			fault:  watchtest.Hang(),
			want:   watch.ErrNotSynced,
		},
		"SlowDiscovery": {
			reason: "Slow discovery delays only calls for its kind.",
			match:  watchtest.DiscoveryOf(k),
			fault:  watchtest.Delay(time.Second),
			want:   nil,
		},
		"Refused": {
			reason: "The API server can't be reached.",
			match:  watchtest.Of(k),
			fault:  watchtest.Refuse(),
			want:   watch.ErrUnreachable,
		},
		"DiscoveryRefused": {
			reason: "The API server can't be reached for discovery.",
			match:  watchtest.DiscoveryOf(k),
			fault:  watchtest.Refuse(),
			want:   watch.ErrUnreachable,
		},
		"Throttled": {
			reason: "An API server that throttles requests counts as one that can't be reached.",
			match:  watchtest.Of(k),
			fault:  watchtest.TooManyRequests(0),
			want:   watch.ErrUnreachable,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, watchtest.NewAPI(k, fresh))
			r.lines.before.set(func() { r.ours.Snapshot() })
			r.define(healthy)
			r.start("healthy", idleOptions())
			r.watch("healthy", newWatch(healthy, &recorder{}))
			defer r.api.Inject(tc.match, tc.fault)()
			rec := &recorder{}
			started := background(func() error {
				return r.watchFor(5*time.Second, "c", newWatch(k, &recorder{}), newWatch(healthy, rec))
			})
			read := background(func() error { return r.readFor(5*time.Second, k, "one") })
			advance(time.Millisecond)
			for _, c := range []struct {
				name string
				fn   func() error
			}{
				{name: "Get", fn: func() error { return r.read(t.Context(), healthy, "one") }},
				{name: "List", fn: func() error { return r.list(t.Context(), healthy) }},
				{name: "ListOfANewKind", fn: func() error { return r.list(t.Context(), fresh) }},
				{name: "StartWatches", fn: func() error {
					return r.StartWatches(t.Context(), "healthy", newWatch(healthy, &recorder{}))
				}},
				{name: "StartWatchesOfANewKind", fn: func() error {
					return r.StartWatches(t.Context(), "c", newWatch(fresh, &recorder{}))
				}},
				{name: "StopWatches", fn: func() error {
					_, err := r.StopWatches(t.Context(), "healthy", watchIDOf(healthy))
					return err
				}},
				{name: "Start", fn: func() error { return r.Start("other", idleOptions()) }},
				{name: "IsRunning", fn: func() error { r.IsRunning("other"); return nil }},
				{name: "Stop", fn: func() error { return r.Stop(t.Context(), "other") }},
			} {
				expectWithin(t, tc.reason, c.name, quick, nil, c.fn)
			}
			expectEqual(t, tc.reason, "events of the watch of a healthy kind", 1, rec.count("create", "one"))
			err := <-started
			for _, reason := range []error{
				watch.ErrNoSuchKind, watch.ErrForbidden, watch.ErrNotWatchable, watch.ErrNotSynced,
				watch.ErrUnreachable,
			} {
				expectEqual(
					t, tc.reason, fmt.Sprintf("errors.Is(%v, %v)", err, reason), errors.Is(tc.want, reason),
					errors.Is(err, reason),
				)
			}

			// A reader would take an object for deleted.
			expectEqual(t, tc.reason, "IsNotFound, IsNoMatchError", []bool{
				false, errors.Is(tc.want, watch.ErrNoSuchKind),
			}, []bool{kerrors.IsNotFound(err), meta.IsNoMatchError(err)})
			if ke := (*watch.KindError)(nil); tc.want != nil && (!errors.As(err, &ke) || ke.GVK != k.GVK) {
				t.Errorf("\n%s\nthe error doesn't say which kind: %v", tc.reason, err)
			}
			<-read
		})
	}
}

// No call outlives its context by more than 100 ms while the API server and handlers hang.
func TestCallsEndWithTheirContext(t *testing.T) {
	const patience = 50 * time.Millisecond

	// Each gets an environment with an API that answers nothing, and a running controller
	// whose reconcile and handler never return.
	cases := map[string]func(ctx context.Context, r *testEnv) error{
		"StartWatches": func(ctx context.Context, r *testEnv) error {
			return r.StartWatches(ctx, "c", newWatch(widget, &recorder{}))
		},
		"StopWatches": func(ctx context.Context, r *testEnv) error {
			_, err := r.StopWatches(ctx, "c", watchIDOf(watchtest.NewKind("Busy")))
			return err
		},
		"Stop": func(ctx context.Context, r *testEnv) error { return r.Stop(ctx, "c") },
		"GarbageCollectCustomResourceInformers": func(ctx context.Context, r *testEnv) error {
			return r.GarbageCollectCustomResourceInformers(ctx)
		},
		"Get": func(ctx context.Context, r *testEnv) error { return r.read(ctx, widget, "one") },
		"IndexField": func(ctx context.Context, r *testEnv) error {
			return r.infs.IndexField(ctx, widget.New(), "spec.x", func(client.Object) []string { return nil })
		},
		"IsAuthorizedFor": func(ctx context.Context, r *testEnv) error {
			_, err := r.ours.IsAuthorizedFor(ctx, widget.GVK, "default")
			return err
		},
	}
	for name, call := range cases {
		inBubble(t, name, func(t *testing.T) {
			busy := watchtest.NewKind("Busy")
			api := watchtest.NewAPI(widget, busy)
			api.Put(busy.Object("one"), busy)
			r := newGraftEnv(t, api)
			r.mgr.Elect()
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			r.start("c", withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				<-release
				return reconcile.Result{}, nil
			}))

			// The first event gets through, the second doesn't.
			n := 0
			r.watch("c", newWatch(busy, newRecorder(func() {
				if n++; n > 1 {
					<-release
				}
			})))
			advance(time.Millisecond)
			api.Put(busy.Object("two"), busy)
			advance(time.Millisecond)
			thaw := api.Freeze()
			defer thaw()
			took, err := timed(func() error {
				return withTimeout(t, patience, func(ctx context.Context) error { return call(ctx, r) })
			})
			expectBetween(t, "It heeds its context.", "time of the call", 0, patience+quick, took)
			if err == nil && name != "IndexField" {
				t.Error("no error, though nothing answers")
			}
		})
	}
}
