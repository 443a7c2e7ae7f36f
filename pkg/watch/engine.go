package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Defaults of an engine.
const (
	defaultDrainTimeout = 10 * time.Second
	defaultSyncTimeout  = time.Minute
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
	clock          clock.WithTicker
	drainTimeout   time.Duration
	syncTimeout    time.Duration
	firstHandlers  bool

	// requests counts calls to StartWatches: see watch.requested.
	requests atomic.Uint64

	wg sync.WaitGroup // Of controllers.

	// ctx ends, and what runs in the background with it, when the engine is shut
	// down.
	ctx         context.Context //nolint:containedctx // It is the engine's life.
	cancel      context.CancelFunc
	background  sync.WaitGroup
	saver       saver
	storeErrors storeErrors

	mu          sync.RWMutex
	controllers map[string]*controller

	// ending has what to wait for before a controller of that name may run.
	ending   map[string]chan struct{}
	shutDown bool
}

// A ControllerEngineOption configures an engine.
type ControllerEngineOption func(*ControllerEngine)

// WithLogger sets where the engine logs; nowhere by default.
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

// WithDrainTimeout sets how long Stop and StopWatches wait for handlers and
// reconciles that run, if their context lets them; 10 seconds by default.
func WithDrainTimeout(d time.Duration) ControllerEngineOption {
	return func(e *ControllerEngine) { e.drainTimeout = d }
}

// WithSyncTimeout sets how long StartWatches waits for informers to sync, if its
// context lets it; a minute by default. What isn't synced by then still syncs.
func WithSyncTimeout(d time.Duration) ControllerEngineOption {
	return func(e *ControllerEngine) { e.syncTimeout = d }
}

// WithFirstHandlers makes a watch keep the handler and the predicates that it was
// started with until it is stopped, as Crossplane's engine does. Otherwise those
// that it was asked for with last handle events. Callers need it who make handlers
// anew at each call that share something with a controller that runs already, and
// only the first do.
func WithFirstHandlers() ControllerEngineOption {
	return func(e *ControllerEngine) { e.firstHandlers = true }
}

// New returns an engine for a manager's controllers. They read with the cached
// client c, and with nc where the cache may be too old. The informers should come
// from NewCache, and be what c reads from. Others work, with what they bring: see
// TrackInformers.
//
// The engine has no goroutine of its own but while it has controllers, or changes
// to save. It doesn't have to be shut down if all controllers are stopped.
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
		drainTimeout:   defaultDrainTimeout,
		syncTimeout:    defaultSyncTimeout,
		controllers:    make(map[string]*controller),
		ending:         make(map[string]chan struct{}),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for _, fn := range o {
		fn(e)
	}

	if t, ok := infs.(*InformerTrackingCache); ok {
		e.set, e.clock = t.set, t.set.clock
		return e
	}
	e.set = newWrappedSet(infs, nil)
	e.set.log, e.clock = e.log, e.set.clock
	e.set.start()
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

// running returns the controller of a name. Calls that are made by a reconcile or
// handler of an earlier one are told that it isn't running: it isn't.
func (e *ControllerEngine) running(ctx context.Context, name string) (*controller, error) {
	e.mu.RLock()
	c, ok := e.controllers[name]
	shutDown := e.shutDown
	e.mu.RUnlock()

	from := caller(ctx)
	if !ok || (from != nil && from.name == name && from != c) {
		return nil, &notRunningError{name: name, shutDown: shutDown}
	}
	return c, nil
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
	out := make([]WatchID, 0, len(c.watches))
	for id := range c.watches {
		out = append(out, id)
	}
	return out, nil
}

