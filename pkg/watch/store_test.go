package watch_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// A memoryStore keeps watches, and fails or hangs when told to.
type memoryStore struct {
	mu    sync.Mutex
	saved watch.SavedWatches
	saves int

	loadErr, saveErr error
	hang             bool
}

func (s *memoryStore) Load(ctx context.Context) (watch.SavedWatches, error) {
	s.mu.Lock()
	hang, saved, err := s.hang, s.saved, s.loadErr
	s.mu.Unlock()

	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}

	return saved, err
}

func (s *memoryStore) Save(_ context.Context, w watch.SavedWatches) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.saveErr != nil {
		return s.saveErr
	}

	s.saved = w
	s.saves++

	return nil
}

func (s *memoryStore) get() (watch.SavedWatches, int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.saved, s.saves
}

func (s *memoryStore) fail(load, save error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.loadErr, s.saveErr = load, save
}

// events remembers the reasons of events.
type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Event(_ runtime.Object, ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.reasons = append(e.reasons, string(ev.Reason))
}

func (e *events) WithAnnotations(...string) event.Recorder { return e }

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()

	return slices.Clone(e.reasons)
}

// sortIDs makes sets of watches comparable.
var sortIDs = cmpopts.SortSlices(func(a, b watch.WatchID) bool { return a.GVK.String() < b.GVK.String() })

// W21: the set of watches survives a restart, and is started before the first
// reconcile.
func TestW21WatchesSurviveARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		xr, a, b := watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
		api := watchtest.NewAPI(xr, a, b)
		api.Put(xr.Object("one"), xr)

		store := &memoryStore{}
		r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(store))
		r.mgr.Elect()
		r.start("c", idle())
		r.start("other", idle())

		if err := r.StartWatches(t.Context(), "c", watchOf(xr, &recorder{}), watchOf(a, &recorder{}), watchOf(b, &recorder{})); err != nil {
			t.Fatal(err)
		}

		if err := r.StartWatches(t.Context(), "other", watchOf(a, &recorder{})); err != nil {
			t.Fatal(err)
		}

		if _, err := r.StopWatches(t.Context(), "c", idOf(b)); err != nil {
			t.Fatal(err)
		}

		pass(time.Minute)

		want := watch.SavedWatches{"c": {idOf(xr), idOf(a)}, "other": {idOf(a)}}

		got, saves := store.get()
		if diff := cmp.Diff(want, got, sortIDs); diff != "" {
			t.Errorf("saved: -want, +got:\n%s", diff)
		}

		if saves > 2 {
			t.Errorf("saved %d times what changed within a moment", saves)
		}

		// A process that ends takes nothing back.
		if err := r.ours.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}

		pass(time.Minute)

		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("after Shutdown: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}

		// The next one has them before it reconciles.
		next := newGraft(t, api, api.Config(), nil, watch.WithStateStore(store))
		next.mgr.Elect()

		atFirst := make(chan []watch.WatchSnapshot, 100)
		o := reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			atFirst <- next.ours.Snapshot().Controllers[0].Watches
			return reconcile.Result{}, nil
		})
		restore := watch.WithRestore(func(id watch.WatchID) (watch.Watch, bool) {
			for _, k := range []watchtest.Kind{xr, a} {
				if k.GVK == id.GVK {
					return watch.WatchFor(k.New(), id.Type, &recorder{}), true
				}
			}

			return watch.Watch{}, false
		})

		if err := next.ours.Start("c", watch.WithRuntimeOptions(o.runtime), restore); err != nil {
			t.Fatal(err)
		}

		ws := <-atFirst
		if len(ws) != 2 || ws[0].State != watch.StateActive || ws[1].State != watch.StateActive {
			t.Errorf("watches at the first reconcile: %+v", ws)
		}

		// What the other controller had isn't lost because it starts later, and
		// what is stopped is.
		pass(time.Minute)

		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("saved by the next process: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}

		if err := next.Stop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}

		pass(time.Minute)

		want = watch.SavedWatches{"other": {idOf(a)}}
		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("after Stop: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}
	})
}

// A state store that fails is said to, and does no harm.
func TestW21AStoreThatFails(t *testing.T) {
	boom := errors.New("boom")

	cases := map[string]struct {
		reason string
		store  *memoryStore
		events []string
		metric string
		within time.Duration
	}{
		"CannotLoad": {
			reason: "What can't be read is started without.",
			store:  &memoryStore{loadErr: boom},
			events: []string{"CannotLoadWatches"},
			metric: "graft_watch_state_store_errors_total operation=load 1",
			within: time.Second,
		},
		"CannotSave": {
			reason: "What can't be written is tried again.",
			store:  &memoryStore{saveErr: boom},
			events: []string{"CannotSaveWatches"},
			metric: "graft_watch_state_store_errors_total operation=save 1",
			within: time.Second,
		},
		"Hangs": {
			reason: "A store that doesn't answer holds up a controller for some seconds.",
			store:  &memoryStore{hang: true},
			events: []string{"CannotLoadWatches"},
			metric: "graft_watch_state_store_errors_total operation=load 1",
			within: 11 * time.Second,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				k := watchtest.NewKind("Widget")
				api := watchtest.NewAPI(k)
				api.Put(k.Object("one"), k)

				rec := &events{}
				about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "watches"}}
				r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(tc.store), watch.WithRecorder(rec, about))
				r.mgr.Elect()

				reconciled := make(chan time.Time, 10)
				begin := time.Now()
				r.start("c", reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					reconciled <- time.Now()
					return reconcile.Result{}, nil
				}))

				if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
					t.Fatal(err)
				}

				if took := (<-reconciled).Sub(begin); took > tc.within {
					t.Errorf("\n%s\nreconciled after %s", tc.reason, took)
				}

				pass(5 * time.Second)

				if diff := cmp.Diff(tc.events, rec.all()); diff != "" {
					t.Errorf("\n%s\nevents: -want, +got:\n%s", tc.reason, diff)
				}

				reg := prometheus.NewPedanticRegistry()
				reg.MustRegister(r.ours.Collector())

				if got := gather(t, reg); !slices.Contains(got, tc.metric) {
					t.Errorf("\n%s\nno %q in:\n%s", tc.reason, tc.metric, strings.Join(got, "\n"))
				}

				// It recovers.
				tc.store.fail(nil, nil)
				pass(time.Minute)

				if got, _ := tc.store.get(); cmp.Diff(watch.SavedWatches{"c": {idOf(k)}}, got) != "" {
					t.Errorf("\n%s\nsaved in the end: %v", tc.reason, got)
				}
			})
		})
	}
}

