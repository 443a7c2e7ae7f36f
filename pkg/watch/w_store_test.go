package watch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// restoring starts a controller that restores its watches of the kinds, and tells
// of its first reconcile how many watches there were.
func restoring(t *testing.T, r *rig, recs map[watch.WatchID]*recorder, first chan<- int) {
	t.Helper()

	var once sync.Once

	rec := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		once.Do(func() {
			active := 0

			for _, c := range r.ours.Snapshot().Controllers {
				for _, w := range c.Watches {
					if w.State == watch.StateActive {
						active++
					}
				}
			}

			first <- active
		})

		return reconcile.Result{}, nil
	})

	if err := r.ours.Start("c",
		watch.WithRuntimeOptions(kcontroller.Options{Reconciler: rec}),
		watch.WithRestore(func(id watch.WatchID) (watch.Watch, bool) {
			h, ok := recs[id]
			if !ok {
				return watch.Watch{}, false
			}

			u := watchtest.Kind{GVK: id.GVK}.New()

			return watch.WatchFor(u, id.Type, h), true
		}),
	); err != nil {
		t.Fatal(err)
	}
}

// W21: the watches of one process are started by the next, before its first
// reconcile.
func TestW21WatchesSurviveACrash(t *testing.T) {
	kinds := make([]watchtest.Kind, 5)
	for i := range kinds {
		kinds[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
	}

	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI(kinds...)
		for _, k := range kinds {
			api.Put(k.Object("one"), k)
		}

		// The store needs a client, which the rig has when it is made.
		process := func() *rig {
			s := &lateStore{}
			r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(s))
			s.StateStore = watch.NewConfigMapStore(r.live, types.NamespacedName{Namespace: "graft-system", Name: "watches"})

			return r
		}

		r := process()
		r.mgr.Elect()
		r.start("c", idle())

		for _, k := range kinds {
			if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
				t.Fatal(err)
			}
		}

		// One isn't wanted any more, and two that are wanted aren't there.
		if _, err := r.StopWatches(t.Context(), "c", idOf(kinds[4])); err != nil {
			t.Fatal(err)
		}

		pass(time.Minute)

		// The process ends as a crash does: nothing is stopped.
		api.Undefine(kinds[3])

		next := process()
		recs := make(map[watch.WatchID]*recorder)

		for _, k := range kinds {
			recs[idOf(k)] = &recorder{}
		}

		first := make(chan int, 1)
		restoring(t, next, recs, first)
		next.mgr.Elect()

		select {
		case n := <-first:
			if n != 3 {
				t.Errorf("at the first reconcile %d watches are active, want 3", n)
			}
		case <-time.After(time.Hour):
			t.Fatal("nothing is reconciled")
		}

		pass(time.Minute)

		for i, want := range []int{1, 1, 1, 0, 0} {
			if n := recs[idOf(kinds[i])].count("create", "one"); n != want {
				t.Errorf("the watch of kind %d got %d events, want %d", i, n, want)
			}
		}

		// The kind that is gone is watched when it comes back.
		api.Define(kinds[3])
		api.Put(kinds[3].Object("one"), kinds[3])
		pass(2 * time.Minute)

		if n := recs[idOf(kinds[3])].count("create", "one"); n != 1 {
			t.Errorf("the watch of a kind that came back got %d events, want 1", n)
		}
	})
}

// A lateStore is made before its store is.
type lateStore struct{ watch.StateStore }

