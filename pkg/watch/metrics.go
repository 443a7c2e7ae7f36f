package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PrometheusMetrics counts controllers and watches that are started and stopped, under the names
// of Crossplane's engine. For those that run, see ControllerEngine.Collector.
type PrometheusMetrics struct {
	collectors

	controllersStarted *prometheus.CounterVec
	controllersStopped *prometheus.CounterVec
	watchesStarted     *prometheus.CounterVec
	watchesStopped     *prometheus.CounterVec
}

// NewPrometheusMetrics returns metrics to register with Prometheus.
func NewPrometheusMetrics() *PrometheusMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "engine", Name: name, Help: help}, labels)
	}
	m := &PrometheusMetrics{
		controllersStarted: counter("controllers_started_total", "How many controllers began to run.", "controller"),
		controllersStopped: counter("controllers_stopped_total", "How many controllers ended.", "controller"),
		watchesStarted:     counter("watches_started_total", "How many watches came to be.", "controller", "type"),
		watchesStopped:     counter("watches_stopped_total", "How many watches were stopped.", "controller", "type"),
	}
	m.collectors = func() []prometheus.Collector {
		return []prometheus.Collector{m.controllersStarted, m.controllersStopped, m.watchesStarted, m.watchesStopped}
	}
	return m
}

// ControllerStarted counts a controller that began to run.
func (m *PrometheusMetrics) ControllerStarted(name string) {
	m.controllersStarted.WithLabelValues(name).Inc()
}

// ControllerStopped counts a controller that ended.
func (m *PrometheusMetrics) ControllerStopped(name string) {
	m.controllersStopped.WithLabelValues(name).Inc()
}

// WatchStarted counts a watch that came to be.
func (m *PrometheusMetrics) WatchStarted(name string, t WatchType) {
	m.watchesStarted.WithLabelValues(name, string(t)).Inc()
}

// WatchStopped counts a watch that was stopped.
func (m *PrometheusMetrics) WatchStopped(name string, t WatchType) {
	m.watchesStopped.WithLabelValues(name, string(t)).Inc()
}

// Collector returns metrics of the controllers, watches and kinds that exist, to register with
// Prometheus. No label names a kind, because there may be thousands. DebugHandler names them.
func (e *ControllerEngine) Collector() prometheus.Collector {
	return collectors(func() []prometheus.Collector { return gauges(e) })
}

// collectors that are registered as one.
type collectors func() []prometheus.Collector

// Describe sends the descriptors of all metrics.
func (fn collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range fn() {
		c.Describe(ch)
	}
}

// Collect sends all metrics.
func (fn collectors) Collect(ch chan<- prometheus.Metric) {
	for _, c := range fn() {
		c.Collect(ch)
	}
}

// gauges returns metrics of an engine's snapshot.
func gauges(e *ControllerEngine) []prometheus.Collector {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "graft_watch_" + name, Help: help}, labels)
	}
	watches := gauge("watches", "Watches that are there.", "controller", "type", "state")
	controllers := gauge("controllers", "Controllers that are there.", "state")
	kinds := gauge("kinds", "Kinds that are watched or read.", "state")
	objects := gauge("objects", "Objects that informers keep.").WithLabelValues()
	queued := gauge("events_queued", "Events that wait for their handlers.").WithLabelValues()
	age := gauge("handler_seconds", "How long the handler has been running that was called first.").WithLabelValues()
	s := e.Snapshot()
	oldest := time.Duration(0)
	controllers.WithLabelValues("Ending").Set(float64(len(s.Ending)))
	state := map[bool]prometheus.Gauge{
		false: controllers.WithLabelValues("Waiting"), true: controllers.WithLabelValues("Running"),
	}
	for _, c := range s.Controllers {
		state[c.Running].Inc()
		for _, w := range c.Watches {
			watches.WithLabelValues(c.Name, string(w.Type), string(w.State)).Inc()
			queued.Add(float64(w.Queued))
			if w.HandlerSince != nil {
				oldest = max(oldest, time.Since(*w.HandlerSince))
			}
		}
	}
	for _, state := range states() {
		kinds.WithLabelValues(string(state)) // Zero if there are none.
	}
	for _, k := range s.Kinds {
		kinds.WithLabelValues(string(k.State)).Inc()
		objects.Add(float64(k.Objects))
	}
	age.Set(oldest.Seconds())
	return []prometheus.Collector{
		watches, controllers, kinds, objects, queued, age, e.kinds.delivered, e.kinds.failures,
	}
}
