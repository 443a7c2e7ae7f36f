package watch

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A State says how far a watch, or the kind that it watches, has come.
type State string

// States of a watch. A kind has the same states, for all its watches together. Dormant and
// Degraded end by themselves; while the informer runs, what was delivered stays readable.
const (
	StatePending  State = "Pending"  // The cache or controller must start, an earlier handler return, or the kind be looked up.
	StateSyncing  State = "Syncing"  // The informer runs, without its first list or its first watch.
	StateActive   State = "Active"   // The handler gets the events of a running, synced informer.
	StateDormant  State = "Dormant"  // The API server doesn't serve the kind. Nothing runs for it.
	StateDegraded State = "Degraded" // It can't be listed and watched, or syncs for more than two minutes.
	StateStopped  State = "Stopped"  // The watch was stopped, or the cache has ended.
)

const (
	firstBackoff   = time.Second
	lastBackoff    = time.Minute
	goneBackoff    = 2 * time.Minute        // Of a missing kind while CRDs are watched: it may not need one.
	deletedBackoff = 10 * time.Minute       // Of one that was gone right after its CRD was deleted.
	backoffSpread  = 0.2                    // Keeps kinds that failed together from being tried together.
	lookUpEvery    = 15 * time.Minute       // For kinds that work, in case that nothing says that one changed.
	syncPatience   = 2 * time.Minute        // How long it may take to sync, or to open a watch.
	wellFor        = 10 * time.Minute       // Afterwards the same trouble as before is logged again.
	firstPoll      = time.Millisecond       // Informers don't say when they have synced.
	lastPoll       = 100 * time.Millisecond // As above.
	recheck        = time.Second            // Other caches don't say when they stop an informer.

	// Reads note their time only if it is later by this part of how long they keep a
	// kind. So reads that come close together don't write.
	readPrecision = 1.0 / 64
)

// A kindSet is a cache: all its kinds, and what they have in common. It embeds nothing,
// so that the compiler names what a later controller-runtime adds to the interface.
type kindSet struct {
	scheme     *runtime.Scheme
	backend    backend
	wraps      cache.Cache // That the informers come from, if it isn't ours.
	linger     time.Duration
	readLinger time.Duration
	random     func() float64 // In [0, 1). Spreads backoffs.
	log        atomic.Pointer[logging.Logger]
	delivered  prometheus.Counter          // Events.
	counts     *prometheus.CounterVec      // Failures by reason.
	starting   chan struct{}               // Closed when kinds start to run.
	initial    []*trackedKind              // That there were then.
	crds       atomic.Pointer[trackedKind] // That of CRDs, if they are watched for the others.

	// Ends when the cache is shut down, as all that the group waits for does.
	ctx    context.Context //nolint:containedctx // Kinds outlive the call that asks for them.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// The mutex guards what follows, and is never held across anything that waits. A
	// kind's mutex may be taken while it is held, not the other way round.
	mu      sync.RWMutex
	kinds   map[kindID]*trackedKind
	indexes map[kindID]map[string]*index // By name. They outlive kinds.
	asked   map[kindID]bool              // And not removed since: only they can be read. Nil if all can.
}

