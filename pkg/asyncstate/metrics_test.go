package asyncstate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// An alert on an increase misses the first one of a counter that did not exist.
func TestMetrics_ExistFromTheStart(t *testing.T) {
	got := exposed(t, asyncstate.NewMetrics())
	for series, want := range map[string]int{
		"operations_running{":               3,
		"operations_total{":                 9,
		"operation_duration_seconds_count{": 3,
		"interrupted_total{":                7, "results_unstored ": 1, "results_lost_total ": 1,
	} {
		wants(t, got, series, want, strings.Count(got, "\ngraft_async_"+series))
	}
}

// The documented alert fires if a person has to act, and not for what ends by itself.
func TestMetrics_UnknownResults(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   clientKind
		answer asyncstate.Finding
		fails  bool
		after  time.Duration
		alerts bool
	}{
		"Absent": {
			reason: "It is created when the time is over.",
			kind:   finder,
			answer: asyncstate.Absent(),
			after:  2 * time.Hour,
		},
		"UnknownAtFirst": {reason: "The external system may need a while.", kind: finder, after: 4 * time.Minute},
		"Unknown":        {reason: "It has had its time.", kind: finder, after: 2 * time.Hour, alerts: true},
		"FailsWithRequest": {
			reason: "An error that is another each time is no news.",
			kind:   finder,
			fails:  true,
			after:  2 * time.Hour,
			alerts: true,
		},
		"Nothing": {
			reason: "There is nothing to find it out by.",
			kind:   nothing,
			after:  time.Minute,
			alerts: true,
		},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			p := w.start()
			has := func(p *process, series string) bool {
				return strings.Contains(exposed(t, p.metrics), "\ngraft_async_"+series+"\n")
			}
			pass(3 * time.Minute)
			wants(t, tc.reason, "a create is running", true, has(p, `operations_running{type="create"} 1`))
			p.kill()
			if w.kind = tc.kind; tc.kind == finder {
				w.late(func(resource.Managed) (f asyncstate.Finding, err error, ready bool) {
					if tc.fails {
						err = fmt.Errorf("the request at %s was refused", time.Now())
					}
					return tc.answer, err, false
				})
			}
			p = w.start()
			pass(tc.after / 2)
			writes := w.api.Writes()
			pass(tc.after / 2)
			if n := w.api.Writes() - writes; name != "Absent" && n > 1 {
				t.Errorf("\n%s\n%d writes", tc.reason, n)
			}
			unknown := has(p, `interrupted_total{resolution="unknown",type="create"} 1`)
			if said := len(w.said.Events("CreateResultUnknown")); unknown != tc.alerts || (said == 1) != tc.alerts ||
				!has(p, `operations_running{type="create"} 0`) {
				t.Errorf("\n%s\nunknown %t, %d events: %s", tc.reason, unknown, said, describe(w.get("b")))
			}
		})
	}
}

// exposed returns what Prometheus reads.
func exposed(t *testing.T, m prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// An operation writes at most two times more than a synchronous one does, which takes 4, 0
// and 1: its record, and its result. Its writes of status come on top.
func TestOperationWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.cloud.takes = time.Minute
		w.start()
		for i, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
			w.ask(typ)
			pass(10 * time.Minute)
			wants(
				t, "", fmt.Sprintf("writes of a %s", typ), []int{3, 2, 3}[i],
				w.api.Count(testkit.Update, testkit.Patch),
			)
			contains(t, "events", w.said.All(), fmt.Sprintf("The %s has succeeded", typ))
			w.api.Forget()
		}
	})
}
