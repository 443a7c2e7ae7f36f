package watch

import (
	"context"
	stderrors "errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	drainTimeout    = 10 * time.Second // For handlers and reconciles to return after a stop.
	collectInterval = time.Minute      // Between two runs of a controller's collector.
)

// A requestQueue is the queue of a controller.
type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// A controller is a controller from Start to Stop.
type controller struct {
	name        string
	metrics     Metrics
	log         logging.Logger
	ctx         context.Context //nolint:containedctx // It ends with the controller.
	cancel      context.CancelFunc
	predecessor <-chan struct{} // Closed when the earlier controller of the name has ended; may be nil.
	done        chan struct{}   // Closed when the controller has ended.
	running     atomic.Bool
	wg          sync.WaitGroup // Handlers and the collector.

	mu      sync.RWMutex
	queue   requestQueue // Nil until the controller runs.
	watches map[WatchID]*controllerWatch
}

// notRunning returns an error with the text of upstream's engine.
func notRunning(name string) error {
	return fmt.Errorf("controller %q %w", name, ErrNotRunning)
}

// controllers are the controllers of an engine, by name.
type controllers struct {
	mu      sync.RWMutex
	started map[string]*controller
	ending  map[string]<-chan struct{} // Closed when a controller that was stopped has ended.
}

// get returns a controller that was started and not stopped since, or nil.
func (cs *controllers) get(name string) *controller {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return cs.started[name]
}

// all returns the controllers, and the names of those that were stopped and still run.
func (cs *controllers) all() (started []*controller, ending []string) {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return slices.Collect(maps.Values(cs.started)), slices.Sorted(maps.Keys(cs.ending))
}

// add adds a controller, and reports whether there was none of its name.
func (cs *controllers) add(c *controller) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.started[c.name] != nil {
		return false
	}
	c.predecessor = cs.ending[c.name]
	cs.started[c.name] = c
	return true
}

// stop makes the controller of a name end: only the given one, unless that is nil. The returned channel
// is closed when it, and the controllers before it, have ended. It may be nil.
func (cs *controllers) stop(name string, only *controller) <-chan struct{} {
	cs.mu.Lock()
	c, done := cs.started[name], cs.ending[name]
	if c != nil && (only == nil || only == c) {
		delete(cs.started, name)
		c.cancel() // Before it is decided whether it may run.
		if done = c.predecessor; done == nil || isClosed(done) {
			done = c.done // Otherwise it never ran.
		}
		cs.ending[name] = done
	}
	cs.mu.Unlock()
	if c != nil && c.ctx.Err() != nil {
		c.stopWatches(everyWatch)
	}
	return done
}

// ended is called when a controller has run. It stops it if nothing else did.
func (cs *controllers) ended(c *controller) {
	cs.stop(c.name, c)
	c.stopWatches(everyWatch)
	c.wg.Wait() // All contexts have ended.
	cs.mu.Lock()
	defer cs.mu.Unlock()
	close(c.done)
	maps.DeleteFunc(cs.ending, func(_ string, done <-chan struct{}) bool { return isClosed(done) })
}

// A controllerWatch is a watch of a controller until it is stopped. It keeps the handler and
// the predicates that it was started with.
type controllerWatch struct {
	*subscription

	kind      *kind
	id        WatchID
	requested time.Time
	requests  atomic.Uint64 // How often the watch was requested again.
}

// start makes the watches deliver, once the controller has a queue. Before that nothing but the
// controller has them.
func (c *controller) start(_ context.Context, q requestQueue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = q
	for _, w := range c.watches {
		w.kind.broadcaster.attach(w.subscription) //nolint:contextcheck // Handlers outlive the call.
	}
	return nil
}

// run runs the controller once the manager is elected, and the controller before it has ended.
func (c *controller) run(
	elected func() <-chan struct{}, ctrl kcontroller.Controller, gc WatchGarbageCollector,
) {
	_ = await(c.ctx, c.predecessor)
	_ = await(c.ctx, elected())
	if c.ctx.Err() != nil {
		return
	}
	c.log.Debug("Starting new controller", "controller", c.name)
	c.metrics.ControllerStarted(c.name)
	c.running.Store(true)
	if gc != nil {
		c.wg.Go(func() { gc.GarbageCollectWatches(c.ctx, collectInterval) })
	}
	err := ctrl.Start(c.ctx)
	c.running.Store(false)
	c.metrics.ControllerStopped(c.name)
	if err != nil {
		c.log.Info("Controller stopped with an error", "controller", c.name, "error", err)
	} else {
		c.log.Debug("Stopped controller", "controller", c.name)
	}
}

