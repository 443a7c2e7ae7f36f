package watch_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// An informer runs for as long as it has an owner, and a while longer.
func TestInformersHaveOwners(t *testing.T) {
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
				r.start("c", idle())
				r.watch("c", watchOf(k, &recorder{}))
				return func() { r.unwatch("c", idOf(k)) }
			},
			stays: linger,
		},
		"Handler": {
			reason: "A handler that was added owns it until it is removed.",
			own: func(t *testing.T, r *rig) func() {
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
					t.Cleanup(func() {
						if inf.HasSynced() || !inf.IsStopped() {
							t.Error("the informer of a kind that nothing owns isn't stopped")
						}
					})
				}
			},
			stays: readLinger,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(k)
			r := graft(t, api, watch.WithLinger(linger), watch.WithReadLinger(readLinger))
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

			// It isn't missed. The next one stays while it is read now and then.
			for range 10 {
				if err := limited(t, time.Second, func(ctx context.Context) error { return r.list(ctx, k) }); err != nil {
					t.Errorf("\n%s\nList(...) afterwards: %v", tc.reason, err)
				}
				pass(readLinger * 9 / 10)
			}
			if n := len(api.Requests(watchtest.Of(k).Initial())); n != 2 || !running() {
				t.Errorf("\n%s\n%d informers were made, want 2; one runs: %t", tc.reason, n, running())
			}
			pass(readLinger)
			if running() {
				t.Errorf("\n%s\nthe informer of an old read runs", tc.reason)
			}
		})
	}
}

// An informer stays synced while it is asked whether it is, as by a health check.
func TestHasSynced_KeepsInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, k := withOne(t)
		inf, err := r.infs.GetInformer(t.Context(), k.New())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 360 {
			pass(10 * time.Second)
			if !inf.HasSynced() {
				t.Fatalf("HasSynced(...) is false after %d s", 10*i)
			}
		}
	})
}

// Whatever one owner does, or fails to, is none of another's business.
func TestOwnersDontAffectEachOther(t *testing.T) {
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
			if err := r.watchFor(time.Second, name, watchOf(k, &recorder{})); err == nil {
				t.Error("StartWatches(...): no error")
			}
			if err := r.readFor(time.Second, k, "one"); err == nil {
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

// What an informer kept can be collected when it is gone.
func TestStoresAreCollected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		r := running(t, api)

		// The handler remembers, weakly, what the informer's store holds.
		var kept weak.Pointer[byte]
		w := watchOf(k, creating(func(_ context.Context, o client.Object) {
			if big, ok := o.GetAnnotations()["big"]; ok {
				kept = weak.Make(unsafe.StringData(big))
			}
		}))
		r.watch("c", w)
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
		r.stop("c")
		pass(time.Hour)
		runtime.GC()
		runtime.GC()
		if kept.Value() != nil {
			t.Error("an object of an informer that is gone is still reachable")
		}
	})
}

// A watch that was stopped leaves nothing behind on a kind that is kept, whether its
// controller ran or runs afterwards.
func TestHandlersAreCollected(t *testing.T) {
	for name, later := range map[string]bool{"Running": false, "NotElected": true} {
		inBubble(t, name, func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			api := watchtest.NewAPI(k)
			api.Put(k.Object("one"), k)
			r := graft(t, api)
			r.reads(k)
			if !later {
				r.mgr.Elect()
			}
			r.start("c", idle())
			rec := &recorder{}
			kept := weak.Make(rec)
			r.watch("c", watchOf(k, rec))
			pass(time.Second)
			rec = nil
			_ = rec
			r.unwatch("c", idOf(k))
			r.mgr.Elect()
			pass(time.Minute)
			runtime.GC()
			if kept.Value() != nil {
				t.Error("the handler of a watch that was stopped is still reachable")
			}
		})
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
			if err := r.readFor(time.Minute, k, "one"); err != nil {
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

// Of two indexes on a field the second is refused, also while the first waits for the kind.
// One whose call failed is added later, unless another takes its place.
func TestIndexes_AtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r := graft(t, watchtest.NewAPI())
		index := func(d time.Duration) error {
			return limited(t, d, func(ctx context.Context) error {
				return r.infs.IndexField(ctx, k.New(), "x", func(client.Object) []string { return []string{"x"} })
			})
		}
		if err := index(time.Hour); !errors.Is(err, watch.ErrNoSuchKind) {
			t.Errorf("IndexField(...): got %v, want %v", err, watch.ErrNoSuchKind)
		}
		r.define(k)
		list := func() {
			l := k.NewList()
			if err := r.reader.List(t.Context(), l, client.MatchingFields{"x": "x"}); err != nil || len(l.Items) != 1 {
				t.Errorf("List(...) by index: %d objects, %v", len(l.Items), err)
			}
		}
		pass(2 * time.Minute)
		list()
		lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
		if err := index(time.Second); !errors.Is(err, watch.ErrNotSynced) {
			t.Errorf("IndexField(...) of a kind that hangs: got %v, want %v", err, watch.ErrNotSynced)
		}
		first := background(func() error { return index(time.Hour) })
		pass(time.Second)
		if took, err := timed(func() error { return index(time.Hour) }); err == nil || took > 0 {
			t.Errorf("IndexField(...) of a field that has an index: %v after %s", err, took)
		}
		lift()
		if took, err := timed(func() error { return <-first }); err != nil || took > time.Minute {
			t.Errorf("IndexField(...) that waited: %v after %s", err, took)
		}
		list()
	})
}

