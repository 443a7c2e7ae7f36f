package watch

import (
	"context"
	stderrors "errors"
	"maps"
	"slices"
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
	drainTimeout    = 10 * time.Second // For handlers and reconciles that run when they are stopped.
	syncTimeout     = time.Minute      // For informers. Those that take longer still sync.
	collectInterval = time.Minute      // Of a controller's collector.
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
	starting    map[string]bool            // Names for which a call of Start makes a controller.
	started     sync.Cond                  // That a name isn't among them any more.
	ending      map[string]<-chan struct{} // What to wait for before another of the name may run.
}

// Metrics of the engine. What is started is stopped once, for whatever reason.
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
// client c, and with nc where the cache may be too old. The informers should come
// from NewCache, and be what c reads from. Others work, with what they bring: see
// TrackInformers.
func New(mgr manager.Manager, infs TrackingInformers, c client.Client, nc client.Client, o ...ControllerEngineOption) *ControllerEngine {
	e := &ControllerEngine{
		mgr:            mgr,
		infs:           infs,
		cached:         c,
		uncached:       nc,
		namespace:      "crossplane-system",
		serviceAccount: "crossplane",
		log:            logging.NewNopLogger(),
		metrics:        &NopMetrics{},
		controllers:    make(map[string]*incarnation),
		starting:       make(map[string]bool),
		ending:         make(map[string]<-chan struct{}),
	}
	e.started.L = &e.mu
	for _, fn := range o {
		fn(e)
	}
	if t, ok := infs.(*InformerTrackingCache); ok {
		e.set = t.set
	} else {
		e.set = newWrappedSet(infs, nil, mgr.GetScheme())
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

// Start a controller. It runs once the manager is elected, and, if there was one
// of that name, once that has ended. Start does nothing if the controller runs. Of calls
// at once for one name, one at a time makes a controller; the others wait for it.
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
	if co.runtime.UsePriorityQueue == nil {
		co.runtime.UsePriorityQueue = ptr.To(false) // See WithRuntimeOptions.
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
		draining: make(map[WatchID]<-chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(context.Background(), incarnationKey{e}, c))
	e.mu.Lock()
	defer e.mu.Unlock()
	c.before = e.ending[name]
	e.controllers[name] = c
	go e.run(c, co)
	return nil
}

// begin reports whether the caller is to make a controller: then it must call begun. It
// waits for another call that does.
func (e *ControllerEngine) begin(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.starting[name] {
		e.started.Wait()
	}
	if e.controllers[name] != nil {
		return false
	}
	e.starting[name] = true
	return true
}

func (e *ControllerEngine) begun(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.starting, name)
	e.started.Broadcast()
}

// run an incarnation to its end.
func (e *ControllerEngine) run(c *incarnation, co *ControllerOptions) {
	defer e.ended(c)
	_ = await(c.ctx, c.before)
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

// ended is called when an incarnation's controller runs no more. One that ended by
// itself is stopped; another of its name isn't touched.
func (e *ControllerEngine) ended(c *incarnation) {
	e.mu.Lock()
	if e.controllers[c.name] == c {
		e.retire(c)
	}
	e.mu.Unlock()
	c.stopWatches(everyWatch)
	c.wg.Wait() // Their context has ended.
	close(c.done)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending[c.name] == c.done {
		delete(e.ending, c.name)
	}
}

// retire an incarnation, and return what to wait for before nothing of it, or of
// the one before, runs. The mutex must be held.
func (e *ControllerEngine) retire(c *incarnation) <-chan struct{} {
	delete(e.controllers, c.name)
	c.cancel() // Before the question below: it may be about to run.
	ch := (<-chan struct{})(c.done)
	if c.before != nil && !isClosed(c.before) {
		ch = c.before // This one never runs.
	}
	e.ending[c.name] = ch
	return ch
}

// Stop a controller and its watches, and wait until none of its handlers and
// reconciles run any more; they get a context that has ended. It waits until its
// context ends, at most 10 seconds: then the error matches ErrNotDrained, and the
// controller is stopped. Called from a reconcile or handler of the controller, with its
// context, Stop can't wait for it, and doesn't. Called from an earlier controller of that
// name, it does nothing. If the controller isn't running it waits for what still runs of
// the one that was stopped before.
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

// GetWatches returns the watches that a controller was asked to start and not to
// stop. They may be waiting for their kind to come: see Snapshot.
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
// sync, unless the cache isn't started. A watch that is there already stays as it is: most
// callers make handlers at each reconcile, of which only the first belong to the controller
// that runs. To change a handler, stop the watch and start it again.
//
// Each watch is started, or not, whatever becomes of the others. The error is about those
// that don't deliver events yet, and matches a KindError for each. They stay, and begin to
// deliver when they can. Watches that can never be started, whose error matches
// ErrInvalidWatch or ErrConflictingWatch, don't.
func (e *ControllerEngine) StartWatches(ctx context.Context, name string, ws ...Watch) error {
	c, err := e.running(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	var waiting []*controllerWatch
	for i := range ws {
		w, err := e.startWatch(c, &ws[i])
		switch {
		case err != nil:
			errs = append(errs, err)
		case w.on.kind.current.Load() == nil:
			waiting = append(waiting, w)
		}
	}
	if len(waiting) > 0 {
		ctx, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		for _, w := range waiting {
			if err := w.wait(ctx); err != nil && w.on.ctx.Err() == nil {
				errs = append(errs, errors.Wrapf(err, "cannot get informer for %q", w.id.GVK))
			}
		}
	}
	if c.ctx.Err() != nil {
		// Stopped meanwhile, and the watches with it, whatever became of them.
		return notRunning(name)
	}
	return stderrors.Join(errs...)
}

// startWatch makes a watch, or finds the one that is there.
func (e *ControllerEngine) startWatch(c *incarnation, r *Watch) (*controllerWatch, error) {
	id, err := r.id(e.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	w, isNew, err := e.addWatch(c, id, r)
	if err != nil || !isNew {
		return w, err
	}
	// The controller calls back with its queue: at once if it runs, else when it
	// starts to.
	if err := c.ctrl.Watch(w); err != nil {
		c.stopWatches(func(_ WatchID, o *controllerWatch) bool { return o == w })
		return nil, errors.Wrapf(err, "cannot start %q watch for %q", id.Type, id.GVK)
	}
	e.log.Debug("Started watching GVK", "controller", c.name, "watch-type", id.Type, "watched-gvk", id.GVK)
	return w, nil
}

func (e *ControllerEngine) addWatch(c *incarnation, id WatchID, r *Watch) (w *controllerWatch, isNew bool, err error) {
	as := representationOf(r.obj)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // Its watches are stopped afterwards.
		return nil, false, notRunning(c.name)
	}
	if w, ok := c.watches[id]; ok {
		if was := w.on.kind.id.as; was != as {
			return nil, false, errors.Wrapf(ErrConflictingWatch, "%q watch for %q is for %s objects, not for %s ones", id.Type, id.GVK, was, as)
		}
		w.requests.Add(1)
		return w, false, nil
	}

	// Not the result: a function that refers to that makes every call allocate it.
	added := &controllerWatch{id: id, when: time.Now()}
	h, ps := r.handler, slices.Clone(r.predicates)
	deliver := func(ctx context.Context, d delivery) { d.to(ctx, *added.queue.Load(), h, ps) }
	if added.on, err = e.set.register(c.ctx, c.wg.Go, kindID{GroupVersionKind: id.GVK, as: as}, r.obj, deliver); err != nil {
		return nil, false, errors.Wrapf(err, "cannot get informer for %q", id.GVK)
	}
	added.on.before = c.draining[id]
	c.watches[id] = added
	e.metrics.WatchStarted(c.name, id.Type)
	return added, true, nil
}

// StopWatches stops watches of a controller, and waits until none of their
// handlers runs any more, as Stop does, but for one that calls it with its own context. It
// returns how many it stopped. Of those that were stopped before it waits for handlers that
// still run.
func (e *ControllerEngine) StopWatches(ctx context.Context, name string, ws ...WatchID) (int, error) {
	c, err := e.running(ctx, name)
	if err != nil {
		return 0, err
	}
	return e.stopAndDrain(ctx, c, func(id WatchID, _ *controllerWatch) bool { return slices.Contains(ws, id) })
}

// stopAndDrain stops watches, and waits for their handlers.
func (e *ControllerEngine) stopAndDrain(ctx context.Context, c *incarnation, stop func(id WatchID, w *controllerWatch) bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	stopped, ending := c.stopWatches(stop)
	errs := make([]error, 0, len(ending))
	for id, ch := range ending {
		if ctx.Value(doneKey{}) == ch {
			continue // Its handler calls.
		}
		errs = append(errs, errors.Wrapf(drain(ctx, ch), "cannot wait for %q watch for %q", id.Type, id.GVK))
	}
	return stopped, stderrors.Join(errs...)
}
