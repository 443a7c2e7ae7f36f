package watch_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestMain(m *testing.M) {
	// Reflectors tell of every fault that a test injects.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrllog.SetLogger(logr.Discard())

	// Handlers of errors that are global remember when they were called last, and
	// wait until a while after that. Each bubble has a time of its own.
	utilruntime.ErrorHandlers = nil //nolint:reassign // It's what it is there for.
	goleak.VerifyTestMain(m)
}

// watchOf returns a spec with a type that is used for nothing else.
func watchOf(k watchtest.Kind, h handler.EventHandler) baseline.Watch {
	return baseline.Watch{Kind: k.New(), Type: watch.WatchTypeDependency, Handler: h}
}

// idOf returns the identity of the watch that watchOf makes.
func idOf(k watchtest.Kind) watch.WatchID {
	return watch.WatchID{Type: watch.WatchTypeDependency, GVK: k.GVK}
}

// reconciling returns options for a controller with one worker.
func reconciling(fn reconcile.Func) baseline.Options {
	return baseline.Options{Runtime: kcontroller.Options{Reconciler: fn, MaxConcurrentReconciles: 1}}
}

// idle returns options for a controller that does nothing.
func idle() baseline.Options {
	return reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
}

// An engine is what the baseline and ours have in common.
type engine interface {
	Start(name string, o baseline.Options) error
	Stop(ctx context.Context, name string) error
	IsRunning(name string) bool
	StartWatches(ctx context.Context, name string, ws ...baseline.Watch) error
	StopWatches(ctx context.Context, name string, ids ...watch.WatchID) (int, error)
	GetWatches(name string) ([]watch.WatchID, error)
	GarbageCollectCustomResourceInformers(ctx context.Context) error
}

// A rig is an engine with all that it needs.
type rig struct {
	engine

	t       *testing.T
	api     *watchtest.API
	mgr     *hooked
	infs    watch.TrackingInformers
	reader  client.Reader
	metrics *counts

	// Of ours only, nil for the baseline.
	ours  *watch.ControllerEngine
	cache *watch.InformerTrackingCache
	lines *logLines
}

// A hooked manager calls a function whenever it is asked for its scheme, or whether it
// is elected: engines ask between looking a controller up and doing something with it.
type hooked struct {
	*watchtest.Manager

	mu                  sync.Mutex
	onScheme, onElected func()
}

func (m *hooked) call(fn *func()) {
	m.mu.Lock()
	f := *fn
	m.mu.Unlock()
	if f != nil {
		f()
	}
}

func (m *hooked) set(fn *func(), f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*fn = f
}

func (m *hooked) GetScheme() *runtime.Scheme {
	m.call(&m.onScheme)
	return m.Manager.GetScheme()
}

func (m *hooked) Elected() <-chan struct{} {
	m.call(&m.onElected)
	return m.Manager.Elected()
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{extv1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
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

// pass lets time pass, and then everything that it woke up come to rest. Only in
// a bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// timed returns what fn returned, and how long it took.
func timed(fn func() error) (time.Duration, error) {
	start := time.Now()
	err := fn()
	return time.Since(start), err
}

// background runs fn, and returns a channel with what it returned.
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

// counts is a Metrics that counts.
type counts struct {
	mu                                                                     sync.Mutex
	controllersStarted, controllersStopped, watchesStarted, watchesStopped int
}

func (c *counts) add(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *counts) ControllerStarted(string)             { c.add(&c.controllersStarted) }
func (c *counts) ControllerStopped(string)             { c.add(&c.controllersStopped) }
func (c *counts) WatchStarted(string, watch.WatchType) { c.add(&c.watchesStarted) }
func (c *counts) WatchStopped(string, watch.WatchType) { c.add(&c.watchesStopped) }

// running returns started minus stopped.
func (c *counts) running() (controllers, watches int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.controllersStarted - c.controllersStopped, c.watchesStarted - c.watchesStopped
}

// A recorder is a handler that remembers what it was told, and enqueues the
// object.
type recorder struct {
	handler.Funcs

	mu     sync.Mutex
	events []recorded

	// before, if set, is called at the start of each event.
	before func()
}

type recorded struct {
	op      string
	name    string
	uid     string
	initial bool
	unknown bool
}

func (r *recorder) add(e recorded, q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
	r.mu.Lock()
	before := r.before
	r.mu.Unlock()
	if before != nil {
		before()
	}
	e.name, e.uid = o.GetName(), string(o.GetUID())
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
}

func (r *recorder) Create(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	r.add(recorded{op: "create", initial: e.IsInInitialList}, q, e.Object)
}

func (r *recorder) Update(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	r.add(recorded{op: "update"}, q, e.ObjectNew)
}

func (r *recorder) Delete(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
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

// forget what was recorded.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// An overlap says how often a key was reconciled at once, at most.
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
		if err := <-done; err != nil {
			t.Errorf("cache: %v", err)
		}
	})
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache doesn't start")
	}
}

// funcs returns the recorder as a handler of client-go.
func (r *recorder) funcs() kcache.ResourceEventHandler {
	return baseline.HandlerFuncs(context.Background(), nil, r)
}

// partial returns an object that asks for the metadata of a kind only.
func partial(k watchtest.Kind) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{}
	p.SetGroupVersionKind(k.GVK)
	return p
}

// A logLines remembers the lines that aren't for debugging.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Info(msg string, kvs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(append([]any{msg}, kvs...)...))
}

func (l *logLines) Debug(string, ...any)             {}
func (l *logLines) WithValues(...any) logging.Logger { return l }

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
