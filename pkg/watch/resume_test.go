package watch_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// watching is a rig with a controller that watches a kind with one object.
func watching(t *testing.T, k watchtest.Kind, crds bool) (*rig, *recorder) {
	t.Helper()

	api := watchtest.NewAPI(k)
	api.Put(k.Object("one"), k)

	r := graft(t, api)
	r.mgr.Elect()

	if crds {
		r.watchCRDs()
	}

	r.start("c", idle())

	rec := &recorder{}
	r.watch("c", watchOf(k, rec))

	pass(time.Second)

	return r, rec
}

// Removed, failed, recovered: exactly one live handler, without the caller
// doing anything.
func TestExactlyOneHandler(t *testing.T) {
	k := watchtest.NewKind("Widget")

	cases := map[string]struct {
		reason string
		churn  func(t *testing.T, r *rig)
	}{
		"Disconnected": {"A watch that ends is opened again.", func(_ *testing.T, r *rig) {
			r.api.Disconnect(watchtest.Of(k))
		}},
		"Expired": {"One that is too old lists again.", func(_ *testing.T, r *rig) {
			lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
			r.api.Disconnect(watchtest.Of(k))
			r.api.Put(k.Object("other"), k)
			r.api.Compact(k)
			lift()
		}},
		"Down": {"The API server is away for an hour.", func(_ *testing.T, r *rig) {
			up := r.api.Down()
			pass(time.Hour)
			up()
		}},
		"Frozen": {"The API server hangs for an hour.", func(_ *testing.T, r *rig) {
			thaw := r.api.Freeze()
			pass(time.Hour)
			thaw()
		}},
		"Forbidden": {"For an hour we may not list the kind.", func(_ *testing.T, r *rig) {
			lift := r.api.Inject(watchtest.Of(k), watchtest.Status(http.StatusForbidden))
			r.api.Disconnect(watchtest.Of(k))
			pass(time.Hour)
			lift()
		}},
		"NotFound": {"For an hour the list isn't there, though the definition is.", func(_ *testing.T, r *rig) {
			lift := r.api.Inject(watchtest.Of(k), watchtest.Status(http.StatusNotFound))
			r.api.Disconnect(watchtest.Of(k))
			pass(time.Hour)
			lift()

			// Nothing tells that it's back: it's looked for now and then.
			pass(10 * time.Minute)
		}},
		"RemoveInformer": {"The informer is removed.", func(t *testing.T, r *rig) {
			t.Helper()

			r.remove(k)
		}},
		"RemoveInformerManyTimes": {"The informer is removed whenever it comes.", func(t *testing.T, r *rig) {
			t.Helper()

			for i := range 100 {
				r.remove(k)

				time.Sleep(time.Duration(i) * time.Millisecond)
			}
		}},
		"Recreated": {"The kind goes, and comes back.", func(_ *testing.T, r *rig) {
			r.api.Undefine(k)
			pass(time.Hour)
			r.api.Define(k)
		}},
		"RecreatedManyTimes": {"The kind comes and goes.", func(_ *testing.T, r *rig) {
			for i := range 50 {
				r.api.Undefine(k)
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				r.api.Define(k)
				time.Sleep(time.Duration(50-i) * 5 * time.Millisecond)
			}
		}},
		"RecreatedAtOnce": {"The kind was away, unseen.", func(_ *testing.T, r *rig) { r.api.Replace(k, k) }},
		"VersionNotServed": {"The version isn't served for an hour.", func(_ *testing.T, r *rig) {
			r.api.Unserve(k)
			pass(time.Hour)
			r.api.Define(k)
		}},
		"EstablishedLate": {"The definition is there before the kind.", func(_ *testing.T, r *rig) {
			r.api.Undefine(k)
			pass(time.Minute)
			r.api.Announce(k)
			pass(time.Hour)
			r.api.Define(k)
		}},
		"DiscoveryFails": {"The kind comes back while discovery fails.", func(_ *testing.T, r *rig) {
			r.api.Undefine(k)
			pass(time.Minute)

			lift := r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Status(http.StatusServiceUnavailable))
			r.api.Define(k)
			pass(time.Hour)
			lift()
		}},
	}

	for name, tc := range cases {
		for crds, mode := range map[bool]string{true: "DefinitionsWatched", false: "DefinitionsNotWatched"} {
			inBubble(t, name+"/"+mode, func(t *testing.T) {
				r, rec := watching(t, k, crds)

				tc.churn(t, r)

				// Without definitions a kind is looked for once a minute.
				pass(5 * time.Minute)
				rec.forget()
				r.api.Put(k.Object("new"), k)
				pass(time.Second)

				if n := rec.count("", "new"); n != 1 {
					t.Errorf("\n%s\nan object that came got %d events, want 1", tc.reason, n)
				}

				if n := r.api.Open(watchtest.Of(k)); n != 1 {
					t.Errorf("\n%s\n%d informers watch the kind, want 1", tc.reason, n)
				}

				if err := r.read(t.Context(), k, "new"); err != nil {
					t.Errorf("\n%s\nGet(...): %v", tc.reason, err)
				}

				if err := r.Stop(t.Context(), "c"); err != nil {
					t.Errorf("\n%s\nStop(...): %v", tc.reason, err)
				}

				rec.forget()
				r.api.Put(k.Object("late"), k)
				pass(time.Minute)

				if n := len(rec.all()); n != 0 {
					t.Errorf("\n%s\nafter Stop the handler got %d events", tc.reason, n)
				}
			})
		}
	}
}

