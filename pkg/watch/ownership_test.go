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
	const (
		linger     = time.Minute
		readLinger = 5 * time.Minute
	)

	// Each owns the informer, says how to let go, and how long it then stays.
	cases := map[string]struct {
		reason string
		own    func(r *rig) (release func())
		stays  time.Duration
	}{
		"Watch": {
			reason: "A watch owns its informer until it is stopped.",
			own: func(r *rig) func() {
				r.start("c", idle())
				r.watch("c", watchOf(widget, &recorder{}))
				return func() { r.unwatch(idOf(widget)) }
			},
			stays: linger,
		},
		"Handler": {
			reason: "A handler that was added owns it until it is removed.",
			own: func(r *rig) func() {
				inf, reg := r.handle(widget, &recorder{})
				return func() {
					if err := inf.RemoveEventHandler(reg); err != nil {
						r.t.Error(err)
					}
					r.t.Cleanup(func() {
						if inf.HasSynced() || !inf.IsStopped() {
							r.t.Error("the informer of a kind that nothing owns isn't stopped")
						}
					})
				}
			},
			stays: readLinger,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(widget)
			r := graft(t, api, watch.WithLinger(linger), watch.WithReadLinger(readLinger))
			r.mgr.Elect()
			running := func() bool { return api.Open(watchtest.Of(widget)) > 0 }
			release := tc.own(r)
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

			// It isn't missed. The next one stays while it is read now and then, or asked
			// whether it is synced, as by a health check.
			inf := r.informer(widget)
			for range 10 {
				if err := limited(t, time.Second, func(ctx context.Context) error { return r.list(ctx, widget) }); err != nil {
					t.Errorf("\n%s\nList(...) afterwards: %v", tc.reason, err)
				}
				pass(readLinger * 9 / 10)
				if !inf.HasSynced() {
					t.Errorf("\n%s\nHasSynced(...) afterwards is false", tc.reason)
				}
				pass(readLinger * 9 / 10)
			}
			if n := len(api.Requests(watchtest.Of(widget).Initial())); n != 2 || !running() {
				t.Errorf("\n%s\n%d informers were made, want 2; one runs: %t", tc.reason, n, running())
			}
			pass(readLinger)
			if running() {
				t.Errorf("\n%s\nthe informer of an old read runs", tc.reason)
			}
		})
	}
}

// A watch that was stopped leaves nothing behind on a kind that is kept, whether its
// controller ran or runs afterwards. What an informer kept is left only until it is gone.
func TestStopped_IsCollected(t *testing.T) {
	for name, later := range map[string]bool{"Running": false, "NotElected": true} {
		inBubble(t, name, func(t *testing.T) {
			r := graft(t, watchtest.NewAPI(widget))
			o := widget.Object("one")
			o.SetAnnotations(map[string]string{"big": fmt.Sprintf("%01000000d", 1)})
			r.api.Put(o, widget)
			o = widget.New()
			ok(t, r.reader.Get(t.Context(), widget.Key("one"), o))
			stored := weak.Make(unsafe.StringData(o.GetAnnotations()["big"])) // Copies of an object share it.
			o = nil
			_ = o
			if !later {
				r.mgr.Elect()
			}
			r.start("c", idle())
			rec := &recorder{}
			handler := weak.Make(rec)
			r.watch("c", watchOf(widget, rec))
			pass(time.Second)
			rec = nil
			_ = rec
			r.unwatch(idOf(widget))
			r.mgr.Elect()
			pass(time.Minute)
			runtime.GC()
			if handler.Value() != nil {
				t.Error("the handler of a watch that was stopped is still reachable")
			}
			if stored.Value() == nil {
				t.Fatal("the informer doesn't keep the object; the test proves nothing")
			}
			pass(time.Hour)
			runtime.GC()
			runtime.GC()
			if stored.Value() != nil {
				t.Error("an object of an informer that is gone is still reachable")
			}
		})
	}
}

