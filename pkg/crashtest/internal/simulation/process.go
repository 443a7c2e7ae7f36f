package simulation

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A Process is one process of the provider: its memory, its clients, its cache and its work queue.
type Process struct {
	ID int

	sim     *Simulation
	ctx     context.Context //nolint:containedctx // It is the context of the process.
	cancel  context.CancelFunc
	manager *processManager
	queue   *workQueue
	cache   *staleCache

	// requests that it has made. dead says that it gets no answer any more.
	requests atomic.Int64
	dead     atomic.Bool

	// run is how the process is started.
	run startState

	ending
}

// ending says how a process is going to end. Only the goroutine of the simulation uses it.
type ending struct {
	// doomed processes make left more requests, because another one took over.
	doomed bool
	left   int

	// stopped processes begin nothing new. disturbed ones met an error of a fault.
	stopped, disturbed bool
}

// A startState is the result of starting a process.
type startState struct {
	mu         sync.Mutex
	reconciler reconcile.Reconciler
	err        error
	done       bool
}

func newProcess(s *Simulation) *Process {
	p := &Process{ID: len(s.processes) + 1, sim: s, queue: newWorkQueue(), cache: newStaleCache()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.manager = &processManager{Manager: s.server.ManagerFor(s.server.clientOf(p, true)), process: p}
	return p
}

// Context ends when the process has to.
func (p *Process) Context() context.Context { return p.ctx }

// Manager returns a manager to create reconcilers with.
func (p *Process) Manager() manager.Manager {
	return withEvents(p.manager, recorder.Provider.GetEventRecorder)
}

// Controller returns the reconciler of the controller that setup adds to the manager.
func (p *Process) Controller(setup func(m manager.Manager) error) (reconcile.Reconciler, error) {
	if err := setup(p.Manager()); err != nil {
		return nil, err
	}
	p.manager.mu.Lock()
	defer p.manager.mu.Unlock()
	if n := len(p.manager.controllers); n != 1 {
		return nil, errors.Errorf(
			"crashtest: setup added %d controllers to the manager: add the one of the managed resource", n,
		)
	}
	return p.manager.controllers[0], nil
}

// Watch starts a source, whose events go to the work queue of this process.
func (p *Process) Watch(s source.Source) error { return s.Start(p.ctx, sourceQueue{process: p}) }

// Disturb says that the process met an error of a fault: its start may fail.
func (p *Process) Disturb() { p.disturbed = true }

// Freeze the cache of the process for a while.
func (p *Process) Freeze(d time.Duration) {
	p.cache.freeze(p.sim.server.objects(), time.Now().Add(d))
}

// start the process on a goroutine of its own.
func (p *Process) start() {
	var r reconcile.Reconciler
	_, err := guarded(func() (err error) {
		r, err = p.sim.options.Start(p)
		return err
	})
	p.run.mu.Lock()
	p.run.reconciler, p.run.err, p.run.done = r, errors.Wrap(err, "crashtest: Provider.Start failed"), true
	p.run.mu.Unlock()
	p.sim.network.wake()
}

// takeStartError returns the error of the start once.
func (p *Process) takeStartError() error {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	err := p.run.err
	p.run.err = nil
	return err
}

func (p *Process) starting() bool {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	return !p.run.done
}

// reconcilable returns the keys of the work queue with the times when they are due.
func (p *Process) reconcilable(serial bool) iter.Seq2[client.ObjectKey, time.Time] {
	p.run.mu.Lock()
	ready := p.run.reconciler != nil
	p.run.mu.Unlock()
	if !ready || p.stopped || serial && p.queue.active() != "" {
		return func(func(client.ObjectKey, time.Time) bool) {}
	}
	return p.queue.due()
}

// reconcile a key.
func (p *Process) reconcile(ctx context.Context, key client.ObjectKey) {
	// A goroutine that ends without returning belongs to a run that is over.
	o := outcome{err: errEnded, panicked: true}
	defer func() {
		p.queue.finish(key, o)
		p.sim.network.wake()
	}()
	var r reconcile.Result
	panicked, err := guarded(func() (err error) {
		r, err = p.run.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		return err
	})
	o = outcome{result: r, err: err, panicked: panicked || recovered(err)}
}

// guarded calls fn, and returns a panic as an error.
func guarded(fn func() error) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, errors.Errorf("panic: %v\n%s", v, Stack())
		}
	}()
	return false, fn()
}

// recovered reports whether an error is the one that a controller makes of a panic.
func recovered(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "panic: ") && strings.HasSuffix(err.Error(), " [recovered]")
}

// A sourceQueue is the work queue of a process for its sources.
type sourceQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // Nil: nothing else is used.

	process *Process
}

func (q sourceQueue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q sourceQueue) AddAfter(r reconcile.Request, d time.Duration) {
	q.process.queue.add(r.NamespacedName, d)
	q.process.sim.network.wake()
}

func (q sourceQueue) AddRateLimited(r reconcile.Request) { q.AddAfter(r, firstBackoff) }

func (q sourceQueue) Forget(reconcile.Request) {}

func (q sourceQueue) Done(reconcile.Request) {}
