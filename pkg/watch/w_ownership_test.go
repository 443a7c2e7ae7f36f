package watch_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// W12: an informer runs for as long as somebody owns it, and a while longer.
func TestW12InformersHaveOwners(t *testing.T) {
	k := watchtest.NewKind("Widget")

	const (
		linger     = time.Minute
		readLinger = 5 * time.Minute
	)

	// Each owns the informer, and says how to let go, and how long it then stays.
	cases := map[string]struct {
		reason string
		own    func(t *testing.T, r *rig) (release func())
		stays  time.Duration
	}{
		"Watch": {
			reason: "A watch owns its informer until it is stopped.",
			own: func(t *testing.T, r *rig) func() {
				t.Helper()
				r.start("c", idle())

				if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
					t.Fatal(err)
				}

				return func() {
					if _, err := r.StopWatches(t.Context(), "c", idOf(k)); err != nil {
						t.Error(err)
					}
				}
			},
			stays: linger,
		},
		"Controller": {
			reason: "Or its controller is.",
			own: func(t *testing.T, r *rig) func() {
				t.Helper()
				r.start("c", idle())

				if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
					t.Fatal(err)
				}

				return func() {
					if err := r.Stop(t.Context(), "c"); err != nil {
						t.Error(err)
					}
				}
			},
			stays: linger,
		},
		"Handler": {
			reason: "A handler that was added owns it until it is removed.",
			own: func(t *testing.T, r *rig) func() {
				t.Helper()

				inf, err := r.infs.GetInformer(t.Context(), k.New())
				if err != nil {
					t.Fatal(err)
				}

				reg, err := inf.AddEventHandler((&recorder{}).funcs())
				if err != nil {
					t.Fatal(err)
				}

				return func() {
					if err := inf.RemoveEventHandler(reg); err != nil {
						t.Error(err)
					}
				}
			},
			stays: readLinger,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := watchtest.NewAPI(k)
				r := newGraft(t, api, api.Config(), []watch.CacheOption{watch.WithLinger(linger), watch.WithReadLinger(readLinger)})
				r.mgr.Elect()

				running := func() bool { return api.Open(watchtest.Of(k)) > 0 }

				release := tc.own(t, r)

				pass(24 * time.Hour)

				if !running() {
					t.Fatalf("\n%s\nthe informer doesn't run", tc.reason)
				}

				release()
				pass(linger / 2)

				if !running() {
					t.Errorf("\n%s\nthe informer is gone at once", tc.reason)
				}

				pass(tc.stays)

				if running() {
					t.Errorf("\n%s\nthe informer runs %s after its owner went", tc.reason, linger/2+tc.stays)
				}

				// It isn't missed.
				if err := limited(t, time.Second, func(ctx context.Context) error { return r.list(ctx, k) }); err != nil {
					t.Errorf("\n%s\nList(...) afterwards: %v", tc.reason, err)
				}

				pass(readLinger / 2)

				if !running() {
					t.Errorf("\n%s\nthe informer of a recent read is gone", tc.reason)
				}

				pass(readLinger)

				if running() {
					t.Errorf("\n%s\nthe informer of an old read runs", tc.reason)
				}
			})
		})
	}
}

// W12: reads own their informer, so that one that is read now and then stays.
func TestW12ReadsKeepInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)

		r := newGraft(t, api, api.Config(), []watch.CacheOption{watch.WithReadLinger(time.Minute)})

		for range 100 {
			if err := r.read(t.Context(), k, "one"); err != nil {
				t.Fatal(err)
			}

			pass(50 * time.Second)
		}

		if n := len(api.Requests(watchtest.Of(k))); n != 1 {
			t.Errorf("an informer that is read every 50 seconds was made %d times", n)
		}
	})
}