// A kind whose definition goes is left in peace, and resumes when it comes
// back, wherever that is.
func TestDormantKindsResume(t *testing.T) {
	was := watchtest.NewKind("Widget")

	cases := map[string]struct {
		reason string
		is     watchtest.Kind
		atOnce bool
	}{
		"Same":                {reason: "As it was.", is: was},
		"AnotherScope":        {reason: "With another scope.", is: was.ClusterScoped()},
		"AnotherPlural":       {reason: "With another plural.", is: was.Named("widgetry")},
		"AnotherScopePlural":  {reason: "With both.", is: was.ClusterScoped().Named("widgetry")},
		"SameAtOnce":          {reason: "As it was, replaced unseen.", is: was, atOnce: true},
		"AnotherScopeAtOnce":  {reason: "With another scope, replaced unseen.", is: was.ClusterScoped(), atOnce: true},
		"AnotherPluralAtOnce": {reason: "With another plural, replaced unseen.", is: was.Named("widgetry"), atOnce: true},
	}

	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := watching(t, was, true)

			byColour := func(o client.Object) []string { return []string{o.GetLabels()["colour"]} }
			if err := r.infs.IndexField(t.Context(), was.New(), "colour", byColour); err != nil {
				t.Fatal(err)
			}

			rec.forget()

			if tc.atOnce {
				r.api.Replace(was, tc.is)
			} else {
				r.api.Undefine(was)
				pass(time.Second)

				before := len(r.api.Requests(watchtest.Everything()))

				pass(time.Hour)

				if n := len(r.api.Requests(watchtest.Everything())) - before; n > 10 {
					t.Errorf("\n%s\n%d requests in an hour while the kind was away", tc.reason, n)
				}

				r.api.Define(tc.is)
			}

			red := tc.is.Object("red")
			red.SetLabels(map[string]string{"colour": "red"})
			r.api.Put(red, tc.is)
			r.api.Put(tc.is.Object("plain"), tc.is)

			// At once means: not after a backoff.
			pass(2 * time.Second)

			if n := rec.count("delete", "one"); n != 1 {
				t.Errorf("\n%s\nan object that went with its kind was deleted %d times", tc.reason, n)
			}

			for _, n := range []string{"red", "plain"} {
				// If the kind was replaced unseen, its informer may have found the new
				// objects before the definition says that all is new.
				if c := rec.count("create", n); c < 1 || c > 1 && !tc.atOnce {
					t.Errorf("\n%s\nan object that came back was created %d times", tc.reason, c)
				}

				if c := rec.count("delete", n); c != 0 {
					t.Errorf("\n%s\nan object that came back was deleted %d times", tc.reason, c)
				}
			}

			l := tc.is.NewList()
			if err := r.reader.List(t.Context(), l, client.MatchingFields{"colour": "red"}); err != nil || len(l.Items) != 1 {
				t.Errorf("\n%s\nList(...) by index: %d objects, %v", tc.reason, len(l.Items), err)
			}

			if err := r.read(t.Context(), tc.is, "red"); err != nil {
				t.Errorf("\n%s\nGet(...): %v", tc.reason, err)
			}

			r.api.Remove(tc.is, tc.is.Key("red"))
			pass(time.Second)

			if n := rec.count("delete", "red"); n != 1 {
				t.Errorf("\n%s\nan object that was deleted was deleted %d times", tc.reason, n)
			}
		})
	}
}

