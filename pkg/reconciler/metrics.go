package reconciler

import (
	"maps"
	"sync"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Metrics show the deletions of a control plane. Register
// them with controller-runtime's metrics.Registry, once for all reconcilers that
// use them. Their labels are gvk, spelled as crossplane-runtime's metrics of
// managed resources spell it, and reason: never names.
//
// An object is counted until a reconciler sees that it no longer exists. Call Withdraw
// when the controller of a kind is stopped before the process is.
//
// Metrics are safe for concurrent use.
type Metrics struct {
	duration  *prometheus.HistogramVec
	blocked   *prometheus.GaugeVec
	deadlines *prometheus.CounterVec
	orphaned  *prometheus.CounterVec

	mu        sync.Mutex
	reports   map[reportKey]blockedReport
	withdrawn map[schema.GroupVersionKind]bool // Kinds whose reconcilers were stopped.
}

// reportKey is the name of an object that is being deleted. Another object may have it
// since.
type reportKey struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// A blockedReport is the last report about an object that is being deleted.
type blockedReport struct {
	uid    types.UID
	reason xpv2.ConditionReason
}

// NewMetrics returns metrics of no objects.
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
		reports:   map[reportKey]blockedReport{},
		withdrawn: map[schema.GroupVersionKind]bool{},
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

// Withdraw the reports of the reconcilers of a kind. Call it when their controller
// was stopped, because the kind is deleted for example: they won't see that its
// objects no longer exist. Their later reports are ignored, until New returns another
// reconciler of the kind.
func (m *Metrics) Withdraw(of schema.GroupVersionKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.withdrawn[of] = true
	maps.DeleteFunc(m.reports, func(d reportKey, _ blockedReport) bool { return d.kind == of })
	m.blocked.DeletePartialMatch(prometheus.Labels{"gvk": of.String()})
}

// join returns the metrics of a new reconciler of a kind.
func (m *Metrics) join(of schema.GroupVersionKind) kindMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.withdrawn, of)
	return kindMetrics{Metrics: m, gvk: of.String()}
}

// reported notes why an object is still there.
func (m *Metrics) reported(d reportKey, said blockedReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.withdrawn[d.kind] {
		return
	}
	m.withdraw(d)
	m.reports[d] = said
	m.blocked.WithLabelValues(d.kind.String(), string(said.reason)).Inc()
}

// withdraw the report about an object. The caller holds the lock.
func (m *Metrics) withdraw(d reportKey) {
	if had, ok := m.reports[d]; ok {
		m.blocked.WithLabelValues(d.kind.String(), string(had.reason)).Dec()
		delete(m.reports, d)
	}
}

// gone notes that the object that had a name no longer exists, unless it has the
// supplied UID. Another reporter may have reported it.
func (m *Metrics) gone(d reportKey, unless types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reports[d].uid != unless {
		m.withdraw(d)
	}
}

// kindMetrics are the metrics of the deletions of one kind.
type kindMetrics struct {
	*Metrics

	gvk string
}

// Exceeded counts a deletion whose deadline has passed.
func (m kindMetrics) Exceeded() { m.deadlines.WithLabelValues(m.gvk).Inc() }

// Orphaned counts an object that was orphaned.
func (m kindMetrics) Orphaned() { m.orphaned.WithLabelValues(m.gvk).Inc() }

// Took observes the duration of a deletion from its request. The clock of the API server may be
// ahead.
func (m kindMetrics) Took(d time.Duration) {
	m.duration.WithLabelValues(m.gvk).Observe(max(0, d).Seconds())
}