// A trackedKind is one informer, as its owners see it: they keep the kind while
// informers come and go below it. Its goroutine, run, alone looks it up, and opens and
// closes informers. The mutex is never held across a wait.
type trackedKind struct {
	set      *kindSet
	id       kindID
	obj      client.Object
	fan      *fan
	current  atomic.Pointer[opened] // What reads use: the informer that is synced. Nil if none is.
	lastRead atomic.Int64           // In nanoseconds since 1970; 0 is never.
	active   atomic.Bool            // The state is StateActive.
	wake     chan struct{}          // Makes run look at what follows.

	// Written by run alone: the epoch in which the kind was last looked up, whether the API
	// server didn't serve it then, and how many informers in a row were lost soon after they
	// had synced.
	noted    uint64
	gone     bool
	relapses int

	mu         sync.Mutex
	state      State
	since      time.Time
	err        *KindError    // Unless it was overcome.
	logged     []error       // Reasons of failures, since the kind was well.
	changed    chan struct{} // Closed at each move.
	generation uint64        // How many informers there were.
	mapping    *meta.RESTMapping
	indexes    map[string]*index  // By name. Written with the set's mutex, too.
	unstarted  bool               // The informer can't sync until its cache is started.
	cancel     context.CancelFunc // Ends the informer.

	owners    int       // Watches and handlers.
	waiting   int       // Calls that wait: they own the kind, too.
	idleSince time.Time // When the last owner went.

	epoch   uint64 // The counter. What was looked up before must be looked up again.
	deleted uint64 // Epoch in which the CRD was deleted, unless the kind was served since.

	failures int       // In a row.
	failedAt time.Time // Zero while it is looked up, or has an informer.
	jitter   float64
}

func (k *trackedKind) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// note what run has to look at.
func (k *trackedKind) note(fn func()) {
	k.mu.Lock()
	fn()
	k.mu.Unlock()
	k.poke()
}

// raise the epoch: what is known of the kind may be wrong. The informer stays until
// a look-up says that it is wrong, unless it is to be replaced, which is then out
// of use when raise returns.
func (k *trackedKind) raise(replace, crdDeleted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch++
	k.failures = 0
	if crdDeleted {
		k.deleted = k.epoch
	}
	if replace {
		k.cancel()
		k.lastRead.Store(0) // Reads don't keep the next one.
		if !k.owned() {
			k.idleSince = time.Time{}
		}
		if k.current.Swap(nil) != nil {
			k.fan.listen(nil)
			k.move(StatePending, nil)
		}
	}
	k.poke()
}

// move to a state. The mutex must be held.
func (k *trackedKind) move(s State, err *KindError) {
	if k.state != s {
		k.state = s
		k.since = time.Now()
		k.active.Store(s == StateActive)
	}
	k.err = err
	close(k.changed)
	k.changed = make(chan struct{})
}

// complain counts an error, logs it if it is news and callers that wait aren't all who need
// to know, and moves to the state for it. The mutex must be held.
func (k *trackedKind) complain(err *KindError) {
	k.set.counts.WithLabelValues(reasons()[err.Reason]).Inc()
	s := StateDegraded
	if k.gone {
		s = StateDormant
	}
	if k.state == StateActive && time.Since(k.since) > wellFor {
		k.logged = nil
	}
	if (k.owners > 0 || k.current.Load() != nil) && !slices.Contains(k.logged, err.Reason) {
		k.set.wg.Go(func() { // Without the mutex.
			(*k.set.log.Load()).Info("Cannot watch kind; will resume when it can be watched", "gvk", k.id.GroupVersionKind, "state", s, "error", err)
		})
		k.logged = append(k.logged, err.Reason)
	}
	k.move(s, err)
}

// touch notes that the kind was read: reads own an informer for a while. Many may
// read at once, on as many cores, and would all write to the same memory.
func (k *trackedKind) touch() {
	now := time.Now().UnixNano()
	if now-k.lastRead.Load() > int64(readPrecision*float64(k.set.readLinger)) {
		k.lastRead.Store(now)
	}
}

// disown counts one owner less, of those that wait or of the others.
func (k *trackedKind) disown(count *int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*count--
	if !k.owned() {
		k.idleSince = time.Now()
		k.poke()
	}
}

// owned reports whether the kind has owners. An index owns only what there is: if the
// kind comes back, so does the index. The mutex must be held.
func (k *trackedKind) owned() bool {
	return k.owners > 0 || k.waiting > 0 || len(k.indexes) > 0 && k.state != StateDormant
}

