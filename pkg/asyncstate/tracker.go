package asyncstate

import (
	"context"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A stage of a shutdown is a context that is done from its beginning on.
type stage struct {
	context.Context //nolint:containedctx // It is the tracker's own lifetime.

	begin context.CancelFunc
}

func newStage() stage {
	ctx, begin := context.WithCancel(context.Background())
	return stage{Context: ctx, begin: begin}
}

// A Tracker knows the operations of the objects of one controller. It is safe for
// concurrent use.
//
// It keeps in memory only what runs, results on their way to the API server, and for
// a limited time which external resources were asked to go, what the last operation
// of an object failed with, and since when the outcome of a create is unknown.
//
// Two Trackers for one kind do no harm, but take each other's operations for those
// of a process that died.
type Tracker struct {
	writer  seam.Writer
	log     logging.Logger
	record  event.Recorder
	metrics *Metrics

	// holder tells this tracker's records from those of others.
	holder string

	timeout      time.Duration
	absentAfter  time.Duration
	grace        time.Duration
	firstBackoff time.Duration
	lastBackoff  time.Duration
	shutdown     time.Duration
	reportEvery  time.Duration
	most         int

	// reasons say why a reconcile does not go on after an interrupted operation.
	reasons seam.Slot[error]

	ownGoroutines bool
	deterministic bool
	idempotent    bool
	cancellable   bool

	// operations by the UIDs of their objects: those that run, and those whose
	// results are on their way.
	operations sync.Map

	known known

	// The stages of a shutdown, in order. They are the tracker's own lifetime.
	stopping   stage // No operation begins. Results are stored without long waits.
	cancelling stage // Operations that still run are cancelled.
	abandoning stage // Results that are not stored yet are left to the next process.

	// mu is never held while anything waits.
	mu       sync.Mutex
	stopped  bool
	running  int
	idle     chan struct{} // closed when running gets to 0 while stopped
	working  *slots
	deleting *slots // of objects that are being deleted
	queues   map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]
	queued   int
}

// NewTracker returns a tracker of operations of the objects that c reads and
// writes. It panics if c is nil.
func NewTracker(c client.Client, o ...TrackerOption) *Tracker {
	mustNotBeNil(c, "NewTracker")

	t := &Tracker{
		writer:       seam.Writer{Client: c, Live: c, Wait: seam.Wait},
		log:          logging.NewNopLogger(),
		record:       event.NewNopRecorder(),
		metrics:      NewMetrics(),
		holder:       string(uuid.NewUUID()),
		timeout:      DefaultTimeout,
		grace:        DefaultCreationGracePeriod,
		firstBackoff: DefaultFirstBackoff,
		lastBackoff:  DefaultLastBackoff,
		shutdown:     DefaultShutdownTimeout,
		reportEvery:  DefaultReportInterval,
		most:         DefaultMaxOperations,
		idle:         make(chan struct{}),
		queues:       map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]{},
	}
	t.stopping, t.cancelling, t.abandoning = newStage(), newStage(), newStage()

	for i, to := range o {
		if to == nil {
			panic(errors.Errorf("asyncstate.NewTracker was given a nil option (number %d): leave it out", i+1))
		}
		to(t)
	}

	t.working, t.deleting = newSlots(t.most), newSlots(t.most)
	return t
}

// Start waits until ctx is done, and then for the operations that run. None are
// begun any more. Those that take longer than the shutdown timeout are cancelled,
// and waited for as long again. Results are stored until then, with retries. What is
// left after that is abandoned, with a message in the log: the next process
// reads its record.
//
// It is for a manager to call, and never returns an error. If it is called more
// than once, all calls wait.
func (t *Tracker) Start(ctx context.Context) error {
	<-ctx.Done()
	t.mu.Lock()
	if t.stopped = true; t.running == 0 {
		t.closeIdle()
	}
	t.mu.Unlock()
	t.stopping.begin()

	for _, next := range []stage{t.cancelling, t.abandoning} {
		if t.idleWithin(t.shutdown) {
			return nil
		}
		next.begin()
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.Info("Operations did not end although they were cancelled, or their results could not be stored", "operations", t.running)
	return nil
}

// idleWithin reports whether everything that Start waits for has ended within d.
func (t *Tracker) idleWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.idle:
		return true
	case <-timer.C:
		return false
	}
}

// NeedLeaderElection says that a tracker starts and ends with the controllers, and so
// that a manager which is asked to end gives its leadership up after that. One that
// loses it tells both to end, and waits for neither: its process should end at once.
func (t *Tracker) NeedLeaderElection() bool { return true }

// closeIdle needs the lock.
func (t *Tracker) closeIdle() {
	select {
	case <-t.idle:
	default:
		close(t.idle)
	}
}

// enter notes that something begins that Start has to wait for. It is false if
// nothing may begin any more.
func (t *Tracker) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.running++
	return true
}

// leave notes that what entered has ended.
func (t *Tracker) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.stopped {
		t.closeIdle()
	}
}

// operation returns the operation of an object that runs, or whose result is on
// its way. It is nil if there is none.
func (t *Tracker) operation(uid types.UID) *Operation {
	v, ok := t.operations.Load(uid)
	if !ok {
		return nil
	}
	op, _ := v.(*Operation)
	return op
}
