package watch_test

import (
	"cmp"
	"context"
	stderrors "errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// others are the lines that controller-runtime and client-go log.
var others logLines

func TestMain(m *testing.M) {
	// Reflectors log every fault that a test injects.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrllog.SetLogger(funcr.New(func(_, line string) {
		if !strings.Contains(line, "context canceled") { // An answer that was being read when its informer ended.
			others.Info(line)
		}
	}, funcr.Options{}))

	// Handlers of errors that are global remember when they were called last, and
	// wait until a while after that. Each bubble has a time of its own.
	utilruntime.ErrorHandlers = nil //nolint:reassign // It is meant to be set.
	goleak.VerifyTestMain(m)
}

// widget is the kind that most tests watch.
var widget = watchtest.NewKind("Widget")

// newAPIWithObject returns an API that serves widgets, with object one.
func newAPIWithObject() *watchtest.API {
	api := watchtest.NewAPI(widget)
	api.Put(widget.Object("one"), widget)
	return api
}

// newWatch returns a watch of a kind.
func newWatch(k watchtest.Kind, h handler.EventHandler) baseline.Watch {
	return baseline.Watch{Kind: k.New(), Type: watch.WatchTypeDependency, Handler: h}
}

// watchIDOf returns the identity of the watch that watchOf makes.
func watchIDOf(k watchtest.Kind) watch.WatchID {
	return watch.WatchID{Type: watch.WatchTypeDependency, GVK: k.GVK}
}

// withReconciler returns options for a controller with a reconciler and one worker.
func withReconciler(fn reconcile.Func) baseline.Options {
	return baseline.Options{Runtime: kcontroller.Options{Reconciler: fn, MaxConcurrentReconciles: 1}}
}

// idleOptions returns options for a controller that does nothing.
func idleOptions() baseline.Options {
	return withReconciler(
		func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil },
	)
}

// An engine has the methods that the baseline shares with Graft.
type engine interface {
	Start(name string, o baseline.Options) error
	Stop(ctx context.Context, name string) error
	IsRunning(name string) bool
	StartWatches(ctx context.Context, name string, ws ...baseline.Watch) error
	StopWatches(ctx context.Context, name string, ids ...watch.WatchID) (int, error)
	GetWatches(name string) ([]watch.WatchID, error)
	GarbageCollectCustomResourceInformers(ctx context.Context) error
}

// A testEnv is an engine with its API server, manager, cache, metrics and log.
type testEnv struct {
	engine

	t       testing.TB
	api     *watchtest.API
	mgr     *hookedManager
	infs    watch.TrackingInformers
	reader  client.Reader
	metrics *countingMetrics
	lines   *logLines

	// Nil for the baseline.
	ours  *watch.ControllerEngine
	cache *watch.InformerTrackingCache
}

// A hookedManager calls a function whenever it is asked for its scheme, or whether it
// is elected: engines ask between looking a controller up and doing something with it.
type hookedManager struct {
	*watchtest.Manager

	onScheme, onElected hook
}

// A hook is a function to call, if there is one.
type hook struct{ fn atomic.Pointer[func()] }

func (h *hook) set(fn func()) { h.fn.Store(&fn) }

func (h *hook) call() {
	if fn := h.fn.Load(); fn != nil && *fn != nil {
		(*fn)()
	}
}

func (m *hookedManager) GetScheme() *runtime.Scheme {
	m.onScheme.call()
	return m.Manager.GetScheme()
}

func (m *hookedManager) Elected() <-chan struct{} {
	m.onElected.call()
	return m.Manager.Elected()
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	try(extv1.AddToScheme(s))
	try(corev1.AddToScheme(s))
	return s
}

// mustSucceed ends the test if it gets an error.
func mustSucceed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// anError matches any error.
var anError = cmpopts.AnyError

// expectEqual fails the test unless want and got are equal. An error may wrap the one that is wanted.
func expectEqual(t testing.TB, reason, what string, want, got any) {
	t.Helper()
	testkit.ExpectEqual(t, reason, what, want, got, cmpopts.EquateErrors())
}

// expectBetween fails the test unless a number or time is in a range.
func expectBetween[T cmp.Ordered](t testing.TB, reason, what string, least, most, got T) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("\n%s\n%s: got %v, want %v to %v", reason, what, got, least, most)
	}
}

