package watch_test

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// What was deleted in a gap is delivered as deleted, once; what
// stayed isn't; what came is delivered as created.
func TestGapsAreFilled(t *testing.T) {
	k := watchtest.NewKind("Widget")

	// Each opens a gap, calls meanwhile in it, and closes it.
	cases := map[string]struct {
		reason string
		gap    func(t *testing.T, r *rig, meanwhile func(k watchtest.Kind))
		crds   bool
	}{
		"Disconnected": {
			reason: "The watch was cut, and its server remembers nothing.",
			gap: func(_ *testing.T, r *rig, meanwhile func(watchtest.Kind)) {
				lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
				r.api.Disconnect(watchtest.Of(k))
				meanwhile(k)
				r.api.Compact(k)
				lift()
			},
		},
		"Down": {
			reason: "The API server was away.",
			gap: func(_ *testing.T, r *rig, meanwhile func(watchtest.Kind)) {
				up := r.api.Down()
				pass(10 * time.Minute)
				meanwhile(k)
				r.api.Compact(k)
				up()
			},
		},
		"RemoveInformer": {
			reason: "The informer was removed, and another knows nothing of what there was.",
			gap: func(t *testing.T, r *rig, meanwhile func(watchtest.Kind)) {
				t.Helper()
				lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
				r.remove(k)
				pass(time.Minute)
				meanwhile(k)
				lift()
			},
		},
		"Forbidden": {
			reason: "We were not allowed to look.",
			gap: func(_ *testing.T, r *rig, meanwhile func(watchtest.Kind)) {
				lift := r.api.Inject(watchtest.Of(k), watchtest.Status(403))
				r.api.Disconnect(watchtest.Of(k))
				pass(10 * time.Minute)
				meanwhile(k)
				r.api.Compact(k)
				lift()
			},
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := watching(t, k, tc.crds)
			for i := range 3 {
				r.api.Put(k.Object(fmt.Sprintf("stays%d", i)), k)
				r.api.Put(k.Object(fmt.Sprintf("goes%d", i)), k)
				r.api.Put(k.Object(fmt.Sprintf("again%d", i)), k)
			}
			pass(time.Second)
			rec.forget()
			tc.gap(t, r, func(k watchtest.Kind) {
				for i := range 3 {
					r.api.Remove(k, k.Key(fmt.Sprintf("goes%d", i)))
					r.api.Put(k.Object(fmt.Sprintf("comes%d", i)), k)

					// Another object of the same name.
					r.api.Remove(k, k.Key(fmt.Sprintf("again%d", i)))
					r.api.Put(k.Object(fmt.Sprintf("again%d", i)), k)
				}
			})
			pass(5 * time.Minute)
			for i := range 3 {
				for n, want := range map[string]struct{ deletes, creates int }{
					fmt.Sprintf("stays%d", i): {0, -1},
					fmt.Sprintf("goes%d", i):  {1, 0},
					fmt.Sprintf("comes%d", i): {0, 1},
					fmt.Sprintf("again%d", i): {1, 1},
				} {
					if got := rec.count("delete", n); got != want.deletes {
						t.Errorf("\n%s\n%s was deleted %d times, want %d", tc.reason, n, got, want.deletes)
					}
					if got := rec.count("create", n); want.creates >= 0 && got != want.creates {
						t.Errorf("\n%s\n%s was created %d times, want %d", tc.reason, n, got, want.creates)
					}
				}
			}
		})
	}
}

// Watches that come at different times are told the same. What was there
// before is marked as such.
func TestLateWatchesAreToldAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, first := watching(t, k, true)
		r.api.Put(k.Object("two"), k)
		pass(time.Second)
		for i := range 5 {
			name := fmt.Sprintf("late%d", i)
			r.start(name, idle())
			rec := &recorder{}
			r.watch(name, watchOf(k, rec))
			pass(time.Second)
			for _, n := range []string{"one", "two"} {
				if got := rec.count("create", n); got != 1 {
					t.Errorf("a late watch was told %d times of %s", got, n)
				}
			}
			for _, e := range rec.all() {
				if !e.initial {
					t.Errorf("what was there before isn't marked as such: %+v", e)
				}
			}
		}
		for _, e := range first.all() {
			if e.initial != (e.name == "one") {
				t.Errorf("only one was there before the first watch: %+v", e)
			}
		}
	})
}

// An informer that the cache hands out lives on through its kind's lives.
func TestHandlersOfInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, _ := watching(t, k, true)
		inf, err := r.infs.GetInformer(t.Context(), k.New())
		if err != nil {
			t.Fatal(err)
		}
		rec := &recorder{}
		reg, err := inf.AddEventHandler(rec.funcs())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the handler has synced", reg.HasSynced)
		if n := rec.count("create", "one"); n != 1 {
			t.Errorf("HasSynced is true, and the handler was told %d times of what is there", n)
		}
		r.api.Undefine(k)
		pass(time.Hour)
		r.api.Define(k)
		r.api.Put(k.Object("two"), k)
		pass(time.Second)
		if d, c := rec.count("delete", "one"), rec.count("create", "two"); d != 1 || c != 1 {
			t.Errorf("the handler was told %d times that an object went, %d times that one came; want 1, 1", d, c)
		}
		if err := inf.RemoveEventHandler(reg); err != nil {
			t.Errorf("RemoveEventHandler(...): %v", err)
		}
		rec.forget()
		r.api.Put(k.Object("three"), k)
		pass(time.Second)
		if n := len(rec.all()); n != 0 {
			t.Errorf("a handler that was removed got %d events", n)
		}
	})
}

// A slow handler holds up neither others, nor reads, nor itself.
func TestSlowHandlersHoldUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, quickRec := watching(t, k, false)
		r.start("slow", idle())
		rec := &recorder{before: func() { time.Sleep(time.Minute) }}
		if took, err := timed(func() error { return r.StartWatches(t.Context(), "slow", watchOf(k, rec)) }); err != nil || took > quick {
			t.Errorf("StartWatches(...) with a slow handler: %v after %s", err, took)
		}
		for i := range 100 {
			r.api.Put(k.Object(fmt.Sprintf("w%d", i)), k)
		}
		pass(time.Second)
		if n := len(quickRec.all()); n != 101 {
			t.Errorf("a quick handler got %d of 101 events after a second", n)
		}
		pass(2 * time.Hour)
		if n := len(rec.all()); n != 101 {
			t.Errorf("a slow handler got %d of 101 events", n)
		}
	})
}

// Watches of metadata are watches: they deliver, stop, and leave nothing.
func TestMetadataWatches(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			api := watchtest.NewAPI(k)
			o := k.Object("one")
			o.Object["spec"] = map[string]any{"big": "x"}
			api.Put(o, k)
			r := graft(t, api)
			r.mgr.Elect()
			for range 20 {
				r.start("c", idle())
				got := make(chan client.Object, 10)
				w := watchOf(k, handlerFuncs(func(o client.Object) { got <- o }))
				w.kind = partial(k)
				r.watch("c", w)
				if o := <-got; o.GetUID() == "" || o.GetObjectKind().GroupVersionKind() != k.GVK {
					t.Errorf("got %T %s with UID %q", o, o.GetObjectKind().GroupVersionKind(), o.GetUID())
				}
				r.stop("c")
				pass(time.Hour)
			}
		})
	}
}
