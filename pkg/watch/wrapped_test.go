package watch_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A fork that changes nothing but the import wraps the cache that it has, and
// starts that.
func TestWrappedCache(t *testing.T) {
	k := watchtest.NewKind("Widget")
	cases := map[string]struct {
		reason string
		do     func(t *testing.T, r *rig, plain cache.Cache, rec *recorder)
	}{
		"StartedLater": {
			reason: "Before the cache is started there is nothing to wait for, and reads fail; afterwards all is delivered.",
			do: func(t *testing.T, r *rig, plain cache.Cache, rec *recorder) {
				took, err := timed(func() error { return r.StartWatches(t.Context(), "c", watchOf(k, rec)) })
				if err != nil || took > quick {
					t.Errorf("StartWatches(...) before the cache is started: %v after %s", err, took)
				}
				took, err = timed(func() error { return r.read(t.Context(), k, "one") })
				if client.IgnoreNotFound(err) == nil || took > quick {
					t.Errorf("Get(...) before the cache is started: %v after %s", err, took)
				}

				// A read of what syncs waits, as with the other cache.
				defer r.api.Inject(watchtest.Of(k), watchtest.Delay(5*time.Second))()
				started := background(func() error { startCache(t, plain); return nil })
				pass(time.Second)
				r.reads(k)
				<-started
			},
		},
		"StartedTwice": {
			reason: "A cache that was started isn't started again, and runs on.",
			do: func(t *testing.T, r *rig, _ cache.Cache, rec *recorder) {
				startCache(t, r.cache)
				r.watch("c", watchOf(k, rec))
				if err := r.cache.Start(t.Context()); err == nil {
					t.Error("Start(...) of a cache that runs: no error")
				}
				r.reads(k)
			},
		},
		"RemovedOther": {
			reason: "An informer that was asked for directly can be removed.",
			do: func(t *testing.T, r *rig, plain cache.Cache, rec *recorder) {
				startCache(t, plain)
				other := watchtest.NewKind("Gadget")
				r.api.Define(other)
				if _, err := plain.GetInformer(t.Context(), other.New()); err != nil {
					t.Fatal(err)
				}
				r.remove(other)
				pass(time.Second)
				if n := r.api.Open(watchtest.Of(other)); n != 0 {
					t.Errorf("%d informers are left", n)
				}
				r.watch("c", watchOf(k, rec))
			},
		},
		"RemovedBySomebody": {
			reason: "An informer that is removed from the other cache is replaced.",
			do: func(t *testing.T, r *rig, plain cache.Cache, rec *recorder) {
				startCache(t, plain)
				r.watch("c", watchOf(k, rec))
				for range 3 {
					if err := plain.RemoveInformer(t.Context(), k.New()); err != nil {
						t.Fatal(err)
					}
					pass(10 * time.Second)
				}
			},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(k)
			api.Put(k.Object("one"), k)
			r, plain := around(t, api)
			r.mgr.Elect()
			r.start("c", idle())
			rec := &recorder{}
			tc.do(t, r, plain, rec)
			if n := rec.count("create", "one"); n == 0 {
				t.Errorf("\n%s\nan object that was there wasn't delivered", tc.reason)
			}
			rec.forget()
			api.Put(k.Object("two"), k)
			pass(time.Second)
			if n := rec.count("create", "two"); n != 1 {
				t.Errorf("\n%s\nan object that came was delivered %d times", tc.reason, n)
			}
			if err := r.Stop(t.Context(), "c"); err != nil {
				t.Errorf("\n%s\nStop(...): %v", tc.reason, err)
			}
			rec.forget()
			api.Put(k.Object("three"), k)
			pass(time.Hour)
			if n := len(rec.all()); n != 0 {
				t.Errorf("\n%s\nafter Stop the handler got %d events", tc.reason, n)
			}
			if n := api.Open(watchtest.Of(k)); n != 0 {
				t.Errorf("\n%s\n%d informers are left", tc.reason, n)
			}
		})
	}
}

// A handler is removed from an informer that isn't ours, which may live on, as those of our
// cache do while they have handlers.
func TestWrapped_LeavesNoHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r := graft(t, watchtest.NewAPI(k))
		r.mgr.Elect()
		e := watch.New(r.mgr, struct{ watch.TrackingInformers }{r.cache}, nil, nil)
		if err := e.Start("c", watch.WithRuntimeOptions(idle().Runtime)); err != nil {
			t.Fatal(err)
		}
		rec := &recorder{}
		if err := e.StartWatches(t.Context(), "c", watch.WatchFor(k.New(), "x", rec)); err != nil {
			t.Fatal(err)
		}
		r.api.Put(k.Object("one"), k)
		pass(time.Second)
		if n := rec.count("create", "one"); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		if err := e.Stop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		if n := r.api.Open(watchtest.Of(k)); n != 0 {
			t.Errorf("%d informers are left", n)
		}
	})
}