// expectWithin fails the test unless fn returns the error within d.
func expectWithin(t testing.TB, reason, what string, d time.Duration, want error, fn func() error) {
	t.Helper()
	took, err := timed(fn)
	expectEqual(t, reason, what, want, err)
	expectBetween(t, reason, what, 0, d, took)
}

// expectState fails the test unless the only watch of controller c is in a state, with an error
// if it is Dormant or Degraded.
func expectState(t *testing.T, r *testEnv, reason, what string, want watch.State) {
	t.Helper()
	s := stateOf(t, r)
	if bad := want == watch.StateDormant || want == watch.StateDegraded; s.State != want || bad != (s.Error != "") {
		t.Errorf("\n%s\n%s: the watch is %s (%s), want %s", reason, what, s.State, s.Error, want)
	}
}

// eventually waits until cond is true. Between looks it lets 10 ms pass, which
// in a bubble take no time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !within(time.Minute, cond) {
		t.Fatalf("timed out waiting: %s", what)
	}
}

// within reports whether cond became true in time.
func within(d time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return cond()
		}
	}
	return true
}

// advance moves the time of a bubble, and waits until its goroutines are blocked.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// timed returns the duration and the error of fn.
func timed(fn func() error) (time.Duration, error) {
	start := time.Now()
	err := fn()
	return time.Since(start), err
}

// background runs fn, and returns a channel with its error.
func background(fn func() error) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- fn() }()
	return ch
}

// bubble runs fn in a synctest bubble: it sees a clock that moves only while
// every goroutine waits for a channel or the clock. Should a goroutine wait for
// a lock while its holder waits for something else, time stands still, until the
// timeout of go test.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		leaks := goleak.IgnoreCurrent()

		// Registered first, so that it looks when all else is cleaned up.
		t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
		fn(t)
	})
}

// inBubble runs fn as a subtest in a bubble.
func inBubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, fn) })
}

// countingMetrics are Metrics that count.
type countingMetrics struct{ controllersStarted, controllersStopped, watchesStarted, watchesStopped atomic.Int64 }

func (c *countingMetrics) ControllerStarted(string)             { c.controllersStarted.Add(1) }
func (c *countingMetrics) ControllerStopped(string)             { c.controllersStopped.Add(1) }
func (c *countingMetrics) WatchStarted(string, watch.WatchType) { c.watchesStarted.Add(1) }
func (c *countingMetrics) WatchStopped(string, watch.WatchType) { c.watchesStopped.Add(1) }

// running returns started minus stopped.
func (c *countingMetrics) running() (controllers, watches int64) {
	return c.controllersStarted.Load() - c.controllersStopped.Load(), c.watchesStarted.Load() - c.watchesStopped.Load()
}

// A recorder is a handler that records its events, and enqueues the object.
type recorder struct {
	handler.Funcs

	before hook // Called at the start of each event.

	mu     sync.Mutex
	events []recorded
}

// newRecorder returns a recorder that calls fn at the start of each event.
func newRecorder(fn func()) *recorder {
	r := &recorder{}
	r.before.set(fn)
	return r
}

type recorded struct {
	op      string
	key     client.ObjectKey
	name    string
	uid     string
	initial bool
	unknown bool
}

func (r *recorder) add(e recorded, q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
	r.before.call()
	e.key, e.name, e.uid = client.ObjectKeyFromObject(o), o.GetName(), string(o.GetUID())
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
}

func (r *recorder) Create(
	_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	r.add(recorded{op: "create", initial: e.IsInInitialList}, q, e.Object)
}

func (r *recorder) Update(
	_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	r.add(recorded{op: "update"}, q, e.ObjectNew)
}

func (r *recorder) Delete(
	_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	r.add(recorded{op: "delete", unknown: e.DeleteStateUnknown}, q, e.Object)
}

// all returns the events so far.
func (r *recorder) all() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// count returns how many events of an object there were, of one operation or of
// all if op is empty.
func (r *recorder) count(op, name string) int {
	n := 0
	for _, e := range r.all() {
		if (op == "" || e.op == op) && e.name == name {
			n++
		}
	}
	return n
}

// forget removes all events.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// An overlap counts how often a key is reconciled at once.
type overlap struct {
	mu   sync.Mutex
	now  map[reconcile.Request]int
	most int
}

func (o *overlap) enter(r reconcile.Request) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil {
		o.now = make(map[reconcile.Request]int)
	}
	o.now[r]++
	o.most = max(o.most, slices.Max(slices.Collect(maps.Values(o.now))))
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.now[r]--
	}
}