// W21: a store that can't be read is started without; nothing else fails. What a
// newer version wrote stays until somebody removes it.
func TestW21BadConfigMaps(t *testing.T) {
	k := watchtest.NewKind("Widget")
	key := types.NamespacedName{Namespace: "graft-system", Name: "watches"}

	const newer = `{"version":2,"controllers":[]}`

	configMap := func(data map[string]any) func(api *watchtest.API) func() {
		return func(api *watchtest.API) func() {
			cm := watchtest.ConfigMap().New()
			cm.SetNamespace(key.Namespace)
			cm.SetName(key.Name)
			cm.Object["data"] = data
			api.Put(cm, watchtest.ConfigMap())

			return func() {}
		}
	}

	inject := func(f watchtest.Fault) func(api *watchtest.API) func() {
		return func(api *watchtest.API) func() { return api.Inject(watchtest.Of(watchtest.ConfigMap()), f) }
	}

	cases := map[string]struct {
		reason string
		given  func(api *watchtest.API) (heal func())
		fails  bool
		stays  bool
	}{
		"Missing":   {reason: "There is none yet.", given: func(*watchtest.API) func() { return func() {} }},
		"Empty":     {reason: "Somebody made it, with nothing in it.", given: configMap(nil)},
		"Garbage":   {reason: "It isn't JSON.", given: configMap(map[string]any{"watches.json": "{"}), fails: true},
		"Newer":     {reason: "A newer version wrote it.", given: configMap(map[string]any{"watches.json": newer}), fails: true, stays: true},
		"WrongType": {reason: "Its fields are of other types.", given: configMap(map[string]any{"watches.json": `{"version":1,"controllers":{"c":"all"}}`}), fails: true},
		"NoVersion": {reason: "It doesn't say which version it is.", given: configMap(map[string]any{"watches.json": `{}`}), fails: true},
		"Forbidden": {reason: "We may not read it.", given: inject(watchtest.Status(http.StatusForbidden)), fails: true},
		"Hanging":   {reason: "The API server doesn't answer.", given: inject(watchtest.Hang()), fails: true},
		"Refused":   {reason: "The API server is away.", given: inject(watchtest.Refuse()), fails: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := watchtest.NewAPI(k)
				api.Put(k.Object("one"), k)

				heal := tc.given(api)
				defer heal()

				s := &lateStore{}
				r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(s))
				s.StateStore = watch.NewConfigMapStore(r.live, key)
				r.mgr.Elect()

				first := make(chan int, 1)
				restoring(t, r, map[watch.WatchID]*recorder{}, first)

				if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
					t.Errorf("\n%s\nStartWatches(...): %v", tc.reason, err)
				}

				select {
				case <-first:
				case <-time.After(time.Minute):
					t.Errorf("\n%s\nnothing is reconciled", tc.reason)
				}

				if n := storeErrors(t, r); (n > 0) != tc.fails {
					t.Errorf("\n%s\nerrors of %d operations are counted, want some: %t", tc.reason, n, tc.fails)
				}

				// What is watched now is what the next process reads.
				heal()
				pass(5 * time.Minute)

				if tc.stays {
					pass(24 * time.Hour)

					cm := watchtest.ConfigMap()
					data, _, _ := unstructured.NestedStringMap(api.Objects(cm)[key].Object, "data")

					if diff := cmp.Diff(map[string]string{"watches.json": newer}, data); diff != "" {
						t.Errorf("\n%s\nafter a day: -want, +got:\n%s", tc.reason, diff)
					}

					api.Remove(cm, key)
					pass(15 * time.Minute)
				}

				saved, err := s.Load(t.Context())
				if err != nil || !slices.Equal(saved["c"], []watch.WatchID{idOf(k)}) {
					t.Errorf("\n%s\nafterwards there is %v, %v; want the watch", tc.reason, saved, err)
				}
			})
		})
	}
}

// storeErrors returns of how many operations of the store errors are counted.
func storeErrors(t *testing.T, r *rig) int {
	t.Helper()

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.ours.Collector())

	n := 0

	for _, line := range gather(t, reg) {
		if strings.HasPrefix(line, "graft_watch_state_store_errors_total") && !strings.HasSuffix(line, " 0") {
			n++
		}
	}

	return n
}

// W21: saving is rare, retried, and never in the way.
func TestW21SavesAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		m := &memoryStore{}
		r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(m))
		r.mgr.Elect()
		r.start("c", idle())

		kinds := make([]watchtest.Kind, 100)
		for i := range kinds {
			kinds[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
			api.Define(kinds[i])

			if err := r.StartWatches(t.Context(), "c", watchOf(kinds[i], &recorder{})); err != nil {
				t.Fatal(err)
			}
		}

		pass(time.Minute)

		saved, before := m.get()
		if n := len(saved["c"]); n != 100 || before > 5 {
			t.Errorf("%d watches were saved in %d writes, want 100 in a few", n, before)
		}

		// Asking for what is there changes nothing, also if it waits for its kind.
		api.Undefine(kinds[1])

		for range 60 {
			for _, k := range kinds[:5] {
				_ = r.StartWatches(t.Context(), "c", watchOf(k, &recorder{}))
			}

			pass(time.Minute)
		}

		if _, saves := m.get(); saves != before {
			t.Errorf("%d writes in an hour in which nothing changed", saves-before)
		}

		m.fail(errors.New("boom"))

		if _, err := r.StopWatches(t.Context(), "c", idOf(kinds[0])); err != nil {
			t.Errorf("StopWatches(...) with a store that fails: %v", err)
		}

		pass(time.Hour)
		m.fail(nil)
		pass(5 * time.Minute)

		if saved, _ := m.get(); len(saved["c"]) != 99 {
			t.Errorf("%d watches are saved after the store came back, want 99", len(saved["c"]))
		}
	})
}
