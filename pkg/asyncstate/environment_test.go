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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
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

// An environment has an API server, a fake cloud, and processes of the provider.
type environment struct {
	t     testing.TB
	api   *testkit.API
	cloud *fakeCloud
	kind  clientKind

	manualReconciles bool // Nothing is reconciled by itself.

	options           []asyncstate.TrackerOption
	reconcilerOptions []managed.ReconcilerOption
	connect           func(p *process, mg resource.Managed) (upstream.ExternalClient, error)
	typed             upstream.TypedExternalConnector[*v1alpha1.Bucket] // instead
	events            *testkit.Said

	processes []*process
}

func newEnvironment(t testing.TB, k clientKind, objs ...client.Object) *environment {
	t.Helper()
	c := newCloud()
	c.requestDuration = 10 * time.Minute
	e := &environment{
		t: t, api: testkit.NewAPI(objs...), cloud: c, kind: k, events: &testkit.Said{},
		connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			return p.client(mg), nil
		},
	}
	t.Cleanup(e.stopAll)
	return e
}

// runInBubble runs a test in a bubble, in which time passes as soon as nothing else happens.
func runInBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

type process struct {
	manager.Manager

	environment *environment
	tracker     *asyncstate.Tracker
	metrics     *asyncstate.Metrics
	rec         reconcile.Reconciler
	queue       workqueue.TypedRateLimitingInterface[reconcile.Request]

	dead       atomic.Bool
	moved      atomic.Bool // Objects have moved to another shard: its cache has none.
	reconciles atomic.Int64

	// fault is asked before each request to the API server, lose after it, for one
	// request at a time.
	mu                sync.Mutex
	fault, loseAnswer func(verb string, o client.Object) error

	cancel context.CancelFunc
	ended  chan struct{} // closed when the process has ended
}

