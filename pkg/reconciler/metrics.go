package reconciler

import (
	"sync"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Metrics are what a control plane's operator can watch deletions by. Register
// them with controller-runtime's metrics.Registry, once for all reconcilers that
// use them. Their labels are gvk, spelled as crossplane-runtime's metrics of
// managed resources spell it, and reason: never names.
//
// Metrics are safe for concurrent use.
type Metrics struct {
	duration  *prometheus.HistogramVec
	blocked   *prometheus.GaugeVec
	deadlines *prometheus.CounterVec
	orphaned  *prometheus.CounterVec

	mu      sync.Mutex
	reasons map[deleted]xpv2.ConditionReason
}

// deleted is an object that is being deleted.
type deleted struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
	uid  types.UID
}

// NewMetrics returns metrics that know of nothing yet.
func NewMetrics() *Metrics {
	return &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "graft_deletion_duration_seconds",
			Help:    "Time from the request to delete an object until it was seen to be gone.",
			Buckets: []float64{1, 5, 15, 60, 5 * 60, 15 * 60, 60 * 60, 6 * 60 * 60, 24 * 60 * 60},
		}, []string{"gvk"}),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "graft_deletion_blocked",
			Help: "Objects that are being deleted, by the reason why they are still there.",
		}, []string{"gvk", "reason"}),
		deadlines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "graft_deletion_deadline_exceeded_total",
			Help: "Deletions that took longer than their deadline.",
		}, []string{"gvk"}),
		orphaned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "graft_deletion_orphaned_total",
			Help: "Objects whose finalizers were removed because an operator asked for it.",
		}, []string{"gvk"}),
		reasons: map[deleted]xpv2.ConditionReason{},
	}
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
	return []prometheus.Collector{m.duration, m.blocked, m.deadlines, m.orphaned}
}

// reported notes why an object is still there.
func (m *Metrics) reported(d deleted, r xpv2.ConditionReason) {
	m.mu.Lock()
	defer m.mu.Unlock()

	had, ok := m.reasons[d]
	if ok && had == r {
		return
	}

	if ok {
		m.blocked.WithLabelValues(d.kind.String(), string(had)).Dec()
	}

	m.reasons[d] = r
	m.blocked.WithLabelValues(d.kind.String(), string(r)).Inc()
}

// gone notes that an object is not there any more, so long after its deletion was
// requested.
func (m *Metrics) gone(d deleted, after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if had, ok := m.reasons[d]; ok {
		m.blocked.WithLabelValues(d.kind.String(), string(had)).Dec()
		delete(m.reasons, d)
	}

	m.duration.WithLabelValues(d.kind.String()).Observe(after.Seconds())
}
