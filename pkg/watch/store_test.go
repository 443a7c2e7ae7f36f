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
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
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

	// slow is how long it takes to save.
	slow time.Duration

	// attempts to save, also those that failed.
	attempts int

	// calls that are under way, now and at most.
	calls, most int
}

// call notes that a call is under way until the returned function is called.
func (s *memoryStore) call() (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.calls++
	s.most = max(s.most, s.calls)

	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.calls--
	}
}

func (s *memoryStore) Load(ctx context.Context) (watch.SavedWatches, error) {
	defer s.call()()

	s.mu.Lock()
	hang, saved, err := s.hang, s.saved, s.loadErr
	s.mu.Unlock()

	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}

	return saved, err
}

func (s *memoryStore) Save(ctx context.Context, w watch.SavedWatches) error {
	defer s.call()()

	s.mu.Lock()
	slow := s.slow
	s.attempts++
	s.mu.Unlock()

	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.saveErr != nil {
		return s.saveErr
	}

	s.saved = w
	s.saves++

	return nil
}

// atOnce returns how many calls were under way at once, at most.
func (s *memoryStore) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.most
}

// take so long to save.
func (s *memoryStore) take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.slow = d
}

func (s *memoryStore) get() (watch.SavedWatches, int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.saved, s.saves
}

// fail to save with an error, or not. Loading works from now on.
func (s *memoryStore) fail(save error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.loadErr, s.saveErr, s.hang = nil, save, false
}

// tried returns how often it was tried to save.
func (s *memoryStore) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.attempts
}

// logLines remembers what is logged, by level.
type logLines struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (l *logLines) add(level, msg string, kvs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.lines == nil {
		l.lines = make(map[string][]string)
	}

	l.lines[level] = append(l.lines[level], fmt.Sprint(append([]any{msg}, kvs...)...))
}

func (l *logLines) Info(msg string, kvs ...any)        { l.add("info", msg, kvs...) }
func (l *logLines) Debug(msg string, kvs ...any)       { l.add("debug", msg, kvs...) }
func (l *logLines) WithValues(_ ...any) logging.Logger { return l }

func (l *logLines) all(level string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.lines[level])
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

