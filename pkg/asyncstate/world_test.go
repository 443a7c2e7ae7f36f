package asyncstate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// bucket returns a managed resource as a user creates it.
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

	// plain means upstream's reconciler, with Connector.
	plain bool

	// synchronous means that there are no operations at all.
	synchronous bool

	// manual means that nothing is reconciled by itself.
	manual bool

	options   []asyncstate.TrackerOption
	graft     []managed.ReconcilerOption
	connector func(p *process) upstream.ExternalConnector
	typed     func(p *process) upstream.TypedExternalConnector[*v1alpha1.Bucket] // instead
	said      *said

	mu        sync.Mutex
	processes []*process
	secrets   []*corev1.Secret
}

func newWorld(t testing.TB, k clientKind, objs ...client.Object) *world {
	t.Helper()

	c := newCloud()
	c.takes = 10 * time.Minute

	w := &world{t: t, api: testkit.NewAPI(objs...), cloud: c, kind: k, said: &said{}}
	t.Cleanup(w.end)

	return w
}

// bubble runs a test in a bubble, in which time passes as soon as nothing else happens.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// A process of the provider.
type process struct {
	client.Client

	w       *world
	live    client.Reader
	tracker *asyncstate.Tracker
	metrics *asyncstate.Metrics
	rec     reconcile.Reconciler
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]

	dead       atomic.Bool
	reconciles atomic.Int64

	// fault is asked before each request to the API server, lose after it.
	mu    sync.Mutex
	fault func(verb string, o client.Object) error
	lose  func(verb string, o client.Object) error

	asking sync.Mutex

	cancel context.CancelFunc

	// ended is closed when the process has, with err if it has a manager.
	ended chan struct{}
	err   error
}

