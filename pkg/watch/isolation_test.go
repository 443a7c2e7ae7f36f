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
		"NoSuchKind":       {"A resource that isn't there means that there is no such kind.", watchtest.DiscoveryOf(k), watchtest.Status(http.StatusNotFound), watch.ErrNoSuchKind},
		"ListNotFound":     {"A list that isn't found contradicts discovery, which serves the kind.", watchtest.Of(k), watchtest.Status(http.StatusNotFound), watch.ErrUnreachable},
		"Forbidden":        {"We may not list the kind.", watchtest.Of(k), watchtest.Status(http.StatusForbidden), watch.ErrForbidden},
		"NotWatchable":     {"Some kinds can't be listed.", watchtest.Of(k), watchtest.Status(http.StatusMethodNotAllowed), watch.ErrNotWatchable},
		"HangingList":      {"Nothing is known to be wrong: it takes too long.", watchtest.Of(k), watchtest.Hang(), watch.ErrNotSynced},
		"HangingDiscovery": {"Nor is anything if discovery does.", watchtest.DiscoveryOf(k), watchtest.Hang(), watch.ErrNotSynced},
		"SlowDiscovery":    {"It takes a while to say where the kind is.", watchtest.DiscoveryOf(k), watchtest.Delay(time.Second), nil},
		"Refused":          {"The API server can't be reached.", watchtest.Of(k), watchtest.Refuse(), watch.ErrUnreachable},
		"DiscoveryRefused": {"Nor can it be asked where the kind is.", watchtest.DiscoveryOf(k), watchtest.Refuse(), watch.ErrUnreachable},
		"Throttled":        {"One that sends us away is as good as one that can't be reached.", watchtest.Of(k), watchtest.TooManyRequests(0), watch.ErrUnreachable},
		"Broken":           {"So is one that fails.", watchtest.Of(k), watchtest.Status(http.StatusInternalServerError), watch.ErrUnreachable},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := running(t, watchtest.NewAPI(k, fresh))
			r.lines.before.set(func() { r.ours.Snapshot() })
			r.define(healthy)
			r.start("healthy", idle())
			r.watch("healthy", watchOf(healthy, &recorder{}))
			defer r.api.Inject(tc.match, tc.fault)()
			rec := &recorder{}
			started := background(func() error { return r.watchFor(5*time.Second, "c", watchOf(k, &recorder{}), watchOf(healthy, rec)) })
			read := background(func() error { return r.readFor(5*time.Second, k, "one") })
			pass(time.Millisecond)
			for _, c := range []struct {
				name string
				fn   func() error
			}{
				{"Get", func() error { return r.read(t.Context(), healthy, "one") }},
				{"List", func() error { return r.list(t.Context(), healthy) }},
				{"ListOfANewKind", func() error { return r.list(t.Context(), fresh) }},
				{"StartWatches", func() error { return r.StartWatches(t.Context(), "healthy", watchOf(healthy, &recorder{})) }},
				{"StartWatchesOfANewKind", func() error { return r.StartWatches(t.Context(), "c", watchOf(fresh, &recorder{})) }},
				{"StopWatches", func() error { _, err := r.StopWatches(t.Context(), "healthy", idOf(healthy)); return err }},
				{"Start", func() error { return r.Start("other", idle()) }},
				{"IsRunning", func() error { r.IsRunning("other"); return nil }},
				{"Stop", func() error { return r.Stop(t.Context(), "other") }},
			} {
				endsIn(t, tc.reason, c.name, quick, nil, c.fn)
			}
			wants(t, tc.reason, "events of the watch of a healthy kind", 1, rec.count("create", "one"))
			err := <-started
			for _, reason := range []error{watch.ErrNoSuchKind, watch.ErrForbidden, watch.ErrNotWatchable, watch.ErrNotSynced, watch.ErrUnreachable} {
				wants(t, tc.reason, fmt.Sprintf("errors.Is(%v, %v)", err, reason), errors.Is(tc.want, reason), errors.Is(err, reason))
			}

			// A reader would take an object for deleted.
			wants(t, tc.reason, "IsNotFound, IsNoMatchError", []bool{false, errors.Is(tc.want, watch.ErrNoSuchKind)}, []bool{kerrors.IsNotFound(err), meta.IsNoMatchError(err)})
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

	// Each gets a rig with an API that answers nothing, and a running controller
	// whose reconcile and handler never return.
	cases := map[string]func(ctx context.Context, r *rig) error{
		"StartWatches": func(ctx context.Context, r *rig) error { return r.StartWatches(ctx, "c", watchOf(widget, &recorder{})) },
		"StopWatches": func(ctx context.Context, r *rig) error {
			_, err := r.StopWatches(ctx, "c", idOf(watchtest.NewKind("Busy")))
			return err
		},
		"Stop": func(ctx context.Context, r *rig) error { return r.Stop(ctx, "c") },
		"GarbageCollectCustomResourceInformers": func(ctx context.Context, r *rig) error {
			return r.GarbageCollectCustomResourceInformers(ctx)
		},
		"Get":         func(ctx context.Context, r *rig) error { return r.read(ctx, widget, "one") },
		"List":        func(ctx context.Context, r *rig) error { return r.list(ctx, widget) },
		"GetInformer": func(ctx context.Context, r *rig) error { _, err := r.infs.GetInformer(ctx, widget.New()); return err },
		"GetInformerForKind": func(ctx context.Context, r *rig) error {
			_, err := r.infs.GetInformerForKind(ctx, watchtest.CRD().GVK)
			return err
		},
		"IndexField": func(ctx context.Context, r *rig) error {
			return r.infs.IndexField(ctx, widget.New(), "spec.x", func(client.Object) []string { return nil })
		},
		"IsAuthorizedFor": func(ctx context.Context, r *rig) error {
			_, err := r.ours.IsAuthorizedFor(ctx, widget.GVK, "default")
			return err
		},
		"CachedClient": func(ctx context.Context, r *rig) error {
			return r.ours.GetCached().Get(ctx, widget.Key("one"), widget.New())
		},
	}
	for name, call := range cases {
		inBubble(t, name, func(t *testing.T) {
			busy := watchtest.NewKind("Busy")
			api := watchtest.NewAPI(widget, busy)
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
			r.watch("c", watchOf(busy, calling(func() {
				if n++; n > 1 {
					<-release
				}
			})))
			pass(time.Millisecond)
			api.Put(busy.Object("two"), busy)
			pass(time.Millisecond)
			thaw := api.Freeze()
			defer thaw()
			took, err := timed(func() error {
				return limited(t, patience, func(ctx context.Context) error { return call(ctx, r) })
			})
			between(t, "It heeds its context.", "time of the call", 0, patience+quick, took)
			if err == nil && name != "IndexField" {
				t.Error("no error, though nothing answers")
			}
		})
	}
}