func TestConfigMapStore(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "watches"}
	saved := watch.SavedWatches{
		"b": {idOf(watchtest.NewKind("B")), idOf(watchtest.NewKind("A"))},
		"a": {idOf(watchtest.NewKind("A"))},
	}

	newStore := func(t *testing.T, api *watchtest.API) (*watch.ConfigMapStore, client.Client) {
		t.Helper()

		s := runtime.NewScheme()
		if err := corev1.AddToScheme(s); err != nil {
			t.Fatal(err)
		}

		c, err := client.New(api.Config(), client.Options{Scheme: s})
		if err != nil {
			t.Fatal(err)
		}

		return watch.NewConfigMapStore(c, key), c
	}

	t.Run("RoundTrip", func(t *testing.T) {
		api := watchtest.NewAPI()
		s, c := newStore(t, api)

		got, err := s.Load(t.Context())
		if err != nil || len(got) != 0 {
			t.Errorf("Load(...) of nothing: %v, %v", got, err)
		}

		// Once to create it, once to update it.
		for _, w := range []watch.SavedWatches{{"a": saved["a"]}, saved} {
			if err := s.Save(t.Context(), w); err != nil {
				t.Fatalf("Save(...): %v", err)
			}
		}

		got, err = s.Load(t.Context())
		if diff := cmp.Diff(saved, got, sortIDs); diff != "" || err != nil {
			t.Errorf("Load(...): %v, -want, +got:\n%s", err, diff)
		}

		cm := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), key, cm); err != nil {
			t.Fatal(err)
		}

		version := cm.GetResourceVersion()
		if err := s.Save(t.Context(), saved); err != nil {
			t.Fatal(err)
		}

		if err := c.Get(t.Context(), key, cm); err != nil || cm.GetResourceVersion() != version {
			t.Errorf("what is saved already was written again: version %s, then %s, %v", version, cm.GetResourceVersion(), err)
		}
	})

	cases := map[string]struct {
		reason string
		data   map[string]string
		want   string
	}{
		"NewerVersion": {
			reason: "What a newer version wrote may mean something else.",
			data:   map[string]string{"watches.json": `{"version":2,"controllers":{}}`},
			want:   "has version 2",
		},
		"Garbage": {
			reason: "What can't be parsed is an error, not a panic.",
			data:   map[string]string{"watches.json": `{"version":`},
			want:   "cannot read ConfigMap",
		},
		"SomebodyElses": {
			reason: "A ConfigMap without our key has nothing of ours.",
			data:   map[string]string{"else": "x"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := watchtest.NewAPI()
			s, c := newStore(t, api)

			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: tc.data}
			if err := c.Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}

			got, err := s.Load(t.Context())
			if len(got) != 0 || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nLoad(...): %v, %v", tc.reason, got, err)
			}

			// Saving works all the same, and leaves what isn't ours.
			if err := s.Save(t.Context(), saved); err != nil {
				t.Errorf("\n%s\nSave(...): %v", tc.reason, err)
			}

			if err := c.Get(t.Context(), key, cm); err != nil || cm.Data["else"] != tc.data["else"] {
				t.Errorf("\n%s\nafterwards: %v, %v", tc.reason, cm.Data, err)
			}
		})
	}

	t.Run("NoAnswer", func(t *testing.T) {
		api := watchtest.NewAPI()
		s, _ := newStore(t, api)

		defer api.Inject(watchtest.Of(watchtest.ConfigMap()), watchtest.Status(http.StatusForbidden))()

		if _, err := s.Load(t.Context()); err == nil {
			t.Error("Load(...) that is forbidden: no error")
		}

		if err := s.Save(t.Context(), saved); err == nil {
			t.Error("Save(...) that is forbidden: no error")
		}
	})

	t.Run("TooMuch", func(t *testing.T) {
		s, _ := newStore(t, watchtest.NewAPI())

		many := watch.SavedWatches{}
		for range 20000 {
			many["c"] = append(many["c"], saved["a"]...)
		}

		if err := s.Save(t.Context(), many); err == nil {
			t.Error("Save(...) of more than fits: no error")
		}
	})
}
