package watch_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
		own    func(r *testEnv) (release func())
		stays  time.Duration
	}{
		"Watch": {
			reason: "A watch owns its informer until it is stopped.",
			own: func(r *testEnv) func() {
				r.start("c", idleOptions())
				r.watch("c", newWatch(widget, &recorder{}))
				return func() { r.mustStopWatches(watchIDOf(widget)) }
			},
			stays: linger,
		},
		"Handler": {
			reason: "A handler that was added owns it until it is removed.",
			own: func(r *testEnv) func() {
				inf, reg := r.handle(widget, &recorder{})
				return func() {
					expectEqual(r.t, "", "RemoveEventHandler(...)", nil, inf.RemoveEventHandler(reg))
					r.t.Cleanup(func() {
						expectEqual(
							r.t, "Nothing owns the kind.", "HasSynced(...), IsStopped(...)", []bool{false, true},
							[]bool{
								inf.HasSynced(), inf.IsStopped(),
							},
						)
					})
				}
			},
			stays: readLinger,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(widget)
			r := newGraftEnv(t, api, watch.WithLinger(linger), watch.WithReadLinger(readLinger))
			r.mgr.Elect()
			running := func() bool { return api.Open(watchtest.Of(widget)) > 0 }
			release := tc.own(r)
			advance(24 * time.Hour)
			expectEqual(t, tc.reason, "the informer runs", true, running())
			release()
			advance(linger / 2)
			expectEqual(t, tc.reason, "the informer runs on for a while", true, running())
			advance(tc.stays)
			expectEqual(t, tc.reason, "the informer runs long after its owner went", false, running())

			// It isn't missed. The next one stays while it is read now and then, or asked
			// whether it is synced, as by a health check.
			inf := r.informer(widget)
			for range 10 {
				expectEqual(
					t, tc.reason, "List(...) afterwards", nil,
					withTimeout(t, time.Second, func(ctx context.Context) error { return r.list(ctx, widget) }),
				)
				advance(readLinger * 9 / 10)
				expectEqual(t, tc.reason, "HasSynced(...) afterwards", true, inf.HasSynced())
				advance(readLinger * 9 / 10)
			}
			expectEqual(t, tc.reason, "informers that were made, one runs", []any{2, true}, []any{
				len(api.Requests(watchtest.Of(widget).Initial())), running(),
			})
			advance(readLinger)
			expectEqual(t, tc.reason, "the informer of an old read runs", false, running())
		})
	}
}

// A kind that was asked for is kept as long as one that was read, also if its informer doesn't work.
func TestReadLinger(t *testing.T) {
	const (
		linger     = time.Minute
		readLinger = 5 * time.Minute
		maxRetry   = time.Minute
	)
	for _, fault := range []int{0, http.StatusServiceUnavailable} {
		inBubble(t, fmt.Sprint(fault), func(t *testing.T) {
			api := watchtest.NewAPI(widget)
			r := newGraftEnv(t, api, watch.WithLinger(linger), watch.WithReadLinger(readLinger))
			if fault != 0 {
				api.Inject(watchtest.Of(widget), watchtest.Status(fault))
			}
			_, err := r.infs.GetInformer(t.Context(), widget.New(), cache.BlockUntilSynced(false))
			mustSucceed(t, err)
			kinds := func() int { return len(r.ours.Snapshot().Kinds) }
			advance(readLinger - time.Second)
			expectEqual(t, "It is likely to be read soon.", "kinds before", 1, kinds())
			advance(2 * maxRetry)
			expectEqual(t, "It isn't read.", "kinds after", 0, kinds())
		})
	}
}

// A watch that was stopped leaves nothing behind on a kind that is kept, whether its
// controller ran or runs afterwards. Its informer keeps objects only until it is removed.
func TestStopped_IsCollected(t *testing.T) {
	for name, later := range map[string]bool{"Running": false, "NotElected": true} {
		inBubble(t, name, func(t *testing.T) {
			r := newGraftEnv(t, watchtest.NewAPI(widget))
			o := widget.Object("one")
			o.SetAnnotations(map[string]string{"big": fmt.Sprintf("%01000000d", 1)})
			r.api.Put(o, widget)
			o = widget.New()
			mustSucceed(t, r.reader.Get(t.Context(), widget.Key("one"), o))
			stored := weak.Make(unsafe.StringData(o.GetAnnotations()["big"])) // Copies of an object share it.
			o = nil
			_ = o
			if !later {
				r.mgr.Elect()
			}
			r.start("c", idleOptions())
			rec := &recorder{}
			handler := weak.Make(rec)
			r.watch("c", newWatch(widget, rec))
			advance(time.Second)
			rec = nil
			_ = rec
			r.mustStopWatches(watchIDOf(widget))
			r.mgr.Elect()
			advance(time.Minute)
			runtime.GC()
			expectEqual(t, "", "the handler of a watch that was stopped is reachable", false, handler.Value() != nil)
			if stored.Value() == nil {
				t.Fatal("the informer doesn't keep the object; the test proves nothing")
			}
			advance(time.Hour)
			runtime.GC()
			runtime.GC()
			expectEqual(t, "", "an object of an informer that is gone is reachable", false, stored.Value() != nil)
		})
	}
}

