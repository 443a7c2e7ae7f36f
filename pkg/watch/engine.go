package watch

import (
	"context"
	stderrors "errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

const (
	drainTimeout    = 10 * time.Second // For handlers and reconciles to return after a stop.
	syncTimeout     = time.Minute      // For calls that wait for an informer to sync.
	collectInterval = time.Minute      // Between two runs of a controller's collector.
)

// A ControllerEngine starts and stops controllers and their watches. All its
// methods are safe for concurrent use. None holds a lock while it waits, and none
// outlives its context by more than a moment.
type ControllerEngine struct {
	mgr      manager.Manager
	infs     TrackingInformers
	set      *kindSet
	cached   client.Client
	uncached client.Client

	namespace      string
	serviceAccount string
	log            logging.Logger
	metrics        Metrics

	mu          sync.RWMutex
	controllers map[string]*incarnation
	starting    map[string]chan struct{} // Closed when the call of Start that makes a controller returns.
	ending      predecessors[string]     // Controllers that were stopped and still run.
}

// Metrics of the engine. Each controller and watch that is started is stopped once.
type Metrics interface {
	ControllerStarted(name string)
	ControllerStopped(name string)
	WatchStarted(name string, t WatchType)
	WatchStopped(name string, t WatchType)
}

// NopMetrics records nothing.
type NopMetrics struct{}

// ControllerStarted does nothing.
func (m *NopMetrics) ControllerStarted(_ string) {}

// ControllerStopped does nothing.
func (m *NopMetrics) ControllerStopped(_ string) {}

// WatchStarted does nothing.
func (m *NopMetrics) WatchStarted(_ string, _ WatchType) {}

// WatchStopped does nothing.
func (m *NopMetrics) WatchStopped(_ string, _ WatchType) {}

// A ControllerEngineOption configures an engine.
type ControllerEngineOption func(*ControllerEngine)

// WithLogger sets where the engine, its cache and its collectors log; nowhere by
// default. A kind that fails is logged once, not at each attempt.
func WithLogger(l logging.Logger) ControllerEngineOption {
	return func(e *ControllerEngine) { e.log = l }
}

// WithMetrics sets where the engine counts; nowhere by default.
func WithMetrics(m Metrics) ControllerEngineOption {
	return func(e *ControllerEngine) { e.metrics = m }
}

// WithNamespace sets the namespace of the service account that errors of
// IsAuthorizedFor name; crossplane-system by default.
func WithNamespace(namespace string) ControllerEngineOption {
	return func(e *ControllerEngine) { e.namespace = namespace }
}

// WithServiceAccount sets the service account that errors of IsAuthorizedFor
// name; crossplane by default.
func WithServiceAccount(serviceAccount string) ControllerEngineOption {
	return func(e *ControllerEngine) { e.serviceAccount = serviceAccount }
}

// New returns an engine for a manager's controllers. They read with the cached
// client c, and with nc where the cache may be stale. The informers must come from NewCache,
// and be those that c reads from: with others the engine's methods fail with ErrForeignCache.
func New(
	mgr manager.Manager, infs TrackingInformers, c client.Client, nc client.Client, o ...ControllerEngineOption,
) *ControllerEngine {
	t, ok := infs.(*InformerTrackingCache)
	if !ok {
		t = TrackInformers(nil, mgr.GetScheme())
	}
	e := &ControllerEngine{
		mgr:            mgr,
		infs:           infs,
		set:            t.set,
		cached:         c,
		uncached:       nc,
		namespace:      "crossplane-system",
		serviceAccount: "crossplane",
		log:            logging.NewNopLogger(),
		metrics:        &NopMetrics{},
		controllers:    make(map[string]*incarnation),
		starting:       make(map[string]chan struct{}),
		ending:         make(predecessors[string]),
	}
	for _, fn := range o {
		fn(e)
	}
	e.set.log.Store(&e.log)
	return e
}

// GetCached returns the client that reads from the cache.
func (e *ControllerEngine) GetCached() client.Client {
	return e.cached
}

// GetUncached returns the client that reads from the API server.
func (e *ControllerEngine) GetUncached() client.Client {
	return e.uncached
}

// GetFieldIndexer returns what adds indexes to the cache.
func (e *ControllerEngine) GetFieldIndexer() client.FieldIndexer {
	return e.infs
}

// IsRunning reports whether a controller was started and not stopped since. It
// may still wait to be elected.
func (e *ControllerEngine) IsRunning(name string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, running := e.controllers[name]
	return running
}

// running returns the controller of a name, unless the call is made by a reconcile or
// handler of an earlier one: that isn't running.
func (e *ControllerEngine) running(ctx context.Context, name string) (*incarnation, error) {
	e.mu.RLock()
	c, ok := e.controllers[name]
	e.mu.RUnlock()
	from := e.caller(ctx)
	if !ok || (from != nil && from.name == name && from != c) {
		return nil, notRunning(name)
	}
	return c, nil
}

// Start starts a controller. It runs once the manager is elected, and, if there was one
// of that name, once that has ended. Start does nothing if the controller runs. Of concurrent
// calls for one name, one makes the controller, and the others wait for it. When the cache ends,
// all controllers are stopped.
func (e *ControllerEngine) Start(name string, o ...ControllerOption) error {
	if !e.begin(name) {
		return nil
	}
	defer e.begun(name)
	co := &ControllerOptions{nc: kcontroller.NewUnmanaged}
	for _, fn := range o {
		fn(co)
	}
	co.runtime.SkipNameValidation = ptr.To(true)
	if co.runtime.UsePriorityQueue == nil && !priorityQueuesEnd() {
		co.runtime.UsePriorityQueue = ptr.To(false)
	}
	if err := e.set.ended(); err != nil {
		return errors.Wrap(err, "cannot start controller")
	}
	ctrl, err := co.nc(name, co.runtime)
	if err != nil {
		return errors.Wrap(err, "cannot create new controller")
	}
	if is.Nil(ctrl) {
		return errors.New("cannot create new controller: got none")
	}
	c := &incarnation{
		engine:   e,
		name:     name,
		ctrl:     ctrl,
		done:     make(chan struct{}),
		watches:  make(map[WatchID]*controllerWatch),
		draining: make(predecessors[WatchID]),
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(e.set.ctx, incarnationKey{e}, c))
	e.mu.Lock()
	defer e.mu.Unlock()
	c.predecessor = e.ending[name]
	e.controllers[name] = c
	go e.run(c, co)
	return nil
}

// begin reports whether the caller should make the controller, and call begun then. It waits for
// a concurrent call that makes it.
func (e *ControllerEngine) begin(name string) bool {
	for {
		e.mu.Lock()
		begun := e.starting[name]
		runs := e.controllers[name] != nil
		if begun == nil && !runs {
			e.starting[name] = make(chan struct{})
		}
		e.mu.Unlock()
		if begun == nil {
			return !runs
		}
		<-begun
	}
}

func (e *ControllerEngine) begun(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.starting[name])
	delete(e.starting, name)
}