// A call that waits owns what it waits for, however short the linger is.
func TestLinger_WaitingCallsOwn(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		inBubble(t, linger.String(), func(t *testing.T) {
			api := withOne()
			r := running(t, api, watch.WithLinger(linger), watch.WithReadLinger(linger))
			lift := api.Inject(watchtest.Of(widget).Only(watchtest.List, watchtest.Watch), watchtest.Delay(5*time.Second))
			if err := r.readFor(time.Minute, widget, "one"); err != nil {
				t.Errorf("Get(...): %v", err)
			}
			if n := len(api.Requests(watchtest.Of(widget).Initial())); n != 1 {
				t.Errorf("%d lists for one Get, want 1", n)
			}
			lift()
			pass(time.Minute)
			if n := api.Open(watchtest.Of(widget)); n != 0 {
				t.Errorf("%d informers linger", n)
			}

			// Nothing else that waits needs a linger.
			if err := r.indexAs(time.Minute, widget, "x", "x"); err != nil {
				t.Errorf("IndexField(...): %v", err)
			}
			rec := &recorder{}
			r.handle(widget, rec)
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
		kinds := manyKinds(api, 50)
		for _, k := range kinds {
			ok(t, r.indexAs(time.Minute, k, "x", "x"))
		}
		none := watchtest.NewKind("None") // No index keeps it.
		r.define(none)
		ok(t, r.informer(none).AddIndexers(nil))
		pass(time.Hour)
		if n := len(r.infs.ActiveInformers()); n != len(kinds) {
			t.Errorf("%d informers of kinds with indexes, want %d", n, len(kinds))
		}
		for _, k := range kinds {
			api.Undefine(k)
		}
		pass(time.Hour)
		n := requestsIn(time.Hour, api, watchtest.Everything())
		if s := r.ours.Snapshot(); len(s.Kinds) != 0 || n != 0 {
			t.Errorf("%d kinds that went are kept, with %d requests an hour", len(s.Kinds), n)
		}
		r.define(kinds[0])
		r.indexed(kinds[0], "x", "x", 1)
	})
}

// indexAs adds an index on a field, with which all objects have one value.
func (r *rig) indexAs(d time.Duration, k watchtest.Kind, field, value string) error {
	return limited(r.t, d, func(ctx context.Context) error {
		return r.infs.IndexField(ctx, k.New(), field, func(client.Object) []string { return []string{value} })
	})
}

// indexed lists by an index, and wants so many objects.
func (r *rig) indexed(k watchtest.Kind, field, value string, want int) {
	r.t.Helper()
	l := k.NewList()
	if err := r.reader.List(r.t.Context(), l, client.MatchingFields{field: value}); err != nil || len(l.Items) != want {
		r.t.Errorf("List(...) by index %s=%s: %d objects, want %d, %v", field, value, len(l.Items), want, err)
	}
}

// Of two indexes on a field the second is refused, as by controller-runtime's cache, also
// while the first waits for the kind. One whose call failed is added later, unless another
// takes its place.
func TestIndexes_AtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := graft(t, watchtest.NewAPI())
		index := func(d time.Duration) error { return r.indexAs(d, widget, "x", "x") }
		for range 10 {
			if err := index(time.Hour); !errors.Is(err, watch.ErrNoSuchKind) {
				t.Errorf("IndexField(...): got %v, want %v", err, watch.ErrNoSuchKind)
			}
		}
		if n := len(r.api.Requests(watchtest.Everything())); n != 1 {
			t.Errorf("%d requests for a kind that is known to be missing, want 1", n)
		}
		r.define(widget)
		pass(2 * time.Minute)
		r.indexed(widget, "x", "x", 1)
		lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
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
		r.indexed(widget, "x", "x", 1)
		if err := index(time.Hour); err == nil {
			t.Error("IndexField(...) of a field that has an index: no error")
		}

		// Those of client-go are added, too. It is controller-runtime that reads them.
		inf := r.informer(widget)
		all := func(any) ([]string, error) { return []string{"__all_namespaces/z"}, nil }
		indexers := kcache.Indexers{"field:z": all}
		if err := stderrors.Join(inf.AddIndexers(indexers), r.indexAs(time.Hour, widget, "y", "y")); err != nil {
			t.Errorf("AddIndexers(...), IndexField(...) of other fields: %v", err)
		}
		clear(indexers)
		for _, name := range []string{"field:x", "field:z"} {
			if err := inf.AddIndexers(kcache.Indexers{name: all}); err == nil {
				t.Errorf("AddIndexers(...) of index %s, which is there: no error", name)
			}
		}
		r.indexed(widget, "y", "y", 1) // At once.
		pass(time.Second)
		for _, field := range []string{"x", "z"} {
			r.indexed(widget, field, field, 1)
		}
	})
}