// W21: what changed right before the engine was shut down is saved, too, if it can
// be in a moment.
func TestW21ShutdownSavesWhatIsntSaved(t *testing.T) {
	a, b := watchtest.NewKind("A"), watchtest.NewKind("B")
	saved := watch.SavedWatches{"c": {idOf(a)}, "other": {idOf(b)}}
	both := watch.SavedWatches{"c": {idOf(a), idOf(b)}, "other": {idOf(b)}}
	boom := errors.New("boom")

	cases := map[string]struct {
		reason string

		// patience is how long the context of Shutdown lets it wait; 0 is for ever.
		patience time.Duration

		// before is called a second after c had its first watch, and then it has a
		// second one.
		before func(s *memoryStore)

		// wait is how long after that the engine is shut down.
		wait time.Duration

		want  watch.SavedWatches
		took  time.Duration
		fails bool

		// counted errors of saving.
		counted int
	}{
		"AtOnce": {
			reason: "What changed within the last second is saved.",
			want:   both,
		},
		"Saved": {
			reason: "What was saved isn't saved again.",
			wait:   time.Minute,
			before: func(s *memoryStore) { s.take(time.Second) },
			want:   both,
		},
		"WhileSaving": {
			reason: "A save that is under way is given up, since it may be of what is stopped meanwhile, and begun anew.",
			before: func(s *memoryStore) { s.take(time.Second) },
			wait:   1500 * time.Millisecond,
			want:   both, took: time.Second,
		},
		"Hanging": {
			reason: "A store that doesn't answer isn't waited for.",
			before: func(s *memoryStore) { s.take(time.Hour) },
			want:   saved, took: 3 * time.Second, counted: 1,
		},
		"HangingAndImpatient": {
			reason:   "Nor is it longer than the context says.",
			patience: time.Second,
			before:   func(s *memoryStore) { s.take(time.Hour) },
			want:     saved, took: time.Second, counted: 1, fails: true,
		},
		"Failing": {
			reason: "A store that fails makes no other error.",
			before: func(s *memoryStore) { s.fail(boom) },
			want:   saved, counted: 1,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := &memoryStore{saved: watch.SavedWatches{"other": {idOf(b)}}}
				api := watchtest.NewAPI(a, b)
				r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(store))
				r.mgr.Elect()
				r.start("c", idle())

				if err := r.StartWatches(t.Context(), "c", watchOf(a, &recorder{})); err != nil {
					t.Fatal(err)
				}

				pass(10 * time.Second)

				if tc.before != nil {
					tc.before(store)
				}

				if err := r.StartWatches(t.Context(), "c", watchOf(b, &recorder{})); err != nil {
					t.Fatal(err)
				}

				pass(tc.wait)

				took, err := timed(func() error {
					if tc.patience == 0 {
						return r.ours.Shutdown(t.Context())
					}

					return limited(t, tc.patience, r.ours.Shutdown)
				})
				if (err != nil) != tc.fails {
					t.Errorf("\n%s\nShutdown(...): got %v, want an error: %t", tc.reason, err, tc.fails)
				}

				if took < tc.took || took > tc.took+quick {
					t.Errorf("\n%s\nShutdown(...) took %s, want %s", tc.reason, took, tc.took)
				}

				synctest.Wait()

				check := func(when string) {
					t.Helper()

					if got, _ := store.get(); cmp.Diff(tc.want, got, sortIDs) != "" {
						t.Errorf("\n%s\nsaved %s: -want, +got:\n%s", tc.reason, when, cmp.Diff(tc.want, got, sortIDs))
					}
				}
				check("at once")

				// Neither later nor by another call is it taken back.
				store.take(0)
				store.fail(nil)

				tried := store.tried()
				if err := r.ours.Shutdown(t.Context()); err != nil {
					t.Errorf("\n%s\nShutdown(...) again: %v", tc.reason, err)
				}

				pass(time.Hour)
				check("in the end")

				if n := store.tried(); n != tried {
					t.Errorf("\n%s\nafterwards it was tried %d more times to save", tc.reason, n-tried)
				}

				if n := store.atOnce(); n > 1 {
					t.Errorf("\n%s\n%d calls at once", tc.reason, n)
				}

				reg := prometheus.NewPedanticRegistry()
				reg.MustRegister(r.ours.Collector())

				if want := fmt.Sprintf("graft_watch_state_store_errors_total operation=save %d", tc.counted); !slices.Contains(gather(t, reg), want) {
					t.Errorf("\n%s\nno %q in:\n%s", tc.reason, want, strings.Join(gather(t, reg), "\n"))
				}
			})
		})
	}
}

// W21: who never was elected, or doesn't know what there is, replaces nothing when
// it is shut down.
func TestW21ShutdownReplacesNothingUnknown(t *testing.T) {
	k := watchtest.NewKind("Widget")

	cases := map[string]struct {
		reason string
		store  *memoryStore
		elect  bool
	}{
		"NotElected": {reason: "Another process may be elected, and write.", store: &memoryStore{}},
		"Newer":      {reason: "A newer version saved it.", store: &memoryStore{loadErr: watch.ErrNewerState}, elect: true},
		"NotLoaded":  {reason: "It couldn't be asked.", store: &memoryStore{loadErr: errors.New("boom")}, elect: true},
		"Hanging":    {reason: "It hasn't answered yet.", store: &memoryStore{hang: true}, elect: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := watchtest.NewAPI(k)
				r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(tc.store))
				r.start("c", idle())

				if tc.elect {
					r.mgr.Elect()
				}

				if err := r.StartWatches(t.Context(), "c", watchOf(k, &recorder{})); err != nil {
					t.Fatal(err)
				}

				if took, err := timed(func() error { return r.ours.Shutdown(t.Context()) }); err != nil || took > quick {
					t.Errorf("\n%s\nShutdown(...): %v after %s", tc.reason, err, took)
				}

				pass(time.Hour)

				if n := tc.store.tried(); n != 0 {
					t.Errorf("\n%s\nit was tried %d times to save", tc.reason, n)
				}
			})
		})
	}
}

