package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A WatchGarbageCollector stops watches that aren't needed, at an interval, until its
// context ends.
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
}

// A ControllerOption configures a controller.
type ControllerOption func(o *ControllerOptions)

// WithRuntimeOptions sets the options of the controller-runtime controller. Its
// name isn't validated, since controllers come back under the same name. Unless
// UsePriorityQueue is true it doesn't use a priority queue: controller-runtime's may
// never end when it is shut down, and so may then the controller.
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

// An incarnation is a controller, from a Start of its name to the Stop after it.
type incarnation struct {
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

	// begun says that the incarnation before has ended. Guarded by the engine's mutex.
	begun bool

	// handlers that run.
	handlers dispatcher

	mu       sync.RWMutex
	watches  map[WatchID]*controllerWatch
	stopping bool

	// draining is closed, for each watch that was stopped, when its handler has
	// returned, if it hadn't then.
	draining map[WatchID]<-chan struct{}
}

// incarnationKey finds, in a context, the controller whose reconcile or handler
// it belongs to.
type incarnationKey struct{}

func newIncarnation(name string, ctrl kcontroller.Controller, delivered prometheus.Counter) *incarnation {
	c := &incarnation{
		name:     name,
		ctrl:     ctrl,
		done:     make(chan struct{}),
		started:  time.Now(),
		watches:  make(map[WatchID]*controllerWatch),
		draining: make(map[WatchID]<-chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(context.Background(), incarnationKey{}, c))
	c.handlers.ctx, c.handlers.delivered = c.ctx, delivered
	return c
}

// drop a watch, which is then to be stopped. It delivers nothing new from now on:
// a call that finds no watch can wait for handlers that run, and none will follow.
// The returned channel, which may be nil, is closed when no handler runs any more.
// The mutex must be held.
func (c *incarnation) drop(w *controllerWatch) <-chan struct{} {
	delete(c.watches, w.id)
	ch := w.sub.stop()
	if ch != nil {
		c.draining[w.id] = ch
	}
	return ch
}

// drained returns what must be closed before another watch of the identity may
// deliver; nil if nothing must. The mutex must be held.
func (c *incarnation) drained(id WatchID) <-chan struct{} {
	ch := c.draining[id]
	if ch != nil && isClosed(ch) {
		delete(c.draining, id)
		return nil
	}
	return ch
}

// caller returns the incarnation whose reconcile or handler makes a call, or nil.
func caller(ctx context.Context) *incarnation {
	c, _ := ctx.Value(incarnationKey{}).(*incarnation)
	return c
}

// A controllerWatch is a watch of a controller, from when it is asked for until it is
// stopped. It keeps the handler and the predicates that it was started with.
type controllerWatch struct {
	id         WatchID
	handler    handler.EventHandler
	predicates []predicate.Predicate
	on         *trackedKind
	set        *kindSet
	sub        *subscription
	when       time.Time // It was asked for first.

	// requested is the engine's count of requests when it was last asked for.
	requested atomic.Uint64

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	stopped bool
}

// sinkKey finds, in a context, the watch whose handler it was given to.
type sinkKey struct{}

// deliver an event to the handler.
func (w *controllerWatch) deliver(ctx context.Context, d delivery) {
	NewEventHandler(context.WithValue(ctx, sinkKey{}, w), w.queue, w.handler, w.predicates...).handle(d) //nolint:contextcheck // It has it.
}

// Start is called by the controller when it has a queue. It is then that events
// can be delivered. It makes the watch a source.Source.
func (w *controllerWatch) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.queue != nil {
		return nil
	}
	w.queue = q
	w.on.fan.attach(w.sub) //nolint:contextcheck // Handlers outlive the call.
	return nil
}

// String says what is watched, for the controller's log.
func (w *controllerWatch) String() string {
	return string(w.id.Type) + " " + w.id.GVK.String()
}

// stop a watch that was dropped. Nothing here needs the API server, or waits.
func (w *controllerWatch) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()

	w.on.fan.detach(w.sub)
	w.set.release(w.on, w.sub)
}
