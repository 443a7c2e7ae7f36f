package reconciler

import (
	"runtime"
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
// Objects are counted as long as the reconciler that reported them is in use. What
// one reported whose controller was stopped is gone from the metrics when the
// garbage collector has found that, two minutes later at most.
//
// Metrics are safe for concurrent use.
type Metrics struct {
	duration  *prometheus.HistogramVec
	blocked   *prometheus.GaugeVec
	deadlines *prometheus.CounterVec
	orphaned  *prometheus.CounterVec

	mu        sync.Mutex
	reporters int
	reports   map[deleted]report
}

// deleted is an object that is being deleted, or another that has its name by now.
type deleted struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// report is what was last said of an object that is being deleted.
type report struct {
	uid    types.UID
	reason xpv2.ConditionReason

	// by is the reporter who said it.
	by reporter
}

// A reporter is one of the reconcilers that use the metrics.
type reporter int

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
		reports: map[deleted]report{},
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

// join makes r one of those who report. What it reported isn't counted any more
// once nobody has it: its controller was stopped, and it will never see objects go.
func (m *Metrics) join(r *deletion) reporter {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.reporters++
	is := reporter(m.reporters)

	runtime.AddCleanup(r, m.leave, is)

	return is
}

// leave forgets what a reporter said, unless somebody else has said something of
// that object since.
func (m *Metrics) leave(is reporter) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for d, said := range m.reports {
		if said.by == is {
			m.withdraw(d)
		}
	}
}

// reported notes why an object is still there.
func (m *Metrics) reported(d deleted, said report) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.withdraw(d)
	m.reports[d] = said
	m.blocked.WithLabelValues(d.kind.String(), string(said.reason)).Inc()
}

// withdraw what was said of an object. The caller holds the lock.
func (m *Metrics) withdraw(d deleted) {
	if had, ok := m.reports[d]; ok {
		m.blocked.WithLabelValues(d.kind.String(), string(had.reason)).Dec()
		delete(m.reports, d)
	}
}

// gone notes that the object that had a name is not there any more, unless it has
// the supplied UID. Whoever reported it may have been another one than who knows
// that it is gone.
func (m *Metrics) gone(d deleted, unless types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if unless == "" || m.reports[d].uid != unless {
		m.withdraw(d)
	}
}

// took notes how long an object took to go, from the request.
func (m *Metrics) took(of schema.GroupVersionKind, t time.Duration) {
	m.duration.WithLabelValues(of.String()).Observe(t.Seconds())
}
