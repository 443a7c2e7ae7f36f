package watch_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

// The exported API of Crossplane's internal/engine at v2.4.0, as its users see
// it. The compiler compares: a fork that swaps the import must find all of it.
// Shorter names for what signatures are made of.
type (
	ctx     = context.Context
	object  = client.Object
	gvk     = schema.GroupVersionKind
	infOpts = cache.InformerGetOption
	queue   = workqueue.TypedRateLimitingInterface[reconcile.Request]
	engineT = *watch.ControllerEngine
	cacheT  = *watch.InformerTrackingCache
	metricT = *watch.PrometheusMetrics
)

// Functions.
var (
	_ func(manager.Manager, watch.TrackingInformers, client.Client, client.Client, ...watch.ControllerEngineOption) engineT = watch.New
	_ func(cache.Cache, *runtime.Scheme) cacheT                                                                             = watch.TrackInformers
	_ func(object, watch.WatchType, handler.EventHandler, ...predicate.Predicate) watch.Watch                               = watch.WatchFor
	_ func(cache.Informer, handler.EventHandler, ...predicate.Predicate) *watch.StoppableSource                             = watch.NewStoppableSource
	_ func(ctx, queue, handler.EventHandler, ...predicate.Predicate) *watch.EventHandler                                    = watch.NewEventHandler
	_ func() metricT                                                                                                        = watch.NewPrometheusMetrics

	_ func(logging.Logger) watch.ControllerEngineOption = watch.WithLogger
	_ func(watch.Metrics) watch.ControllerEngineOption  = watch.WithMetrics
	_ func(string) watch.ControllerEngineOption         = watch.WithNamespace
	_ func(string) watch.ControllerEngineOption         = watch.WithServiceAccount

	_ func(kcontroller.Options) watch.ControllerOption         = watch.WithRuntimeOptions
	_ func(watch.WatchGarbageCollector) watch.ControllerOption = watch.WithWatchGarbageCollector
	_ func(watch.NewControllerFn) watch.ControllerOption       = watch.WithNewControllerFn
)

// Methods.
var (
	_ func(engineT, string, ...watch.ControllerOption) error                 = engineT.Start
	_ func(engineT, ctx, string) error                                       = engineT.Stop
	_ func(engineT, string) bool                                             = engineT.IsRunning
	_ func(engineT, ctx, string, ...watch.Watch) error                       = engineT.StartWatches
	_ func(engineT, ctx, string, ...watch.WatchID) (int, error)              = engineT.StopWatches
	_ func(engineT, string) ([]watch.WatchID, error)                         = engineT.GetWatches
	_ func(engineT, ctx) error                                               = engineT.GarbageCollectCustomResourceInformers
	_ func(engineT, ctx, gvk, string) (bool, error)                          = engineT.IsAuthorizedFor
	_ func(engineT) client.Client                                            = engineT.GetCached
	_ func(engineT) client.Client                                            = engineT.GetUncached
	_ func(engineT) client.FieldIndexer                                      = engineT.GetFieldIndexer
	_ func(cacheT) []gvk                                                     = cacheT.ActiveInformers
	_ func(cacheT, ctx, client.ObjectKey, object, ...client.GetOption) error = cacheT.Get
	_ func(cacheT, ctx, client.ObjectList, ...client.ListOption) error       = cacheT.List
	_ func(cacheT, ctx, object, ...infOpts) (cache.Informer, error)          = cacheT.GetInformer
	_ func(cacheT, ctx, gvk, ...infOpts) (cache.Informer, error)             = cacheT.GetInformerForKind
	_ func(cacheT, ctx, object) error                                        = cacheT.RemoveInformer
	_ func(cacheT) cache.Cache                                               = func(c cacheT) cache.Cache { return c.Cache }
	_ func(*watch.StoppableSource, ctx, queue) error                         = (*watch.StoppableSource).Start
	_ func(*watch.StoppableSource, ctx) error                                = (*watch.StoppableSource).Stop
	_ func(*watch.EventHandler) kcache.ResourceEventHandlerFuncs             = (*watch.EventHandler).HandlerFuncs
	_ func(*watch.EventHandler, any)                                         = (*watch.EventHandler).OnAdd
	_ func(*watch.EventHandler, any, any)                                    = (*watch.EventHandler).OnUpdate
	_ func(*watch.EventHandler, any)                                         = (*watch.EventHandler).OnDelete
	_ func(metricT, chan<- *prometheus.Desc)                                 = metricT.Describe
	_ func(metricT, chan<- prometheus.Metric)                                = metricT.Collect
	_ func(watch.SubjectAccessReviewError) string                            = watch.SubjectAccessReviewError.Error
	_ func(watch.SubjectAccessReviewError) error                             = watch.SubjectAccessReviewError.Unwrap
)

// Interfaces, as forks implement them.
var (
	_ watch.Metrics = interface {
		ControllerStarted(name string)
		ControllerStopped(name string)
		WatchStarted(name string, t watch.WatchType)
		WatchStopped(name string, t watch.WatchType)
	}(nil)
	_ watch.TrackingInformers = interface {
		cache.Informers
		ActiveInformers() []gvk
	}(nil)
	_ watch.WatchGarbageCollector = interface {
		GarbageCollectWatches(ctx context.Context, interval time.Duration)
	}(nil)
	_ watch.Metrics = &watch.NopMetrics{}
	_ watch.Metrics = metricT(nil)
)

// Types, with their fields.
var (
	_ = watch.ControllerEngineOption(func(engineT) {})
	_ = watch.ControllerOption(func(*watch.ControllerOptions) {})
	_ = watch.NewControllerFn(func(string, kcontroller.Options) (kcontroller.Controller, error) { return nil, nil })
	_ = watch.WatchID{Type: watch.WatchType(""), GVK: gvk{}}
	_ = watch.SubjectAccessReviewError{
		User: "", Resource: schema.GroupVersionResource{}, Namespace: "", DeniedVerbs: []string{}, Err: error(nil),
	}
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