func (o *overlap) result() (most, running int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.now {
		running += n
	}
	return o.most, running
}

// startCache starts a cache, waits until it has, and stops it when the test ends.
func startCache(t testing.TB, c cache.Cache) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := background(func() error { return c.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		expectEqual(t, "", "cache", nil, <-done)
	})
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache doesn't start")
	}
}

// funcs returns the recorder as a handler of client-go.
func (r *recorder) funcs() kcache.ResourceEventHandler {
	record := func(e recorded, obj any) {
		if o, ok := obj.(client.Object); ok {
			r.add(e, nil, o)
		}
	}
	return kcache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { record(recorded{op: "create", initial: initial}, o) },
		UpdateFunc: func(_, o any) { record(recorded{op: "update"}, o) },
		DeleteFunc: func(o any) {
			u, unknown := o.(kcache.DeletedFinalStateUnknown)
			if unknown {
				o = u.Obj
			}
			record(recorded{op: "delete", unknown: unknown}, o)
		},
	}
}

// newPartialMetadata returns an object for the metadata of a kind.
func newPartialMetadata(k watchtest.Kind) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{}
	p.SetGroupVersionKind(k.GVK)
	return p
}

// A logLines remembers the lines that aren't for debugging.
type logLines struct {
	mu    sync.Mutex
	lines []string

	before hook // Called at each line, also for debugging.
}

func (l *logLines) Info(msg string, kvs ...any) {
	l.before.call()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(append([]any{msg}, kvs...)...))
}

func (l *logLines) Debug(string, ...any)             { l.before.call() }
func (l *logLines) WithValues(...any) logging.Logger { return l }

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// newBaselineEnv returns an environment with an engine of the shape that ours replaces, on
// controller-runtime's own cache.
func newBaselineEnv(t testing.TB, api *watchtest.API) *testEnv {
	t.Helper()
	return newBaselineEnvWith(t, api, func() baseline.Lock { return &baseline.WaitLock{} })
}

// newBaselineEnvWith takes a function that makes locks. Locks of package sync work only outside
// of a bubble.
func newBaselineEnvWith(t testing.TB, api *watchtest.API, newLock func() baseline.Lock) *testEnv {
	t.Helper()
	ca := newPlainCache(t, api.Config())
	startCache(t, ca)
	infs := baseline.NewCache(ca, scheme(), newLock())
	r := &testEnv{
		t: t, api: api, infs: infs, reader: infs,
		mgr:     &hookedManager{Manager: watchtest.NewManager(api.Config(), scheme())},
		metrics: &countingMetrics{}, lines: &logLines{},
	}
	r.engine = baseline.NewEngine(r.mgr, infs, r.metrics, newLock)

	// Controllers that wait for an election would wait for ever.
	t.Cleanup(r.mgr.Elect)
	return r
}

// newPlainCache returns controller-runtime's cache with its own mapper.
func newPlainCache(t testing.TB, cfg *rest.Config) cache.Cache {
	t.Helper()
	h, err := rest.HTTPClientFor(cfg)
	mustSucceed(t, err)
	t.Cleanup(h.CloseIdleConnections)
	m, err := apiutil.NewDynamicRESTMapper(cfg, h)
	mustSucceed(t, err)
	ca, err := cache.New(cfg, cache.Options{HTTPClient: h, Scheme: scheme(), Mapper: m})
	mustSucceed(t, err)
	return ca
}

// start a controller, and stop it when the test ends.
func (r *testEnv) start(name string, o baseline.Options) {
	r.t.Helper()
	mustSucceed(r.t, r.Start(name, o))
	r.t.Cleanup(func() {
		// The baseline may fail to, or have nothing to stop. Its controllers end when
		// their queues do.
		_ = r.Stop(context.Background(), name)
	})
}

// read a kind, so that it has a synced informer.
func (r *testEnv) read(ctx context.Context, k watchtest.Kind, name string) error {
	return r.reader.Get(ctx, k.Key(name), k.New())
}

// startController starts controller c.
func (r *testEnv) startController() {
	r.t.Helper()
	r.mgr.Elect()
	r.start("c", idleOptions())
}

// watchFor starts watches, and waits for at most so long.
func (r *testEnv) watchFor(d time.Duration, name string, ws ...baseline.Watch) error {
	return withTimeout(r.t, d, func(ctx context.Context) error { return r.StartWatches(ctx, name, ws...) })
}