// StartWatches starts watches of a controller, and waits for their informers to
// sync. A watch that is there already stays; the handler and predicates that it
// comes with get the events from now on, unless WithFirstHandlers says otherwise.
// What was delivered before isn't delivered to them again: most callers make
// handlers anew at each reconcile, and nothing tells whether one does something
// new, so reconciles that follow from deliveries would lead to more of them, for
// ever. Who needs what is there delivered to another handler stops the watch
// first.
//
// Each watch is started, or not, whatever becomes of the others. The error is
// about those that don't deliver events yet, and matches for each ErrNoSuchKind,
// ErrNotWatchable, ErrForbidden, ErrNotSynced or ErrUnreachable. They stay: they
// begin to deliver when they can, without another call. Watches that can never
// be started, whose error matches ErrInvalidWatch or ErrConflictingWatch, don't.
//
// Before the cache is started there is nothing to wait for.
func (e *ControllerEngine) StartWatches(ctx context.Context, name string, ws ...Watch) error {
	c, err := e.running(ctx, name)
	if err != nil {
		return err
	}
	seq := e.requests.Add(1)
	if e.nothingToStart(c, seq, ws) {
		return nil
	}

	var errs []error
	started := make([]*watch, 0, len(ws))
	for i := range ws {
		w, err := e.startWatch(c, seq, &ws[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		started = append(started, w)
	}

	ctx, cancel := context.WithTimeout(ctx, e.syncTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // It is the controller that may end.
	for _, w := range started {
		if _, err := w.kind.wait(ctx); err != nil {
			errs = append(errs, errors.Wrapf(err, "cannot get informer for %q", w.id.GVK))
		}
	}
	if c.ctx.Err() != nil {
		// Stopped meanwhile, and the watches with it, whatever became of them.
		return &notRunningError{name: name}
	}
	return join(errs)
}

// nothingToStart notes that the watches were asked for, and reports whether all
// are there. StartWatches is called at every reconcile of a composite resource;
// this allocates nothing.
func (e *ControllerEngine) nothingToStart(c *controller, seq uint64, ws []Watch) bool {
	s := e.mgr.GetScheme()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range ws {
		id, err := ws[i].id(s)
		if err != nil {
			return false
		}
		w, ok := c.watches[id]
		if !ok || w.kind.id.as != representationOf(ws[i].kind) || w.kind.current.Load() == nil {
			return false
		}
		e.askAgain(w, seq, &ws[i])
	}
	return true
}

// askAgain notes that a watch that is there was asked for once more.
func (e *ControllerEngine) askAgain(w *watch, seq uint64, r *Watch) {
	for {
		now := w.requested.Load()
		if seq <= now || w.requested.CompareAndSwap(now, seq) {
			break
		}
	}
	if !e.firstHandlers {
		w.handling.set(r)
	}
}

// startWatch makes a watch, or finds the one that is there.
func (e *ControllerEngine) startWatch(c *controller, seq uint64, r *Watch) (*watch, error) {
	id, err := r.id(e.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	w, isNew, err := e.addWatch(c, id, seq, r)
	if err != nil || !isNew {
		return w, err
	}

	// The controller calls back with its queue: at once if it runs, else when it
	// starts to.
	if err := c.ctrl.Watch(w); err != nil {
		c.mu.Lock()
		ours := c.watches[id] == w
		if ours {
			c.drop(w)
		}
		c.mu.Unlock()
		if ours {
			e.stopWatch(c, w)
		}
		return nil, errors.Wrapf(err, "cannot start %q watch for %q", id.Type, id.GVK)
	}
	e.changed()
	e.log.Debug("Started watching GVK", "controller", c.name, "watch-type", id.Type, "watched-gvk", id.GVK)
	return w, nil
}

func (e *ControllerEngine) addWatch(c *controller, id WatchID, seq uint64, r *Watch) (w *watch, isNew bool, err error) {
	as := representationOf(r.kind)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return nil, false, &notRunningError{name: c.name}
	}
	if w, ok := c.watches[id]; ok {
		if w.kind.id.as != as {
			return nil, false, errors.Wrapf(ErrConflictingWatch, "%q watch for %q is for %s objects, not for %s ones", id.Type, id.GVK, w.kind.id.as, as)
		}
		e.askAgain(w, seq, r)
		return w, false, nil
	}

	w = newWatch(c, id, r, e.clock.Now(), &e.set.delivered)
	w.requested.Store(seq)
	if w.kind, err = e.set.acquire(kindID{GroupVersionKind: id.GVK, as: as}, r.kind, w.sub); err != nil {
		return nil, false, errors.Wrapf(err, "cannot get informer for %q", id.GVK)
	}
	c.watches[id] = w
	e.metrics.WatchStarted(c.name, id.Type)
	return w, true, nil
}

// StopWatches stops watches of a controller, and waits until none of their
// handlers runs any more, as Stop does. It returns how many it stopped. Those
// that aren't there are ignored.
func (e *ControllerEngine) StopWatches(ctx context.Context, name string, ws ...WatchID) (int, error) {
	c, err := e.running(ctx, name)
	if err != nil {
		return 0, err
	}
	return e.stopWatchesIf(ctx, c, ws, func(*watch) bool { return true })
}

// stopWatchesIf stops those watches for which stop returns true. Nobody can ask
// for a watch between the question and its end.
func (e *ControllerEngine) stopWatchesIf(ctx context.Context, c *controller, ids []WatchID, stop func(*watch) bool) (int, error) {
	c.mu.Lock()
	ws := make([]*watch, 0, len(ids))
	for _, id := range ids {
		if w, ok := c.watches[id]; ok && stop(w) {
			c.drop(w)
			ws = append(ws, w)
		}
	}
	c.mu.Unlock()
	if len(ws) == 0 {
		return 0, nil
	}
	e.changed()

	from, _ := ctx.Value(sinkKey{}).(*watch)
	ctx, cancel := context.WithTimeout(ctx, e.drainTimeout)
	defer cancel()

	// All at once, before waiting for any.
	running := make(map[*watch]<-chan struct{}, len(ws))
	for _, w := range ws {
		if ch := e.stopWatch(c, w); ch != nil && w != from {
			running[w] = ch
		}
	}
	var errs []error
	for w, ch := range running {
		if err := await(ctx, ch); err != nil {
			errs = append(errs, errors.Wrapf(errors.Join(ErrNotDrained, err), "cannot wait for %q watch for %q", w.id.Type, w.id.GVK))
		}
	}
	return len(ws), join(errs)
}

// Shutdown stops all controllers, for good: none can be started afterwards. It
// waits for them as Stop does, for all at once. A state store keeps the watches
// that there were: what hasn't been saved is saved meanwhile, for at most three
// seconds. That it couldn't be is no error; see WithStateStore.
func (e *ControllerEngine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	first := !e.shutDown
	e.shutDown = true
	names := make([]string, 0, len(e.controllers))
	for name := range e.controllers {
		names = append(names, name)
	}
	e.mu.Unlock()

	// Before any is stopped for this.
	last, changes := e.watchesToSave()
	e.cancel()

	saved := make(chan struct{})
	go func() {
		defer close(saved)
		// A store is asked one thing at a time.
		e.background.Wait()
		if first {
			e.saveLast(ctx, last, changes)
		}
	}()

	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { errs[i] = e.Stop(ctx, name) })
	}
	wg.Wait()

	// Those that ended before may still be on their way out.
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.wg.Wait()
		<-saved
	}()
	errs = append(errs, errors.Wrap(e.drain(ctx, done), "cannot wait for controllers"))
	return join(errs)
}

// join returns the only error as it is.
func join(errs []error) error {
	var out []error
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return errors.Join(out...)
}
