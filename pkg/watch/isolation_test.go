package watch_test

import (
	"context"
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

// A kind in trouble delays no calls but those for it.
func TestTroubleStaysWithItsKind(t *testing.T) {
	k := watchtest.NewKind("Trouble")
	cases := map[string]struct {
		reason string
		match  watchtest.Match
		fault  watchtest.Fault
	}{
		"HangingList":      {"The list never comes.", watchtest.Of(k), watchtest.Hang()},
		"HangingDiscovery": {"Discovery of the kind hangs.", watchtest.DiscoveryOf(k), watchtest.Hang()},
		"SlowDiscovery":    {"It takes a while to say where the kind is.", watchtest.DiscoveryOf(k), watchtest.Delay(time.Second)},
		"Refused":          {"Connections are refused.", watchtest.Of(k), watchtest.Refuse()},
		"Throttled":        {"The API server has too much to do.", watchtest.Of(k), watchtest.TooManyRequests(1)},
		"Forbidden":        {"We may not list the kind.", watchtest.Of(k), watchtest.Status(http.StatusForbidden)},
		"Broken":           {"The API server fails.", watchtest.Of(k), watchtest.Status(http.StatusInternalServerError)},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			healthy, fresh := watchtest.NewKind("Healthy"), watchtest.NewKind("Fresh")
			api := watchtest.NewAPI(k, healthy, fresh)
			api.Put(healthy.Object("one"), healthy)
			r := graft(t, api)
			r.mgr.Elect()
			r.start("troubled", idle())
			r.start("healthy", idle())
			r.watch("healthy", watchOf(healthy, &recorder{}))
			lift := api.Inject(tc.match, tc.fault)
			defer lift()
			ctx, cancel := context.WithCancel(t.Context())
			started := background(func() error { return r.StartWatches(ctx, "troubled", watchOf(k, &recorder{})) })
			read := background(func() error { return r.read(ctx, k, "one") })
			pass(time.Millisecond)
			calls := []struct {
				name string
				fn   func() error
			}{
				{"Get", func() error { return r.read(t.Context(), healthy, "one") }},
				{"List", func() error { return r.list(t.Context(), healthy) }},
				{"ListOfANewKind", func() error { return r.list(t.Context(), fresh) }},
				{"StartWatches", func() error { return r.StartWatches(t.Context(), "healthy", watchOf(healthy, &recorder{})) }},
				{"StartWatchesOfANewKind", func() error { return r.StartWatches(t.Context(), "troubled", watchOf(fresh, &recorder{})) }},
				{"StopWatches", func() error { _, err := r.StopWatches(t.Context(), "healthy", idOf(healthy)); return err }},
				{"Start", func() error { return r.Start("other", idle()) }},
				{"IsRunning", func() error { r.IsRunning("other"); return nil }},
				{"Stop", func() error { return r.Stop(t.Context(), "other") }},
				{"StopOfItsOwn", func() error { return r.Stop(t.Context(), "troubled") }},
			}
			for _, c := range calls {
				if took, err := timed(c.fn); err != nil || took > quick {
					t.Errorf("\n%s\n%s: %v after %s", tc.reason, c.name, err, took)
				}
			}
			if err := <-started; err == nil && name != "SlowDiscovery" {
				t.Errorf("\n%s\nStartWatches(...) of the kind: no error", tc.reason)
			}
			cancel()
			<-read
		})
	}
}

// No call outlives its context by more than 100 ms, whatever doesn't answer.
func TestCallsEndWithTheirContext(t *testing.T) {
	const patience = 50 * time.Millisecond
	k := watchtest.NewKind("Widget")

	// Each gets a rig with an API that answers nothing, and a running controller
	// whose reconcile and handler never return.
	cases := map[string]func(ctx context.Context, r *rig) error{
		"StartWatches": func(ctx context.Context, r *rig) error { return r.StartWatches(ctx, "c", watchOf(k, &recorder{})) },
		"StopWatches": func(ctx context.Context, r *rig) error {
			_, err := r.StopWatches(ctx, "c", idOf(watchtest.NewKind("Busy")))
			return err
		},
		"Stop": func(ctx context.Context, r *rig) error { return r.Stop(ctx, "c") },
		"GarbageCollectCustomResourceInformers": func(ctx context.Context, r *rig) error {
			return r.GarbageCollectCustomResourceInformers(ctx)
		},
		"Get":         func(ctx context.Context, r *rig) error { return r.read(ctx, k, "one") },
		"List":        func(ctx context.Context, r *rig) error { return r.list(ctx, k) },
		"GetInformer": func(ctx context.Context, r *rig) error { _, err := r.infs.GetInformer(ctx, k.New()); return err },
		"GetInformerForKind": func(ctx context.Context, r *rig) error {
			_, err := r.infs.GetInformerForKind(ctx, watchtest.CRD().GVK)
			return err
		},
		"IndexField": func(ctx context.Context, r *rig) error {
			return r.infs.IndexField(ctx, k.New(), "spec.x", func(client.Object) []string { return nil })
		},
		"IsAuthorizedFor": func(ctx context.Context, r *rig) error {
			_, err := r.ours.IsAuthorizedFor(ctx, k.GVK, "default")
			return err
		},
		"CachedClient": func(ctx context.Context, r *rig) error { return r.ours.GetCached().Get(ctx, k.Key("one"), k.New()) },
	}
	for name, call := range cases {
		inBubble(t, name, func(t *testing.T) {
			busy := watchtest.NewKind("Busy")
			api := watchtest.NewAPI(k, busy)
			api.Put(busy.Object("one"), busy)
			r := graft(t, api)
			r.mgr.Elect()
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			r.start("c", reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				<-release
				return reconcile.Result{}, nil
			}))

			// The first event gets through, the second doesn't.
			n := 0
			rec := &recorder{before: func() {
				if n++; n > 1 {
					<-release
				}
			}}
			r.watch("c", watchOf(busy, rec))
			pass(time.Millisecond)
			api.Put(busy.Object("two"), busy)
			pass(time.Millisecond)
			thaw := api.Freeze()
			defer thaw()
			took, err := timed(func() error {
				return limited(t, patience, func(ctx context.Context) error { return call(ctx, r) })
			})
			if took > patience+quick {
				t.Errorf("took %s with a context of %s: %v", took, patience, err)
			}
			if err == nil && name != "IndexField" {
				t.Error("no error, though nothing answers")
			}
		})
	}
}