// run runs an incarnation to its end.
func (e *ControllerEngine) run(c *incarnation, co *ControllerOptions) {
	defer e.ended(c)
	_ = await(c.ctx, c.predecessor)
	_ = await(c.ctx, e.mgr.Elected())
	if c.ctx.Err() != nil {
		return
	}
	e.log.Debug("Starting new controller", "controller", c.name)
	e.metrics.ControllerStarted(c.name)
	c.running.Store(true)
	if co.gc != nil {
		c.wg.Go(func() { co.gc.GarbageCollectWatches(c.ctx, collectInterval) })
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

// ended is called when an incarnation's controller has returned. It stops the incarnation if
// nothing else did.
func (e *ControllerEngine) ended(c *incarnation) {
	e.mu.Lock()
	if e.controllers[c.name] == c {
		e.retire(c)
	}
	e.mu.Unlock()
	c.stopWatches(everyWatch)
	c.wg.Wait() // All contexts have ended.
	close(c.done)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ending.prune()
}

// retire makes an incarnation end. The returned channel is closed when it, and the incarnation
// before it, have ended. The mutex must be held.
func (e *ControllerEngine) retire(c *incarnation) <-chan struct{} {
	delete(e.controllers, c.name)
	c.cancel() // Before stopped decides whether it may run.
	return e.ending.stopped(c.name, c.predecessor, c.done)
}

// Stop stops a controller and its watches, and waits until its handlers and reconciles, whose
// context has ended, have returned. It waits until its context ends, at most
// 10 seconds: then the error matches ErrNotDrained, and the controller is stopped. Called from
// a reconcile or handler of the controller, with its context, Stop doesn't wait. Called from an
// earlier controller of that name, it does nothing. If the controller isn't running, Stop waits
// for handlers and reconciles of the one that was stopped before.
func (e *ControllerEngine) Stop(ctx context.Context, name string) error {
	from := e.caller(ctx)
	within := from != nil && from.name == name
	e.mu.Lock()
	c, running := e.controllers[name]
	if within && from != c {
		e.mu.Unlock()
		return nil
	}
	done := e.ending[name]
	if running {
		done = e.retire(c)
	}
	e.mu.Unlock()

	if running {
		c.stopWatches(everyWatch)
	}
	if within {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	return errors.Wrapf(drain(ctx, done), "cannot wait for controller %q", name)
}

// drain waits until a channel, which may be nil, is closed.
func drain(ctx context.Context, ch <-chan struct{}) error {
	if err := await(ctx, ch); err != nil {
		return stderrors.Join(ErrNotDrained, err)
	}
	return nil
}

// GetWatches returns the watches that were started and not stopped. Their kinds may be missing:
// see Snapshot.
func (e *ControllerEngine) GetWatches(name string) ([]WatchID, error) {
	c, err := e.running(context.Background(), name)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.AppendSeq([]WatchID{}, maps.Keys(c.watches)), nil
}

// StartWatches starts watches of a controller, and waits for their informers to
// sync, unless the cache isn't started. It waits until its context ends, at most a minute, and
// not at all for a kind that is known to be in trouble. A watch that exists stays as it is,
// because most callers make new handlers in each reconcile, and only the first ones are wired
// to the running controller. To change a handler, stop the watch and start it again.
//
// Each watch succeeds or fails on its own. The error is about those that don't deliver events
// yet, and matches a KindError for each. They stay, and begin to deliver when they can. A watch
// that delivered before is no error while its kind is missing, forbidden or not watchable, because
// it resumes by itself; see Snapshot. A watch that is refused doesn't stay: the error matches
// ErrInvalidWatch or ErrConflictingWatch, or is the controller's.
func (e *ControllerEngine) StartWatches(ctx context.Context, name string, ws ...Watch) error {
	c, err := e.running(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	started := make([]*controllerWatch, 0, len(ws))
	for i := range ws {
		w, err := e.startWatch(c, &ws[i])
		if err != nil {
			errs = append(errs, err)
		} else if !isClosed(w.registered) || w.refused.Load() != nil || w.on.kind.synced.Load() == nil {
			started = append(started, w)
		}
	}
	// Callers may have the watches in a map, and write the error to a condition: its text must not
	// depend on their order.
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	slices.SortFunc(started, func(a, b *controllerWatch) int { return a.id.compare(b.id) })
	if len(started) > 0 {
		ctx, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		for _, w := range started {
			errs = append(errs, w.wait(ctx))
		}
	}
	if c.ctx.Err() != nil { // The watches were stopped, too.
		return notRunning(name)
	}
	return stderrors.Join(errs...)
}

// startWatch adds a watch, or returns the one that exists. The controller gets a new watch in
// a goroutine, because it holds a lock while its sources sync. It starts the watch when it has
// a queue.
func (e *ControllerEngine) startWatch(c *incarnation, r *Watch) (*controllerWatch, error) {
	id, err := r.id(e.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	as := representationOf(r.obj)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // Its watches are stopped afterwards.
		return nil, notRunning(c.name)
	}
	if w, ok := c.watches[id]; ok {
		if was := w.on.kind.id.as; was != as {
			return nil, errors.Wrapf(
				ErrConflictingWatch, "%q watch for %q is for %s objects, not for %s ones", id.Type, id.GVK, was, as,
			)
		}
		w.requests.Add(1)
		return w, nil
	}
	w := &controllerWatch{id: id, requested: time.Now(), registered: make(chan struct{})}
	h, ps := r.handler, slices.Clone(r.predicates)
	deliver := func(ctx context.Context, d delivery) { d.handle(ctx, *w.queue.Load(), h, ps) }
	if w.on, err = e.set.register(
		c.ctx, c.wg.Go, kindID{GroupVersionKind: id.GVK, as: as}, r.obj, deliver,
	); err != nil {
		return nil, errors.Wrapf(err, "cannot get informer for %q", id.GVK)
	}
	w.on.predecessor = c.draining[id]
	c.watches[id] = w
	e.metrics.WatchStarted(c.name, id.Type)
	c.wg.Go(func() { c.register(w) })
	return w, nil
}

// StopWatches stops watches of a controller, and waits until their handlers have returned, as
// Stop does. A handler that stops its own watch with its own context ends that context, so it
// waits for no handler. StopWatches returns how many watches it stopped. For a watch that was
// stopped before, it waits for its handler.
func (e *ControllerEngine) StopWatches(ctx context.Context, name string, ws ...WatchID) (int, error) {
	c, err := e.running(ctx, name)
	if err != nil {
		return 0, err
	}
	return e.stopAndDrain(ctx, c, func(id WatchID, _ *controllerWatch) bool { return slices.Contains(ws, id) })
}

// stopAndDrain stops watches, and waits for their handlers.
func (e *ControllerEngine) stopAndDrain(
	ctx context.Context, c *incarnation, stop func(id WatchID, w *controllerWatch) bool,
) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	stopped, ending := c.stopWatches(stop)
	errs := make([]error, 0, len(ending))
	for _, id := range slices.SortedFunc(maps.Keys(ending), WatchID.compare) {
		ch := ending[id]
		if ctx.Value(doneKey{}) == ch {
			continue // Its handler calls.
		}
		errs = append(errs, errors.Wrapf(drain(ctx, ch), "cannot wait for %q watch for %q", id.Type, id.GVK))
	}
	return stopped, stderrors.Join(errs...)
}