// start a process.
func (w *world) start() *process {
	w.t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	p := w.newProcess(cancel)
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
	p.rec = p.newReconciler(w.api.Manager())

	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()

	var wg sync.WaitGroup

	wg.Go(func() { _ = p.tracker.Start(ctx) })

	if !w.manual {
		if err := p.tracker.Source().Start(ctx, p.queue); err != nil {
			w.t.Fatal(err)
		}

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

// newProcess returns a process that reconciles nothing yet. To cancel it ends it.
func (w *world) newProcess(cancel context.CancelFunc) *process {
	p := &process{Client: w.api.Client(), w: w, metrics: asyncstate.NewMetrics(), cancel: cancel, ended: make(chan struct{})}
	p.live = reader{p, w.api.Live()}

	o := append([]asyncstate.TrackerOption{
		asyncstate.WithLiveReader(p.live),
		asyncstate.WithRecorder(w.said),
		asyncstate.WithLogger(w.said),
		asyncstate.WithMetrics(p.metrics),
	}, w.kind.options()...)
	p.tracker = asyncstate.NewTracker(p, append(o, w.options...)...)

	return p
}

// newReconciler returns what the process reconciles with.
func (p *process) newReconciler(m manager.Manager) reconcile.Reconciler {
	w, of := p.w, resource.ManagedKind(testkit.BucketKind())
	m = managerOf{Manager: m, p: p}

	connector := w.cloud.connector(w.kind, p.dead.Load)
	if w.connector != nil {
		connector = w.connector(p)
	}

	switch {
	case w.synchronous:
		return managed.NewReconciler(m, of, managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithExternalConnector(connector))
	case w.plain:
		connect := upstream.WithExternalConnector(asyncstate.Connector(connector, p.tracker))
		if w.typed != nil {
			connect = upstream.WithTypedExternalConnector(asyncstate.TypedConnector(w.typed(p), p.tracker))
		}

		return upstream.NewReconciler(m, of, upstream.WithManagementPolicies(), upstream.WithInitializers(), upstream.WithRecorder(w.said), connect)
	default:
		connect := managed.WithExternalConnector(connector)
		if w.typed != nil {
			connect = managed.WithTypedExternalConnector(w.typed(p))
		}

		return managed.NewReconciler(m, of, append([]managed.ReconcilerOption{
			managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithRecorder(w.said), managed.WithLogger(w.said),
			connect, managed.WithAsync(p.tracker),
		}, w.graft...)...)
	}
}

// tooMany reconciles of a process mean that a reconcile triggers the next.
const tooMany = 20_000

// work does what a controller does.
func (p *process) work(ctx context.Context) {
	for {
		req, down := p.queue.Get()
		if down {
			return
		}

		if n := p.reconciles.Add(1); n > tooMany {
			p.w.t.Errorf("%d reconciles: it has gone mad", n)
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

// reconcile b once, by hand.
func (p *process) reconcile(name string) (reconcile.Result, error) {
	p.reconciles.Add(1)
	return p.rec.Reconcile(context.Background(), reconcile.Request{NamespacedName: key(name)})
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: name} }

// kill the process: none of its requests has an effect any more.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

// stop the process as a manager does.
func (p *process) stop() {
	p.cancel()
	<-p.ended
}

// end of the world: all processes stop.
func (w *world) end() {
	w.mu.Lock()
	ps := w.processes
	w.mu.Unlock()

	for _, p := range ps {
		p.stop()
	}

	synctest.Wait()
}

// wake queues a reconcile of the object in all processes.
func (w *world) wake(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, p := range w.processes {
		// A process that has not won the election yet has none.
		if p.queue != nil {
			p.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
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

// edit an object as a user does.
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

// pass time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func record(b client.Object) string { return b.GetAnnotations()[asyncstate.AnnotationKeyOperation] }

// condition tells what a condition says, on one line.
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

func contains(t testing.TB, what, got string, want ...string) {
	t.Helper()

	for _, s := range want {
		if !strings.Contains(got, s) {
			t.Errorf("%s: %q lacks %q", what, got, s)
		}
	}
}

// describe an object, for when something is wrong.
func describe(b *v1alpha1.Bucket) string {
	return fmt.Sprintf("annotations %v, finalizers %v, deleting %v\n  Synced %s\n  Ready %s\n  OperationRunning %s\n  Deleting %s",
		b.GetAnnotations(), b.GetFinalizers(), meta.WasDeleted(b),
		condition(b, xpv2.TypeSynced), condition(b, xpv2.TypeReady), condition(b, asyncstate.TypeOperation), condition(b, reconciler.TypeDeleting))
}

// do serves a request, unless something is wrong with it.
func (p *process) do(verb string, o client.Object, serve func() error) error {
	if p.dead.Load() {
		return errDead
	}

	p.mu.Lock()
	fault, lose := p.fault, p.lose
	p.mu.Unlock()

	if err := p.ask(fault, verb, o); err != nil {
		return err
	}

	if err := serve(); err != nil {
		return err
	}

	switch verb {
	case testkit.Update, testkit.Patch, testkit.Create:
		// What a watch that looks at annotations and finalizers sees.
		if !p.w.manual {
			p.w.wake(o)
		}
	}

	return p.ask(lose, verb, o)
}

// ask whether something goes wrong, for one request at a time.
func (p *process) ask(fn func(verb string, o client.Object) error, verb string, o client.Object) error {
	if fn == nil {
		return nil
	}

	p.asking.Lock()
	defer p.asking.Unlock()

	return fn(verb, o)
}

// faults sets what goes wrong with requests to the API server.
func (p *process) faults(fault, lose func(verb string, o client.Object) error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.fault, p.lose = fault, lose
}

func (p *process) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if p.dead.Load() {
		return errDead
	}

	if _, ok := o.(*corev1.Secret); ok {
		return kerrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, k.Name)
	}

	return p.Client.Get(ctx, k, o, opts...)
}

func (p *process) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return p.do(testkit.Update, o, func() error { return p.Client.Update(ctx, o, opts...) })
}

func (p *process) Patch(ctx context.Context, o client.Object, pt client.Patch, opts ...client.PatchOption) error {
	return p.do(testkit.Patch, o, func() error { return p.Client.Patch(ctx, o, pt, opts...) })
}

func (p *process) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if s, ok := o.(*corev1.Secret); ok {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()

		p.w.secrets = append(p.w.secrets, s)

		return nil
	}

	return p.do(testkit.Create, o, func() error { return p.Client.Create(ctx, o, opts...) })
}

func (p *process) Status() client.SubResourceWriter {
	return &statusOf{SubResourceWriter: p.Client.Status(), p: p}
}

func (p *process) SubResource(string) client.SubResourceClient { panic("not used") }

type statusOf struct {
	client.SubResourceWriter

	p *process
}

func (s *statusOf) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.p.do(testkit.StatusUpdate, o, func() error { return s.SubResourceWriter.Update(ctx, o, opts...) })
}

func (s *statusOf) Patch(ctx context.Context, o client.Object, pt client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.p.do(testkit.StatusPatch, o, func() error { return s.SubResourceWriter.Patch(ctx, o, pt, opts...) })
}

// reader reads from the API server itself.
type reader struct {
	p    *process
	live client.Reader
}

func (r reader) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return r.p.do(testkit.LiveGet, o, func() error { return r.live.Get(ctx, k, o, opts...) })
}

func (r reader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return r.live.List(ctx, l, opts...)
}

// A managerOf a process has its client and its reader.
type managerOf struct {
	manager.Manager

	p *process
}

func (m managerOf) GetClient() client.Client { return m.p }

func (m managerOf) GetAPIReader() client.Reader { return m.p.live }

// said is what was said in events and in the log.
type said struct {
	mu     sync.Mutex
	events []event.Event
	lines  []string
}

func (s *said) Event(_ runtime.Object, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.events = append(s.events, e)
}

func (s *said) WithAnnotations(...string) event.Recorder { return s }

func (s *said) Info(msg string, kv ...any)  { s.log(msg, kv) }
func (s *said) Debug(msg string, kv ...any) { s.log(msg, kv) }

func (s *said) log(msg string, kv []any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.lines = append(s.lines, fmt.Sprintln(append([]any{msg}, kv...)...))
}

func (s *said) WithValues(...any) logging.Logger { return s }

// eventsOf returns the messages of events with that reason.
func (s *said) eventsOf(r event.Reason) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []string

	for _, e := range s.events {
		if e.Reason == r {
			out = append(out, e.Message)
		}
	}

	return out
}

// all that was said.
func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return fmt.Sprint(s.events, s.lines)
}

// away is an API server that can't be reached.
func away(string, client.Object) error { return errors.New("the API server is away") }

var errQuota = errors.New("quota")

// reconciled reconciles an object by hand, which must not fail.
func reconciled(t testing.TB, p *process, name string) reconcile.Result {
	t.Helper()

	res, err := p.reconcile(name)
	if err != nil {
		t.Fatal(err)
	}

	return res
}
