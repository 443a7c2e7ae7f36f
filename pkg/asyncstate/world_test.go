package asyncstate_test

import (
	"cmp"
	"context"
	stderrors "errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func bucket(name string, mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	b := &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.BucketSpec{ManagedResourceSpec: xpv2.ManagedResourceSpec{
			ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionAll},
		}},
	}
	for _, m := range mod {
		m(b)
	}
	return b
}

// A world is an API server, a cloud, and the provider's process.
type world struct {
	t     testing.TB
	api   *testkit.API
	cloud *fakeCloud
	kind  clientKind

	plain  bool // upstream's reconciler, with Connector
	manual bool // Nothing is reconciled by itself.

	options []asyncstate.TrackerOption
	graft   []managed.ReconcilerOption
	connect func(p *process, mg resource.Managed) (upstream.ExternalClient, error)
	typed   upstream.TypedExternalConnector[*v1alpha1.Bucket] // instead
	said    *testkit.Said

	processes []*process
}

func newWorld(t testing.TB, k clientKind, objs ...client.Object) *world {
	t.Helper()
	c := newCloud()
	c.takes = 10 * time.Minute
	w := &world{
		t:     t,
		api:   testkit.NewAPI(objs...),
		cloud: c,
		kind:  k,
		said:  &testkit.Said{},
		connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			return p.client(mg), nil
		},
	}
	t.Cleanup(w.end)
	return w
}

// bubble runs a test in a bubble, in which time passes as soon as nothing else happens.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

type process struct {
	manager.Manager

	w       *world
	tracker *asyncstate.Tracker
	metrics *asyncstate.Metrics
	rec     reconcile.Reconciler
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]

	dead       atomic.Bool
	reconciles atomic.Int64

	// fault is asked before each request to the API server, lose after it, for one
	// request at a time.
	mu          sync.Mutex
	fault, lose func(verb string, o client.Object) error

	cancel context.CancelFunc
	ended  chan struct{} // It is closed when the process has.
}

func (w *world) start() *process {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{w: w, metrics: asyncstate.NewMetrics(), cancel: cancel, ended: make(chan struct{})}
	p.Manager = w.api.Process(testkit.Hooks{Before: p.before, After: p.after})
	p.tracker = asyncstate.NewTracker(p.GetClient(), slices.Concat([]asyncstate.TrackerOption{
		asyncstate.WithLiveReader(p.GetAPIReader()), asyncstate.WithRecorder(w.said), asyncstate.WithLogger(w.said),
		asyncstate.WithMetrics(p.metrics),
	}, w.kind.options(), w.options)...)
	p.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	)
	p.rec = p.newReconciler()
	w.processes = append(w.processes, p)
	var wg sync.WaitGroup
	for range 2 {
		// A manager waits for those that need leadership before it gives that up.
		wg.Go(func() {
			if err := p.tracker.Start(ctx); err != nil || !p.tracker.NeedLeaderElection() {
				w.t.Errorf("Start(...): %v; needs leadership: %t", err, p.tracker.NeedLeaderElection())
			}
		})
	}
	if !w.manual {
		// Another controller that has stopped takes nothing from this one.
		stopped, stop := context.WithCancel(ctx)
		if err := stderrors.Join(
			p.tracker.Source().Start(ctx, p.queue), p.tracker.Source().Start(stopped, p.queue),
		); err != nil {
			w.t.Fatal(err)
		}
		stop()
		wg.Go(func() { p.work(ctx) })
		list := &v1alpha1.BucketList{}
		if err := w.api.Server().List(context.Background(), list); err != nil {
			w.t.Fatal(err)
		}
		for i := range list.Items {
			p.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	context.AfterFunc(ctx, p.queue.ShutDown)
	go func() {
		wg.Wait()
		close(p.ended)
	}()
	return p
}

func (p *process) newReconciler() reconcile.Reconciler {
	w, of := p.w, resource.ManagedKind(testkit.BucketKind())
	connector := upstream.ExternalConnectorFn(
		func(_ context.Context, mg resource.Managed) (upstream.ExternalClient, error) { return w.connect(p, mg) },
	)
	if w.plain {
		connect := upstream.WithExternalConnector(asyncstate.Connector(connector, p.tracker))
		if w.typed != nil {
			connect = upstream.WithTypedExternalConnector(asyncstate.TypedConnector(w.typed, p.tracker))
		}
		return upstream.NewReconciler(
			p, of, upstream.WithManagementPolicies(), upstream.WithInitializers(), upstream.WithRecorder(w.said),
			connect,
		)
	}
	connect := managed.WithExternalConnector(connector)
	if w.typed != nil {
		connect = managed.WithTypedExternalConnector(w.typed)
	}
	return managed.NewReconciler(p, of, append([]managed.ReconcilerOption{
		managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithRecorder(w.said),
		managed.WithLogger(w.said), connect, managed.WithAsync(p.tracker),
	}, w.graft...)...)
}

// tooMany reconciles of a process mean that a reconcile triggers the next.
const tooMany = 20_000

func (p *process) work(ctx context.Context) {
	for {
		req, down := p.queue.Get()
		if down {
			return
		}
		if n := p.reconciles.Add(1); n > tooMany || req.Name == "" {
			p.w.t.Errorf("%d reconciles, and this of %q: it has gone mad", n, req.Name)
			return
		}
		res, err := p.rec.Reconcile(ctx, req)
		switch {
		case err != nil:
			p.queue.AddRateLimited(req)
		case res.RequeueAfter > 0:
			p.queue.Forget(req)
			p.queue.AddAfter(req, res.RequeueAfter)
		case res.Requeue: //nolint:staticcheck // Upstream asks for a requeue this way.
			p.queue.AddRateLimited(req)
		default:
			p.queue.Forget(req)
		}
		p.queue.Done(req)
	}
}

func (p *process) reconcile(name string) (reconcile.Result, error) {
	p.reconciles.Add(1)
	return p.rec.Reconcile(context.Background(), reconcile.Request{NamespacedName: key(name)})
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: name} }

