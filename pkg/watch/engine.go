package watch

import (
	"cmp"
	"context"
	stderrors "errors"
	"maps"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A ControllerEngine starts and stops controllers and their watches. All its
// methods are safe for concurrent use. None holds a lock while it waits, and none
// outlives its context by more than a moment.
type ControllerEngine struct {
	mgr      manager.Manager
	infs     TrackingInformers
	kinds    *kindMap
	cached   client.Client
	uncached client.Client

	namespace      string
	serviceAccount string
	log            logging.Logger
	metrics        Metrics

	controllers controllers
}

// controllerKey is the context key of the controller that calls a reconcile or handler.
type controllerKey struct{ engine *ControllerEngine }

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
		kinds:          t.kinds,
		cached:         c,
		uncached:       nc,
		namespace:      "crossplane-system",
		serviceAccount: "crossplane",
		log:            logging.NewNopLogger(),
		metrics:        &NopMetrics{},
		controllers: controllers{
			started: make(map[string]*controller),
			ending:  make(map[string]<-chan struct{}),
		},
	}
	for _, fn := range o {
		fn(e)
	}
	e.kinds.log.Store(&e.log)
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
	return e.controllers.get(name) != nil
}

// callerOf returns the engine's controller of a name whose reconcile or handler makes a call, or nil.
func callerOf(ctx context.Context, e *ControllerEngine, name string) *controller {
	if c, _ := ctx.Value(controllerKey{e}).(*controller); c != nil && c.name == name {
		return c
	}
	return nil
}

// running returns the controller of a name, unless the call is made by a reconcile or
// handler of an earlier one: that isn't running.
func (e *ControllerEngine) running(ctx context.Context, name string) (*controller, error) {
	c, from := e.controllers.get(name), callerOf(ctx, e, name)
	if c == nil || from != nil && from != c {
		return nil, notRunning(name)
	}
	return c, nil
}

// Start starts a controller. It runs once the manager is elected, and, if there was one
// of that name, once that has ended. Start does nothing if the controller runs. Concurrent calls for
// one name may each make a controller; one of them is started. When the cache ends, all controllers
// are stopped.
func (e *ControllerEngine) Start(name string, o ...ControllerOption) error {
	if e.IsRunning(name) {
		return nil
	}
	co := &ControllerOptions{nc: kcontroller.NewUnmanaged}
	for _, fn := range o {
		fn(co)
	}
	co.runtime.SkipNameValidation = ptr.To(true)
	co.runtime.UsePriorityQueue = cmp.Or(co.runtime.UsePriorityQueue, ptr.To(false))
	if err := e.kinds.ended(); err != nil {
		return errors.Wrap(err, "cannot start controller")
	}
	ctrl, err := co.nc(name, co.runtime)
	if err != nil {
		return errors.Wrap(err, "cannot create new controller")
	}
	if is.Nil(ctrl) {
		return errors.New("cannot create new controller: got none")
	}
	c := &controller{
		name:    name,
		metrics: e.metrics,
		log:     e.log,
		done:    make(chan struct{}),
		watches: make(map[WatchID]*controllerWatch),
	}
	if err := ctrl.Watch(source.Func(c.start)); err != nil {
		return errors.Wrap(err, "cannot create new controller")
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(e.kinds.ctx, controllerKey{e}, c))
	if !e.controllers.add(c) {
		c.cancel()
		return nil
	}
	go func() {
		defer e.controllers.ended(c)
		c.run(e.mgr.Elected, ctrl, co.gc)
	}()
	return nil
}

// Stop stops a controller and its watches, and waits until its handlers and reconciles, whose
// context has ended, have returned. It waits until its context ends, at most
// 10 seconds: then the error matches ErrNotDrained, and the controller is stopped. Called from
// a reconcile or handler of the controller, with its context, Stop doesn't wait. Called from an
// earlier controller of that name, it does nothing. If the controller isn't running, Stop waits
// for handlers and reconciles of the one that was stopped before.
func (e *ControllerEngine) Stop(ctx context.Context, name string) error {
	from := callerOf(ctx, e, name)
	done := e.controllers.stop(name, from)
	if from != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	return errors.Wrapf(drain(ctx, done), "cannot wait for controller %q", name)
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
	waiting := make([]*controllerWatch, 0, len(ws))
	for i := range ws {
		w, err := c.add(e.kinds, e.mgr.GetScheme(), &ws[i]) //nolint:contextcheck // Handlers outlive the call.
		if err != nil {
			errs = append(errs, err)
		} else if w.kind.status.Load().informer == nil {
			waiting = append(waiting, w)
		}
	}
	// Callers may have the watches in a map, and write the error to a condition: its text must not
	// depend on their order.
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	slices.SortFunc(waiting, func(a, b *controllerWatch) int { return a.id.compare(b.id) })
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, w := range waiting {
		errs = append(errs, w.wait(ctx))
	}
	if c.ctx.Err() != nil { // The watches were stopped, too.
		return notRunning(name)
	}
	return stderrors.Join(errs...)
}

// StopWatches stops watches of a controller, and waits until their handlers have returned, as
// Stop does. Called from a handler, with its context, it doesn't wait. It returns how many watches it
// stopped. It doesn't wait for the handlers of watches that were stopped before.
func (e *ControllerEngine) StopWatches(ctx context.Context, name string, ws ...WatchID) (int, error) {
	c, err := e.running(ctx, name)
	if err != nil {
		return 0, err
	}
	return c.stopAndDrain(ctx, func(w *controllerWatch) bool { return slices.Contains(ws, w.id) })
}