// A field of a kind that went and came back can be indexed again, as after a restart.
func TestIndexes_OfKindsThatCameBack(t *testing.T) {
	for name, is := range map[string]watchtest.Kind{"Same": widget, "AnotherScope": widget.ClusterScoped()} {
		for mode, crds := range map[string]bool{"DefinitionsWatched": true, "DefinitionsNotWatched": false} {
			inBubble(t, name+"/"+mode, func(t *testing.T) {
				r, _ := newWatchingEnv(t, crds)
				mustSucceed(t, r.indexAs(time.Hour, widget, "x", "old"))
				mustSucceed(t, r.informer(widget).AddIndexers(kcache.Indexers{
					"y": func(any) ([]string, error) { return nil, nil },
				}))
				r.api.Undefine(widget)
				advance(time.Minute)
				r.api.Define(is)
				r.api.Put(is.Object("two"), is)
				advance(5 * time.Minute)
				r.indexed(is, "x", "old", 1)
				expectEqual(t, "The kind is another one.", "IndexField(...)", nil, r.indexAs(time.Hour, is, "x", "new"))
				expectEqual(
					t, "It was added.", "IndexField(...) again", anError, r.indexAs(time.Hour, is, "x", "newer"),
				)
				expectEqual(
					t, "The kind is another one.", "AddIndexers(...)", nil,
					r.informer(is).AddIndexers(kcache.Indexers{
						"y": func(any) ([]string, error) { return nil, nil },
					}),
				)
				advance(time.Second)
				r.indexed(is, "x", "old", 0)
				r.indexed(is, "x", "new", 1)
			})
		}
	}
}

// A call that waits owns its kind, however short the linger is.
func TestLinger_WaitingCallsOwn(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		inBubble(t, linger.String(), func(t *testing.T) {
			api := newAPIWithObject()
			r := newRunningEnv(t, api, watch.WithLinger(linger), watch.WithReadLinger(linger))
			lift := api.Inject(
				watchtest.Of(widget).Only(watchtest.List, watchtest.Watch), watchtest.Delay(5*time.Second),
			)
			expectEqual(t, "", "Get(...)", nil, r.readFor(time.Minute, widget, "one"))
			expectEqual(t, "", "lists for one Get", 1, len(api.Requests(watchtest.Of(widget).Initial())))
			lift()
			advance(time.Minute)
			expectEqual(t, "", "informers that linger", 0, api.Open(watchtest.Of(widget)))

			// Nothing else that waits needs a linger.
			expectEqual(t, "", "IndexField(...)", nil, r.indexAs(time.Minute, widget, "x", "x"))
			rec := &recorder{}
			r.handle(widget, rec)
			advance(time.Second)
			expectEqual(t, "", "events of a handler", 1, rec.count("create", "one"))
		})
	}
}

// An index keeps only a kind that exists, and is there when the kind comes back.
func TestIndexes_OfKindsThatWent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		r := newGraftEnv(t, api)
		kinds := manyKinds(api, 50)
		for _, k := range kinds {
			mustSucceed(t, r.indexAs(time.Minute, k, "x", "x"))
		}
		none := watchtest.NewKind("None") // No index keeps it.
		r.define(none)
		mustSucceed(t, r.informer(none).AddIndexers(nil))
		advance(time.Hour)
		expectEqual(t, "", "informers of kinds with indexes", len(kinds), len(r.infs.ActiveInformers()))
		for _, k := range kinds {
			api.Undefine(k)
		}
		advance(time.Hour)
		expectEqual(t, "The kinds went.", "requests in an hour", 0, requestsIn(time.Hour, api, watchtest.Everything()))
		expectEqual(t, "The kinds went.", "kinds", 0, len(r.ours.Snapshot().Kinds))
		r.define(kinds[0])
		r.indexed(kinds[0], "x", "x", 1)
	})
}

// indexAs adds an index on a field, with which all objects have one value.
func (r *testEnv) indexAs(d time.Duration, k watchtest.Kind, field, value string) error {
	return withTimeout(r.t, d, func(ctx context.Context) error {
		return r.infs.IndexField(ctx, k.New(), field, func(client.Object) []string { return []string{value} })
	})
}