// In a batch each watch succeeds or fails on its own, with a typed error.
func TestEachWatchHasItsOwnError(t *testing.T) {
	k := watchtest.NewKind("Trouble")
	cases := map[string]struct {
		reason string
		match  watchtest.Match
		fault  watchtest.Fault
		want   error
	}{
		"NoSuchKind": {
			reason: "A resource that isn't there means that there is no such kind.",
			match:  watchtest.DiscoveryOf(k), fault: watchtest.Status(http.StatusNotFound), want: watch.ErrNoSuchKind,
		},
		"ListNotFound": {
			reason: "So does a list that isn't there.",
			match:  watchtest.Of(k), fault: watchtest.Status(http.StatusNotFound), want: watch.ErrNoSuchKind,
		},
		"Forbidden": {
			reason: "We may not list it.",
			match:  watchtest.Of(k), fault: watchtest.Status(http.StatusForbidden), want: watch.ErrForbidden,
		},
		"NotWatchable": {
			reason: "Some kinds can't be listed.",
			match:  watchtest.Of(k), fault: watchtest.Status(http.StatusMethodNotAllowed), want: watch.ErrNotWatchable,
		},
		"NotSynced": {
			reason: "Nothing is known to be wrong: it takes too long.",
			match:  watchtest.Of(k), fault: watchtest.Hang(), want: watch.ErrNotSynced,
		},
		"Refused": {
			reason: "The API server can't be reached.",
			match:  watchtest.Of(k), fault: watchtest.Refuse(), want: watch.ErrUnreachable,
		},
		"DiscoveryRefused": {
			reason: "Nor can it be asked where the kind is.",
			match:  watchtest.DiscoveryOf(k), fault: watchtest.Refuse(), want: watch.ErrUnreachable,
		},
		"Throttled": {
			reason: "One that sends us away is as good as one that can't be reached.",
			match:  watchtest.Of(k), fault: watchtest.TooManyRequests(0), want: watch.ErrUnreachable,
		},
	}
	reasons := []error{watch.ErrNoSuchKind, watch.ErrForbidden, watch.ErrNotWatchable, watch.ErrNotSynced, watch.ErrUnreachable}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			healthy := watchtest.NewKind("Healthy")
			r := running(t, watchtest.NewAPI(k))
			r.define(healthy)
			defer r.api.Inject(tc.match, tc.fault)()
			rec := &recorder{}
			err := r.watchFor(5*time.Second, "c", watchOf(k, &recorder{}), watchOf(healthy, rec))
			for _, reason := range reasons {
				if got, want := errors.Is(err, reason), errors.Is(tc.want, reason); got != want {
					t.Errorf("\n%s\nerrors.Is(%v, %v): got %t, want %t", tc.reason, err, reason, got, want)
				}
			}

			// A reader would take an object for deleted.
			if kerrors.IsNotFound(err) || meta.IsNoMatchError(err) != errors.Is(tc.want, watch.ErrNoSuchKind) {
				t.Errorf("\n%s\nIsNotFound: %t, IsNoMatchError: %t: %v", tc.reason, kerrors.IsNotFound(err), meta.IsNoMatchError(err), err)
			}
			var ke *watch.KindError
			if !errors.As(err, &ke) || ke.GVK != k.GVK {
				t.Errorf("\n%s\nthe error doesn't say which kind: %v", tc.reason, err)
			}
			pass(time.Millisecond)
			if n := rec.count("create", "one"); n != 1 {
				t.Errorf("\n%s\nthe watch of a healthy kind got %d events", tc.reason, n)
			}
		})
	}
}