// add adds a watch, or returns the one that exists. No lock is held while the metrics count it.
func (c *controller) add(kinds *kindMap, s *runtime.Scheme, r *Watch) (*controllerWatch, error) {
	id, err := r.id(s)
	if err != nil {
		return nil, err
	}
	w, added, err := c.addLocked(kinds, id, r)
	if added {
		c.metrics.WatchStarted(c.name, id.Type)
		c.log.Debug("Started watching GVK", "controller", c.name, "watch-type", id.Type, "watched-gvk", id.GVK)
	}
	return w, err
}

func (c *controller) addLocked(kinds *kindMap, id WatchID, r *Watch) (w *controllerWatch, added bool, err error) {
	as := representationOf(r.obj)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // Its watches are stopped afterwards.
		return nil, false, notRunning(c.name)
	}
	if w, ok := c.watches[id]; ok {
		if was := w.kind.key.as; was != as {
			return nil, false, errors.Wrapf(
				ErrConflictingWatch, "%q watch for %q is for %s objects, not for %s ones", id.Type, id.GVK, was, as,
			)
		}
		w.requests.Add(1)
		return w, false, nil
	}
	h, p := r.handler, predicate.And(slices.Clone(r.predicates)...)
	sub, k, err := kinds.register(
		c.ctx, c.wg.Go, kindKey{GroupVersionKind: id.GVK, as: as}, r.obj,
		func(ctx context.Context, d delivery) { c.callHandler(ctx, d, h, p) },
	)
	if err != nil {
		return nil, false, errors.Wrapf(err, "cannot get informer for %q", id.GVK)
	}
	w = &controllerWatch{subscription: sub, kind: k, id: id, requested: time.Now()}
	c.watches[id] = w
	if c.queue != nil {
		k.broadcaster.attach(sub)
	}
	return w, true, nil
}

// callHandler calls the handler if the predicate passes. The context ends when the handler returns.
func (c *controller) callHandler(ctx context.Context, d delivery, h handler.EventHandler, p predicate.Predicate) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch d.op {
	case created:
		if e := (event.CreateEvent{Object: d.object, IsInInitialList: d.initial}); p.Create(e) {
			h.Create(ctx, e, c.queue)
		}
	case updated:
		if e := (event.UpdateEvent{ObjectOld: d.old, ObjectNew: d.object}); p.Update(e) {
			h.Update(ctx, e, c.queue)
		}
	case deleted:
		if e := (event.DeleteEvent{Object: d.object, DeleteStateUnknown: d.unseen}); p.Delete(e) {
			h.Delete(ctx, e, c.queue)
		}
	}
}

// stopWatches stops the watches for which stop returns true. It neither sends requests nor waits.
func (c *controller) stopWatches(stop func(w *controllerWatch) bool) []*controllerWatch {
	var stopped []*controllerWatch
	c.mu.Lock()
	for id, w := range c.watches {
		if stop(w) {
			delete(c.watches, id)
			w.remove() // With the lock: ended waits for all goroutines, and no other may start then.
			stopped = append(stopped, w)
		}
	}
	c.mu.Unlock()
	for _, w := range stopped {
		c.metrics.WatchStopped(c.name, w.id.Type)
		c.log.Debug("Stopped watching GVK", "controller", c.name, "watch-type", w.id.Type, "watched-gvk", w.id.GVK)
	}
	return stopped
}

func everyWatch(*controllerWatch) bool { return true }

// stopAndDrain stops watches, and waits for their handlers.
func (c *controller) stopAndDrain(ctx context.Context, stop func(w *controllerWatch) bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	stopped := c.stopWatches(stop)
	slices.SortFunc(stopped, func(a, b *controllerWatch) int { return a.id.compare(b.id) })
	var errs []error
	for _, w := range stopped {
		if ctx.Value(handlerKey{}) == nil { // A handler would wait for itself, or for one that waits for it.
			err := drain(ctx, w.stop())
			errs = append(errs, errors.Wrapf(err, "cannot wait for %q watch for %q", w.id.Type, w.id.GVK))
		}
	}
	return len(stopped), stderrors.Join(errs...)
}

// drain waits until a channel, which may be nil, is closed.
func drain(ctx context.Context, ch <-chan struct{}) error {
	if err := await(ctx, ch); err != nil {
		return stderrors.Join(ErrNotDrained, err)
	}
	return nil
}

// wait waits for the informer. It returns nil if the watch is stopped. It
// also returns nil if the watch has delivered before and its kind is missing or refused now: the
// watch resumes by itself, and a caller may not need the kind: Crossplane's reconciles request the
// watches of all composites.
func (w *controllerWatch) wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)() //nolint:contextcheck // It is the watch that may end.
	_, err := w.kind.wait(ctx)
	if w.ctx.Err() != nil || err != nil && w.HasSynced() && classify(w.id.GVK, err).permanent() {
		return nil //nolint:nilerr // As documented.
	}
	return errors.Wrapf(err, "cannot get informer for %q", w.id.GVK)
}
