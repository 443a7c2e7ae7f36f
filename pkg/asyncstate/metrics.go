package asyncstate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count operations. Register them with controller-runtime's metrics.Registry,
// once for all trackers that use them. Their labels are the type of the operation and
// its outcome, never names.
//
// Metrics are safe for concurrent use.
type Metrics struct {
	running     *prometheus.GaugeVec
	ended       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	interrupted *prometheus.CounterVec
	unstored    prometheus.Gauge
	lost        prometheus.Counter
}

// Outcomes of operations.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
	outcomeUnknown   = "unknown"
)

// Resolutions of interrupted operations.
const (
	interruptedResumed  = "resumed"
	interruptedFound    = "found"
	interruptedAbsent   = "absent"
	interruptedRepeated = "repeated"
	interruptedUnknown  = "unknown"
)

// NewMetrics returns metrics that know of nothing yet.
//
// Counters with labels exist from the start, so that alerts see the first increase.
func NewMetrics() *Metrics {
	m := &Metrics{
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "graft_async_operations_running",
			Help: "Operations that run.",
		}, []string{"type"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "graft_async_operations_total",
			Help: "Operations that ended, by outcome.",
		}, []string{"type", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "graft_async_operation_duration_seconds",
			Help:    "Time from the start of an operation to its end.",
			Buckets: []float64{1, 5, 15, 60, 5 * 60, 15 * 60, 60 * 60},
		}, []string{"type"}),
		interrupted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "graft_async_interrupted_total",
			Help: "What was done about operations of which only the record was left.",
		}, []string{"type", "resolution"}),
		unstored: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "graft_async_results_unstored",
			Help: "Results of operations that could not be stored on the API server yet.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "graft_async_results_lost_total",
			Help: "Results of creates whose managed resource no longer existed when they ended: external resources without an owner.",
		}),
	}

	for _, t := range []Type{Create, Update, Delete} {
		m.running.WithLabelValues(string(t))
		m.duration.WithLabelValues(string(t))
		m.interrupted.WithLabelValues(string(t), interruptedResumed)
		for _, o := range []string{outcomeSucceeded, outcomeFailed, outcomeUnknown} {
			m.ended.WithLabelValues(string(t), o)
		}
	}

	for _, how := range []string{interruptedFound, interruptedAbsent, interruptedRepeated, interruptedUnknown} {
		m.interrupted.WithLabelValues(string(Create), how)
	}
	return m
}

// Describe the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect the metrics.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.running, m.ended, m.duration, m.interrupted, m.unstored, m.lost}
}

func (m *Metrics) observeStart(t Type) { m.running.WithLabelValues(string(t)).Inc() }

func (m *Metrics) observeEnd(t Type, outcome string, after time.Duration) {
	m.running.WithLabelValues(string(t)).Dec()
	m.ended.WithLabelValues(string(t), outcome).Inc()
	m.duration.WithLabelValues(string(t)).Observe(after.Seconds())
}

func (m *Metrics) observeResolution(t Type, how string) {
	m.interrupted.WithLabelValues(string(t), how).Inc()
}