// retiresIn returns when the kind may go if it gets no owner until then. Reads keep
// only what can be read.
func (k *trackedKind) retiresIn() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owned() {
		return math.MaxInt64
	}
	at := k.idleSince.Add(k.set.linger)
	if n := k.lastRead.Load(); n != 0 {
		keep := k.set.readLinger
		if k.err != nil && k.err.verdict() {
			keep = k.set.linger
		}
		if r := time.Unix(0, n).Add(keep); r.After(at) {
			at = r
		}
	}
	return time.Until(at)
}

// retire removes the kind from its set, unless it has a use.
func (k *trackedKind) retire() bool {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	if k.retiresIn() > 0 {
		return false
	}
	delete(k.set.kinds, k.id)
	return true
}

// wait for the informer to be synced, and for the index, if it isn't nil, to be added or
// refused. It returns nil without an error if the cache isn't started, so that nothing
// could sync. It fails at once while trying is known to be no use, and otherwise when the
// context ends.
func (k *trackedKind) wait(ctx context.Context, i *index) (*opened, error) {
	if o := k.current.Load(); o != nil && i == nil {
		return o, nil
	}
	k.note(func() { k.waiting++ })
	defer k.disown(&k.waiting)
	for {
		k.mu.Lock()
		o, changed, state, err := k.current.Load(), k.changed, k.state, k.err
		ready := o != nil
		var refused error
		switch {
		case i != nil && k.indexes[i.name] != i:
			refused, ready = errors.New("another index took its place"), true
		case ready && i != nil:
			refused, ready = o.indexes[i]
		}
		started := o != nil || isClosed(k.set.starting) && !k.unstarted
		hopeless := k.err != nil && k.epoch == k.noted && k.dueIn(true) > 0
		k.mu.Unlock()

		switch {
		case ready:
			return o, refused
		case k.set.ctx.Err() != nil, state == StateStopped:
			return nil, &KindError{GVK: k.id.GroupVersionKind, Reason: ErrNotSynced, Err: ErrShutDown}
		case !started:
			return nil, nil
		case hopeless:
			return nil, err
		}
		select {
		case <-changed:
		case <-k.set.ctx.Done():
		case <-ctx.Done():
			late := &KindError{GVK: k.id.GroupVersionKind, Reason: ErrNotSynced, Err: ctx.Err()}
			if err != nil {
				late.Reason, late.Err = err.Reason, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return nil, late
		}
	}
}

// run drives the kind until it is retired or the cache ends.
func (k *trackedKind) run() {
	defer k.end()
	for k.set.ctx.Err() == nil {
		if k.retire() {
			return
		}
		if d := k.cooling(); d > 0 {
			k.pause(k.set.ctx, d)
			continue
		}
		m, err := k.lookUp(k.set.ctx)
		if err == nil {
			err = k.session(m)
		}
		if err != nil && k.set.ctx.Err() == nil {
			k.fail(classify(k.id.GroupVersionKind, err))
		}
	}
}

// lookUp finds out how the kind is served now.
func (k *trackedKind) lookUp(ctx context.Context) (*meta.RESTMapping, error) {
	k.mu.Lock()
	k.noted, k.failedAt = k.epoch, time.Time{}
	k.mu.Unlock()
	m, err := k.set.backend.resolve(ctx, k.id.GroupVersionKind)
	k.found(err)
	return m, err
}

// found notes whether the API server serves the kind.
func (k *trackedKind) found(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = err != nil && errors.Is(classify(k.id.GroupVersionKind, err), ErrNoSuchKind)
	if err == nil {
		k.deleted = 0
	}
}

// end says that nothing will happen any more.
func (k *trackedKind) end() {
	k.current.Store(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.move(StateStopped, nil)
}

// dueIn returns how long not to try again after a failure. Calls that wait try sooner: the
// API server may be back, and only trying tells. The mutex must be held.
func (k *trackedKind) dueIn(calls bool) time.Duration {
	limit := lastBackoff
	if crds := k.set.crds.Load(); k.gone && crds != nil && crds.active.Load() {
		limit = goneBackoff
	}
	d := min(limit, firstBackoff<<max(0, min(k.failures-1, 10)))
	switch {
	case limit == goneBackoff && k.deleted == k.noted:
		d = deletedBackoff
	case calls && !k.err.verdict():
		d = firstBackoff
	}
	return time.Until(k.failedAt.Add(d + time.Duration(k.jitter*float64(d))))
}

// cooling returns how long not to try, at most.
func (k *trackedKind) cooling() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil || k.epoch != k.noted {
		return 0
	}
	if k.err.verdict() && !k.owned() {
		return lastBackoff // Nothing needs the answer.
	}
	return min(k.dueIn(k.waiting > 0), lastBackoff) // Whether CRDs are known may change.
}

// pause until there may be something to do, or the time is over. A kind without
// owners wakes up to retire.
func (k *trackedKind) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(min(d, max(k.retiresIn(), time.Millisecond)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-t.C:
	}
}

// fail notes that there is no informer, and why.
func (k *trackedKind) fail(err *KindError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		k.fan.clear()
	}
	k.failures++
	k.failedAt = time.Now()
	k.jitter = k.set.random() * backoffSpread
	k.complain(err)
}

