//go:build integration && churn

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

const (
	churnKinds       = 50
	churnControllers = 8
	churnHangs       = 3

	// busy is how long a call may take that has nothing to wait for, on a busy machine.
	busy = 5 * time.Second
)

// 50 kinds come and go, also with another scope and plural, while objects of them
// are written, controllers and watches are started and stopped, and the API
// server hangs at times. In the end every watch that was not stopped knows
// exactly the objects that exist. Stopped watches got no event after their stop.
func TestWatchChurn(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("GRAFT_WATCH_CHURN"), "2m"))
	must(t, "GRAFT_WATCH_CHURN", err)
	seed := seedOf(t, uint64(time.Now().UnixNano()))
	c := newChurn(t)
	churning, enough := context.WithTimeout(t.Context(), duration)
	defer enough()
	var wg sync.WaitGroup
	actors := uint64(0)
	begin := func(every time.Duration, act func(ctx context.Context, d *rand.Rand)) {
		// A source of its own makes each actor's choices the seed's alone.
		actors++
		d := rand.New(rand.NewPCG(seed, actors))
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-churning.Done():
					return
				case <-tick.C:
					act(t.Context(), d) // What was begun is finished.
				}
			}
		})
	}
	for range 4 {
		begin(200*time.Millisecond, c.redefine)
		begin(25*time.Millisecond, c.write)
	}
	for _, a := range c.controllers {
		begin(250*time.Millisecond, a.act)
	}

	// The last hang and the requests that it delays end before the churn does.
	begin(duration/(churnHangs+1), c.hang)
	wg.Wait()
	t.Logf("definitions were created %d times, watches started %d times; %d hangs, %d events, %d reconciles",
		c.defined.Load(), c.watched.Load(), c.hangs.Load(), c.events.Load(), c.reconciles.Load())
	watches := 0
	eventually(t, "each watch knows what there is, and its state whether the kind is there", func() (bool, string) {
		var diff string
		watches, diff = c.compare(t.Context())
		return diff == "", "-want, +got:\n" + diff
	})
	if watches < churnControllers {
		t.Errorf("only %d watches are left, too few to prove anything: lengthen the churn", watches)
	}
	for _, a := range c.controllers {
		must(t, "Stop()", a.stop(t.Context()))
	}

	// What comes late has its chance while everything is deleted.
	c.all(t, func(s *slot) {
		if k := s.served.Load(); k != nil {
			c.until(t.Context(), "delete all "+k.Plural, func(ctx context.Context) error {
				return c.of(*k).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			})
		}
	})
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	must(t, "in the churn", errors.Join(c.errs...))

	// One line when a kind begins to fail, be it because it went or because the API
	// server hangs, and a few of the manager's at its end.
	if limit := int(c.defined.Load()) + churnKinds*int(c.hangs.Load()) + 20; len(c.lines) > limit {
		t.Errorf("%d log lines, more than %d:\n%s", len(c.lines), limit, strings.Join(c.lines, "\n"))
	}
}

type churn struct {
	api         *dynamic.DynamicClient // It has no cache, so what it sees isn't out of date.
	engine      *watch.ControllerEngine
	kinds       []*slot
	controllers []*churned
	end         func()

	defined, hangs, watched, events, reconciles atomic.Int64

	mu    sync.Mutex
	errs  []error
	lines []string
}

type slot struct {
	changing sync.Mutex // Held while the kind is defined, or goes, and to change next.
	next     watchtest.Kind
	served   atomic.Pointer[watchtest.Kind] // Nil if it isn't.
}

func newChurn(t *testing.T) *churn {
	t.Helper()
	c := &churn{}
	cfg := plane.Config()
	cfg.Timeout = busy // The API server hangs.
	var err error
	c.api, err = dynamic.NewForConfig(cfg)
	must(t, "dynamic.NewForConfig()", err)
	t.Cleanup(func() { must(t, "Resume()", plane.Resume()) })

	// Reflectors log with klog, even if the cache has a logger.
	logger := funcr.New(func(_, args string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines = append(c.lines, args)
	}, funcr.Options{})
	klog.SetLogger(logger)
	t.Cleanup(klog.ClearLogger)
	s := kruntime.NewScheme()
	must(t, "AddToScheme()", extv1.AddToScheme(s))
	var tracking *watch.InformerTrackingCache
	m, err := ctrl.NewManager(plane.Config(), ctrl.Options{
		Scheme:  s,
		Logger:  logger,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			var err error
			tracking, err = watch.NewCache(cfg, o, watch.WithLinger(time.Second), watch.WithReadLinger(time.Second))
			return tracking, err
		},
	})
	must(t, "NewManager()", err)
	c.engine = watch.New(m, tracking, m.GetClient(), uncached(t, m), watch.WithLogger(logging.NewLogrLogger(logger)))
	c.end = background(t, m.Start)
	must(t, "GarbageCollectCustomResourceInformers()", c.engine.GarbageCollectCustomResourceInformers(t.Context()))
	for i := range churnKinds {
		k := watchtest.NewKind(fmt.Sprintf("Churn%d", i))
		k.GVK.Group, k.Cluster = "churn.example.org", i%2 == 0
		c.kinds = append(c.kinds, &slot{next: k})
	}
	for i := range churnControllers {
		c.controllers = append(
			c.controllers,
			&churned{churn: c, name: fmt.Sprintf("churn/%d", i), listeners: map[watch.WatchID]*listener{}},
		)
	}
	c.all(t, func(s *slot) { c.define(t.Context(), s) })
	return c
}

