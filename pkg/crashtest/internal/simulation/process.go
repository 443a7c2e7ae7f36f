package simulation

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
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

	beginning
	ending
}

// beginning is the result of starting a process.
type beginning struct {
	started    bool
	startErr   error
	reconciler reconcile.Reconciler
}

// ending says how a process is going to end.
type ending struct {
	// doomed processes make left more requests, because another one took over.
	doomed bool
	left   int

	// stopped processes begin nothing new. disturbed ones met an error of a fault.
	stopped, disturbed bool
}

// A staleCache has the managed resources that a process reads while its cache lags, and the keys of missed events.
type staleCache struct {
	objects map[client.ObjectKey]client.Object
	missed  []client.ObjectKey
}

func newProcess(s *Simulation) *Process {
	p := &Process{ID: len(s.processes) + 1, sim: s, queue: &workQueue{items: map[client.ObjectKey]*item{}}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.manager = &processManager{Manager: s.API.ManagerFor(s.API.clientOf(p, true)), process: p}
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
	c := &staleCache{objects: p.sim.API.objects()}
	p.cache = c
	p.sim.After(d, func() {
		for _, key := range c.missed {
			p.queue.add(key, 0)
		}
		if p.cache == c { // A later fault may have frozen it again.
			p.cache = nil
		}
	})
}

// deliver an event of the watch.
func (p *Process) deliver(key client.ObjectKey) {
	if p.cache != nil {
		p.cache.missed = append(p.cache.missed, key)
		return
	}
	p.queue.add(key, 0)
}

// start the process on a goroutine of its own.
func (p *Process) start() {
	var r reconcile.Reconciler
	_, err := guarded(func() (err error) {
		r, err = p.sim.options.Start(p)
		return err
	})
	p.sim.mail <- func() {
		p.beginning = beginning{true, errors.Wrap(err, "crashtest: Provider.Start failed"), r}
	}
}

// reconcilable returns the items of the work queue that wait.
func (p *Process) reconcilable() []*item {
	if !p.started || p.startErr != nil || p.stopped || p.sim.options.Serial && p.queue.active() != "" {
		return nil
	}
	return slices.DeleteFunc(p.queue.sorted(), func(it *item) bool { return it.running || it.due.IsZero() })
}

// reconcile an item on a goroutine of its own.
func (p *Process) reconcile(ctx context.Context, it *item) {
	// A goroutine that ends without returning belongs to a run that is over.
	o := outcome{err: errEnded, panicked: true}
	defer func() { p.sim.mail <- func() { it.finished = &o } }()
	var r reconcile.Result
	panicked, err := guarded(func() (err error) {
		r, err = p.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: it.key})
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