// W21: a process that ends while a controller restores its watches takes none of
// them back.
func TestW21ShutdownWhileRestoring(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := watchtest.NewKind("A"), watchtest.NewKind("B")
		store := &memoryStore{saved: watch.SavedWatches{"c": {idOf(a), idOf(b)}}}
		api := watchtest.NewAPI(a, b)
		r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(store))
		r.mgr.Elect()

		slow := watch.WithRestore(func(id watch.WatchID) (watch.Watch, bool) {
			time.Sleep(3 * time.Second)

			return watch.WatchFor(watchtest.Kind{GVK: id.GVK}.New(), id.Type, &recorder{}), true
		})
		if err := r.ours.Start("c", watch.WithRuntimeOptions(idle().runtime), slow); err != nil {
			t.Fatal(err)
		}

		// Something else is saved meanwhile, and something isn't.
		r.start("other", idle())

		if err := r.StartWatches(t.Context(), "other", watchOf(a, &recorder{})); err != nil {
			t.Fatal(err)
		}

		pass(2 * time.Second)

		want := watch.SavedWatches{"c": {idOf(a), idOf(b)}, "other": {idOf(a)}}
		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("saved while it restores: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}

		if err := r.StartWatches(t.Context(), "other", watchOf(b, &recorder{})); err != nil {
			t.Fatal(err)
		}

		if err := r.ours.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown(...): %v", err)
		}

		pass(time.Hour)

		want["other"] = []watch.WatchID{idOf(a), idOf(b)}
		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("saved in the end: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}
	})
}

