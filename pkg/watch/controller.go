package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A WatchGarbageCollector stops watches that nobody needs, now and then, until
// its context ends.
type WatchGarbageCollector interface { //nolint:revive // It is the name that forks know.
	GarbageCollectWatches(ctx context.Context, interval time.Duration)
}

// A NewControllerFn makes a controller. It isn't started.
type NewControllerFn func(name string, options kcontroller.Options) (kcontroller.Controller, error)

// ControllerOptions configure a controller.
type ControllerOptions struct {
	runtime kcontroller.Options
	nc      NewControllerFn
	gc      WatchGarbageCollector
	restore RestoreFn
}

// A ControllerOption configures a controller.
type ControllerOption func(o *ControllerOptions)

// WithRuntimeOptions sets the options of the controller-runtime controller. Its
// name isn't validated, since controllers come back under the same name.
func WithRuntimeOptions(ko kcontroller.Options) ControllerOption {
	return func(o *ControllerOptions) { o.runtime = ko }
}

// WithWatchGarbageCollector sets a collector that runs for as long as the
// controller does, once a minute.
func WithWatchGarbageCollector(gc WatchGarbageCollector) ControllerOption {
	return func(o *ControllerOptions) { o.gc = gc }
}

// WithNewControllerFn sets what makes the controller-runtime controller;
// controller.NewUnmanaged by default.
func WithNewControllerFn(fn NewControllerFn) ControllerOption {
	return func(o *ControllerOptions) { o.nc = fn }
}

// How often a controller's collector runs.
const collectInterval = time.Minute

// A controller is one incarnation of a name: from a Start to the Stop after it.
type controller struct {
	name string
	ctrl kcontroller.Controller

	// ctx is what the incarnation's reconciles and handlers get, and knows it.
	ctx    context.Context //nolint:containedctx // It is the incarnation's life.
	cancel context.CancelFunc

	// before is closed when the incarnation before this one is over, so that no
	// two reconcile at once; nil if there is none.
	before <-chan struct{}

	// done is closed when nothing of the incarnation runs any more.
	done chan struct{}

	started time.Time
	running atomic.Bool

	// handlers that run.
	handlers sync.WaitGroup

	mu       sync.RWMutex
	watches  map[WatchID]*watch
	stopping bool
}

// incarnationKey finds, in a context, the controller whose reconcile or handler
// it belongs to.
type incarnationKey struct{}

func newController(name string, ctrl kcontroller.Controller, now time.Time) *controller {
	c := &controller{
		name:    name,
		ctrl:    ctrl,
		done:    make(chan struct{}),
		started: now,
		watches: make(map[WatchID]*watch),
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(context.Background(), incarnationKey{}, c))
	return c
}

// drop a watch, which is then to be stopped. It delivers nothing new from now on:
// whoever finds that there is no watch any more can wait for handlers that run, and
// knows that none will follow. The mutex must be held.
func (c *controller) drop(w *watch) {
	delete(c.watches, w.id)
	w.sub.stop()
}

// caller returns the incarnation whose reconcile or handler makes a call; nil if
// it is none's.
func caller(ctx context.Context) *controller {
	c, _ := ctx.Value(incarnationKey{}).(*controller)
	return c
}

// A watch of a controller, from when it is asked for until it is stopped.
type watch struct {
	id   WatchID
	kind *kind
	sub  *subscription
	ctx  context.Context //nolint:containedctx // Handlers are called with it.

	// requested is the engine's count of requests when it was last asked for.
	requested atomic.Uint64

	handling handling

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	stopped bool
	since   time.Time // When it was asked for first.
}

// handling is what a watch does with events: what it was asked for last. Whether
// that is something new can't be known of all handlers, and to set it costs less
// than to find out.
type handling struct {
	mu         sync.Mutex
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

func (h *handling) set(r *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler, h.predicates = r.handler, r.predicates
}

func (h *handling) get() (handler.EventHandler, []predicate.Predicate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handler, h.predicates
}

// sinkKey finds, in a context, the watch whose handler it was given to.
type sinkKey struct{}

func newWatch(c *controller, id WatchID, w *Watch, now time.Time, total *atomic.Uint64) *watch {
	out := &watch{id: id, since: now}
	out.ctx = context.WithValue(c.ctx, sinkKey{}, out)
	out.sub = newSubscription(out, &c.handlers, total)
	out.handling.set(w)
	return out
}

// deliver an event to the handler.
func (w *watch) deliver(d delivery) {
	h, ps := w.handling.get()
	(&EventHandler{ctx: w.ctx, queue: w.queue, handler: h, predicates: ps}).handle(d)
}

// Start is called by the controller when it has a queue. It is then that events
// can be delivered. It makes the watch a source.Source.
func (w *watch) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.queue != nil {
		return nil
	}
	w.queue = q
	w.kind.fan.attach(w.sub)
	return nil
}

// String says what is watched, for the controller's log.
func (w *watch) String() string {
	return string(w.id.Type) + " " + w.id.GVK.String()
}

// stop delivering. The returned channel, which may be nil, is closed when no
// handler runs any more. Nothing here needs the API server, or waits.
func (w *watch) stop() <-chan struct{} {
	w.mu.Lock()
	w.stopped = true
	running := w.sub.stop()
	w.mu.Unlock()

	w.kind.fan.detach(w.sub)
	w.kind.set.release(w.kind, w.sub)
	return running
}

