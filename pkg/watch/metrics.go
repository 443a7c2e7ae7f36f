package watch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// PrometheusMetrics counts what the engine starts and stops, under the names
// that Crossplane's engine has: engine_controllers_started_total,
// engine_controllers_stopped_total, engine_watches_started_total and
// engine_watches_stopped_total. For what runs now, see
// ControllerEngine.Collector.
type PrometheusMetrics struct {
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
	return &PrometheusMetrics{
		controllersStarted: counter("controllers_started_total", "How many controllers began to run.", "controller"),
		controllersStopped: counter("controllers_stopped_total", "How many controllers ended.", "controller"),
		watchesStarted:     counter("watches_started_total", "How many watches came to be.", "controller", "type"),
		watchesStopped:     counter("watches_stopped_total", "How many watches were stopped.", "controller", "type"),
	}
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

// Describe sends the descriptors of all metrics.
func (m *PrometheusMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect sends all metrics.
func (m *PrometheusMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *PrometheusMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.controllersStarted, m.controllersStopped, m.watchesStarted, m.watchesStopped}
}

// Collector returns metrics of what runs now, to register with Prometheus:
//
//   - graft_watch_watches, by controller, type and state
//   - graft_watch_controllers, by state: Running, Waiting, Ending
//   - graft_watch_kinds, by state
//   - graft_watch_objects, that are kept in informers
//   - graft_watch_events_delivered_total
//   - graft_watch_failures_total, of kinds, by reason
//
// No label names a kind, of which there may be thousands. DebugHandler names them.
func (e *ControllerEngine) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("graft_watch_"+name, help, labels, nil)
	}
	return &gauges{
		engine:      e,
		watches:     desc("watches", "Watches that are there.", "controller", "type", "state"),
		controllers: desc("controllers", "Controllers that are there.", "state"),
		kinds:       desc("kinds", "Kinds that are watched or read.", "state"),
		objects:     desc("objects", "Objects that informers keep."),
	}
}

type gauges struct {
	engine *ControllerEngine

	watches, controllers, kinds, objects *prometheus.Desc
}

// Describe sends the descriptors of all metrics.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.watches, g.controllers, g.kinds, g.objects} {
		ch <- d
	}
	g.engine.set.delivered.Describe(ch)
	g.engine.set.counts.Describe(ch)
}

// Collect sends all metrics.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.engine.Snapshot()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}

	type key struct{ controller, wt, state string }
	watches := make(map[key]int)
	running := 0
	for _, c := range s.Controllers {
		if c.Running {
			running++
		}
		for _, w := range c.Watches {
			watches[key{c.Name, string(w.Type), string(w.State)}]++
		}
	}
	for k, n := range watches {
		gauge(g.watches, n, k.controller, k.wt, k.state)
	}
	gauge(g.controllers, running, "Running")
	gauge(g.controllers, len(s.Controllers)-running, "Waiting")
	gauge(g.controllers, len(s.Ending), "Ending")

	kinds := make(map[State]int)
	objects := 0
	for _, k := range s.Kinds {
		kinds[k.State]++
		objects += k.Objects
	}
	for _, state := range states() {
		gauge(g.kinds, kinds[state], string(state))
	}
	gauge(g.objects, objects)
	g.engine.set.delivered.Collect(ch)
	g.engine.set.counts.Collect(ch)
}
