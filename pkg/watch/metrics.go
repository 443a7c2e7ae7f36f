package watch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the engine.
type Metrics interface {
	// ControllerStarted records that a controller began to run.
	ControllerStarted(name string)

	// ControllerStopped records that a controller that began to run doesn't
	// run any more, for whatever reason.
	ControllerStopped(name string)

	// WatchStarted records that a watch came to be.
	WatchStarted(name string, t WatchType)

	// WatchStopped records that a watch was stopped, by itself or with its
	// controller.
	WatchStopped(name string, t WatchType)
}

// NopMetrics records nothing.
type NopMetrics struct{}

// ControllerStarted does nothing.
func (m *NopMetrics) ControllerStarted(_ string) {}

// ControllerStopped does nothing.
func (m *NopMetrics) ControllerStopped(_ string) {}

// WatchStarted does nothing.
func (m *NopMetrics) WatchStarted(_ string, _ WatchType) {}

// WatchStopped does nothing.
func (m *NopMetrics) WatchStopped(_ string, _ WatchType) {}

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
