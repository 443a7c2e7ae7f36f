package watch_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A kind whose definition goes is left in peace, and resumes when it comes
// back, wherever that is.
func TestDormantKindsResume(t *testing.T) {
	cases := map[string]struct {
		reason string
		is     watchtest.Kind
		atOnce bool
	}{
		"Same":               {reason: "As it was.", is: widget},
		"AnotherScope":       {reason: "With another scope.", is: widget.ClusterScoped()},
		"AnotherPlural":      {reason: "With another plural.", is: widget.Named("widgetry")},
		"AnotherScopePlural": {reason: "With both.", is: widget.ClusterScoped().Named("widgetry")},
		"SameAtOnce":         {reason: "As it was, replaced unseen.", is: widget, atOnce: true},
		"AnotherScopeAtOnce": {
			reason: "With another scope, replaced unseen.",
			is:     widget.ClusterScoped(),
			atOnce: true,
		},
		"AnotherPluralAtOnce": {
			reason: "With another plural, replaced unseen.",
			is:     widget.Named("widgetry"),
			atOnce: true,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := newWatchingEnv(t, true)
			mustSucceed(t, r.indexAs(time.Minute, widget, "x", "x"))
			rec.forget()
			if tc.atOnce {
				r.api.Replace(widget, tc.is)
			} else {
				r.api.Undefine(widget)
				advance(time.Second)
				expectBetween(
					t, tc.reason, "requests in an hour while the kind was away", 0, 10,
					requestsIn(time.Hour, r.api, watchtest.Everything()),
				)
				r.api.Define(tc.is)
			}
			r.api.Put(tc.is.Object("two"), tc.is)
			r.api.Put(tc.is.Object("three"), tc.is)

			// At once means: not after a backoff.
			advance(2 * time.Second)
			expectEqual(t, tc.reason, "deletions of an object that went with its kind", 1, rec.count("delete", "one"))
			for _, n := range []string{"two", "three"} {
				// If the kind was replaced unseen, its informer may have found the new
				// objects before the definition says that all is new.
				if c := rec.count("create", n); c < 1 || c > 1 && !tc.atOnce {
					t.Errorf("\n%s\nan object that came back was created %d times", tc.reason, c)
				}
				expectEqual(t, tc.reason, "deletions of an object that came back", 0, rec.count("delete", n))
			}
			r.indexed(tc.is, "x", "x", 2)
			expectEqual(t, tc.reason, "Get(...)", nil, r.read(t.Context(), tc.is, "two"))
			r.api.Remove(tc.is, tc.is.Key("two"))
			advance(time.Second)
			expectEqual(t, tc.reason, "deletions of an object that was deleted", 1, rec.count("delete", "two"))
		})
	}
}

