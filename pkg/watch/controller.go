package watch

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
// name isn't validated, because controllers come back under the same name. Before
// controller-runtime v0.25, UsePriorityQueue is false by default: priority queues may never
// end when they are shut down, and then the controller doesn't end either.
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

// priorityQueuesEnd reports whether priority queues end when they are shut down, as they do
// since controller-runtime v0.25. That version has moved the API of caches to a package. Build
// information would have the version, but not in tests.
func priorityQueuesEnd() bool {
	return strings.HasSuffix(reflect.TypeFor[cache.InformerGetOptions]().PkgPath(), "/cacheapi")
}

// An incarnation is a controller from Start to Stop.
type incarnation struct {
	engine      *ControllerEngine
	name        string
	ctrl        kcontroller.Controller
	ctx         context.Context //nolint:containedctx // It ends with the incarnation.
	cancel      context.CancelFunc
	predecessor <-chan struct{} // Closed when the earlier incarnation has ended; may be nil.
	done        chan struct{}   // Closed when the incarnation has ended.
	running     atomic.Bool
	wg          sync.WaitGroup // Handlers and the collector.

	mu       sync.RWMutex
	watches  map[WatchID]*controllerWatch
	draining predecessors[WatchID] // Watches that were stopped and whose handler still runs.
}

// predecessors are channels that are closed when something that was stopped has ended. Its
// successor of the same key must not run before.
type predecessors[K comparable] map[K]<-chan struct{}

// stopped records that something was stopped, which ends with done. If its own predecessor
// hasn't ended, it never ran. It returns the channel to wait for, which may be nil.
func (p predecessors[K]) stopped(key K, predecessor, done <-chan struct{}) <-chan struct{} {
	p.prune()
	if predecessor != nil && !isClosed(predecessor) {
		done = predecessor
	}
	if done != nil {
		p[key] = done
	}
	return done
}

// prune removes channels that are closed.
func (p predecessors[K]) prune() {
	maps.DeleteFunc(p, func(_ K, ch <-chan struct{}) bool { return isClosed(ch) })
}

// incarnationKey is the context key of the incarnation that calls a reconcile or handler.
type incarnationKey struct{ engine *ControllerEngine }

// register gives a watch to the controller, and stops it if the controller refuses it.
func (c *incarnation) register(w *controllerWatch) {
	defer close(w.registered)
	err := func() (err error) {
		defer survive(&err)
		return c.ctrl.Watch(w)
	}()
	if err != nil {
		w.refused.Store(&err)
		c.stopWatches(func(_ WatchID, o *controllerWatch) bool { return o == w })
		return
	}
	c.engine.log.Debug("Started watching GVK", "controller", c.name, "watch-type", w.id.Type, "watched-gvk", w.id.GVK)
}

// stopWatches stops the watches for which stop returns true. It neither sends requests nor
// waits. The returned channels are closed when their handlers have returned. They include
// watches that were stopped before, for which stop gets nil.
func (c *incarnation) stopWatches(stop func(id WatchID, w *controllerWatch) bool) (int, map[WatchID]<-chan struct{}) {
	c.mu.Lock()
	c.draining.prune()
	ending := maps.Clone(c.draining)
	maps.DeleteFunc(ending, func(id WatchID, _ <-chan struct{}) bool { return !stop(id, nil) })
	stopped := make([]*controllerWatch, 0, len(c.watches))
	for id, w := range c.watches {
		if !stop(id, w) {
			continue
		}
		delete(c.watches, id)
		stopped = append(stopped, w)
		if ch := c.draining.stopped(id, w.on.predecessor, w.on.stop()); ch != nil {
			ending[id] = ch
		}
	}
	c.mu.Unlock()
	for _, w := range stopped {
		w.on.remove()
		c.engine.metrics.WatchStopped(c.name, w.id.Type)
		c.engine.log.Debug(
			"Stopped watching GVK", "controller", c.name, "watch-type", w.id.Type, "watched-gvk", w.id.GVK,
		)
	}
	return len(stopped), ending
}

func everyWatch(WatchID, *controllerWatch) bool { return true }

// caller returns the incarnation whose reconcile or handler makes a call, or nil.
func (e *ControllerEngine) caller(ctx context.Context) *incarnation {
	c, _ := ctx.Value(incarnationKey{e}).(*incarnation)
	return c
}

// A controllerWatch is a watch of a controller until it is stopped. It keeps the handler and
// the predicates that it was started with.
type controllerWatch struct {
	id         WatchID
	on         *registration
	requested  time.Time
	requests   atomic.Uint64 // How often the watch was requested again.
	registered chan struct{} // Closed when the controller has the watch.
	refused    atomic.Pointer[error]

	// queue of the controller, since it runs.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// Start begins to deliver events. It makes the watch a source.Source.
func (w *controllerWatch) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.queue.Store(&q)
	w.on.kind.broadcaster.attach(w.on.subscription) //nolint:contextcheck // Handlers outlive the call.
	return nil
}

// wait waits for the controller and for the informer. It returns nil if the watch is stopped. It
// also returns nil if the watch has delivered before and its kind is missing or refused now: the
// watch resumes by itself, and a caller may not need the kind: Crossplane's reconciles request the
// watches of all composites.
func (w *controllerWatch) wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.on.ctx, cancel)() //nolint:contextcheck // It is the watch that may end.
	err := errors.Wrap(await(ctx, w.registered), "another source of the controller syncs")
	if refused := w.refused.Load(); refused != nil {
		return errors.Wrapf(*refused, "cannot start %q watch for %q", w.id.Type, w.id.GVK)
	}
	if err != nil {
		err = w.on.kind.failure(ErrNotSynced, err)
	} else {
		_, err = w.on.kind.wait(ctx, nil)
	}
	if w.on.ctx.Err() != nil || w.on.HasSynced() && classify(w.id.GVK, err).permanent() {
		return nil //nolint:nilerr // As documented.
	}
	return errors.Wrapf(err, "cannot get informer for %q", w.id.GVK)
}

// String describes the watch in the controller's log.
func (w *controllerWatch) String() string {
	return string(w.id.Type) + " " + w.id.GVK.String()
}
