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
		expectEqual(t, got, series, want, strings.Count(got, "\ngraft_async_"+series))
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
			reason: "A create should need no person if the external resource is absent.",
			kind:   finder,
			answer: asyncstate.Absent(),
			after:  2 * time.Hour,
		},
		"UnknownAtFirst": {reason: "The external system may need a while.", kind: finder, after: 4 * time.Minute},
		"Unknown": {
			reason: "A create should need a person if the Finder cannot tell for hours.",
			kind:   finder, after: 2 * time.Hour, alerts: true,
		},
		"FailsWithRequest": {
			reason: "An error whose text differs each time should be reported once.",
			kind:   finder,
			fails:  true,
			after:  2 * time.Hour,
			alerts: true,
		},
		"Nothing": {
			reason: "A create should need a person if the provider cannot look it up.",
			kind:   plainClient,
			after:  time.Minute,
			alerts: true,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, finder, bucket("b"))
			p := e.startProvider()
			has := func(p *process, series string) bool {
				return strings.Contains(exposed(t, p.metrics), "\ngraft_async_"+series+"\n")
			}
			advanceClock(3 * time.Minute)
			expectEqual(t, tc.reason, "a create is running", true, has(p, `operations_running{type="create"} 1`))
			p.kill()
			if e.kind = tc.kind; tc.kind == finder {
				e.lookUpWith(func(resource.Managed) (f asyncstate.Finding, err error, ready bool) {
					if tc.fails {
						err = fmt.Errorf("the request at %s was refused", time.Now())
					}
					return tc.answer, err, false
				})
			}
			p = e.startProvider()
			advanceClock(tc.after / 2)
			writes := e.api.Writes()
			advanceClock(tc.after / 2)
			if n := e.api.Writes() - writes; name != "Absent" && n > 1 {
				t.Errorf("\n%s\n%d writes", tc.reason, n)
			}
			unknown := has(p, `interrupted_total{resolution="unknown",type="create"} 1`)
			if said := len(e.events.Events("CreateResultUnknown")); unknown != tc.alerts || (said == 1) != tc.alerts ||
				!has(p, `operations_running{type="create"} 0`) {
				t.Errorf("\n%s\nunknown %t, %d events: %s", tc.reason, unknown, said, describe(e.get("b")))
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
		e := newEnvironment(t, plainClient, bucket("b"))
		e.cloud.requestDuration = time.Minute
		e.startProvider()
		for i, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
			e.requestOperation(typ)
			advanceClock(10 * time.Minute)
			expectEqual(
				t, "", fmt.Sprintf("writes of a %s", typ), []int{3, 2, 3}[i],
				e.api.Count(testkit.Update, testkit.Patch),
			)
			expectContains(t, "events", e.events.All(), fmt.Sprintf("The %s has succeeded", typ))
			e.api.Forget()
		}
	})
}
