package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// How a provider's work queue backs off, and its cache resyncs, if it is set up as
// providers are.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	resyncEvery  = 10 * time.Minute
)

// A process is one incarnation of the provider: its memory, its connections, and
// its work queue, which is for one object.
type process struct {
	id    int
	world *world

	// ctx has the process as a value: that is how the cloud's side of the gate
	// knows whose call it sees.
	ctx    context.Context //nolint:containedctx // It is the process's life.
	cancel func()

	// client has no cache, the manager's has.
	client     client.WithWatch
	manager    manager.Manager
	reconciler reconcile.Reconciler

	// dead is guarded by the world's lock.
	dead bool

	// doomed says that another process has taken its place, and that it takes
	// stepsLeft more steps.
	doomed    bool
	stepsLeft int

	mu sync.Mutex
	// due is when the object is to be reconciled next, at the latest.
	due      time.Time
	active   bool
	stopped  bool
	wakes    time.Time
	failures int
	finished []outcome

	// frozen is the object as the process's cache has it until it thaws. The zero
	// time means that the cache is up to date. missed says that there is news.
	frozen *v1alpha1.Database
	thaws  time.Time
	missed bool

	// rests says that the last reconcile asked for nothing but a poll.
	rests bool
}

// An outcome is what a reconcile returned.
type outcome struct {
	result reconcile.Result
	err    error
}

type processKey struct{}

func processOf(ctx context.Context) *process {
	p, _ := ctx.Value(processKey{}).(*process)
	return p
}

// start a process.
func (w *world) start() error {
	p := &process{id: len(w.processes) + 1, world: w, due: time.Now()}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(context.Background(), processKey{}, p))
	p.client = interceptor.NewClient(w.server.Client(), embedded.Intercept(p.request))
	p.manager = processManager{Manager: w.server.ManagerFor(cached(p)), process: p}
	w.processes = append(w.processes, p)
	w.tracef("process %d starts", p.id)
	r, err := w.column.build(p, w.kind)
	if err != nil {
		return fmt.Errorf("cannot start the provider: %w", err)
	}
	p.reconciler = r
	return nil
}

// replace a process that ends, unless another has taken its place.
func (w *world) replace() error {
	if slices.ContainsFunc(w.alive(), func(p *process) bool { return !p.doomed && !p.stopped }) {
		return nil
	}
	return w.start()
}

// kill a process. It gets no answer to its requests in progress.
func (w *world) kill(p *process) {
	w.mu.Lock()
	p.dead = true
	kept := w.waiting[:0]

	for _, t := range w.waiting {
		if t.process != p {
			kept = append(kept, t)
		}
	}

	w.waiting = kept
	w.mu.Unlock()
	w.tracef("process %d is killed", p.id)
}

// stop a process as a signal does: it begins nothing new.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.world.tracef("process %d is asked to end", p.id)
	p.cancel()
}

// stall a process: its goroutines get no further than to the next step.
func (p *process) stall(d time.Duration) {
	p.mu.Lock()
	p.wakes = time.Now().Add(d)
	p.mu.Unlock()
	p.world.tracef("process %d stalls", p.id)
}

// awake returns since when, or from when on, a process gets to run.
func (p *process) awake() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wakes
}

// alive returns the processes that are.
func (w *world) alive() []*process {
	var out []*process
	for _, p := range w.processes {
		if !p.dead {
			out = append(out, p)
		}
	}
	return out
}

