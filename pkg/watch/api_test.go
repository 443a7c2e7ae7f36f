package watch_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestMetricNames(t *testing.T) {
	m := watch.NewPrometheusMetrics()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	if err := reg.Register(watch.NewPrometheusMetrics()); err == nil {
		t.Error("metrics can be registered twice: they aren't described")
	}
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
	if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
		t.Errorf("dashboards know these names: -want, +got:\n%s", diff)
	}
}

// gather returns all metrics, one a line.
func gather(t *testing.T, reg prometheus.Gatherer) []string {
	t.Helper()
	fs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
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

func TestSubjectAccessReviewErrorText(t *testing.T) {
	inner := errors.New("boom")
	cases := map[string]struct {
		reason string
		err    watch.SubjectAccessReviewError
		want   string
	}{
		"Group": {
			reason: "A group is put between the resource and its version.",
			err: watch.SubjectAccessReviewError{
				User: "u", Resource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, DeniedVerbs: []string{"get", "list"},
			},
			want: "u is not allowed to [get, list] resource widgets.example.org/v1",
		},
		"CoreGroupNamespaceAndCause": {
			reason: "The core group has no name.",
			err: watch.SubjectAccessReviewError{
				User: "u", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "ns", DeniedVerbs: []string{"get"}, Err: inner,
			},
			want: "u is not allowed to [get] resource pods/v1 in namespace ns: boom",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.err.Error()); diff != "" {
				t.Errorf("\n%s\nError(): -want, +got:\n%s", tc.reason, diff)
			}
			if got := errors.Is(tc.err, inner); got != (tc.err.Err != nil) {
				t.Errorf("\n%s\nerrors.Is(...): %t", tc.reason, got)
			}
		})
	}
}