func (e *environment) startProvider() *process {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{environment: e, metrics: asyncstate.NewMetrics(), cancel: cancel, ended: make(chan struct{})}
	p.Manager = e.api.Process(testkit.Hooks{Before: p.beforeRequest, After: p.afterRequest})
	p.tracker = asyncstate.NewTracker(slices.Concat([]asyncstate.TrackerOption{
		asyncstate.WithMetrics(p.metrics),
	}, e.kind.options(), e.options)...)
	p.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	)
	p.rec = p.newReconciler()
	e.processes = append(e.processes, p)
	var wg sync.WaitGroup
	for range 2 {
		// A manager waits for those that need leadership before it gives that up.
		wg.Go(func() {
			if err := p.tracker.Start(ctx); err != nil || !p.tracker.NeedLeaderElection() {
				e.t.Errorf("Start(...): %v; needs leadership: %t", err, p.tracker.NeedLeaderElection())
			}
		})
	}
	if !e.manualReconciles {
		// Another controller that has stopped takes nothing from this one.
		stopped, stop := context.WithCancel(ctx)
		if err := stderrors.Join(
			p.tracker.Source().Start(ctx, p.queue), p.tracker.Source().Start(stopped, p.queue),
		); err != nil {
			e.t.Fatal(err)
		}
		stop()
		wg.Go(func() { p.work(ctx) })
		list := &v1alpha1.BucketList{}
		if err := e.api.Server().List(context.Background(), list); err != nil {
			e.t.Fatal(err)
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
	e, of := p.environment, resource.ManagedKind(testkit.BucketKind())
	connector := upstream.ExternalConnectorFn(
		func(_ context.Context, mg resource.Managed) (upstream.ExternalClient, error) { return e.connect(p, mg) },
	)
	connect := managed.WithExternalConnector(connector)
	if e.typed != nil {
		connect = managed.WithTypedExternalConnector(e.typed)
	}
	return managed.NewReconciler(p, of, append([]managed.ReconcilerOption{
		managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithRecorder(e.events),
		managed.WithLogger(e.events), connect, asyncstate.With(p.tracker),
	}, e.reconcilerOptions...)...)
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
			p.environment.t.Errorf("%d reconciles, and this of %q: a reconcile triggers the next", n, req.Name)
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

// stopAll stops all processes, and waits until all operations have ended.
func (e *environment) stopAll() {
	for _, p := range e.processes {
		p.stop()
	}
	advanceClock(24 * time.Hour)
	for _, m := range e.cloud.misused() {
		e.t.Error(m)
	}
}

// A finalState describes bucket b and its external resources after operations.
type finalState struct {
	Creates, Updates, Deletes int // asked for
	Created                   int
	Remaining                 int // external resources

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

func (e *environment) finalState() finalState {
	e.t.Helper()
	b := e.get("b")
	state := finalState{
		Creates: e.cloud.count(asyncstate.Create),
		Updates: e.cloud.count(asyncstate.Update), Deletes: e.cloud.count(asyncstate.Delete),
		Created: e.cloud.Stats("uid-1").Created, Remaining: len(e.cloud.names("uid-1")), Gone: e.objectGone(),
	}
	if !state.Gone {
		state.Operation, state.Ready = reason(b, asyncstate.TypeOperation), reason(b, xpv2.TypeReady)
		state.Synced, state.Deleting = reason(b, xpv2.TypeSynced), reason(b, reconciler.TypeDeleting)
		state.Name, state.Recorded = meta.GetExternalName(b), record(b) != ""
		state.Incomplete = meta.ExternalCreateIncomplete(b)
	}
	return state
}

// expectCreatedOnce fails the test unless bucket b has the one external resource that was created, or both are gone.
func (e *environment) expectCreatedOnce(reason string, gone bool) {
	e.t.Helper()
	got := e.finalState()
	want := finalState{Created: 1, Remaining: 1, Name: "id-0001"}
	if gone {
		want = finalState{Created: 1, Gone: true}
	}
	expectEqual(e.t, reason+"\n"+describe(e.get("b")), "final state", want, finalState{
		Created: got.Created, Remaining: got.Remaining, Name: got.Name, Gone: got.Gone,
	})
}

// A scenario has steps that change bucket b and the provider, and the final state.
type scenario struct {
	reason  string
	kind    clientKind // plainClient by default
	options []asyncstate.TrackerOption

	autoReconciled bool // A work queue reconciles b.
	limited        bool // with ratelimit.With
	steps          func(t *testing.T, e *environment)
	want           finalState
}

func runScenarios(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, s := range scenarios {
		runScenario(t, name, s)
	}
}

func runScenario(t *testing.T, name string, s scenario) {
	t.Helper()
	runInBubble(t, name, func(t *testing.T) {
		e := newEnvironment(t, cmp.Or(s.kind, plainClient), bucket("b"))
		e.manualReconciles, e.options = !s.autoReconciled, s.options
		if s.limited {
			e.reconcilerOptions = append(e.reconcilerOptions, ratelimit.With(ratelimit.New(1000, 1000)))
		}
		s.steps(t, e)
		expectEqual(t, s.reason+"\n"+describe(e.get("b")), "final state", s.want, e.finalState())
	})
}

// unknownAfterCreates returns the final state after a number of creates, the last one with an unknown outcome.
func unknownAfterCreates(creates int) finalState {
	return finalState{
		Creates:   creates,
		Operation: asyncstate.ReasonOutcomeUnknown, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileError,
		Recorded: true, Incomplete: true,
	}
}

// readyAfterCreates returns the final state if the external resource exists after a number of creates.
func readyAfterCreates(creates int, name string) finalState {
	return finalState{
		Creates: creates, Created: 1, Remaining: 1, Name: name,
		Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonAvailable, Synced: xpv2.ReasonReconcileSuccess,
	}
}

// crashAndRestart runs startAndKill, and starts the next process.
func (e *environment) crashAndRestart(after time.Duration) *process {
	e.t.Helper()
	e.startAndKill(after)
	return e.startProvider()
}

// startAndKill starts a process that begins to create b, and kills it after a while.
func (e *environment) startAndKill(after time.Duration) {
	e.t.Helper()
	p := e.startProvider()
	if e.manualReconciles {
		mustReconcile(e.t, p, "b")
	}
	advanceClock(after)
	p.kill()
}

// reconcileRejected reconciles b while the cloud rejects all requests.
func (p *process) reconcileRejected() {
	p.environment.t.Helper()
	p.environment.cloud.rejectRequests(errQuota)
	mustReconcile(p.environment.t, p, "b")
	synctest.Wait()
	p.environment.cloud.rejectRequests(nil)
}

// reconcileRepeatedly reconciles b n times while it exists, ignoring errors, and advances the
// clock after each.
func (p *process) reconcileRepeatedly(n int, d time.Duration) {
	for range n {
		if !p.environment.objectGone() {
			_, _ = p.reconcile("b")
		}
		advanceClock(d)
	}
}

// enqueue queues a reconcile of the object in all processes.
func (e *environment) enqueue(o client.Object) {
	for _, p := range e.processes {
		p.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
}

func (e *environment) get(name string) *v1alpha1.Bucket {
	e.t.Helper()
	b := &v1alpha1.Bucket{}
	if err := e.api.Server().Get(context.Background(), key(name), b); client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
	return b
}

func (e *environment) objectGone() bool { return e.get("b").GetName() == "" }

// requestOperation changes b so that upstream begins an operation. A create needs no change.
func (e *environment) requestOperation(typ asyncstate.Type) {
	e.t.Helper()
	switch typ {
	case asyncstate.Update:
		e.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
	case asyncstate.Delete:
		e.delete("b")
	}
}

func (e *environment) add(name string, mod ...func(b *v1alpha1.Bucket)) {
	e.t.Helper()
	if err := e.api.Server().Create(context.Background(), bucket(name, mod...)); err != nil {
		e.t.Fatal(err)
	}
	e.enqueue(e.get(name))
}

func (e *environment) edit(name string, fn func(b *v1alpha1.Bucket)) {
	e.t.Helper()
	b := e.get(name)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if b = e.get(name); b.GetName() == "" {
			return nil
		}
		fn(b)
		return e.api.Server().Update(context.Background(), b)
	})
	if client.IgnoreNotFound(err) != nil {
		e.t.Error(err)
	}
	e.enqueue(b)
}

func (e *environment) delete(name string) {
	e.t.Helper()
	b := e.get(name)
	if err := e.api.Server().Delete(context.Background(), b); client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
	e.enqueue(b)
}

func advanceClock(d time.Duration) {
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

var expectEqual = testkit.ExpectEqual

func expectContains(t testing.TB, what, got string, want ...string) {
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

// beforeRequest fails the requests of a killed process, and those that fault selects.
func (p *process) beforeRequest(_ context.Context, r testkit.Request) error {
	if p.dead.Load() {
		return errDead
	}
	if p.moved.Load() && r.Verb == testkit.Get {
		return kerrors.NewNotFound(schema.GroupResource{}, r.Object.GetName())
	}
	return p.injectFault(&p.fault, r)
}

// afterRequest loses the answers that loseAnswer selects. Each write queues a reconcile, as a watch
// would.
func (p *process) afterRequest(_ context.Context, r testkit.Request) error {
	writes := []string{testkit.Update, testkit.Patch, testkit.Create}
	if !p.environment.manualReconciles && slices.Contains(writes, r.Verb) {
		p.environment.enqueue(r.Object)
	}
	return p.injectFault(&p.loseAnswer, r)
}

// injectFault returns the error that fn returns for a request. Reads from the cache never fail.
func (p *process) injectFault(fn *func(verb string, o client.Object) error, r testkit.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *fn == nil || r.Verb == testkit.Get {
		return nil
	}
	return (*fn)(r.Verb, r.Object)
}

func (p *process) setFaults(fault, lose func(verb string, o client.Object) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.loseAnswer = fault, lose
}

// loseAnswers makes requests that match return an error after they were carried out.
func (p *process) loseAnswers(match func(verb string, o client.Object) bool) {
	p.setFaults(nil, func(verb string, o client.Object) error {
		if match(verb, o) {
			return errors.New("connection reset")
		}
		return nil
	})
}

// reconcileWithoutAPIServer reconciles b once while the API server is unavailable.
func (p *process) reconcileWithoutAPIServer() {
	p.setFaults(apiServerUnavailable, nil)
	p.reconcileRepeatedly(1, 0)
	p.setFaults(nil, nil)
}

func apiServerUnavailable(string, client.Object) error {
	return errors.New("the API server is unavailable")
}

func patchesUnavailable(verb string, o client.Object) error {
	if verb == testkit.Patch {
		return apiServerUnavailable(verb, o)
	}
	return nil
}

var errQuota = errors.New("quota")

func mustReconcile(t testing.TB, p *process, name string) reconcile.Result {
	t.Helper()
	res, err := p.reconcile(name)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