// The first handler and predicates of a watch stay until it is stopped.
func TestFirstHandlersStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		r := running(t, api)

		first, second := &recorder{}, &recorder{}
		none := watchOf(k, first)
		none.preds = []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return false })}

		for _, w := range []spec{watchOf(k, first), watchOf(k, second), none} {
			r.watch("c", w)
		}

		api.Put(k.Object("one"), k)
		pass(time.Second)

		// Another representation of the kind is another informer: refused.
		none.kind = partial(k)
		if err := r.StartWatches(t.Context(), "c", none); !errors.Is(err, watch.ErrConflictingWatch) {
			t.Errorf("StartWatches(...) of metadata: got %v, want %v", err, watch.ErrConflictingWatch)
		}

		if f, s := first.count("create", "one"), second.count("create", "one"); f != 1 || s != 0 {
			t.Errorf("the first handler got %d events, the second %d; want 1, 0", f, s)
		}

		r.unwatch("c", idOf(k))

		r.watch("c", watchOf(k, second))

		pass(time.Second)

		if f, s := first.count("create", "one"), second.count("create", "one"); f != 1 || s != 1 {
			t.Errorf("after the watch was stopped the first handler got %d events, the second %d; want 1, 1", f, s)
		}
	})
}

// All predicates see what a watch sees.
func TestPredicatesOfEachEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		r := running(t, api)

		var seen []string

		w := watchOf(k, &recorder{})
		w.preds = []predicate.Predicate{
			predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool {
					seen = append(seen, "create "+e.Object.GetName())
					return true
				},
				UpdateFunc: func(e event.UpdateEvent) bool {
					seen = append(seen, fmt.Sprintf("update %s %d %d", e.ObjectNew.GetName(), e.ObjectOld.GetGeneration(), e.ObjectNew.GetGeneration()))
					return false
				},
				DeleteFunc: func(e event.DeleteEvent) bool {
					seen = append(seen, "delete "+e.Object.GetName())
					return true
				},
			},
		}

		rec, ok := w.handler.(*recorder)
		if !ok {
			t.Fatal("not a recorder")
		}

		r.watch("c", w)

		api.Put(k.Object("one"), k)
		api.Put(k.Object("one"), k)
		api.Remove(k, k.Key("one"))
		pass(time.Second)

		if want := []string{"create one", "update one 1 2", "delete one"}; strings.Join(seen, ", ") != strings.Join(want, ", ") {
			t.Errorf("predicates saw %q, want %q", seen, want)
		}

		if c, u, d := rec.count("create", "one"), rec.count("update", "one"), rec.count("delete", "one"); c != 1 || u != 0 || d != 1 {
			t.Errorf("the handler got %d, %d and %d events, want 1, 0 and 1", c, u, d)
		}
	})
}