// readFor reads for at most so long.
func (r *testEnv) readFor(d time.Duration, k watchtest.Kind, name string) error {
	return withTimeout(r.t, d, func(ctx context.Context) error { return r.read(ctx, k, name) })
}

// stopFor stops controller c, and waits for at most so long.
func (r *testEnv) stopFor(d time.Duration) error {
	return withTimeout(r.t, d, func(ctx context.Context) error { return r.Stop(ctx, "c") })
}

// list a kind.
func (r *testEnv) list(ctx context.Context, k watchtest.Kind) error {
	return r.reader.List(ctx, k.NewList())
}

// informers returns the cache that keeps the informers: controller-runtime's, or
// ours.
func (r *testEnv) informers() cache.Informers {
	if c, ok := r.infs.(*baseline.Cache); ok {
		return c.Cache
	}
	return r.infs
}

// watch starts watches.
func (r *testEnv) watch(name string, ws ...baseline.Watch) {
	r.t.Helper()
	mustSucceed(r.t, r.StartWatches(r.t.Context(), name, ws...))
}

// mustStopWatches stops watches of the controller c.
func (r *testEnv) mustStopWatches(ids ...watch.WatchID) {
	r.t.Helper()
	_, err := r.StopWatches(r.t.Context(), "c", ids...)
	mustSucceed(r.t, err)
}

// stop a controller.
func (r *testEnv) stop(name string) {
	r.t.Helper()
	mustSucceed(r.t, r.Stop(r.t.Context(), name))
}

// watchCRDs until the test ends.
func (r *testEnv) watchCRDs() {
	r.t.Helper()
	mustSucceed(r.t, r.GarbageCollectCustomResourceInformers(r.t.Context()))
}

// mustRead object one of a kind that is healthy.
func (r *testEnv) mustRead(k watchtest.Kind) {
	r.t.Helper()
	mustSucceed(r.t, r.read(r.t.Context(), k, "one"))
}

// informer returns a kind's informer.
func (r *testEnv) informer(k watchtest.Kind) cache.Informer {
	r.t.Helper()
	inf, err := r.infs.GetInformer(r.t.Context(), k.New())
	mustSucceed(r.t, err)
	return inf
}

// handle adds a handler to a kind's informer.
func (r *testEnv) handle(k watchtest.Kind, rec *recorder) (cache.Informer, kcache.ResourceEventHandlerRegistration) {
	r.t.Helper()
	inf := r.informer(k)
	reg, err := inf.AddEventHandler(rec.funcs())
	mustSucceed(r.t, err)
	return inf, reg
}

// failed reports whether failures of a kind were counted.
func (r *testEnv) failed() bool {
	return slices.ContainsFunc(r.shown(), func(l string) bool {
		return strings.HasPrefix(l, "graft_watch_failures_total") && !strings.HasSuffix(l, " 0")
	})
}

// remove a kind's informer.
func (r *testEnv) remove(k watchtest.Kind) {
	r.t.Helper()
	mustSucceed(r.t, r.infs.RemoveInformer(r.t.Context(), k.New()))
}

// define a kind, with object one.
func (r *testEnv) define(k watchtest.Kind) {
	r.api.Define(k)
	r.api.Put(k.Object("one"), k)
}

// await a request that isn't answered.
func (r *testEnv) await(m watchtest.Match) {
	r.t.Helper()
	mustSucceed(r.t, r.api.AwaitOpen(r.t.Context(), m))
}

// newGraftEnv returns an environment with Graft's engine and cache.
func newGraftEnv(t testing.TB, api *watchtest.API, co ...watch.CacheOption) *testEnv {
	t.Helper()
	return newGraftEnvWith(t, api, api.Config(), cache.Options{}, co...)
}

func newGraftEnvWith(
	t testing.TB, api *watchtest.API, cfg *rest.Config, o cache.Options, co ...watch.CacheOption,
) *testEnv {
	t.Helper()
	o.Scheme = scheme()
	ca, err := watch.NewCache(cfg, o, co...)
	mustSucceed(t, err)
	r := newGraftEnvOn(t, api, cfg, ca)
	startCache(t, ca)
	return r
}