// kill the process: its later requests have no effect.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

// stop the process as a manager does.
func (p *process) stop() {
	p.cancel()
	<-p.ended
}

// end of the world: all processes stop, and all that they began ends.
func (w *world) end() {
	for _, p := range w.processes {
		p.stop()
	}
	pass(24 * time.Hour)
	for _, m := range w.cloud.misused() {
		w.t.Error(m)
	}
}

// An ending is the outcome of operations on b.
type ending struct {
	Creates, Updates, Deletes int // asked for
	Made                      int
	Left                      int // external resources

	// Gone means that the object is. Otherwise these are its external name, and reasons
	// of its conditions.
	Gone       bool
	Name       string
	Operation  xpv2.ConditionReason
	Ready      xpv2.ConditionReason
	Synced     xpv2.ConditionReason
	Deleting   xpv2.ConditionReason
	Recorded   bool
	Incomplete bool // as upstream sees it
}

func (w *world) ending() ending {
	w.t.Helper()
	b := w.get("b")
	state := ending{
		Creates: w.cloud.count(asyncstate.Create),
		Updates: w.cloud.count(asyncstate.Update), Deletes: w.cloud.count(asyncstate.Delete),
		Made: w.cloud.Stats("uid-1").Created, Left: len(w.cloud.names("uid-1")), Gone: w.gone(),
	}
	if !state.Gone {
		state.Operation, state.Ready, state.Synced, state.Deleting = reason(b, asyncstate.TypeOperation), reason(b, xpv2.TypeReady),
			reason(b, xpv2.TypeSynced), reason(b, reconciler.TypeDeleting)
		state.Name, state.Recorded, state.Incomplete = meta.GetExternalName(b), record(b) != "", meta.ExternalCreateIncomplete(b)
	}
	return state
}

// A life of b is what happens to it and to the provider, and how it ends.
type life struct {
	reason  string
	kind    clientKind // nothing if it isn't said
	options []asyncstate.TrackerOption

	plain, auto bool // auto if it is reconciled by itself
	happens     func(t *testing.T, w *world)
	want        ending
}

func live(t *testing.T, lives map[string]life) {
	t.Helper()
	for name, l := range lives {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, cmp.Or(l.kind, nothing), bucket("b"))
			w.manual, w.plain, w.options = !l.auto, l.plain, l.options
			l.happens(t, w)
			wants(t, l.reason+"\n"+describe(w.get("b")), "ending", l.want, w.ending())
		})
	}
}

// unknown returns the ending of n creates. The outcome of the last one is unknown.
func unknown(creates int) ending {
	return ending{
		Creates:   creates,
		Operation: asyncstate.ReasonOutcomeUnknown, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileError,
		Recorded: true, Incomplete: true,
	}
}

// finished returns the ending of what exists, after so many creates.
func finished(creates int, name string) ending {
	return ending{
		Creates: creates, Made: 1, Left: 1, Name: name,
		Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonAvailable, Synced: xpv2.ReasonReconcileSuccess,
	}
}

// crash begins to create b, dies a while later, and returns the next process.
func (w *world) crash(after time.Duration) *process {
	w.t.Helper()
	w.dies(after)
	return w.start()
}

func (w *world) dies(after time.Duration) {
	w.t.Helper()
	p := w.start()
	if w.manual {
		reconciled(w.t, p, "b")
	}
	pass(after)
	p.kill()
}

