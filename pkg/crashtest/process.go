package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// How the work queue of a process backs off, and its cache resyncs.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	resyncEvery  = 10 * time.Hour
)

// A Process is one process of the provider: its memory, its connections to the API server
// and the external system, and its work queue. Methods are safe for concurrent use.
type Process struct {
	id    int
	world *world

	ctx    context.Context //nolint:containedctx // It is the life of the process.
	cancel context.CancelFunc

	// live reads from the API server, manager's client from the cache.
	live    client.WithWatch
	manager *processManager

	// doomed processes take stepsLeft more steps, because another one took over.
	doomed    bool
	stepsLeft int

	mu         sync.Mutex
	reconciler reconcile.Reconciler
	started    bool
	startErr   error
	faulted    bool // The start met an injected error.
	dead       bool
	stopped    bool
	items      map[types.NamespacedName]*item
	frozen     map[types.NamespacedName]client.Object
	thaws      time.Time
	missed     map[types.NamespacedName]bool
}

// An item is a key of the work queue.
type item struct {
	due      time.Time // The zero time: not queued.
	active   bool
	failures int
	finished *outcome

	// polls says that the last reconcile succeeded and asks for nothing but a poll.
	polls bool
}

// An outcome is the result of a reconcile.
type outcome struct {
	result   reconcile.Result
	err      error
	panicked bool
}

// Manager returns a manager to create reconcilers with. Its client reads managed resources
// from the cache of this process. A runnable that is added starts at once, except a
// controller, which never starts: see [Process.Controller].
func (p *Process) Manager() manager.Manager {
	return withEvents(p.manager, recorder.Provider.GetEventRecorder)
}

// Controller returns the reconciler of the controller that setup adds to the manager. It
// is for providers whose Setup function creates the reconciler and the controller.
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
func (p *Process) Watch(s source.Source) error { return s.Start(p.ctx, queue{process: p}) }

// Step makes a call to the external system one step of the life. A fault may have call not
// run, run later, or run without its result being seen. call must change nothing but the
// external system. Step returns the error of call, or of the fault.
func (p *Process) Step(ctx context.Context, name string, call func() error) error {
	return p.call(ctx, name, false, call)
}

// call is a Step. write says whether it should change something.
func (p *Process) call(ctx context.Context, name string, write bool, call func() error) error {
	return p.world.pass(ctx, p, step{target: cloudTarget, verb: name, write: write}, call)
}

// queued returns the keys of the work queue in order.
func (p *Process) queued() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(p.items), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// add a key to the work queue. It needs the lock.
func (p *Process) add(key types.NamespacedName, after time.Duration) {
	it := p.items[key]
	if it == nil {
		it = &item{}
		p.items[key] = it
	}
	if at := time.Now().Add(after); it.due.IsZero() || at.Before(it.due) {
		it.due = at
	}
}

// reconcile a key on a goroutine of the process.
func (p *Process) reconcile(key types.NamespacedName) {
	p.mu.Lock()
	it := p.items[key]
	it.active, it.due = true, time.Time{}
	p.mu.Unlock()
	p.world.tracef(p, "reconciles %s", key.Name)

	go func() {
		// A goroutine that ends without returning belongs to a life that is over.
		o := &outcome{err: errors.New("the reconciler ended its goroutine"), panicked: true}
		defer func() {
			if v := recover(); v != nil {
				o = &outcome{err: errors.Errorf("panic: %v\n%s", v, stack()), panicked: true}
			}
			p.mu.Lock()
			it.finished = o
			p.mu.Unlock()
			p.world.wake()
		}()
		r, err := p.reconciler.Reconcile(p.ctx, reconcile.Request{NamespacedName: key})
		o = &outcome{result: r, err: err, panicked: recovered(err)}
	}()
}

// recovered reports whether an error is the one that a controller makes of a panic.
func recovered(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "panic: ") && strings.HasSuffix(err.Error(), " [recovered]")
}

// collect the outcomes of reconciles that ended, as a work queue does.
func (p *Process) collect(fn func(types.NamespacedName, *outcome)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.queued() {
		it := p.items[key]
		o := it.finished
		if o == nil {
			continue
		}
		it.finished, it.active = nil, false

		switch {
		case errors.Is(o.err, reconcile.TerminalError(nil)):
			it.polls = true
			p.add(key, resyncEvery) // A controller does not retry it.
		//nolint:staticcheck // Upstream returns Requeue.
		case o.err != nil || o.result.Requeue && o.result.RequeueAfter == 0:
			it.failures++
			it.polls = false
			p.add(key, min(firstBackoff<<min(it.failures-1, 10), lastBackoff))
		case o.result.RequeueAfter > 0:
			it.failures = 0
			it.polls = o.result.RequeueAfter >= shortestPoll
			p.add(key, o.result.RequeueAfter)
		default:
			it.failures = 0
			it.polls = true
			p.add(key, resyncEvery)
		}
		fn(key, o)
	}
}

// informed reports an event to a process, which sees it when its cache does.
func (p *Process) informed(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.thaws.IsZero() {
		p.missed[key] = true
		return
	}
	p.add(key, 0)
}

// freeze the cache with these objects.
func (p *Process) freeze(objects map[types.NamespacedName]client.Object, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.thaws = objects, until
}

// thaw the cache, which then delivers the events that it missed.
func (p *Process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.missed {
		p.add(key, 0)
	}
	p.frozen, p.thaws, p.missed = nil, time.Time{}, map[types.NamespacedName]bool{}
}

// locked runs fn with the lock.
func (p *Process) locked(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// cached returns a client that reads managed resources from the cache of the process.
func (p *Process) cached() client.WithWatch {
	fromCache := interceptor.NewClient(p.world.server.Client(), interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			p.mu.Lock()
			frozen, stale := p.frozen[key], !p.thaws.IsZero()
			p.mu.Unlock()
			if stale && p.world.isObject(o) {
				return p.world.load(frozen, key, o)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	return interceptor.NewClient(fromCache, embedded.Intercept(func(
		ctx context.Context, c embedded.Call, serve func() error,
	) error {
		return p.request(ctx, c, true, serve)
	}))
}

// request waits for its turn at the API server.
func (p *Process) request(ctx context.Context, c embedded.Call, cached bool, serve func() error) error {
	kind, name := p.world.describe(c)
	s := step{target: apiTarget, verb: c.String(), of: kind, name: name, write: c.Writes()}
	s.cached = cached && !s.write && p.world.isTyped(c.Object)
	if s.write {
		p.world.sawKind(c.Object)
	}
	return p.world.pass(ctx, p, s, serve)
}

// A queue is the work queue of a process for its sources.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // Nil: nothing else is used.

	process *Process
}

func (q queue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q queue) AddAfter(r reconcile.Request, d time.Duration) {
	q.process.locked(func() { q.process.add(r.NamespacedName, d) })
	q.process.world.wake()
}

func (q queue) AddRateLimited(r reconcile.Request) { q.AddAfter(r, firstBackoff) }

func (q queue) Forget(reconcile.Request) {}

func (q queue) Done(reconcile.Request) {}

func (o *outcome) String() string {
	switch {
	case o.err != nil:
		return "failed: " + o.err.Error()
	case o.result.RequeueAfter > 0:
		return fmt.Sprintf("done, again in %s", o.result.RequeueAfter.Round(time.Second))
	case o.result.Requeue: //nolint:staticcheck // Upstream returns it.
		return "done, again with backoff"
	default:
		return "done"
	}
}
