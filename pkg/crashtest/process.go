package crashtest

import (
	"context"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

// A Process is one process of the provider: its memory, its connections to the API server
// and the external system, and its work queue. Methods are safe for concurrent use.
type Process struct {
	sim *simulation.Process

	// external makes a call to the external system.
	external func(ctx context.Context, q history.Request, call func(e *history.Event) error) error
}

// Manager returns a manager to create reconcilers with. Its client reads typed objects
// from the cache of this process. A runnable that is added starts at once, except a
// controller, which never starts: see [Process.Controller].
func (p *Process) Manager() manager.Manager { return p.sim.Manager() }

// Controller returns the reconciler of the controller that setup adds to the manager. It
// is for providers whose Setup function creates the reconciler and the controller.
func (p *Process) Controller(setup func(m manager.Manager) error) (reconcile.Reconciler, error) {
	return p.sim.Controller(setup)
}

// Watch starts a source, whose events go to the work queue of this process.
func (p *Process) Watch(s source.Source) error { return p.sim.Watch(s) }

// Step makes a call to the external system one request of the run. A fault may have call not
// run, run later, or run without its result being seen. call must change nothing but the
// external system. Step returns the error of call, or of the fault.
func (p *Process) Step(ctx context.Context, name string, call func() error) error {
	q := history.Request{Target: history.External, Verb: name}
	return p.external(ctx, q, func(*history.Event) error { return call() })
}

// An httpStatus is an error that Transport turns into a response.
type httpStatus int

func (s httpStatus) Error() string { return "status " + statusText(int(s)) }

func statusText(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }
