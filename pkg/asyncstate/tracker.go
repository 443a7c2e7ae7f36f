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

// What a Tracker does unless its options say otherwise.
const (
	DefaultTimeout         = time.Hour
	DefaultMaxOperations   = 100
	DefaultFirstBackoff    = time.Second
	DefaultLastBackoff     = 5 * time.Minute
	DefaultShutdownTimeout = 20 * time.Second
	DefaultReportInterval  = 10 * time.Second
)

// A Tracker knows the operations of the objects of one controller. It is safe for
// concurrent use.
//
// It keeps in memory only what runs, and results on their way to the API server:
// nothing of an object that has no operation, or is gone.
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
	firstBackoff time.Duration
	lastBackoff  time.Duration
	shutdown     time.Duration
	reportEvery  time.Duration
	most         int

	ownGoroutines bool
	deterministic bool
	idempotent    bool
	cancellable   bool

	// operations by the UIDs of their objects: those that run, and those whose
	// results are on their way.
	operations sync.Map

	details details

	// hurry ends when the time for a graceful end is over.
	hurry context.Context //nolint:containedctx // It is the tracker's own lifetime.
	rush  context.CancelFunc

	// mu is never held while anything waits.
	mu      sync.Mutex
	stopped bool
	running int
	idle    chan struct{} // closed when running gets to 0 while stopped
	slots   map[types.UID]struct{}
	line    []waiter
	inLine  map[types.UID]struct{} // those of the line that still wait
	queues  map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]
	queued  int
}

// A waiter is an object that wants to begin an operation.
type waiter struct {
	uid types.UID
	key client.ObjectKey
}

// A TrackerOption configures a Tracker. It panics if what it is given makes no
// sense.
type TrackerOption func(*Tracker)

// WithLiveReader sets what reads from the API server itself: a manager's
// GetAPIReader. By default it is the client, and then results may meet more
// conflicts than they need to before they are stored.
func WithLiveReader(r client.Reader) TrackerOption {
	mustNotBeNil(r, "WithLiveReader")
	return func(t *Tracker) { t.writer.Live = r }
}

// WithLogger sets where debug messages go. Nowhere, by default.
func WithLogger(l logging.Logger) TrackerOption {
	mustNotBeNil(l, "WithLogger")
	return func(t *Tracker) { t.log = l }
}

// WithRecorder sets where events go. Nowhere, by default.
func WithRecorder(r event.Recorder) TrackerOption {
	mustNotBeNil(r, "WithRecorder")
	return func(t *Tracker) { t.record = r }
}

// WithMetrics sets what counts operations. Nothing, by default.
func WithMetrics(m *Metrics) TrackerOption {
	mustNotBeNil(m, "WithMetrics")
	return func(t *Tracker) { t.metrics = m }
}

// WithTimeout sets how long an operation may take, DefaultTimeout by default. When
// the time is over its context is cancelled, and it counts as ended when it
// returns, not earlier.
func WithTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithTimeout")
	return func(t *Tracker) { t.timeout = d }
}

// WithAbsenceAfter sets how long after its beginning a create of another process
// is taken to be still on its way, if what it should have made is not found. By
// default it is until its deadline. A shorter time is for providers that can be
// sure that such a process is dead: an external resource that comes up later is
// one too many.
func WithAbsenceAfter(d time.Duration) TrackerOption {
	mustBePositive(d, "WithAbsenceAfter")
	return func(t *Tracker) { t.absentAfter = d }
}

// WithBackoff sets how long an object waits after an operation that failed: first
// after the first, twice as long after each that follows, but never longer than
// last. The defaults are DefaultFirstBackoff and DefaultLastBackoff.
func WithBackoff(first, last time.Duration) TrackerOption {
	mustBePositive(first, "WithBackoff")
	mustBePositive(last, "WithBackoff")

	return func(t *Tracker) { t.firstBackoff, t.lastBackoff = first, max(first, last) }
}

// WithMaxOperations sets how many operations may run at the same time,
// DefaultMaxOperations by default. Others wait for their turn, and say so.
func WithMaxOperations(n int) TrackerOption {
	mustBePositive(n, "WithMaxOperations")
	return func(t *Tracker) { t.most = n }
}

// WithShutdownTimeout sets how long Start waits for running operations when its
// context is done, DefaultShutdownTimeout by default. It should be shorter than
// the manager's grace period, 30 seconds by default. Operations that run longer
// are cancelled; their records stay.
func WithShutdownTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithShutdownTimeout")
	return func(t *Tracker) { t.shutdown = d }
}

// WithReportInterval sets how often progress is put on the API server at most,
// DefaultReportInterval by default.
func WithReportInterval(d time.Duration) TrackerOption {
	mustBePositive(d, "WithReportInterval")
	return func(t *Tracker) { t.reportEvery = d }
}

// WithDeterministicNames declares that the name of an external resource is known
// before it is created, and that the external system never has two of a name. A
// create whose result is not known is then observed by that name, and repeated.
func WithDeterministicNames() TrackerOption {
	return func(t *Tracker) { t.deterministic = true }
}

// WithIdempotentTokens declares that Create hands Token to an external system that
// makes one resource for a token, however often it is asked to. A create whose
// result is not known is then repeated with its token.
//
// If the external system insists on the same request with the same token, a spec
// that was changed meanwhile stands in the way. Implement Finder, too.
func WithIdempotentTokens() TrackerOption {
	return func(t *Tracker) { t.idempotent = true }
}

// WithCancellableCreates declares that a Create whose context is cancelled leaves
// nothing behind that it doesn't return the external name of. It is then cancelled
// if its object is deleted, instead of being waited for.
func WithCancellableCreates() TrackerOption {
	return func(t *Tracker) { t.cancellable = true }
}

// WithOwnGoroutines says that the external client's Create, Update and Delete
// return at once, and have called Begin if anything goes on. Without it the
// tracker calls them in goroutines of its own.
func WithOwnGoroutines() TrackerOption {
	return func(t *Tracker) { t.ownGoroutines = true }
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
		firstBackoff: DefaultFirstBackoff,
		lastBackoff:  DefaultLastBackoff,
		shutdown:     DefaultShutdownTimeout,
		reportEvery:  DefaultReportInterval,
		most:         DefaultMaxOperations,
		details:      details{of: map[types.UID]*returned{}},
		idle:         make(chan struct{}),
		slots:        map[types.UID]struct{}{},
		inLine:       map[types.UID]struct{}{},
		queues:       map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]{},
	}
	t.hurry, t.rush = context.WithCancel(context.Background())

	for i, to := range o {
		if to == nil {
			panic(errors.Errorf("asyncstate.NewTracker was given a nil option (number %d): leave it out", i+1))
		}

		to(t)
	}

	return t
}

// Start waits until ctx is done, and then for the operations that run. None are
// begun any more. Those that take longer than the shutdown timeout are cancelled,
// and waited for as long once more; then they are left alone, with a message in
// the log. Their records tell the next process of them.
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

	for range 2 {
		timer := time.NewTimer(t.shutdown)

		select {
		case <-t.idle:
			timer.Stop()
			t.rush()

			return nil
		case <-timer.C:
			t.rush()
		}
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	t.log.Info("Operations did not end although they were cancelled", "operations", t.running)

	return nil
}

// NeedLeaderElection says that a tracker starts and ends with the controllers.
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

// acquire a slot for an operation of an object, or a place in the line.
func (t *Tracker) acquire(o client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, ok := t.slots[o.GetUID()]; ok {
		return true
	}

	if len(t.slots) < t.most {
		t.slots[o.GetUID()] = struct{}{}
		delete(t.inLine, o.GetUID())

		return true
	}

	if _, ok := t.inLine[o.GetUID()]; !ok {
		t.inLine[o.GetUID()] = struct{}{}
		t.line = append(t.line, waiter{uid: o.GetUID(), key: client.ObjectKeyFromObject(o)})
	}

	return false
}

// release an object's slot, and let the next in line have its turn. One that
// doesn't take it, since it is gone for example, costs the others no more than the
// time until they ask again by themselves.
func (t *Tracker) release(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, ok := t.slots[uid]; !ok {
		return
	}

	delete(t.slots, uid)

	for len(t.line) > 0 {
		next := t.line[0]
		t.line = t.line[1:]

		if _, ok := t.inLine[next.uid]; ok {
			delete(t.inLine, next.uid)
			t.add(next.key)

			return
		}
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

// A Status is what a Tracker knows of a running operation.
type Status struct {
	Attempt

	// Deadline of the operation.
	Deadline time.Time

	// Percent and Message are what was last given to Progress.
	Percent int
	Message string
}

// Lookup returns the operation of an object that runs in this process. It costs
// no lock that others hold for long, and asks nobody.
func (t *Tracker) Lookup(uid types.UID) (Status, bool) {
	op := t.operation(uid)
	if op == nil {
		return Status{}, false
	}

	return op.status()
}

// retryAt returns when an operation that ended without success may be tried once
// more.
func (t *Tracker) retryAt(r *record) time.Time {
	if r.Ended == nil {
		return time.Time{}
	}

	d := t.firstBackoff
	for i := 1; i < r.Failures && d < t.lastBackoff; i++ {
		d *= 2
	}

	return r.Ended.Add(min(d, t.lastBackoff))
}

// settledAt returns from when on it can be believed that what a create should have
// made doesn't exist.
func (t *Tracker) settledAt(r *record) time.Time {
	switch {
	case r.Phase != phaseRunning:
		return r.Ended.Time
	case t.absentAfter == 0 || r.Deadline.Time.Before(r.Started.Add(t.absentAfter)):
		return r.Deadline.Time
	default:
		return r.Started.Add(t.absentAfter)
	}
}

func mustNotBeNil(v any, where string) {
	if seam.IsNil(v) {
		panic(errors.Errorf("asyncstate.%s was given nil: leave it out to get the default, or pass what it asks for", where))
	}
}

func mustBePositive[N ~int | ~int64](n N, where string) {
	if n <= 0 {
		panic(errors.Errorf("asyncstate.%s was given %v: pass something greater than 0", where, n))
	}
}
