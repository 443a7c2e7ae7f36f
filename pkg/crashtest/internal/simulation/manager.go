package simulation

import (
	"context"
	"net/http"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// A processManager is the manager of one process.
type processManager struct {
	manager.Manager // The API server's, for the rest.

	process     *Process
	controllers []reconcile.Reconciler
}

// Add keeps a controller, and starts anything else.
func (m *processManager) Add(r manager.Runnable) error {
	if c, ok := r.(reconcile.Reconciler); ok {
		m.controllers = append(m.controllers, c)
		return nil
	}
	go func() {
		if err := r.Start(m.process.ctx); err != nil {
			m.process.note("a runnable failed: %v", err)
		}
	}()
	return nil
}

// GetAPIReader returns a reader without a cache.
func (m *processManager) GetAPIReader() client.Reader {
	return m.process.sim.API.clientOf(m.process, false)
}

// GetCache returns none. A source that is made with it is never started.
func (m *processManager) GetCache() cache.Cache { return nil }

// GetFieldIndexer returns an indexer that does nothing.
func (m *processManager) GetFieldIndexer() client.FieldIndexer { return noIndex{} }

// GetControllerOptions allows a controller of the same name in each process.
func (m *processManager) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true)}
}

// AddHealthzCheck does nothing.
func (m *processManager) AddHealthzCheck(string, healthz.Checker) error { return nil }

// AddReadyzCheck does nothing.
func (m *processManager) AddReadyzCheck(string, healthz.Checker) error { return nil }

// AddMetricsServerExtraHandler does nothing.
func (m *processManager) AddMetricsServerExtraHandler(string, http.Handler) error { return nil }

// An eventsManager is a processManager with recorders of the events API. Their type R is another one since
// controller-runtime v0.25, so it is inferred.
type eventsManager[R any] struct{ *processManager }

func withEvents[R any](m *processManager, _ func(recorder.Provider, string) R) eventsManager[R] {
	return eventsManager[R]{m}
}

// GetEventRecorder returns a recorder that drops events.
func (eventsManager[R]) GetEventRecorder(string) R {
	r, _ := any(&events.FakeRecorder{}).(R)
	return r
}

type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