// W21: a state store that is missing, unreadable, newer or that fails is said to be
// in a metric, an event and the log, and does no harm. What a newer version saved
// is left alone until it is gone.
func TestW21AStoreThatFails(t *testing.T) {
	boom := errors.New("boom")
	errorsOf := func(operation string, n int) string {
		return fmt.Sprintf("graft_watch_state_store_errors_total operation=%s %d", operation, n)
	}

	cases := map[string]struct {
		reason  string
		store   *memoryStore
		events  []string
		metrics []string
		within  time.Duration

		// Whether anything is saved before the store has recovered.
		saves bool
	}{
		"Missing": {
			reason:  "Nothing was saved yet, as it is when we are new.",
			store:   &memoryStore{loadErr: fmt.Errorf("nothing: %w", watch.ErrNoState)},
			events:  []string{"NoSavedWatches"},
			metrics: []string{"graft_watch_state_store state=Missing 1", errorsOf("load", 0)},
			within:  time.Second, saves: true,
		},
		"Unreadable": {
			reason:  "What nobody can read is replaced.",
			store:   &memoryStore{loadErr: fmt.Errorf("boom: %w", watch.ErrUnreadableState)},
			events:  []string{"CannotLoadWatches"},
			metrics: []string{"graft_watch_state_store state=Unreadable 1", errorsOf("load", 1)},
			within:  time.Second, saves: true,
		},
		"Newer": {
			reason:  "What a newer version saved isn't replaced.",
			store:   &memoryStore{loadErr: fmt.Errorf("version 2: %w", watch.ErrNewerState)},
			events:  []string{"CannotLoadWatches"},
			metrics: []string{"graft_watch_state_store state=Newer 1", errorsOf("load", 1)},
			within:  time.Second,
		},
		"NewerMeanwhile": {
			reason:  "Nor is it if that happened after we loaded.",
			store:   &memoryStore{saveErr: fmt.Errorf("version 2: %w", watch.ErrNewerState)},
			events:  []string{"CannotSaveWatches"},
			metrics: []string{"graft_watch_state_store state=Newer 1", errorsOf("save", 1)},
			within:  time.Second,
		},
		"CannotLoad": {
			reason:  "What can't be read now is started without, and isn't replaced before it was read.",
			store:   &memoryStore{loadErr: boom},
			events:  []string{"CannotLoadWatches"},
			metrics: []string{"graft_watch_state_store state=Failing 1", errorsOf("load", 1)},
			within:  time.Second,
		},
		"CannotSave": {
			reason:  "What can't be written is tried again.",
			store:   &memoryStore{saveErr: boom},
			events:  []string{"CannotSaveWatches"},
			metrics: []string{"graft_watch_state_store state=Failing 1", errorsOf("save", 1)},
			within:  time.Second,
		},
		"Hangs": {
			reason:  "A store that doesn't answer holds up a controller for some seconds.",
			store:   &memoryStore{hang: true},
			events:  []string{"CannotLoadWatches"},
			metrics: []string{"graft_watch_state_store state=Failing 1", errorsOf("load", 1)},
			within:  11 * time.Second,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				k := watchtest.NewKind("Widget")
				api := watchtest.NewAPI(k)
				api.Put(k.Object("one"), k)

				rec, log := &events{}, &logLines{}
				about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "watches"}}
				r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(tc.store), watch.WithRecorder(rec, about), watch.WithLogger(log))
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

				took := (<-reconciled).Sub(begin)
				if took > tc.within {
					t.Errorf("\n%s\nreconciled after %s", tc.reason, took)
				}

				// Before the answer to what was asked for first is followed by
				// a save.
				synctest.Wait()

				reg := prometheus.NewPedanticRegistry()
				reg.MustRegister(r.ours.Collector())

				seen := gather(t, reg)

				pass(5 * time.Second)

				if diff := cmp.Diff(tc.events, rec.all()); diff != "" {
					t.Errorf("\n%s\nevents: -want, +got:\n%s", tc.reason, diff)
				}

				if got := log.all("info"); len(got) != 1 {
					t.Errorf("\n%s\n%d log lines, want 1: %q", tc.reason, len(got), got)
				}

				// What a store answers to Load is known at once, what to Save later.
				seen = append(seen, gather(t, reg)...)
				for _, m := range tc.metrics {
					if !slices.Contains(seen, m) {
						t.Errorf("\n%s\nno %q in:\n%s", tc.reason, m, strings.Join(seen, "\n"))
					}
				}

				// It goes on, without another word.
				pass(3 * time.Hour)

				if _, n := tc.store.get(); (n > 0) != tc.saves {
					t.Errorf("\n%s\nsaved %d times, want some: %t", tc.reason, n, tc.saves)
				}

				if n := tc.store.tried(); n > 0 && tc.store.loadErr != nil && !tc.saves {
					t.Errorf("\n%s\n%d attempts to save, want none before it is known what is there", tc.reason, n)
				}

				if diff := cmp.Diff(tc.events, rec.all()); diff != "" {
					t.Errorf("\n%s\nevents after hours: -want, +got:\n%s", tc.reason, diff)
				}

				if got := log.all("info"); len(got) != 1 {
					t.Errorf("\n%s\n%d log lines after hours, want 1: %q", tc.reason, len(got), got)
				}

				// It recovers.
				tc.store.fail(nil)
				pass(11 * time.Minute)

				if got, _ := tc.store.get(); cmp.Diff(watch.SavedWatches{"c": {idOf(k)}}, got) != "" {
					t.Errorf("\n%s\nsaved in the end: %v", tc.reason, got)
				}

				if s := r.ours.Snapshot().StateStore; s != "Good" {
					t.Errorf("\n%s\nin the end the store is %s", tc.reason, s)
				}
			})
		})
	}
}

