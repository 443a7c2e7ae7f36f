package watch_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// stateOf returns how the only watch of controller c does.
func stateOf(t *testing.T, r *rig) watch.WatchSnapshot {
	t.Helper()
	for _, c := range r.ours.Snapshot().Controllers {
		if c.Name == "c" && len(c.Watches) == 1 {
			return c.Watches[0]
		}
	}
	t.Fatal("the controller doesn't have one watch")
	return watch.WatchSnapshot{}
}

// The page and the metrics show what the snapshot has.
func TestSnapshot_IsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := watching(t, watchtest.NewKind("Widget"), true)
		r.start("other", idle())
		gone := watchtest.NewKind("Gone")
		_ = r.watchFor(time.Second, "other", watchOf(gone, &recorder{}))
		r.start("ended", idle())
		r.stop("ended")

		// The page is compared with what is a moment later.
		pass(time.Millisecond)
		w := httptest.NewRecorder()
		r.ours.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/watches", nil))
		text := w.Body.String()
		var got watch.Snapshot
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.ours.Snapshot(), got); diff != "" {
			t.Errorf("-snapshot, +page:\n%s", diff)
		}
		for _, want := range []string{"2 controllers, 3 kinds, watches: 1 Active 1 Dormant", "other: Dependency watch for gone.example.org/v1, Kind=Gone is Dormant since"} {
			if !strings.Contains(text, want) {
				t.Errorf("the page doesn't say %q:\n%s", want, text)
			}
		}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(r.ours.Collector())
		want := []string{
			"graft_watch_controllers state=Ending 0",
			"graft_watch_controllers state=Running 2",
			"graft_watch_controllers state=Waiting 0",
			"graft_watch_events_delivered_total 2",
			"graft_watch_kinds state=Active 2",
			"graft_watch_kinds state=Degraded 0",
			"graft_watch_kinds state=Dormant 1",
			"graft_watch_kinds state=Pending 0",
			"graft_watch_kinds state=Stopped 0",
			"graft_watch_kinds state=Syncing 0",
			"graft_watch_objects 2",
			"graft_watch_watches controller=c state=Active type=Dependency 1",
			"graft_watch_watches controller=other state=Dormant type=Dependency 1",
		}
		gauges := slices.DeleteFunc(gather(t, reg), func(l string) bool { return strings.HasPrefix(l, "graft_watch_failures_total") })
		if diff := cmp.Diff(want, gauges); diff != "" {
			t.Errorf("metrics: -want, +got:\n%s", diff)
		}
	})
}