// W12: an index stays with its kind, whoever else comes and goes.
func TestW12IndexesStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)

		o := k.Object("one")
		o.SetLabels(map[string]string{"colour": "red"})
		api.Put(o, k)

		r := graft(t, api)
		r.mgr.Elect()

		if err := r.infs.IndexField(t.Context(), k.New(), "colour", func(o client.Object) []string {
			return []string{o.GetLabels()["colour"]}
		}); err != nil {
			t.Fatal(err)
		}

		for range 5 {
			l := k.NewList()
			if err := r.reader.List(t.Context(), l, client.MatchingFields{"colour": "red"}); err != nil || len(l.Items) != 1 {
				t.Fatalf("List(...) by index: %d objects, %v", len(l.Items), err)
			}

			r.start("c", idle())

			if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
				t.Fatal(err)
			}

			if err := r.Stop(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}

			pass(24 * time.Hour)
		}
	})
}

// W12: whatever one owner does, or fails to, is none of another's business.
func TestW12OwnersDontAffectEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		r := graft(t, api)
		r.mgr.Elect()

		lift := api.Inject(watchtest.Of(k), watchtest.Hang())
		defer lift()

		patient := &recorder{}

		r.start("patient", idle())

		done := background(func() error { return r.StartWatches(t.Context(), "patient", watchOf(k, patient)) })

		// Others give up, are stopped, or remove what they asked for.
		for i := range 10 {
			name := fmt.Sprintf("impatient%d", i)
			r.start(name, idle())

			if err := limited(t, time.Second, func(ctx context.Context) error {
				return r.StartWatches(ctx, name, watchOf(k, &recorder{}))
			}); err == nil {
				t.Error("StartWatches(...): no error")
			}

			if err := limited(t, time.Second, func(ctx context.Context) error { return r.read(ctx, k, "one") }); err == nil {
				t.Error("Get(...): no error")
			}

			if err := r.Stop(t.Context(), name); err != nil {
				t.Error(err)
			}
		}

		lift()

		if err := <-done; err != nil {
			t.Errorf("StartWatches(...) of one who waited: %v", err)
		}

		api.Put(k.Object("one"), k)
		pass(time.Second)

		if n := patient.count("create", "one"); n != 1 {
			t.Errorf("the watch of one who waited got %d events, want 1", n)
		}
	})
}

// W12: what an informer kept can be collected when it is gone.
func TestW12StoresAreCollected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		r := graft(t, api)
		r.mgr.Elect()
		r.start("c", idle())

		// The handler remembers, weakly, what the informer's store holds.
		var kept weak.Pointer[byte]

		w := watchOf(k, handlerFuncs(func(o client.Object) {
			if big, ok := o.GetAnnotations()["big"]; ok {
				kept = weak.Make(unsafe.StringData(big))
			}
		}))

		if err := r.StartWatches(t.Context(), "c", w); err != nil {
			t.Fatal(err)
		}

		o := k.Object("one")
		o.SetAnnotations(map[string]string{"big": fmt.Sprintf("%01000000d", 1)})
		api.Put(o, k)

		o = nil
		_ = o

		pass(time.Second)
		runtime.GC()

		if kept.Value() == nil {
			t.Fatal("the informer doesn't keep the object; the test proves nothing")
		}

		if err := r.Stop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}

		pass(time.Hour)
		runtime.GC()
		runtime.GC()

		if kept.Value() != nil {
			t.Error("an object of an informer that is gone is still reachable")
		}
	})
}

// W12: what is removed isn't kept by what was read before.
func TestW12RemovedInformersArentKeptByReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)

		r := graft(t, api)

		if err := r.read(t.Context(), k, "one"); err != nil {
			t.Fatal(err)
		}

		if err := r.infs.RemoveInformer(t.Context(), k.New()); err != nil {
			t.Fatal(err)
		}

		pass(time.Second)

		if n := api.Open(watchtest.Of(k)); n != 0 {
			t.Errorf("%d informers watch a kind whose informer was removed", n)
		}
	})
}