// session is the life of one informer. It returns why it failed, or nil if the kind
// is to be looked up at once. Foreign code that it calls may panic.
func (k *trackedKind) session(m *meta.RESTMapping) (err error) {
	defer survive(&err)
	ctx, cancel := context.WithCancel(k.set.ctx)
	defer cancel()
	k.note(func() { k.mapping, k.cancel = m, cancel })
	o, err := k.set.backend.open(ctx, k, m)
	if err != nil {
		k.found(err) // The cache that makes the informer may look it up.
		return err
	}
	o.indexes = make(map[*index]error)
	defer func() {
		cancel()
		k.fan.listen(nil) // What still comes is ignored.
		k.mu.Lock()
		k.current.Store(nil)
		if k.state == StateActive || k.state == StateSyncing {
			k.move(StatePending, nil)
		}
		k.mu.Unlock()
		o.close()
	}()
	t := &tap{fan: k.fan}
	k.fan.listen(t)
	reg, err := o.inf.AddEventHandler(t)
	if err != nil {
		return err
	}
	if !is.Nil(reg) {
		defer func() { _ = o.inf.RemoveEventHandler(reg) }() // The informer may live on.
	}
	k.mu.Lock()
	k.generation++
	if k.state != StateDegraded {
		// What is wrong stays wrong until the informer syncs.
		k.move(StateSyncing, nil)
	}
	k.mu.Unlock()
	return k.follow(ctx, o, t, reg)
}

// follow an informer until it has to go.
func (k *trackedKind) follow(ctx context.Context, o *opened, t *tap, reg kcache.ResourceEventHandlerRegistration) error {
	var syncedAt time.Time
	poll := firstPoll
	o.next = nextLookUp(k.id.GroupVersion())
	for {
		if ctx.Err() != nil || k.retiresIn() <= 0 {
			return nil
		}
		lost := errors.New("the informer was stopped")
		if !o.inf.IsStopped() {
			if syncedAt.IsZero() && o.inf.HasSynced() && (is.Nil(reg) || reg.HasSynced()) {
				k.fan.settle(t) //nolint:contextcheck // Subscriptions have their own.
				syncedAt = time.Now()
			}
			if !syncedAt.IsZero() {
				k.addIndexes(ctx, o)
			}
			lost = k.judge(ctx, o, !syncedAt.IsZero())
		}
		if lost != nil {
			return k.relapse(lost, syncedAt)
		}
		if stay, err := k.confirm(ctx, o); !stay {
			return err
		}
		d := time.Until(o.next)
		switch {
		case !k.active.Load():
			d = poll
			poll = min(2*poll, lastPoll)
		case !o.closed.IsZero():
			d = min(d, time.Until(o.closed.Add(syncPatience)))
		case len(o.parts) == 0:
			d = min(d, recheck)
		}
		k.pause(ctx, d)
	}
}