// newGraftEnvOn returns an environment with Graft's engine on a cache.
func newGraftEnvOn(t testing.TB, api *watchtest.API, cfg *rest.Config, ca *watch.InformerTrackingCache) *testEnv {
	t.Helper()
	live, err := client.New(cfg, client.Options{Scheme: scheme()})
	mustSucceed(t, err)
	cached, err := client.New(cfg, client.Options{
		Scheme: scheme(), Mapper: live.RESTMapper(),
		Cache: &client.CacheOptions{Reader: ca, Unstructured: true},
	})
	mustSucceed(t, err)
	r := &testEnv{
		t: t, api: api, infs: ca, reader: ca, cache: ca,
		mgr:     &hookedManager{Manager: watchtest.NewManager(cfg, scheme())},
		metrics: &countingMetrics{}, lines: &logLines{},
	}
	r.ours = watch.New(r.mgr, ca, cached, live, watch.WithMetrics(r.metrics), watch.WithLogger(r.lines))
	r.engine = graftEngine{r.ours}
	t.Cleanup(func() {
		expectEqual(t, "", "Stop(...)", nil, stopAll(context.Background(), r.ours))
	})
	return r
}

// stopAll stops all controllers of an engine, and waits for those that were stopped.
func stopAll(ctx context.Context, e *watch.ControllerEngine) error {
	s := e.Snapshot()
	errs := make([]error, 0, len(s.Controllers))
	for _, c := range s.Controllers {
		errs = append(errs, e.Stop(ctx, c.Name))
	}
	for _, name := range s.Ending {
		errs = append(errs, e.Stop(ctx, name))
	}
	return stderrors.Join(errs...)
}

// A graftEngine is our engine in the terms that it shares with the baseline.
type graftEngine struct{ *watch.ControllerEngine }

func (e graftEngine) Start(name string, o baseline.Options) error {
	opts := []watch.ControllerOption{watch.WithRuntimeOptions(o.Runtime)}
	if o.NewController != nil {
		opts = append(opts, watch.WithNewControllerFn(o.NewController))
	}
	if o.Collector != nil {
		opts = append(opts, watch.WithWatchGarbageCollector(o.Collector))
	}
	return e.ControllerEngine.Start(name, opts...)
}

func (e graftEngine) StartWatches(ctx context.Context, name string, ws ...baseline.Watch) error {
	return e.ControllerEngine.StartWatches(ctx, name, watchesFor(ws)...)
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onCreate returns a handler that calls fn with the context and the object of each
// creation.
func onCreate(fn func(ctx context.Context, o client.Object)) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) { fn(ctx, e.Object) },
	}
}

// newRunningEnv returns an environment in which controller c runs.
func newRunningEnv(t testing.TB, api *watchtest.API, co ...watch.CacheOption) *testEnv {
	t.Helper()
	r := newGraftEnv(t, api, co...)
	r.startController()
	return r
}

// newWatchingEnv returns an environment in which controller c watches one widget.
func newWatchingEnv(t *testing.T, crds bool) (*testEnv, *recorder) {
	t.Helper()
	r := newRunningEnv(t, newAPIWithObject())
	if crds {
		r.watchCRDs()
	}
	rec := &recorder{}
	r.watch("c", newWatch(widget, rec))
	advance(time.Second)
	return r, rec
}

// requestsIn counts requests while time passes.
func requestsIn(d time.Duration, api *watchtest.API, m watchtest.Match) int {
	before := len(api.Requests(m))
	advance(d)
	return len(api.Requests(m)) - before
}

// withTimeout calls fn with a context that ends after d.
func withTimeout(t testing.TB, d time.Duration, fn func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return fn(ctx)
}

// manyKinds returns kinds that the API serves.
func manyKinds(api *watchtest.API, n int) []watchtest.Kind {
	ks := make([]watchtest.Kind, n)
	for i := range ks {
		ks[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
		api.Define(ks[i])
	}
	return ks
}

// watchesOf returns a watch of each kind.
func watchesOf(ks []watchtest.Kind) []baseline.Watch {
	ws := make([]baseline.Watch, len(ks))
	for i, k := range ks {
		ws[i] = newWatch(k, &handler.EnqueueRequestForObject{})
	}
	return ws
}

// watchesFor returns the watches as our engine takes them.
func watchesFor(ws []baseline.Watch) []watch.Watch {
	out := make([]watch.Watch, len(ws))
	for i, w := range ws {
		out[i] = watch.WatchFor(w.Kind, w.Type, w.Handler, w.Predicates...)
	}
	return out
}