// refused has an operation on b begin, which the cloud refuses.
func (p *process) refused() {
	p.w.t.Helper()
	p.w.cloud.refuses(errQuota)
	reconciled(p.w.t, p, "b")
	synctest.Wait()
	p.w.cloud.refuses(nil)
}

// again reconciles b n times as long as it is there, which may fail, and passes time
// after each.
func (p *process) again(n int, d time.Duration) {
	for range n {
		if !p.w.gone() {
			_, _ = p.reconcile("b")
		}
		pass(d)
	}
}

// wake queues a reconcile of the object in all processes.
func (w *world) wake(o client.Object) {
	for _, p := range w.processes {
		p.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
}

func (w *world) get(name string) *v1alpha1.Bucket {
	w.t.Helper()
	b := &v1alpha1.Bucket{}
	if err := w.api.Server().Get(context.Background(), key(name), b); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) gone() bool { return w.get("b").GetName() == "" }

// ask for an operation on b, which exists already if it is no create.
func (w *world) ask(typ asyncstate.Type) {
	w.t.Helper()
	switch typ {
	case asyncstate.Update:
		w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
	case asyncstate.Delete:
		w.delete("b")
	}
}

func (w *world) add(name string, mod ...func(b *v1alpha1.Bucket)) {
	w.t.Helper()
	if err := w.api.Server().Create(context.Background(), bucket(name, mod...)); err != nil {
		w.t.Fatal(err)
	}
	w.wake(w.get(name))
}

func (w *world) edit(name string, fn func(b *v1alpha1.Bucket)) {
	w.t.Helper()
	b := w.get(name)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if b = w.get(name); b.GetName() == "" {
			return nil
		}
		fn(b)
		return w.api.Server().Update(context.Background(), b)
	})
	if client.IgnoreNotFound(err) != nil {
		w.t.Error(err)
	}
	w.wake(b)
}

func (w *world) delete(name string) {
	w.t.Helper()
	b := w.get(name)
	if err := w.api.Server().Delete(context.Background(), b); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	w.wake(b)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func record(b client.Object) string { return b.GetAnnotations()[asyncstate.AnnotationKeyOperation] }

func condition(b resource.Managed, t xpv2.ConditionType) string {
	c := b.GetCondition(t)
	if c.Reason == "" {
		return string(c.Status)
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func reason(b resource.Managed, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

var wants = testkit.Wants

func contains(t testing.TB, what, got string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(got, s) {
			t.Errorf("%s: %q lacks %q", what, got, s)
		}
	}
}

func describe(b *v1alpha1.Bucket) string {
	return fmt.Sprintf(
		"annotations %v, finalizers %v, deleting %v\n  Synced %s\n  Ready %s\n  OperationRunning %s\n  Deleting %s",

		b.GetAnnotations(), b.GetFinalizers(), meta.WasDeleted(b),
		condition(b, xpv2.TypeSynced),
		condition(b, xpv2.TypeReady), condition(b, asyncstate.TypeOperation), condition(b, reconciler.TypeDeleting),
	)
}

// before fails a request that something is wrong with.
func (p *process) before(_ context.Context, r testkit.Request) error {
	if p.dead.Load() {
		return errDead
	}
	return p.ask(&p.fault, r)
}

// after loses the answer to a request, maybe. A watch that looks at annotations and
// finalizers sees the write.
func (p *process) after(_ context.Context, r testkit.Request) error {
	if !p.w.manual && slices.Contains([]string{testkit.Update, testkit.Patch, testkit.Create}, r.Verb) {
		p.w.wake(r.Object)
	}
	return p.ask(&p.lose, r)
}

// ask whether something goes wrong with a request. Reads from the cache never do.
func (p *process) ask(fn *func(verb string, o client.Object) error, r testkit.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *fn == nil || r.Verb == testkit.Get {
		return nil
	}
	return (*fn)(r.Verb, r.Object)
}

func (p *process) faults(fault, lose func(verb string, o client.Object) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.lose = fault, lose
}

// loses has the answers to requests that match get lost, for one request at a time.
func (p *process) loses(match func(verb string, o client.Object) bool) {
	p.faults(nil, func(verb string, o client.Object) error {
		if match(verb, o) {
			return errors.New("connection reset")
		}
		return nil
	})
}

// away has b be reconciled once without the API server.
func (p *process) away() {
	p.faults(away, nil)
	p.again(1, 0)
	p.faults(nil, nil)
}

func away(string, client.Object) error { return errors.New("the API server is away") }

var errQuota = errors.New("quota")

func reconciled(t testing.TB, p *process, name string) reconcile.Result {
	t.Helper()
	res, err := p.reconcile(name)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