// indexed lists by an index, and wants so many objects.
func (r *testEnv) indexed(k watchtest.Kind, field, value string, want int) {
	r.t.Helper()
	l := k.NewList()
	err := r.reader.List(r.t.Context(), l, client.MatchingFields{field: value})
	expectEqual(
		r.t, "", fmt.Sprintf("List(...) by index %s=%s, objects", field, value), []any{nil, want},
		[]any{err, len(l.Items)},
	)
}

// Of two indexes on a field the second is refused, as by controller-runtime's cache. One on a kind that is
// missing, or that hangs, is added when the kind can be listed.
func TestIndexes_AtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI())
		expectEqual(t, "", "IndexField(...) of a missing kind", nil, r.indexAs(time.Hour, widget, "x", "x"))
		r.define(widget)
		advance(2 * time.Minute)
		lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
		r.remove(widget)
		advance(time.Second)
		expectWithin(
			t, "", "IndexField(...) of a kind that hangs", 0, nil,
			func() error { return r.indexAs(time.Hour, widget, "w", "w") },
		)
		lift()
		r.indexed(widget, "x", "x", 1)
		r.indexed(widget, "w", "w", 1)
		expectWithin(
			t, "", "IndexField(...) again", 0, anError,
			func() error { return r.indexAs(time.Hour, widget, "w", "w") },
		)

		// Those of client-go are added, too. It is controller-runtime that reads them.
		inf := r.informer(widget)
		all := func(any) ([]string, error) { return []string{"__all_namespaces/z"}, nil }
		indexers := kcache.Indexers{"field:z": all}
		expectEqual(
			t, "They are of other fields.", "AddIndexers(...), IndexField(...)", nil,
			stderrors.Join(inf.AddIndexers(indexers), r.indexAs(time.Hour, widget, "y", "y")),
		)
		clear(indexers)
		for _, name := range []string{"field:w", "field:z", kcache.NamespaceIndex} {
			expectEqual(
				t, "It is there.", "AddIndexers(...) of "+name, anError, inf.AddIndexers(kcache.Indexers{name: all}),
			)
		}
		r.indexed(widget, "y", "y", 1) // At once.
		advance(time.Second)
		for _, field := range []string{"x", "z"} {
			r.indexed(widget, field, field, 1)
		}
	})
}

// After RemoveInformer a field can be indexed again, in another way.
func TestIndexes_AfterRemoveInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		index := func(value string) error { return r.indexAs(time.Hour, widget, "x", value) }
		mustSucceed(t, index("old"))
		for _, value := range []string{"at once", "later"} {
			r.remove(widget)
			if value == "later" {
				advance(time.Second)
			}
			expectEqual(t, "", "IndexField(...) "+value, nil, index(value))
			r.indexed(widget, "x", "old", 0)
			r.indexed(widget, "x", value, 1)
		}

		// The last one counts, also while the kind hangs.
		r.remove(widget)
		lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
		mustSucceed(t, index("first"))
		r.remove(widget)
		mustSucceed(t, index("second"))
		lift()
		r.indexed(widget, "x", "first", 0)
		r.indexed(widget, "x", "second", 1)
	})
}

// Of a thousand cycles nothing is left.
func TestCyclesLeaveNothing(t *testing.T) {
	cycles := map[string]struct {
		reason string
		times  int
		cycle  func(r *testEnv, i int)
	}{
		"Controllers": {
			reason: "Controllers start, watch, and stop.",
			times:  1000,
			cycle: func(r *testEnv, i int) {
				name := fmt.Sprintf("c%d", i%7)
				mustSucceed(r.t, r.Start(name, idleOptions()))
				r.watch(name, newWatch(watchtest.NewKind(fmt.Sprintf("Widget%d", i%5)), &recorder{}))
				r.stop(name)
			},
		},
		"Kinds": {
			reason: "Kinds come and go under a watch, and others never come.",
			times:  300,
			cycle: func(r *testEnv, i int) {
				k, none := watchtest.NewKind("Widget0"), watchtest.NewKind(fmt.Sprintf("None%d", i))
				mustSucceed(r.t, r.Start("c", idleOptions()))
				_ = r.StartWatches(r.t.Context(), "c", newWatch(k, &recorder{}), newWatch(none, &recorder{}))
				r.api.Undefine(k)
				time.Sleep(time.Duration(i) * time.Millisecond)
				r.api.Define(k)
				r.mustStopWatches(watchIDOf(none))
				advance(time.Minute) // It lingers. A thousand at once would leave a large map behind.
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
			r := newGraftEnv(t, api)
			r.mgr.Elect()
			r.watchCRDs()
			for i := range 30 { // What is made once, and kept, is made now.
				tc.cycle(r, i)
			}
			rest := func() usage {
				r.stop("c")
				advance(time.Hour)
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
				t.Errorf(
					"\n%s\nafterwards there are %d controllers, %d ending, %d kinds", tc.reason, len(s.Controllers),
					len(s.Ending), len(s.Kinds),
				)
			}
		})
	}
}