// After RemoveInformer a field can be indexed again, in another way.
func TestIndexes_AfterRemoveInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, k := withOne(t)
		index := func(value string) error {
			return r.infs.IndexField(t.Context(), k.New(), "x", func(client.Object) []string { return []string{value} })
		}
		if err := index("old"); err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"at once", "later"} {
			r.remove(k)
			if value == "later" {
				pass(time.Second)
			}
			if err := index(value); err != nil {
				t.Errorf("IndexField(...) %s: %v", value, err)
			}
			for field, want := range map[string]int{"old": 0, value: 1} {
				l := k.NewList()
				if err := r.reader.List(t.Context(), l, client.MatchingFields{"x": field}); err != nil || len(l.Items) != want {
					t.Errorf("List(...) by %s: %d objects, want %d, %v", field, len(l.Items), want, err)
				}
			}
		}

		// One that waits is told that it is replaced.
		r.remove(k)
		lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
		first := background(func() error { return index("first") })
		pass(time.Second)
		r.remove(k)
		second := background(func() error { return index("second") })
		if took, err := timed(func() error { return <-first }); err == nil || took > 0 {
			t.Errorf("IndexField(...) whose index was replaced: %v after %s", err, took)
		}
		lift()
		if err := <-second; err != nil {
			t.Errorf("IndexField(...): %v", err)
		}
	})
}

// A second index on a field is refused, as by controller-runtime's cache.
func TestIndexes_OnOneFieldConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, k := withOne(t)
		index := func(field string) error {
			return r.infs.IndexField(t.Context(), k.New(), field, func(client.Object) []string { return []string{field} })
		}
		if err := stderrors.Join(index("x"), index("y")); err != nil {
			t.Errorf("IndexField(...) of two fields: %v", err)
		}
		if err := r.reader.List(t.Context(), k.NewList(), client.MatchingFields{"y": "y"}); err != nil {
			t.Errorf("List(...) by an index that was just added: %v", err)
		}
		if err := index("x"); err == nil {
			t.Error("IndexField(...) of a field that has an index: no error")
		}

		// Those of client-go are added, too. It is controller-runtime that reads them.
		inf, err := r.infs.GetInformer(t.Context(), k.New())
		if err != nil {
			t.Fatal(err)
		}
		all := func(any) ([]string, error) { return []string{"__all_namespaces/z"}, nil }
		indexers := kcache.Indexers{"field:z": all}
		if err := inf.AddIndexers(indexers); err != nil {
			t.Errorf("AddIndexers(...): %v", err)
		}
		clear(indexers)
		for _, name := range []string{"field:x", "field:z"} {
			if err := inf.AddIndexers(kcache.Indexers{name: all}); err == nil {
				t.Errorf("AddIndexers(...) of index %s, which is there: no error", name)
			}
		}
		pass(time.Second)
		for _, field := range []string{"x", "y", "z"} {
			l := k.NewList()
			if err := r.reader.List(t.Context(), l, client.MatchingFields{field: field}); err != nil || len(l.Items) != 1 {
				t.Errorf("List(...) by index %s: %d objects, %v", field, len(l.Items), err)
			}
		}
	})
}