// nextLookUp is the same time for all kinds of a group and version, which share requests, and
// mostly another one for others: new kinds would wait behind them all.
func nextLookUp(gv schema.GroupVersion) time.Time {
	at := time.Duration(crc32.ChecksumIEEE([]byte(gv.String()))) * time.Second % lookUpEvery
	return time.Now().Add(-at).Truncate(lookUpEvery).Add(lookUpEvery + at)
}

// confirm looks the kind up again if the epoch was raised, or if it is time to. It
// returns whether the informer may stay. One that works stays if there is no answer, and
// is looked up again soon.
func (k *trackedKind) confirm(ctx context.Context, o *opened) (stay bool, err error) {
	k.mu.Lock()
	known := k.noted == k.epoch
	k.mu.Unlock()
	if known && time.Until(o.next) > 0 {
		return true, nil
	}
	o.next = nextLookUp(k.id.GroupVersion())
	m, err := k.lookUp(ctx)
	switch {
	case k.gone:
		return false, err
	case err != nil:
		o.next = time.Now().Add(lastBackoff)
	case k.mapping != nil && (m.Resource != k.mapping.Resource || m.Scope.Name() != k.mapping.Scope.Name()):
		return false, nil
	}
	return true, nil
}

// judge moves the state to what the informer's lists and watches led to. It returns
// an error if the informer is no use any more.
func (k *trackedKind) judge(ctx context.Context, o *opened, synced bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	watching, closed, listErr, watchErr := o.outcomes()
	o.closed = closed
	outcome := cmp.Or(listErr, watchErr)
	if ctx.Err() != nil {
		return nil // It is to be replaced.
	}
	if outcome != nil {
		err := classify(k.id.GroupVersionKind, outcome)
		if synced && kerrors.IsNotFound(outcome) || !synced && listErr != nil && err.verdict() {
			// Informers try for ever, at their own pace. The kind has a backoff of
			// its own, and looks itself up.
			return err
		}
		if k.state != StateDegraded || k.err == nil || !errors.Is(k.err.Reason, err.Reason) {
			k.complain(err)
		}
	}
	if synced && k.current.Load() == nil {
		k.current.Store(o)
		k.move(k.state, k.err)
	}
	switch {
	case outcome != nil:
	case synced && watching && k.state != StateActive:
		k.failures = 0
		k.move(StateActive, nil)
	case k.state == StateSyncing && time.Since(k.since) > syncPatience:
		k.complain(&KindError{GVK: k.id.GroupVersionKind, Reason: ErrNotSynced})
	case k.state == StateActive && !closed.IsZero() && time.Since(closed) >= syncPatience:
		k.complain(&KindError{GVK: k.id.GroupVersionKind, Reason: ErrUnreachable, Err: errors.New("no watch is open")})
	}
	return nil
}

// relapse returns nil if the kind is to be looked up at once after an informer was lost
// that had synced: mostly its kind went, or is served elsewhere. If it is lost again and
// again, that is a failure.
func (k *trackedKind) relapse(lost error, syncedAt time.Time) error {
	if syncedAt.IsZero() {
		return lost
	}
	k.relapses++
	if time.Since(syncedAt) > lastBackoff {
		k.relapses = 1
	}
	if k.relapses == 1 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failures = k.relapses - 2
	return lost
}

// addIndexes adds what was asked for since the informer was opened.
func (k *trackedKind) addIndexes(ctx context.Context, o *opened) {
	k.mu.Lock()
	var missing []*index
	for _, i := range k.indexes {
		if _, ok := o.indexes[i]; !ok {
			missing = append(missing, i)
		}
	}
	k.mu.Unlock()

	for _, i := range missing {
		err := i.panics
		if err == nil {
			i.panics = errors.New("its function panics") // Unless it returns.
			err = i.addTo(ctx, o, k.obj)
			i.panics = nil
		}
		k.mu.Lock()
		o.indexes[i], i.used = err, true
		k.move(k.state, k.err)
		k.mu.Unlock()
	}
}