func (c *churn) failed(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *churn) all(t *testing.T, do func(s *slot)) {
	t.Helper()
	inParallel(t, lanes, len(c.kinds), func(i int) error { do(c.kinds[i]); return nil })
}

func (c *churn) of(k watchtest.Kind) dynamic.ResourceInterface {
	return c.api.Resource(k.GVR()).Namespace(k.Object("").GetNamespace())
}

func (c *churn) until(ctx context.Context, what string, do func(ctx context.Context) error) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, lookEvery, patience, true, func(ctx context.Context) (bool, error) {
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil {
		c.failed("cannot %s: %w: %w", what, err, last)
	}
}

func (c *churn) define(ctx context.Context, s *slot) {
	k := s.next
	c.until(ctx, "define "+k.Plural, func(ctx context.Context) error {
		_, err := c.of(watchtest.CRD()).Create(ctx, k.Definition(false, true), metav1.CreateOptions{})
		if err == nil || kerrors.IsAlreadyExists(err) {
			_, err = c.of(k).List(ctx, metav1.ListOptions{Limit: 1})
		}
		return err
	})
	c.defined.Add(1)
	s.served.Store(&k)
}

// What deletes the objects in the API server forgets a definition whose status it
// couldn't write because of a conflict, and is reminded in five minutes, or by a change.
func (c *churn) undefine(ctx context.Context, k watchtest.Kind) {
	crds, name := c.of(watchtest.CRD()), k.CRDName()
	c.until(ctx, "delete "+name, func(ctx context.Context) error {
		reminder := fmt.Appendf(nil, `{"metadata":{"annotations":{"reminded":"%d"}}}`, time.Now().UnixNano())
		_, err := crds.Patch(ctx, name, types.MergePatchType, reminder, metav1.PatchOptions{})
		if err == nil {
			err = crds.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err == nil {
			err = wait.PollUntilContextTimeout(ctx, lookEvery, 2*busy, true, func(ctx context.Context) (bool, error) {
				_, err := crds.Get(ctx, name, metav1.GetOptions{})
				return false, err
			})
		}
		return client.IgnoreNotFound(err)
	})
}

// redefine takes a kind away, or brings one back, maybe served otherwise. One in
// three that goes comes back at once.
func (c *churn) redefine(ctx context.Context, d *rand.Rand) {
	s := c.kinds[d.IntN(len(c.kinds))]
	atOnce, plural, scope := d.IntN(3) == 0, d.IntN(2) == 0, d.IntN(2) == 0
	if !s.changing.TryLock() {
		return
	}
	defer s.changing.Unlock()
	if k := s.served.Swap(nil); k != nil {
		c.undefine(ctx, *k)

		// The API server can neither list nor delete an object that a late create
		// leaves under the same plural with another scope.
		if plural {
			s.next.Plural, s.next.Cluster = fmt.Sprintf("%ss%d", strings.ToLower(k.GVK.Kind), c.defined.Load()), scope
		}
		if !atOnce {
			return
		}
	}
	c.define(ctx, s)
}

func (c *churn) write(ctx context.Context, d *rand.Rand) {
	s := c.kinds[d.IntN(len(c.kinds))]
	name, deletes, value := fmt.Sprintf("object-%d", d.IntN(6)), d.IntN(4) == 0, d.Int()
	k := s.served.Load()
	switch {
	case k == nil:
	case deletes:
		_ = c.of(*k).Delete(ctx, name, metav1.DeleteOptions{})
	default:
		o := k.Object(name)
		o.Object["spec"] = map[string]any{"value": fmt.Sprint(value)}
		_, _ = c.of(*k).Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: "churn", Force: true})
	}
}

func (c *churn) hang(ctx context.Context, d *rand.Rand) {
	if c.hangs.Load() == churnHangs {
		return
	}
	c.hangs.Add(1)
	err := plane.Pause()
	paused, cancel := context.WithTimeout(ctx, time.Duration(2+d.IntN(4))*time.Second)
	defer cancel()
	<-paused.Done()
	if err := errors.Join(err, plane.Resume()); err != nil {
		c.failed("%w", err)
	}
}

// known lists the objects that a watch has seen: their versions by their UIDs.
type known struct {
	State   watch.State
	Objects map[types.UID]string
}