// Crossplane starts the watches of all kinds that a controller needs in each reconcile. A kind that
// was watched and can't be watched now must not fail the reconciles that don't use it.
func TestStartWatches_WhileAWatchedKindIsInTrouble(t *testing.T) {
	informerLostTo := func(f watchtest.Fault) func(r *testEnv) func() {
		return func(r *testEnv) func() {
			lift := r.api.Inject(watchtest.Of(widget), f)
			r.remove(widget)
			return lift
		}
	}
	cases := map[string]struct {
		reason string
		begin  func(r *testEnv) (end func())
		is     watchtest.Kind // How the kind is served afterwards.
		state  watch.State
		want   error // Of a call for the watch that exists.
		first  error // Of a call for a new watch of the kind.
	}{
		"Gone": {
			reason: "A watch whose kind is gone resumes by itself, so there should be no error.",
			begin: func(r *testEnv) func() {
				r.api.Undefine(widget)
				return func() { r.api.Define(widget) }
			},
			is: widget, state: watch.StateDormant, first: watch.ErrNoSuchKind,
		},
		"GoneAndBackWithAnotherScope": {
			reason: "The watch should also resume if the kind comes back with another scope.",
			begin: func(r *testEnv) func() {
				r.api.Undefine(widget)
				return func() { r.api.Define(widget.ClusterScoped()) }
			},
			is: widget.ClusterScoped(), state: watch.StateDormant, first: watch.ErrNoSuchKind,
		},
		"Forbidden": {
			reason: "A watch whose kind is forbidden resumes by itself, so there should be no error.",
			begin:  informerLostTo(watchtest.Status(http.StatusForbidden)),
			is:     widget, state: watch.StateDegraded, first: watch.ErrForbidden,
		},
		"NotWatchable": {
			reason: "A watch whose kind has lost its verbs resumes by itself, so there should be no error.",
			begin:  informerLostTo(watchtest.Status(http.StatusMethodNotAllowed)),
			is:     widget, state: watch.StateDegraded, first: watch.ErrNotWatchable,
		},
		"Unreachable": {
			reason: "Trouble that retrying may end should still be an error.",
			begin:  informerLostTo(watchtest.Status(http.StatusInternalServerError)),
			is:     widget, state: watch.StateDegraded, want: watch.ErrUnreachable, first: watch.ErrUnreachable,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := newWatchingEnv(t, true)
			gadget, none := watchtest.NewKind("Gadget"), watchtest.NewKind("None")
			r.api.Define(gadget)
			all := []baseline.Watch{newWatch(gadget, &recorder{}), newWatch(widget, rec)}
			r.watch("c", all...)
			end := tc.begin(r)
			advance(10 * time.Second)
			for range 2 {
				expectEqual(
					t, tc.reason, "StartWatches(...) of watches that exist", tc.want,
					r.StartWatches(t.Context(), "c", all...),
				)
			}
			shown := r.ours.Snapshot().Controllers[0].Watches[1]
			expectEqual(t, "The watch should still be shown.", "kind, state", []any{widget.GVK, tc.state}, []any{
				shown.GVK, shown.State,
			})
			expectEqual(t, "The watch should still be shown.", "it has an error", true, shown.Error != "")

			// A watch that never delivered fails in each call.
			r.start("other", idleOptions())
			for range 2 {
				expectEqual(
					t, "A watch of another controller never delivered.", "StartWatches(...)", tc.first,
					r.StartWatches(t.Context(), "other", newWatch(widget, &recorder{})),
				)
				expectEqual(
					t, "A kind that never existed should be an error.", "StartWatches(...)", watch.ErrNoSuchKind,
					r.StartWatches(t.Context(), "c", newWatch(gadget, &recorder{}), newWatch(none, &recorder{})),
				)
			}
			r.stop("other")
			end()
			advance(2 * time.Minute)
			r.api.Put(tc.is.Object("late"), tc.is)
			advance(time.Second)
			expectEqual(t, tc.reason, "events of an object that came afterwards", 1, rec.count("create", "late"))

			// The kind is in trouble again, and the watch is another one.
			tc.begin(r)
			r.mustStopWatches(watchIDOf(widget))
			advance(10 * time.Second)
			for range 2 {
				expectEqual(
					t, "A watch that was started again never delivered.", "StartWatches(...)", anError,
					r.StartWatches(t.Context(), "c", all...),
				)
			}
		})
	}
}

// A CRD that drops out of sight isn't deleted.
func TestCRDs_OutOfSightIsNotDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, rec := newWatchingEnv(t, true)
		generation := stateOf(t, r).Generation
		r.api.Remove(watchtest.CRD(), client.ObjectKey{Name: widget.CRDName()})
		advance(2 * time.Hour)
		expectState(t, r, "", "without its CRD", watch.StateActive)
		expectEqual(t, "", "generation, deletions", []any{generation, 0}, []any{
			stateOf(t, r).Generation, rec.count("delete", "one"),
		})
		r.api.Put(widget.Object("two"), widget)
		advance(time.Second)
		expectEqual(t, "", "events of an object that came", 1, rec.count("create", "two"))

		// It goes and comes back out of sight.
		r.api.Undefine(widget)
		advance(10 * time.Minute)
		expectState(t, r, "", "when the kind is gone", watch.StateDormant)
		expectEqual(t, "", "deletions", 1, rec.count("delete", "one"))
		r.api.Define(widget)
		r.api.Remove(watchtest.CRD(), client.ObjectKey{Name: widget.CRDName()})
		advance(3 * time.Minute)
		expectState(t, r, "", "when the kind is back", watch.StateActive)
	})
}