// W21: a store that couldn't be asked at first still has what controllers had
// that start later, and isn't believed about those that were started.
func TestW21AStoreThatAnswersLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, c := watchtest.NewKind("A"), watchtest.NewKind("B"), watchtest.NewKind("C")
		api := watchtest.NewAPI(a, b, c)
		store := &memoryStore{
			saved:   watch.SavedWatches{"early": {idOf(a), idOf(b)}, "late": {idOf(a)}},
			loadErr: errors.New("boom"),
		}
		r := newGraft(t, api, api.Config(), nil, watch.WithStateStore(store))
		r.mgr.Elect()
		r.start("early", idle())

		if err := r.StartWatches(t.Context(), "early", watchOf(c, &recorder{})); err != nil {
			t.Fatal(err)
		}

		pass(time.Minute)

		if _, n := store.get(); n != 0 {
			t.Errorf("saved %d times what may be there already", n)
		}

		store.fail(nil)
		pass(time.Minute)

		want := watch.SavedWatches{"early": {idOf(c)}, "late": {idOf(a)}}
		if got, _ := store.get(); cmp.Diff(want, got, sortIDs) != "" {
			t.Errorf("saved: -want, +got:\n%s", cmp.Diff(want, got, sortIDs))
		}

		if err := r.ours.Start("late", watch.WithRuntimeOptions(idle().runtime), watch.WithRestore(func(id watch.WatchID) (watch.Watch, bool) {
			return watch.WatchFor(a.New(), id.Type, &recorder{}), true
		})); err != nil {
			t.Fatal(err)
		}

		pass(time.Second)

		if got, err := r.GetWatches("late"); err != nil || !slices.Equal(got, []watch.WatchID{idOf(a)}) {
			t.Errorf("GetWatches(...) of a controller that was started when the store answered: %v, %v", got, err)
		}
	})
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
		if !errors.Is(err, watch.ErrNoState) || len(got) != 0 {
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
		want   error

		// Whether saving leaves what is there.
		stays bool
	}{
		"Newer": {
			reason: "What a newer version wrote may mean something else.",
			data:   map[string]string{"watches.json": `{"version":2,"controllers":{}}`},
			want:   watch.ErrNewerState, stays: true,
		},
		"NewerInAnotherShape": {
			reason: "It may look different altogether.",
			data:   map[string]string{"watches.json": `{"version":2,"controllers":["a"],"else":1}`},
			want:   watch.ErrNewerState, stays: true,
		},
		"NewerWithAName": {
			reason: "It may have given up numbers.",
			data:   map[string]string{"watches.json": `{"version":"v2alpha1"}`},
			want:   watch.ErrNewerState, stays: true,
		},
		"NewerThanNumbers": {
			reason: "It may have many.",
			data:   map[string]string{"watches.json": `{"version":99999999999999999999}`},
			want:   watch.ErrNewerState, stays: true,
		},
		"Garbage": {
			reason: "What can't be parsed is an error, not a panic.",
			data:   map[string]string{"watches.json": `{"version":`},
			want:   watch.ErrUnreadableState,
		},
		"Empty": {
			reason: "Nor can nothing.",
			data:   map[string]string{"watches.json": ""},
			want:   watch.ErrUnreadableState,
		},
		"NoVersion": {
			reason: "Every version of ours has a version.",
			data:   map[string]string{"watches.json": `{"version":null,"controllers":{}}`},
			want:   watch.ErrUnreadableState,
		},
		"Older": {
			reason: "There never was an older one.",
			data:   map[string]string{"watches.json": `{"version":0,"controllers":{}}`},
			want:   watch.ErrUnreadableState,
		},
		"WrongType": {
			reason: "It says that it is ours, and isn't.",
			data:   map[string]string{"watches.json": `{"version":1,"controllers":{"c":"all"}}`},
			want:   watch.ErrUnreadableState,
		},
		"SomebodyElses": {
			reason: "A ConfigMap without our key has nothing of ours.",
			data:   map[string]string{"else": "x"},
			want:   watch.ErrNoState,
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
			if len(got) != 0 || !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nLoad(...): %v, %v; want %v", tc.reason, got, err, tc.want)
			}

			err = s.Save(t.Context(), saved)
			if tc.stays && !errors.Is(err, watch.ErrNewerState) || !tc.stays && err != nil {
				t.Errorf("\n%s\nSave(...): %v", tc.reason, err)
			}

			if err := c.Get(t.Context(), key, cm); err != nil {
				t.Fatal(err)
			}

			if tc.stays {
				if diff := cmp.Diff(tc.data, cm.Data); diff != "" {
					t.Errorf("\n%s\nafterwards: -want, +got:\n%s", tc.reason, diff)
				}

				return
			}

			// What isn't ours stays, too.
			if got, err := s.Load(t.Context()); err != nil || cmp.Diff(saved, got, sortIDs) != "" || cm.Data["else"] != tc.data["else"] {
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