// reconcile the object, on a goroutine of the process.
func (p *process) reconcile() {
	p.mu.Lock()
	p.active, p.due = true, time.Time{}
	p.mu.Unlock()
	p.world.tracef("process %d reconciles", p.id)

	go func() {
		o := outcome{err: fmt.Errorf("the reconciler panicked")}
		defer p.world.wake()
		defer func() {
			// As a controller does it.
			if v := recover(); v != nil {
				o.err = fmt.Errorf("the reconciler panicked: %v", v)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.finished = append(p.finished, o)
		}()

		o.result, o.err = p.reconciler.Reconcile(p.ctx, p.world.request())
	}()
}

// collect what a reconcile that has ended returned, as a work queue does. It
// returns nil if none has.
func (p *process) collect() *outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.finished) == 0 {
		return nil
	}
	o := p.finished[0]
	p.finished = nil
	p.active = false

	switch {
	case o.err != nil || (o.result.Requeue && o.result.RequeueAfter == 0): //nolint:staticcheck // What upstream returns.
		p.failures++
		p.addAfter(min(firstBackoff<<min(p.failures-1, 10), lastBackoff))
		p.rests = false
	case o.result.RequeueAfter > 0:
		p.failures = 0
		p.addAfter(o.result.RequeueAfter)
		p.rests = o.result.RequeueAfter >= pollInterval
	default:
		p.failures = 0
		p.addAfter(resyncEvery)
		p.rests = true
	}
	return &o
}

// addAfter needs the lock.
func (p *process) addAfter(d time.Duration) {
	if at := time.Now().Add(d); p.due.IsZero() || at.Before(p.due) {
		p.due = at
	}
}

// add is what an event does.
func (p *process) add(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addAfter(d)
	p.world.wake()
}

// next returns when a reconcile is to start. It is false if one runs.
func (p *process) next() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.Before(p.wakes) {
		return p.wakes, !p.active && !p.stopped && !p.due.IsZero()
	}
	return p.due, !p.active && !p.stopped && !p.due.IsZero()
}

// A queue is the process's work queue for sources other than the watch.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // Nil: nothing else is used.

	process *process
}

func (q queue) Add(reconcile.Request) { q.process.add(0) }

func (q queue) AddAfter(_ reconcile.Request, d time.Duration) { q.process.add(d) }

func (q queue) AddRateLimited(reconcile.Request) { q.process.add(firstBackoff) }

func (q queue) Forget(reconcile.Request) {}

// freeze the process's cache, with the object as it is now.
func (p *process) freeze(d *v1alpha1.Database, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d != nil {
		p.frozen, p.thaws = d.DeepCopy(), until
	}
}

// thaw the cache if it's time, and let the watch tell what it missed.
func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missed {
		p.addAfter(0)
	}
	p.thaws, p.missed = time.Time{}, false
}

// told is what a watch does to a process.
func (p *process) told() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.thaws.IsZero() {
		p.missed = true
		return
	}
	p.addAfter(0)
}

// thawing returns when the cache will be up to date, if it isn't.
func (p *process) thawing() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thaws, !p.thaws.IsZero()
}

// cached returns a client that reads the object from the process's cache.
func cached(p *process) client.Client {
	return interceptor.NewClient(p.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			p.mu.Lock()
			frozen, stale := p.frozen, !p.thaws.IsZero()
			p.mu.Unlock()
			if d, ok := o.(*v1alpha1.Database); ok && stale && key == p.world.request().NamespacedName {
				frozen.DeepCopyInto(d)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

// A processManager is a manager of one process.
type processManager struct {
	manager.Manager

	process *process
}

// GetAPIReader returns a reader that doesn't read from a cache.
func (m processManager) GetAPIReader() client.Reader { return m.process.client }

// Add starts a runnable, as a manager does that runs.
func (m processManager) Add(r manager.Runnable) error {
	go func() { _ = r.Start(m.process.ctx) }()
	return nil
}

// request waits for its turn. One for another kind passes without waiting.
func (p *process) request(ctx context.Context, c embedded.Call, serve func() error) error {
	of := fmt.Sprintf("%T", c.Object)
	if o, ok := c.Object.(client.Object); ok {
		of = p.world.kindOf(o) + " " + c.Key.Name
	}
	return p.world.pass(ctx, p, step{target: api, verb: c.String(), of: of, write: c.Writes()}, serve)
}