func (c *churn) compare(ctx context.Context) (watches int, diff string) {
	want, got := map[string]known{}, map[string]known{}
	states := map[string]watch.State{}
	for _, s := range c.engine.Snapshot().Controllers {
		for _, w := range s.Watches {
			states[s.Name+w.GVK.Kind] = w.State
			got[s.Name+w.GVK.Kind] = known{State: w.State}
		}
	}
	for i, s := range c.kinds {
		is := known{State: watch.StateDormant, Objects: map[types.UID]string{}}
		if k := s.served.Load(); k != nil {
			list, err := c.of(*k).List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err.Error()
			}
			is.State = watch.StateActive
			for _, o := range list.Items {
				is.Objects[o.GetUID()] = o.GetResourceVersion()
			}
		}
		for _, a := range c.controllers {
			if l := a.listeners[c.id(i)]; l != nil {
				key := a.name + s.next.GVK.Kind
				want[key], got[key] = is, known{State: states[key], Objects: l.heard()}
			}
		}
	}
	return len(want), gocmp.Diff(want, got)
}

func (c *churn) id(i int) watch.WatchID {
	return watch.WatchID{Type: watch.WatchTypeDependency, GVK: c.kinds[i].next.GVK}
}

// A churned controller is started and stopped by one actor, which knows the watches that must run.
type churned struct {
	*churn

	name      string
	over      *atomic.Bool // That it was stopped, since it was last started.
	listeners map[watch.WatchID]*listener
}

func (a *churned) act(ctx context.Context, d *rand.Rand) {
	ids := make([]watch.WatchID, 1+d.IntN(4))
	for i := range ids {
		ids[i] = a.id(d.IntN(len(a.kinds)))
	}
	began, limit := time.Now(), busy
	var err error
	what := d.IntN(16)
	switch {
	case a.over == nil:
		err = a.start()
	case what == 0:
		err = a.stop(ctx)
	case what < 5:
		_, err = a.engine.StopWatches(ctx, a.name, ids...)
		for _, id := range ids {
			a.stopped(id)
		}
	default:
		limit += busy
		err = a.startWatches(ctx, ids)
	}
	if took := time.Since(began); err != nil || took > limit {
		a.failed("%s: call %d took %s: %w", a.name, what, took, err)
	}
}

func (a *churned) start() error {
	over := &atomic.Bool{}
	a.over = over
	return a.engine.Start(a.name, watch.WithRuntimeOptions(controller.Options{Reconciler: reconcile.Func(func(
		context.Context, reconcile.Request,
	) (reconcile.Result, error) {
		if a.reconciles.Add(1); over.Load() {
			a.failed("%s reconciles after it was stopped", a.name)
		}
		return reconcile.Result{}, nil
	})}))
}

func (a *churned) stop(ctx context.Context) error {
	err := a.engine.Stop(ctx, a.name)
	if a.over != nil {
		a.over.Store(true)
		a.over = nil
	}
	for id := range maps.Clone(a.listeners) {
		a.stopped(id)
	}
	return err
}

// stopped says that from now on a watch may get no event.
func (a *churned) stopped(id watch.WatchID) {
	if l := a.listeners[id]; l != nil {
		l.stopped.Store(true)
		delete(a.listeners, id)
	}
}

func (a *churned) startWatches(ctx context.Context, ids []watch.WatchID) error {
	ws := make([]watch.Watch, len(ids))
	for i, id := range ids {
		if a.listeners[id] == nil {
			a.listeners[id] = &listener{churned: a, known: map[types.UID]string{}}
			a.watched.Add(1)
		}
		ws[i] = watch.WatchFor(watchtest.Kind{GVK: id.GVK}.New(), id.Type, a.listeners[id].handler())
	}

	// A kind that isn't there, or an API server that hangs, is nothing to wait
	// for: the watch begins to deliver when it can.
	ctx, cancel := context.WithTimeout(ctx, busy)
	defer cancel()
	err := a.engine.StartWatches(ctx, a.name, ws...)
	for _, bad := range []error{
		watch.ErrNotRunning, watch.ErrInvalidWatch, watch.ErrConflictingWatch, watch.ErrForbidden,
	} {
		if errors.Is(err, bad) {
			return err
		}
	}
	return nil
}

// A listener records the events of one watch.
type listener struct {
	*churned

	stopped atomic.Bool

	mu    sync.Mutex
	known map[types.UID]string
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (l *listener) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q requests) { l.tell(e.Object, false, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q requests) { l.tell(e.ObjectNew, false, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q requests) { l.tell(e.Object, true, q) },
	}
}

func (l *listener) tell(o client.Object, gone bool, q requests) {
	l.events.Add(1)
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.known[o.GetUID()]
	l.known[o.GetUID()] = o.GetResourceVersion()
	if gone {
		delete(l.known, o.GetUID())
	}
	if gone && !ok {
		l.failed("%s is told that %s is gone, of which it never heard", l.name, o.GetName())
	}
	if l.stopped.Load() {
		l.failed("%s is told of %s after its watch was stopped", l.name, o.GetName())
	}
}

func (l *listener) heard() map[types.UID]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.known)
}