// CRDs that can't be watched any more don't hide that a kind comes back.
func TestCRDs_ForbiddenDoesNotHideReturn(t *testing.T) {
	faults := map[string]watchtest.Fault{
		"Forbidden": watchtest.Status(http.StatusForbidden),
		"Refused":   watchtest.Refuse(), "NotFound": watchtest.Status(http.StatusNotFound),
	}
	for name, fault := range faults {
		inBubble(t, name, func(t *testing.T) {
			r, _ := newWatchingEnv(t, true)
			r.api.Undefine(widget)
			advance(time.Minute)
			defer r.api.Inject(watchtest.Of(watchtest.CRD()), fault)()
			r.api.Disconnect(watchtest.Of(watchtest.CRD()))
			advance(time.Minute)
			r.api.Define(widget)
			advance(2 * time.Minute)
			expectState(t, r, "", "two minutes after the kind came back", watch.StateActive)
		})
	}
}

// Without CRDs, and without a request that fails, a kind that is served in another
// way is noticed.
func TestMovedKinds_AreNoticedWithoutCRDs(t *testing.T) {
	for name, is := range map[string]watchtest.Kind{"Scope": widget.ClusterScoped(), "Plural": widget.Named(
		"widgetry",
	)} {
		for _, quiet := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/Quiet=%t", name, quiet), func(t *testing.T) {
				r, rec := newWatchingEnv(t, false)
				var lift func()
				within := time.Minute // It lists again.
				if quiet {
					// The watch stays open and silent.
					within = 25 * time.Minute
					lift = r.api.Inject(watchtest.Of(widget), watchtest.Hang())
					defer lift()
					r.api.Undefine(widget)
				} else {
					slow := r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Delay(20*time.Second))
					r.api.Undefine(widget)
					advance(10 * time.Second)
					expectEqual(t, "", "state while the kind is looked up", watch.StatePending, stateOf(t, r).State)
					slow()
				}
				r.api.Define(is)
				r.api.Put(is.Object("two"), is)
				if quiet && is.Plural == widget.Plural {
					time.AfterFunc(20*time.Minute, lift)
				}
				advance(within)
				k := r.ours.Snapshot().Kinds[0]
				expectEqual(t, "", "the kind's resource, scope, state", []any{
					is.Plural, !is.Cluster, watch.StateActive,
				}, []any{k.Resource, k.Namespaced, k.State})

				// Its informer may have found the new object before the look-up did.
				expectEqual(t, "", "deletions of the old object", 1, rec.count("delete", "one"))
				expectEqual(t, "", "the new object is created", true, rec.count("create", "two") > 0)
				expectEqual(t, "", "Get(...)", nil, r.read(t.Context(), is, "two"))
			})
		}
	}
}

// Nor does it stay unnoticed if discovery has no answer just then, also if the old watch stays open and silent.
func TestMovedKinds_AreNoticedAfterAHiccup(t *testing.T) {
	cases := map[string]struct {
		is           watchtest.Kind
		crds, silent bool
	}{
		"DefinitionsWatched":    {is: widget.ClusterScoped(), crds: true},
		"DefinitionsNotWatched": {is: widget.ClusterScoped()},
		"SilentWatch":           {is: widget.Named("widgetry"), crds: true, silent: true},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, _ := newWatchingEnv(t, tc.crds)
			if tc.silent {
				defer r.api.Inject(watchtest.Of(widget), watchtest.Hang())()
			}
			lift := r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Status(http.StatusServiceUnavailable))
			r.api.Replace(widget, tc.is)
			r.api.Put(tc.is.Object("two"), tc.is)
			advance(20 * time.Second)
			lift()
			advance(time.Minute)
			expectEqual(t, "", "Get(...) a minute later", nil, r.readFor(time.Second, tc.is, "two"))
			kinds := r.ours.Snapshot().Kinds
			k := kinds[len(kinds)-1]
			expectEqual(
				t, "", "kind, resource, namespaced, a minute later",
				[]any{tc.is.GVK, tc.is.Plural, !tc.is.Cluster}, []any{k.GVK, k.Resource, k.Namespaced},
			)
		})
	}
}