// After RemoveInformer a field can be indexed again, in another way.
func TestIndexes_AfterRemoveInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := running(t, withOne())
		index := func(value string) error { return r.indexAs(time.Hour, widget, "x", value) }
		ok(t, index("old"))
		for _, value := range []string{"at once", "later"} {
			r.remove(widget)
			if value == "later" {
				pass(time.Second)
			}
			if err := index(value); err != nil {
				t.Errorf("IndexField(...) %s: %v", value, err)
			}
			r.indexed(widget, "x", "old", 0)
			r.indexed(widget, "x", value, 1)
		}

		// One that waits is told that it is replaced.
		r.remove(widget)
		lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
		first := background(func() error { return index("first") })
		pass(time.Second)
		r.remove(widget)
		pass(time.Second)
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

// Of a thousand cycles nothing is left.
func TestCyclesLeaveNothing(t *testing.T) {
	cycles := map[string]struct {
		reason string
		times  int
		cycle  func(r *rig, i int)
	}{
		"Controllers": {
			reason: "Controllers start, watch, and stop.",
			times:  1000,
			cycle: func(r *rig, i int) {
				name := fmt.Sprintf("c%d", i%7)
				ok(r.t, r.Start(name, idle()))
				r.watch(name, watchOf(watchtest.NewKind(fmt.Sprintf("Widget%d", i%5)), &recorder{}))
				r.stop(name)
			},
		},
		"Kinds": {
			reason: "Kinds come and go under a watch, and others never come.",
			times:  300,
			cycle: func(r *rig, i int) {
				k, none := watchtest.NewKind("Widget0"), watchtest.NewKind(fmt.Sprintf("None%d", i))
				ok(r.t, r.Start("c", idle()))
				_ = r.StartWatches(r.t.Context(), "c", watchOf(k, &recorder{}), watchOf(none, &recorder{}))
				r.api.Undefine(k)
				time.Sleep(time.Duration(i) * time.Millisecond)
				r.api.Define(k)
				r.unwatch(idOf(none))
				pass(time.Minute) // It lingers. A thousand at once would leave a large map behind.
				if i%10 == 9 {
					r.stop("c")
				}
			},
		},
	}
	for name, tc := range cycles {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI()
			manyKinds(api, 5)
			r := graft(t, api)
			r.mgr.Elect()
			r.watchCRDs()
			for i := range 30 { // What is made once, and kept, is made now.
				tc.cycle(r, i)
			}
			rest := func() usage {
				r.stop("c")
				pass(time.Hour)
				api.Forget()
				api.Compact(watchtest.CRD())
				return settled()
			}
			before := rest()
			for i := range tc.times {
				tc.cycle(r, i)
			}
			after := rest()

			// The runtime has a goroutine or two that come and go, for cleanups. A kind,
			// forgotten, takes ten times the memory.
			if after.goroutines > before.goroutines+2 || after.heap > before.heap+uint64(tc.times)*500 {
				t.Errorf("\n%s\nin use before: %+v, after: %+v", tc.reason, before, after)
			}
			s := r.ours.Snapshot()
			if len(s.Controllers) > 0 || len(s.Ending) > 0 || len(s.Kinds) > 1 {
				t.Errorf("\n%s\nafterwards there are %d controllers, %d ending, %d kinds", tc.reason, len(s.Controllers), len(s.Ending), len(s.Kinds))
			}
		})
	}
}
