package watch

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// failureCounts counts, by what was wrong, how often kinds failed.
type failureCounts struct {
	noSuchKind, notWatchable, forbidden, notSynced, unreachable atomic.Uint64
}

// each calls fn for each reason, with a name that is fit for a label.
func (c *failureCounts) each(fn func(label string, reason error, n *atomic.Uint64)) {
	fn("NoSuchKind", ErrNoSuchKind, &c.noSuchKind)
	fn("NotWatchable", ErrNotWatchable, &c.notWatchable)
	fn("Forbidden", ErrForbidden, &c.forbidden)
	fn("NotSynced", ErrNotSynced, &c.notSynced)
	fn("Unreachable", ErrUnreachable, &c.unreachable)
}

func (c *failureCounts) add(err *KindError) {
	c.each(func(_ string, reason error, n *atomic.Uint64) {
		if errors.Is(err.Reason, reason) {
			n.Add(1)
		}
	})
}

// Collector returns metrics of what runs now, to register with Prometheus:
//
//   - graft_watch_watches, by controller, type and state
//   - graft_watch_controllers, by whether they are running, waiting or ending
//   - graft_watch_kinds, by state
//   - graft_watch_objects, that are kept in informers
//   - graft_watch_events_delivered_total
//   - graft_watch_failures_total, of kinds, by reason
//   - graft_watch_state_store, by state: 1 for the one that a state store is in
//   - graft_watch_state_store_errors_total, by operation
//
// Labels are what PrometheusMetrics has, and names of which there are few: there
// is none for kinds, of which there may be thousands. DebugHandler names them.
func (e *ControllerEngine) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("graft_watch_"+name, help, labels, nil)
	}
	return &gauges{
		engine:      e,
		watches:     desc("watches", "Watches that are there.", "controller", "type", "state"),
		controllers: desc("controllers", "Controllers that are there.", "state"),
		kinds:       desc("kinds", "Kinds that somebody watches or reads.", "state"),
		objects:     desc("objects", "Objects that informers keep."),
		delivered:   desc("events_delivered_total", "Events that were delivered to handlers."),
		failures:    desc("failures_total", "How often a kind couldn't be watched.", "reason"),
		storeState:  desc("state_store", "How the state store does.", "state"),
		store:       desc("state_store_errors_total", "How often the state store failed.", "operation"),
	}
}

type gauges struct {
	engine *ControllerEngine

	watches, controllers, kinds, objects, delivered, failures, storeState, store *prometheus.Desc
}

// Describe sends the descriptors of all metrics.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.watches, g.controllers, g.kinds, g.objects, g.delivered, g.failures, g.storeState, g.store} {
		ch <- d
	}
}

// Collect sends all metrics.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.engine.Snapshot()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}

	type key struct {
		controller string
		wt         WatchType
		state      State
	}
	watches := make(map[key]int)
	running := 0
	for _, c := range s.Controllers {
		if c.Running {
			running++
		}
		for _, w := range c.Watches {
			watches[key{controller: c.Name, wt: w.Type, state: w.State}]++
		}
	}
	for k, n := range watches {
		gauge(g.watches, n, k.controller, string(k.wt), string(k.state))
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
	for _, state := range States() {
		gauge(g.kinds, kinds[state], string(state))
	}
	gauge(g.objects, objects)

	set := g.engine.set
	counter(g.delivered, set.delivered.Load())
	set.failures.each(func(label string, _ error, n *atomic.Uint64) { counter(g.failures, n.Load(), label) })
	if s.StateStore != "" {
		for _, state := range storeStates() {
			n := 0
			if s.StateStore == string(state) {
				n = 1
			}
			gauge(g.storeState, n, string(state))
		}
	}
	counter(g.store, g.engine.storeErrors.load.Load(), "load")
	counter(g.store, g.engine.storeErrors.save.Load(), "save")
}
