package watch

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
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

// An incarnation is a controller, from a Start of its name to the Stop after it.
type incarnation struct {
	engine  *ControllerEngine
	name    string
	ctrl    kcontroller.Controller
	ctx     context.Context //nolint:containedctx // It is the incarnation's life, and knows it.
	cancel  context.CancelFunc
	before  <-chan struct{} // Closed when the one before is over; nil if there is none.
	done    chan struct{}   // Closed when nothing of this one runs any more.
	running atomic.Bool
	wg      sync.WaitGroup // Handlers that run, and the collector.

	mu      sync.RWMutex
	watches map[WatchID]*controllerWatch

	// draining is closed, for each watch that was stopped, when its handler has
	// returned, if it hadn't then. Another watch of the identity delivers nothing before.
	draining map[WatchID]<-chan struct{}
}

// incarnationKey finds, in a context, the controller of an engine whose reconcile or
// handler it belongs to.
type incarnationKey struct{ engine *ControllerEngine }

// stopWatches stops those watches for which stop returns true, without a request or a
// wait. No call can ask for a watch between the question and its end. The returned
// channels are closed when handlers have returned: theirs, and those of watches that were
// stopped before, of which stop gets the identity alone. None will follow.
func (c *incarnation) stopWatches(stop func(id WatchID, w *controllerWatch) bool) (int, map[WatchID]<-chan struct{}) {
	c.mu.Lock()
	maps.DeleteFunc(c.draining, func(_ WatchID, ch <-chan struct{}) bool { return isClosed(ch) })
	ending := maps.Clone(c.draining)
	maps.DeleteFunc(ending, func(id WatchID, _ <-chan struct{}) bool { return !stop(id, nil) })
	stopped := make([]*controllerWatch, 0, len(c.watches))
	for id, w := range c.watches {
		if !stop(id, w) {
			continue
		}
		delete(c.watches, id)
		stopped = append(stopped, w)
		if ch := w.on.stop(); ch != nil {
			c.draining[id], ending[id] = ch, ch
		}
	}
	c.mu.Unlock()
	for _, w := range stopped {
		w.on.remove()
		c.engine.metrics.WatchStopped(c.name, w.id.Type)
		c.engine.log.Debug("Stopped watching GVK", "controller", c.name, "watch-type", w.id.Type, "watched-gvk", w.id.GVK)
	}
	return len(stopped), ending
}

func everyWatch(WatchID, *controllerWatch) bool { return true }

// caller returns the incarnation whose reconcile or handler makes a call, or nil.
func (e *ControllerEngine) caller(ctx context.Context) *incarnation {
	c, _ := ctx.Value(incarnationKey{e}).(*incarnation)
	return c
}

// A controllerWatch is a watch of a controller, from when it is asked for until it is
// stopped. It keeps the handler and the predicates that it was started with.
type controllerWatch struct {
	id       WatchID
	on       *registration
	when     time.Time     // It was asked for first.
	requests atomic.Uint64 // How often it was asked for again.

	// queue of the controller, since it began to run.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// Start is called by the controller when it has a queue. It is then that events
// can be delivered. It makes the watch a source.Source.
func (w *controllerWatch) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.queue.Store(&q)
	w.on.kind.fan.attach(w.on.subscription) //nolint:contextcheck // Handlers outlive the call.
	return nil
}

// wait for the informer, until the watch is stopped.
func (w *controllerWatch) wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.on.ctx, cancel)() //nolint:contextcheck // It is the watch that may end.
	_, err := w.on.kind.wait(ctx, nil)
	return err
}

// String says what is watched, for the controller's log.
func (w *controllerWatch) String() string {
	return string(w.id.Type) + " " + w.id.GVK.String()
}