// Watches that start at different times get the same events. Objects that existed before are
// marked as initial. A slow handler holds up neither others, nor reads, nor itself.
func TestWatchesOfOneKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, first := newWatchingEnv(t, true)
		r.api.Put(widget.Object("two"), widget)
		advance(time.Second)
		r.start("late", idleOptions())
		late := &recorder{}
		r.watch("late", newWatch(widget, late))
		advance(time.Second)
		for _, n := range []string{"one", "two"} {
			expectEqual(t, "", "how often a late watch was told of "+n, 1, late.count("create", n))
		}
		for _, e := range late.all() {
			expectEqual(t, "It was there before.", e.name, true, e.initial)
		}
		for _, e := range first.all() {
			expectEqual(t, "Only one was there before the first watch.", e.name, e.name == "one", e.initial)
		}
		r.start("slow", idleOptions())
		slow := newRecorder(func() { time.Sleep(time.Minute) })
		expectWithin(
			t, "", "StartWatches(...) with a slow handler", quick, nil,
			func() error { return r.StartWatches(t.Context(), "slow", newWatch(widget, slow)) },
		)
		for i := range 100 {
			r.api.Put(widget.Object(fmt.Sprintf("w%d", i)), widget)
		}
		advance(time.Second)
		expectEqual(t, "", "events of a quick handler after a second", 102, len(late.all()))
		advance(2 * time.Hour)
		expectEqual(t, "", "events of a slow handler", 102, len(slow.all()))
	})
}

// An informer that the cache hands out lives on through its kind's lives.
func TestHandlersOfInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, other := newWatchingEnv(t, true)
		rec := &recorder{}
		inf, reg := r.handle(widget, rec)
		eventually(t, "the handler has synced", reg.HasSynced)
		expectEqual(
			t, "HasSynced is true.", "how often the handler was told of what is there", 1, rec.count("create", "one"),
		)

		// The deletion isn't seen.
		lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
		r.api.Undefine(widget)
		advance(time.Hour)
		expectEqual(t, "The kind is gone.", "HasSynced(...)", false, inf.HasSynced())
		lift()
		r.api.Define(widget)
		r.api.Put(widget.Object("two"), widget)
		advance(time.Second)
		r.api.Put(widget.Object("two"), widget)
		advance(time.Second)
		r.api.Remove(widget, widget.Key("two"))
		advance(time.Second)
		for name, want := range map[string]int{"one": 2, "two": 3} { // Two came, changed and went.
			expectEqual(t, "", "events, deletions, creations of "+name, []int{want, 1, 1}, []int{
				rec.count("", name), rec.count("delete", name), rec.count("create", name),
			})
		}
		expectEqual(t, "It is another informer's.", "RemoveEventHandler(...)", anError, inf.RemoveEventHandler(nil))
		rec.forget()
		release := make(chan struct{})
		rec.before.set(func() { <-release })
		r.api.Put(widget.Object("three"), widget)
		r.api.Put(widget.Object("four"), widget)
		advance(time.Second)
		expectEqual(t, "", "RemoveEventHandler(...), IsStopped(...)", []any{nil, false}, []any{
			inf.RemoveEventHandler(reg), inf.IsStopped(),
		})
		mustSucceed(t, inf.RemoveEventHandler(reg)) // Once more. The watch still owns the kind.
		close(release)
		advance(time.Hour)
		r.api.Put(widget.Object("five"), widget)
		advance(time.Second)
		expectEqual(t, "The handler was removed while it ran.", "its events, those of a watch", []int{1, 1}, []int{
			len(rec.all()), other.count("create", "five"),
		})
	})
}