// Start a controller. It runs once the manager is elected, and, if there was one
// of that name, once that has ended. Start does nothing if the controller runs.
func (e *ControllerEngine) Start(name string, o ...ControllerOption) error {
	if e.IsRunning(name) {
		return nil
	}

	co := &ControllerOptions{nc: kcontroller.NewUnmanaged}
	for _, fn := range o {
		fn(co)
	}
	co.runtime.SkipNameValidation = ptr.To(true)

	ctrl, err := co.nc(name, withQueue(co.runtime))
	if err != nil {
		return errors.Wrap(err, "cannot create new controller")
	}
	c := newController(name, ctrl, e.clock.Now())

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shutDown {
		c.cancel()
		return errors.Wrapf(ErrShutDown, "cannot start controller %q", name)
	}
	if _, running := e.controllers[name]; running {
		c.cancel()
		return nil
	}
	c.before = e.ending[name]
	e.controllers[name] = c
	e.wg.Go(func() { e.run(c, co) })
	return nil
}

// run an incarnation to its end.
func (e *ControllerEngine) run(c *controller, co *ControllerOptions) {
	var wg sync.WaitGroup
	defer e.ended(c)
	defer wg.Wait()
	defer c.cancel()

	if c.before != nil {
		select {
		case <-c.before:
		case <-c.ctx.Done():
			// Who comes after us must wait for it, too.
			<-c.before
			return
		}
	}
	select {
	case <-e.mgr.Elected():
	case <-c.ctx.Done():
		return
	}
	if c.ctx.Err() != nil {
		return // Both were true.
	}
	e.restoreWatches(c, co.restore)

	e.log.Debug("Starting new controller", "controller", c.name)
	e.metrics.ControllerStarted(c.name)
	c.running.Store(true)
	if co.gc != nil {
		wg.Go(func() { co.gc.GarbageCollectWatches(c.ctx, collectInterval) })
	}

	err := c.ctrl.Start(c.ctx)
	c.running.Store(false)
	e.metrics.ControllerStopped(c.name)
	if err != nil {
		e.log.Info("Controller stopped with an error", "controller", c.name, "error", err)
	} else {
		e.log.Debug("Stopped controller", "controller", c.name)
	}
}

// ended is called when an incarnation's controller runs no more, however that came
// to be. One that ended by itself is stopped; another of its name isn't touched.
func (e *ControllerEngine) ended(c *controller) {
	e.mu.Lock()
	if e.controllers[c.name] == c {
		delete(e.controllers, c.name)
		e.ending[c.name] = c.done
	}
	e.mu.Unlock()

	e.stopWatches(c)
	// They got a context that has ended.
	c.handlers.Wait()
	close(c.done)

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending[c.name] == c.done {
		delete(e.ending, c.name)
	}
}

// stopWatches stops all watches of an incarnation, for good.
func (e *ControllerEngine) stopWatches(c *controller) {
	c.mu.Lock()
	ws := make([]*watch, 0, len(c.watches))
	for _, w := range c.watches {
		c.drop(w)
		ws = append(ws, w)
	}
	c.stopping = true
	c.mu.Unlock()

	for _, w := range ws {
		e.stopWatch(c, w)
	}
	e.changed()
}

func (e *ControllerEngine) stopWatch(c *controller, w *watch) <-chan struct{} {
	ch := w.stop()
	e.metrics.WatchStopped(c.name, w.id.Type)
	e.log.Debug("Stopped watching GVK", "controller", c.name, "watch-type", w.id.Type, "watched-gvk", w.id.GVK)
	return ch
}

// Stop a controller and its watches, and wait until none of its handlers and
// reconciles run any more; they get a context that has ended. It waits no longer
// than the context and the engine's drain timeout say: then the error matches
// ErrNotDrained, and the controller is stopped all the same. A controller that
// is started again under the name waits until this one has ended. Called from
// a reconcile or handler of the controller, Stop can't wait for it, and doesn't.
//
// Stop doesn't need the API server. If the controller isn't running it only waits
// for what still runs of the one that was stopped before, so that nil always means
// that nothing does. It does nothing if it is called from an earlier controller of
// that name.
func (e *ControllerEngine) Stop(ctx context.Context, name string) error {
	from := caller(ctx)

	within := from != nil && from.name == name

	e.mu.Lock()
	c, running := e.controllers[name]
	if within && from != c {
		e.mu.Unlock()
		return nil
	}
	done := e.ending[name]
	if running {
		done = c.done
		delete(e.controllers, name)
		e.ending[name] = done
	}
	e.mu.Unlock()

	if running {
		c.cancel()
		e.stopWatches(c)
	}
	if within {
		return nil
	}
	return errors.Wrapf(e.drain(ctx, done), "cannot wait for controller %q", name)
}

// drain waits until something has ended. The channel may be nil: then it has.
func (e *ControllerEngine) drain(ctx context.Context, ch <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, e.drainTimeout)
	defer cancel()
	if err := await(ctx, ch); err != nil {
		return errors.Join(ErrNotDrained, err)
	}
	return nil
}
