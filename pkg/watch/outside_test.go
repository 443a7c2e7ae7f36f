package watch_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// curiousMetrics ask the engine about the controller that they count.
type curiousMetrics struct {
	watch.NopMetrics

	engine *watch.ControllerEngine
	seen   []string
}

func (m *curiousMetrics) ask(what, name string) {
	ids, _ := m.engine.GetWatches(name) // None if the controller doesn't run.
	m.seen = append(m.seen, fmt.Sprintf("%s: %t, %d", what, m.engine.IsRunning(name), len(ids)))
	_ = m.engine.Snapshot()
}

func (m *curiousMetrics) WatchStarted(name string, _ watch.WatchType) { m.ask("started", name) }
func (m *curiousMetrics) WatchStopped(name string, _ watch.WatchType) { m.ask("stopped", name) }

// No lock is held while metrics are called. A lock of package sync would make the bubble stand still.
func TestMetrics_MayAskTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		m := &curiousMetrics{}
		m.engine = watch.New(r.mgr, r.cache, nil, nil, watch.WithMetrics(m))
		mustSucceed(t, m.engine.Start("m", watch.WithRuntimeOptions(idleOptions().Runtime)))
		mustSucceed(t, m.engine.StartWatches(t.Context(), "m", watchesFor(watchesOf([]watchtest.Kind{widget}))...))
		_, err := m.engine.StopWatches(t.Context(), "m", watchIDOf(widget))
		mustSucceed(t, err)
		mustSucceed(t, m.engine.Stop(t.Context(), "m"))
		expectEqual(
			t, "Metrics should see the controller and its watches.", "running, watches",
			[]string{"started: true, 1", "stopped: true, 0"}, m.seen,
		)
	})
}

// A watch is Active only if its handler returns. Events that wait, and the age of the call, are shown.
func TestHangingHandler_IsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		release := make(chan struct{})
		r.watch("c", newWatch(widget, onCreate(func(context.Context, client.Object) { <-release })))
		began := time.Now()
		for i := range 3 {
			r.api.Put(widget.Object(fmt.Sprintf("w%d", i)), widget)
		}
		advance(time.Second)
		expectState(t, r, "The first object wasn't delivered.", "soon", watch.StateSyncing)
		advance(time.Hour)
		s := stateOf(t, r)
		expectState(t, r, "The handler hangs.", "after an hour", watch.StateDegraded)
		expectEqual(t, "The events that wait should be counted.", "queued, delivered", []uint64{4, 0}, []uint64{
			uint64(s.Queued), s.Delivered, //nolint:gosec // A few.
		})
		if s.HandlerSince == nil {
			t.Fatal("the snapshot doesn't say that the handler runs")
		}
		expectBetween(t, "", "how long the handler has been running", 0, time.Second, s.HandlerSince.Sub(began))
		for _, want := range []string{
			"graft_watch_events_queued 4", "graft_watch_handler_seconds 3601",
			"graft_watch_watches controller=c state=Degraded type=Dependency 1",
		} {
			if !slices.Contains(r.shown(), want) {
				t.Errorf("no metric %s in %q", want, r.shown())
			}
		}
		close(release)
		advance(time.Second)
		s = stateOf(t, r)
		expectState(t, r, "All was delivered.", "afterwards", watch.StateActive)
		expectEqual(
			t, "The handler returned.", "queued, idle", []any{0, true}, []any{s.Queued, s.HandlerSince == nil},
		)
	})
}

// A streamed list that fails after it was opened isn't repeated without a pause.
func TestStreamedLists_ThatFail(t *testing.T) {
	gone := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
	first := `{"type":"ADDED","object":{"apiVersion":"widget.example.org/v1","kind":"Widget",` +
		`"metadata":{"name":"one","namespace":"default","uid":"u","resourceVersion":"1"}}}`
	cases := map[string]struct {
		reason string
		body   string
	}{
		"Expired": {reason: "An error event follows an answer with status 200.", body: gone},
		"Cut":     {reason: "The stream ends after its first event.", body: first},
	}
	for name, tc := range cases {
		for when, later := range map[string]bool{"First": false, "Relist": true} {
			inBubble(t, name+"/"+when, func(t *testing.T) {
				r := newRunningEnv(t, newAPIWithObject())
				rec := &recorder{}
				if later {
					r.watch("c", newWatch(widget, rec))
				}
				// Answers take a moment, so that a loop without a pause makes time pass.
				lift := r.api.Inject(
					watchtest.Of(widget).Initial(), watchtest.Answer(http.StatusOK, tc.body).After(time.Millisecond),
				)
				r.api.Put(widget.Object("two"), widget)
				r.api.Compact(widget)
				r.api.Disconnect(watchtest.Of(widget))
				_ = r.watchFor(10*time.Second, "c", newWatch(widget, rec))
				expectBetween(
					t, tc.reason, "requests in a minute", 0, 120, requestsIn(time.Minute, r.api, watchtest.Of(widget)),
				)
				expectState(t, r, "The kind can be listed.", "after a minute", watch.StateActive)
				lift()
				r.api.Put(widget.Object("three"), widget)
				advance(time.Second)
				expectEqual(t, tc.reason, "events", "", rec.wrong(r.api.Objects(widget)))
			})
		}
	}
}

// Before the election nothing but the controller has its watches.
func TestStopWatches_BeforeTheElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, newAPIWithObject())
		r.start("c", idleOptions())
		cycle := func() {
			r.watch("c", newWatch(widget, &recorder{}))
			r.mustStopWatches(watchIDOf(widget))
		}
		cycle()
		before := settled()
		for range 1000 {
			cycle()
		}
		after := settled()
		expectBetween(
			t, "Watches were stopped.", "bytes for each watch", 0, 100, (max(after.heap, before.heap)-before.heap)/1000,
		)
	})
}

// A handler that ends its goroutine, as t.FailNow does, loses that event only.
func TestHandlers_ThatEndTheirGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI(widget))
		r.start("c", idleOptions())
		for i := range 5 {
			r.api.Put(widget.Object(fmt.Sprintf("w%d", i)), widget)
		}
		calls := 0
		r.watch("c", newWatch(widget, onCreate(func(context.Context, client.Object) { calls++; runtime.Goexit() })))
		r.mgr.Elect()
		advance(time.Minute)
		expectEqual(t, "No further event comes.", "calls", 5, calls)
		expectState(t, r, "", "afterwards", watch.StateActive)
	})
}
