package asyncstate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// pollInterval is how soon an object is reconciled again while its operation runs or waits, if
// no controller watches the tracker's source.
const pollInterval = 10 * time.Second

// A Tracker knows the operations of the objects of one controller. It is safe for concurrent
// use.
//
// In memory it keeps operations that run, results that are not stored yet, and for a limited
// time the errors of operations, connection details that are not published, when updates
// and deletes succeeded, and since when the outcome of a create is unknown.
//
// Two Trackers for one kind do no harm, but each treats the other's operations as interrupted.
type Tracker struct {
	config config

	// operations has one operation for each object, by UID: one that runs, or whose result is not stored or not in the
	// cache.
	operations sync.Map

	shutdown   *shutdown
	semaphores *semaphores

	queues  queues
	objects objectStore
	records recordMaker

	// reconciles has the reports of reconciles.
	reconciles seam.Slot[progressReport]

	// used means that a reconciler uses the tracker, reportedUnwatched that an event says that no controller does.
	used, reportedUnwatched atomic.Bool
}

// NewTracker returns a tracker for With, which gives it the client, the logger and the recorder of the reconciler.
func NewTracker(o ...TrackerOption) *Tracker {
	t := &Tracker{config: newConfig(), shutdown: newShutdown()}

	is.MustHaveNoNil(o, "asyncstate.NewTracker", 1)
	for _, to := range o {
		to(&t.config)
	}

	t.records = recordMaker{holder: string(uuid.NewUUID()), timeout: t.config.timeout}
	t.semaphores = newSemaphores(t.config.maxOperations, t.queues.enqueue)
	return t
}

// Start waits until ctx is done, and then for the operations that run. No operation begins
// any more. Operations that take longer than the shutdown timeout are cancelled, and waited
// for as long again. Results are stored until then, with retries. The rest is abandoned, with
// a message in the log: the next process reads its records.
//
// It is for a manager to call, and never returns an error. If it is called more than once, all
// calls wait.
func (t *Tracker) Start(ctx context.Context) error {
	<-ctx.Done()
	if n := t.shutdown.run(t.config.shutdownTimeout); n > 0 {
		t.config.events.log.Info(
			"Operations did not end although they were cancelled, or their results could not be stored", "operations",
			n,
		)
	}
	return nil
}

// NeedLeaderElection returns true: a tracker starts and ends with the controllers. A manager
// that is stopped then keeps its leadership until the tracker has ended. A manager that loses
// its leadership waits for neither: its process should end at once.
func (t *Tracker) NeedLeaderElection() bool { return true }

// Source returns a source for the controller whose reconciler uses the tracker: pass it to
// WatchesRawSource. It queues a reconcile of an object when its operation has ended, when there
// is progress to report, and when an operation that waited may begin.
//
// Without it each of these waits for the next reconcile, which follows within 10 seconds, and an event of the first
// operation that ends says so.
func (t *Tracker) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.queues.watch(q)
		return nil
	})
}

// Lookup returns the operation of an object that runs in this process. It makes no request, and
// takes no lock that is held for long.
func (t *Tracker) Lookup(uid types.UID) (Status, bool) {
	op := t.operation(uid)
	if op == nil {
		return Status{}, false
	}
	return op.status()
}

// operation returns the operation of an object, or nil.
func (t *Tracker) operation(uid types.UID) *operation {
	v, _ := t.operations.Load(uid)
	op, _ := v.(*operation)
	return op
}

// register an operation. It does not run yet, and all reconciles see it.
func (t *Tracker) register(op *operation) (*operation, error) {
	if !t.shutdown.enter() {
		op.lifetime.cancel(errStopped)
		return nil, errStopped
	}
	if _, exists := t.operations.LoadOrStore(op.uid(), op); exists {
		op.lifetime.cancel(errRunning)
		t.shutdown.leave()
		return nil, errRunning
	}
	t.config.metrics.observeStart(Type(op.stored.snapshot().Type))
	return op, nil
}

// operationSucceeded keeps in memory that the operation of r on o has succeeded.
func (t *Tracker) operationSucceeded(o client.Object, r *creation.Record) {
	t.objects.dropFailure(o)

	switch Type(r.Type) {
	case Update:
		t.objects.noteSucceeded(o, updateCauseOf(o, r.Generation), t.config.backoff)
	case Delete:
		t.objects.dropDetails(o)
		t.objects.noteSucceeded(o, creation.IdentityOf(o), backoff{
			first: t.config.backoff.first,
			last:  min(t.config.backoff.last, time.Minute),
		})
	}
}

// running returns the operation of an object that runs in this process, or nil. It returns an error if the operation
// has ended and its result is not stored, or not in the cache.
func (t *Tracker) running(mg resource.Managed) (*operation, error) {
	op := t.operation(mg.GetUID())
	if op == nil || !op.lifetime.get().over {
		return op, nil
	}
	if err := op.lifetime.get().unstored; err != nil {
		return nil, err
	}
	return nil, seam.Conflict(mg, "it was read before the result of its operation was stored")
}

// report returns the report of this reconcile.
func (t *Tracker) report(ctx context.Context) *progressReport { return t.reconciles.In(seam.From(ctx)) }

// poll reconciles the object again soon if no controller watches the tracker's source.
func (t *Tracker) poll(ctx context.Context) {
	if !t.queues.any() {
		seam.From(ctx).Requeue(seam.Within(pollInterval))
	}
}

// pollRunning reconciles the object again when its operation is to be reported.
func (t *Tracker) pollRunning(ctx context.Context, mg resource.Managed, s Status) {
	t.poll(ctx)
	if wait := untilReported(s, mg, time.Now()); wait > 0 {
		seam.From(ctx).Requeue(seam.Within(wait))
	}
}

// persist changes in a reconcile, on the API server and in memory.
func (t *Tracker) persist(ctx context.Context, mg resource.Managed, cs creation.Changes) error {
	s := seam.From(ctx)
	if !s.Tracks(mg) {
		return seam.Conflict(mg, "it is not the object that the reconcile has read")
	}
	if err := s.StoreAnnotations(ctx, mg, cs.Changes, seam.Decided, nil); err != nil {
		return err
	}
	cs.Apply(mg)
	return nil
}
