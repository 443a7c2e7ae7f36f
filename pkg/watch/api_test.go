package watch_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	authv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestMetricNames(t *testing.T) {
	m := watch.NewPrometheusMetrics()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	expectEqual(
		t, "Metrics are described, so they can't be registered twice.", "Register(...)", anError,
		reg.Register(watch.NewPrometheusMetrics()),
	)
	m.ControllerStarted("c")
	m.ControllerStopped("c")
	m.WatchStarted("c", watch.WatchTypeClaim)
	m.WatchStarted("c", watch.WatchTypeClaim)
	m.WatchStopped("c", watch.WatchTypeClaim)
	want := []string{
		"engine_controllers_started_total controller=c 1",
		"engine_controllers_stopped_total controller=c 1",
		"engine_watches_started_total controller=c type=Claim 2",
		"engine_watches_stopped_total controller=c type=Claim 1",
	}
	expectEqual(t, "Dashboards know these names.", "metrics", want, gather(t, reg))
}

// gather returns all metrics, one a line.
func gather(t testing.TB, reg prometheus.Gatherer) []string {
	t.Helper()
	fs, err := reg.Gather()
	mustSucceed(t, err)
	var out []string
	for _, f := range fs {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			out = append(out, line+" "+strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	slices.Sort(out)
	return out
}

// shown returns the metrics of what runs.
func (r *testEnv) shown() []string {
	r.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.ours.Collector())
	return gather(r.t, reg)
}

// stateOf returns how the only watch of controller c does.
func stateOf(t *testing.T, r *testEnv) watch.WatchSnapshot {
	t.Helper()
	for _, c := range r.ours.Snapshot().Controllers {
		if c.Name == "c" && len(c.Watches) == 1 {
			return c.Watches[0]
		}
	}
	t.Fatal("the controller doesn't have one watch")
	return watch.WatchSnapshot{}
}

// The page and the metrics show the snapshot.
func TestSnapshot_IsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := newWatchingEnv(t, true)
		r.start("other", idleOptions())
		gone := watchtest.NewKind("Gone")
		_ = r.watchFor(time.Second, "other", newWatch(gone, &recorder{}))
		r.start("ended", idleOptions())
		r.stop("ended")

		// The snapshot below is taken a moment later.
		advance(time.Millisecond)
		w := httptest.NewRecorder()
		r.ours.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/watches", nil))
		text := w.Body.String()
		var got watch.Snapshot
		mustSucceed(t, json.Unmarshal(w.Body.Bytes(), &got))
		expectEqual(t, "It is the snapshot.", "page", r.ours.Snapshot(), got)
		for _, want := range []string{
			"\n    \"2 controllers, 3 kinds, watches: 1 Active 1 Dormant\"", // A line of its own.
			"other: Dependency watch for gone.example.org/v1, Kind=Gone is Dormant since",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page doesn't say %q:\n%s", want, text)
			}
		}
		want := []string{
			"graft_watch_controllers state=Ending 0",
			"graft_watch_controllers state=Running 2",
			"graft_watch_controllers state=Waiting 0",
			"graft_watch_events_delivered_total 2",
			"graft_watch_events_queued 0",
			"graft_watch_handler_seconds 0",
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
		gauges := slices.DeleteFunc(
			r.shown(), func(l string) bool { return strings.HasPrefix(l, "graft_watch_failures_total") },
		)
		expectEqual(t, "It has what runs.", "metrics", want, gauges)
	})
}

func TestIsAuthorizedFor(t *testing.T) {
	core := watchtest.ConfigMap()
	boom := errors.New("boom")
	all := map[string]bool{
		"get":    true,
		"list":   true,
		"watch":  true,
		"create": true,
		"update": true,
		"patch":  true,
		"delete": true,
	}
	some := map[string]bool{"get": true, "list": true, "watch": true, "create": true, "update": true}
	cases := map[string]struct {
		reason    string
		kind      watchtest.Kind
		namespace string
		allow     map[string]bool
		err       error
		denied    string // The text of a SubjectAccessReviewError.
		isErr     bool
		reviews   int
	}{
		"Everything": {
			reason:  "An account that has all verbs should need one review.",
			kind:    widget,
			allow:   map[string]bool{"*": true},
			reviews: 1,
		},
		"EachVerb": {
			reason:  "An account that has each needed verb should be allowed.",
			kind:    widget,
			allow:   all,
			reviews: 8,
		},
		"CannotReview": {reason: "An error of a review is returned.", kind: widget, err: boom, isErr: true, reviews: 1},
		"NoSuchKind":   {reason: "A missing kind should be an error.", kind: watchtest.NewKind("Gadget"), isErr: true},
		"SomeVerbs": {
			reason: "One error should have all missing verbs.",
			kind:   widget, namespace: "ns", allow: some, isErr: true, reviews: 8,
			denied: "system:serviceaccount:system:me is not allowed to [patch, delete] resource widgets.widget.example.org/v1 in namespace ns",
		},
		"CoreGroup": {
			reason: "It has no name.", kind: core, allow: some, isErr: true, reviews: 8,
			denied: "system:serviceaccount:system:me is not allowed to [patch, delete] resource configmaps/v1",
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			reviews := 0
			c := &test.MockClient{
				MockCreate: func(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
					review, ok := obj.(*authv1.SelfSubjectAccessReview)
					if !ok {
						t.Fatalf("%T was created", obj)
					}
					reviews++
					a := review.Spec.ResourceAttributes
					review.Status.Allowed = tc.allow[a.Verb]
					if a.Group != tc.kind.GVK.Group || a.Version != tc.kind.GVK.Version ||
						a.Resource != tc.kind.Plural || a.Namespace != tc.namespace {
						t.Errorf("\n%s\nreview of %+v", tc.reason, a)
					}
					return tc.err
				},
			}
			r := newGraftEnv(t, watchtest.NewAPI(widget))
			e := watch.New(r.mgr, r.infs, nil, c, watch.WithNamespace("system"), watch.WithServiceAccount("me"))
			got, err := e.IsAuthorizedFor(t.Context(), tc.kind.GVK, tc.namespace)
			expectEqual(t, tc.reason, "IsNoMatchError, IsNotFound", []bool{name == "NoSuchKind", false}, []bool{
				meta.IsNoMatchError(err), kerrors.IsNotFound(err),
			})
			if got == tc.isErr || (err != nil) != tc.isErr || tc.err != nil && !errors.Is(err, tc.err) ||
				reviews != tc.reviews {
				t.Errorf("\n%s\nIsAuthorizedFor(...): %t, %v after %d reviews", tc.reason, got, err, reviews)
			}
			denied := watch.SubjectAccessReviewError{}
			if tc.denied != "" && (!errors.As(err, &denied) || err.Error() != tc.denied) {
				t.Errorf("\n%s\ngot error %v, want %s", tc.reason, err, tc.denied)
			}
			if denied.Err = boom; tc.denied != "" && (!errors.Is(denied, boom) ||
				denied.Error() != tc.denied+": boom") {
				t.Errorf("\n%s\ngot error %v, want %s with its cause", tc.reason, denied, tc.denied)
			}
		})
	}
}
