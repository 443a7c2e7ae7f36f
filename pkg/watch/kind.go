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

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A State is the state of a watch, or of a kind.
type State string

// States of a watch. A kind has the same states. Dormant and Degraded end without a call.
// Objects that were listed stay readable while the informer runs.
const (
	StatePending  State = "Pending"  // Waits for the cache, the controller, another handler, or a look-up.
	StateSyncing  State = "Syncing"  // The informer runs. Its first list or its first watch is missing.
	StateActive   State = "Active"   // The handler gets the events of a running, synced informer.
	StateDormant  State = "Dormant"  // The API server doesn't serve the kind. No informer runs.
	StateDegraded State = "Degraded" // The kind can't be listed and watched, or syncs for more than two minutes.
	StateStopped  State = "Stopped"  // The watch was stopped, or the cache has ended.
)

const (
	firstBackoff   = time.Second
	maxBackoff     = time.Minute
	missingBackoff = 2 * time.Minute  // For a missing kind, if no event of its CRD comes first.
	deletedBackoff = 10 * time.Minute // For a missing kind whose CRD was deleted.
	backoffJitter  = 0.2              // Spreads the retries of kinds that failed together.
	lookUpInterval = 15 * time.Minute // For kinds that work, in case no event says that one has changed.
	syncPatience   = 2 * time.Minute  // For an informer to sync, and for a watch to open.
	watchWorks     = time.Second      // A watch that is open for this long works. Others may be cut by a proxy.
	logAgainAfter  = 10 * time.Minute // A kind that was Active for this long logs the same failure again.

	// Reads store their time only if it is later by this part of the read linger, so that
	// frequent reads don't write to shared memory.
	readPrecision = 1.0 / 64
)

// A trackedKind keeps an informer for a group, version, kind and representation while it has
// owners. Its goroutine, run, looks the kind up, and opens and closes informers. The mutex is
// never held across a wait.
type trackedKind struct {
	set         *kindSet
	id          kindID
	obj         client.Object
	beforeStart bool // The kind was requested before the cache was started.
	broadcaster *broadcaster
	synced      atomic.Pointer[informer] // Serves reads. Nil while no informer is synced.
	status      atomic.Pointer[kindStatus]
	lastRead    atomic.Int64  // In nanoseconds since 1970; 0 is never.
	wake        chan struct{} // Signals run that a field below has changed.
	firstSync   *kcache.FIFO  // Synced when an informer has synced for the first time.

	mu          sync.Mutex
	changed     chan struct{} // Closed when the status or an index changes.
	loggedAlong []error       // Reasons of failures that were logged since the kind worked.
	generation  uint64        // How many informers there were.
	mapping     *meta.RESTMapping
	list        func(context.Context) error // Lists one object as the last informer did. Nil if there was none.
	stop        context.CancelFunc          // Stops the informer.
	indexes     map[string]*index           // By name. Written with the set's mutex held, too.
	subscribers int                         // Watches and event handlers own the kind.
	waiters     int                         // Calls that wait own the kind, too.
	idleSince   time.Time                   // When the last owner was released.
	epoch       uint64                      // Events that may make the last look-up wrong.
	last        attempt
}

// A kindStatus is immutable.
type kindStatus struct {
	state State
	since time.Time
	err   *KindError // The last failure, until an informer works.
}

// An attempt is the last one to look a kind up and to run an informer for it.
type attempt struct {
	epoch      uint64    // When the kind was looked up. The result is obsolete in a later epoch.
	failedAt   time.Time // Zero while the attempt is in progress.
	failures   int       // In a row.
	requested  bool      // A call failed with its error, and a second has passed since: retry.
	crdDeleted bool      // The kind's CRD was deleted, and the kind wasn't served since.
	jitter     float64
}

func (k *trackedKind) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// update calls fn with the mutex held, and signals run.
func (k *trackedKind) update(fn func()) {
	k.mu.Lock()
	fn()
	k.mu.Unlock()
	k.signal()
}

// setState sets the status, and wakes calls that wait. A kind that was Active for long logs its
// next failure, even if the informer ends first. The mutex must be held.
func (k *trackedKind) setState(s State, err *KindError) {
	next := kindStatus{state: s, since: time.Now(), err: err}
	switch was := k.status.Load(); {
	case was.state == s:
		next.since = was.since
	case was.state == StateActive && time.Since(was.since) > logAgainAfter:
		k.loggedAlong = nil
	}
	k.status.Store(&next)
	k.notify()
}

// notify wakes calls that wait. The mutex must be held.
func (k *trackedKind) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// setFailed counts a failure, and sets the state for it. It logs the failure unless one with
// the same reason was logged, or only callers that get the error need to know. The mutex must
// be held.
func (k *trackedKind) setFailed(err *KindError) {
	k.set.counts.WithLabelValues(reasons()[err.Reason]).Inc()
	s := StateDegraded
	if err.missing() {
		s = StateDormant
	}
	k.setState(s, err) // Before loggedAlong is read, because it may clear it.
	if (k.subscribers > 0 || k.synced.Load() != nil) && !slices.Contains(k.loggedAlong, err.Reason) {
		k.set.wg.Go(func() { // Without the mutex.
			(*k.set.log.Load()).Info(
				"Cannot watch kind; will resume when it can be watched", "gvk", k.id.GroupVersionKind, "state", s,
				"error", err,
			)
		})
		k.loggedAlong = append(k.loggedAlong, err.Reason)
	}
}

// crdChanged increments the epoch, which makes run look the kind up, and ends the backoff. The
// informer stays until the look-up shows that it is wrong.
func (k *trackedKind) crdChanged(op operation) {
	k.update(func() {
		k.epoch++
		k.last.failures, k.last.crdDeleted = 0, op == deleted
	})
}

// replaceInformer increments the epoch and stops the informer. It is out of use on return.
func (k *trackedKind) replaceInformer() {
	k.update(func() {
		k.epoch++
		k.last.failures = 0
		k.stop()
		k.lastRead.Store(0) // Earlier reads don't keep the next informer.
		if !k.inUse() {
			k.idleSince = time.Time{}
		}
		k.broadcaster.follow(nil)
		if k.synced.Swap(nil) != nil {
			k.setState(StatePending, nil)
		}
	})
}

// touch records a read: reads own an informer for a while.
func (k *trackedKind) touch() {
	now := time.Now().UnixNano()
	if now-k.lastRead.Load() > int64(readPrecision*float64(k.set.readLinger)) {
		k.lastRead.Store(now)
	}
}

// release decrements the number of subscribers or waiters.
func (k *trackedKind) release(owners *int) {
	k.update(func() {
		*owners--
		if !k.inUse() {
			k.idleSince = time.Now()
		}
	})
}

// inUse reports whether the kind has owners. An index doesn't own a missing kind: it is added
// when the kind comes back. The mutex must be held.
func (k *trackedKind) inUse() bool {
	return k.subscribers > 0 || k.waiters > 0 || len(k.indexes) > 0 && k.status.Load().state != StateDormant
}

// retiresIn returns the time until the kind is removed if no owner comes.
func (k *trackedKind) retiresIn() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse() {
		return math.MaxInt64
	}
	at := k.idleSince.Add(k.set.linger)
	if n := k.lastRead.Load(); n != 0 {
		keep := k.set.readLinger
		if err := k.status.Load().err; err != nil && err.permanent() {
			keep = k.set.linger // There is nothing to read.
		}
		if r := time.Unix(0, n).Add(keep); r.After(at) {
			at = r
		}
	}
	return time.Until(at)
}

// retire removes the kind from its set unless it is in use.
func (k *trackedKind) retire() bool {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	if k.retiresIn() > 0 {
		return false
	}
	delete(k.set.kinds, k.id)
	return true
}

// wait waits until the informer is synced, and has the index if that isn't nil. It returns nil
// without an error if the cache isn't started. It fails at once if the kind is known to be in
// trouble, and makes run retry soon. Otherwise it waits until the context ends, at most a minute.
func (k *trackedKind) wait(ctx context.Context, i *index) (*informer, error) {
	if inf := k.synced.Load(); inf != nil && i == nil {
		return inf, nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	k.update(func() { k.waiters++ })
	defer k.release(&k.waiters)
	for {
		k.mu.Lock()
		inf, changed, s := k.synced.Load(), k.changed, k.status.Load()
		ready := inf != nil
		var refused error
		switch {
		case i != nil && k.indexes[i.name] != i:
			refused, ready = errors.New("another index took its place"), true
		case ready && i != nil:
			refused, ready = inf.indexes[i]
		}
		failure := s.err
		if failure == nil && s.state == StateSyncing && time.Since(s.since) >= syncTimeout {
			failure = k.failure(ErrNotSynced, nil)
		}
		failFast := inf == nil && failure != nil && k.epoch == k.last.epoch
		if failFast && !k.last.failedAt.IsZero() && time.Since(k.last.failedAt) >= firstBackoff {
			k.last.requested = true
		}
		k.mu.Unlock()

		switch {
		case ready:
			return inf, refused
		case k.set.ctx.Err() != nil, s.state == StateStopped:
			return nil, k.failure(ErrNotSynced, k.set.ended())
		case !isClosed(k.set.starting):
			return nil, nil
		case failFast:
			return nil, failure
		}
		select {
		case <-changed:
		case <-k.set.ctx.Done():
		case <-ctx.Done():
			if failure != nil {
				return nil, k.failure(failure.Reason, fmt.Errorf("%w: %w", ctx.Err(), failure))
			}
			return nil, k.failure(ErrNotSynced, ctx.Err())
		}
	}
}

// failure returns an error about the kind.
func (k *trackedKind) failure(reason, err error) *KindError {
	return &KindError{GVK: k.id.GroupVersionKind, Reason: reason, Err: err}
}

// run drives the kind until it is retired or the cache ends.
func (k *trackedKind) run() {
	defer k.update(func() {
		k.synced.Store(nil)
		k.setState(StateStopped, nil)
	})
	for k.set.ctx.Err() == nil && !k.retire() {
		if d := k.backoff(); d > 0 {
			k.sleep(k.set.ctx, d)
			continue
		}
		missing := k.status.Load().err.missing()
		m, err := k.lookUp(k.set.ctx)
		if err == nil {
			err = k.session(m, missing)
		}
		if err != nil && k.set.ctx.Err() == nil {
			k.fail(classify(k.id.GroupVersionKind, err))
		}
	}
}

// backoff returns the time until the kind should be looked up, at most a minute: whether CRDs
// are watched may change.
func (k *trackedKind) backoff() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.status.Load().err
	if err == nil || k.epoch != k.last.epoch {
		return 0
	}
	if err.permanent() && !k.inUse() && !k.last.requested {
		return maxBackoff
	}
	crds, limit := k.set.crds.Load(), maxBackoff
	watched := err.missing() && crds != nil && crds.ctx.Err() == nil && crds.kind.status.Load().state == StateActive
	if watched {
		limit = missingBackoff
	}
	d := min(limit, firstBackoff<<min(max(k.last.failures-1, 0), 20))
	switch {
	case watched && k.last.crdDeleted:
		d = deletedBackoff
	case k.last.requested && !err.permanent():
		return 0
	}
	return min(maxBackoff, time.Until(k.last.failedAt.Add(d+time.Duration(k.last.jitter*float64(d)))))
}

// sleep waits for a signal, and reports whether there was one. It returns when the time has
// passed, or when the kind may be retired.
func (k *trackedKind) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(min(d, max(k.retiresIn(), time.Millisecond)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-k.wake:
		return true
	case <-t.C:
	}
	return false
}

// lookUp returns how the API server serves the kind. If discovery says that it doesn't, and
// there was an informer, a list that works outweighs discovery. Unless the CRD was deleted, a
// list that fails for another reason leaves the question open.
func (k *trackedKind) lookUp(ctx context.Context) (*meta.RESTMapping, error) {
	k.mu.Lock()
	if err := ctx.Err(); err != nil { // The informer that it was for was stopped.
		k.mu.Unlock()
		return nil, err
	}
	k.last.epoch, k.last.failedAt, k.last.requested = k.epoch, time.Time{}, false
	known, list, crdDeleted := k.mapping, k.list, k.last.crdDeleted
	k.mu.Unlock()
	m, err := k.set.backend.resolve(ctx, k.id.GroupVersionKind)
	if err == nil || list == nil || !classify(k.id.GroupVersionKind, err).missing() {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	switch listErr := list(ctx); {
	case listErr == nil:
		return known, nil
	case crdDeleted, kerrors.IsNotFound(listErr), classify(k.id.GroupVersionKind, listErr).permanent():
		return nil, err
	default:
		return nil, listErr
	}
}

// fail records why there is no informer.
func (k *trackedKind) fail(err *KindError) {
	if err.missing() {
		k.broadcaster.clear()
		k.forgetIndexers()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err.missing() {
		k.list = nil
	}
	k.last.failures++
	k.last.failedAt = time.Now()
	k.last.jitter = k.set.random() * backoffJitter
	k.setFailed(err)
}

// forgetIndexers lets calls index the same fields again: they are for the kind as it was.
func (k *trackedKind) forgetIndexers() {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	k.set.forgetIndexers(k.id)
}

// session runs one informer. It returns why it failed, or nil if the kind should be looked up
// at once. Code that callers supply may panic.
func (k *trackedKind) session(m *meta.RESTMapping, returned bool) (err error) {
	defer survive(&err)
	ctx, cancel := context.WithCancel(k.set.ctx)
	h := &informerHandler{
		broadcaster: k.broadcaster,
		kind:        k,
		namespaced:  m.Scope.Name() == meta.RESTScopeNameNamespace,
	}
	k.update(func() {
		k.mapping, k.stop = m, cancel
		k.last.crdDeleted = false
		k.broadcaster.follow(h)
	})
	defer func() {
		cancel()
		k.broadcaster.follow(nil)
		k.update(func() {
			k.synced.Store(nil)
			if s := k.status.Load().state; s == StateActive || s == StateSyncing {
				k.setState(StatePending, nil)
			}
		})
	}()
	inf, err := k.set.backend.open(ctx, k, m)
	if err != nil {
		return err
	}
	reg, err := inf.AddEventHandler(h)
	if ctx.Err() != nil {
		return nil // replaceInformer has stopped it.
	}
	if err != nil {
		return err
	}
	k.update(func() {
		k.generation++
		k.list = inf.list
		if k.status.Load().state != StateDegraded { // A failure is over when the informer has synced.
			k.setState(StateSyncing, nil)
		}
	})
	return k.follow(ctx, inf, h, reg, returned)
}

// A lookUpResult is the result of a look-up beside a running informer.
type lookUpResult struct {
	mapping *meta.RESTMapping
	err     error
}

// follow watches an informer until it has to be closed. Look-ups run in a goroutine, because
// they may take long. Informers don't signal that they have synced, so follow polls until they
// have, less and less often.
func (k *trackedKind) follow(
	ctx context.Context, inf *informer, h *informerHandler, reg kcache.ResourceEventHandlerRegistration, returned bool,
) error {
	next, began, syncedAt := nextLookUp(k.id.GroupVersion()), time.Now(), time.Time{}
	if returned {
		next = began.Add(maxBackoff) // Discovery may have been stale.
	}
	var pending bool
	var answer atomic.Pointer[lookUpResult]
	for ctx.Err() == nil && k.retiresIn() > 0 {
		if syncedAt.IsZero() && inf.HasSynced() && reg.HasSynced() {
			k.broadcaster.settle(h) //nolint:contextcheck // Subscriptions have their own.
			syncedAt = time.Now()
		}
		if !syncedAt.IsZero() {
			k.addIndexes(ctx, inf)
		}
		d, changed, err := k.assess(ctx, inf, h, !syncedAt.IsZero())
		if err != nil {
			return k.lost(err, syncedAt)
		}
		if r := answer.Swap(nil); r != nil {
			pending = false
			switch {
			case r.err != nil && classify(k.id.GroupVersionKind, r.err).missing():
				return r.err
			case r.err != nil:
				next = time.Now().Add(maxBackoff) // An informer that works stays.
			case r.mapping.Resource != k.mapping.Resource || r.mapping.Scope.Name() != k.mapping.Scope.Name():
				k.forgetIndexers()
				return nil
			}
		}
		if !pending && (time.Until(next) <= 0 || changed) {
			pending, next = true, nextLookUp(k.id.GroupVersion())
			k.set.wg.Go(func() {
				m, err := k.lookUp(ctx)
				answer.Store(&lookUpResult{m, err})
				k.signal()
			})
		}
		if !pending {
			d = min(d, time.Until(next))
		}
		if syncedAt.IsZero() {
			d = min(d, max(time.Millisecond, time.Since(began)/10))
		}
		if k.sleep(ctx, d) {
			began = time.Now()
		}
	}
	return nil
}

// nextLookUp is the same time for all kinds of a group and version, which share requests, and
// spread over the interval for others.
func nextLookUp(gv schema.GroupVersion) time.Time {
	at := time.Duration(crc32.ChecksumIEEE([]byte(gv.String()))) * time.Second % lookUpInterval
	return time.Now().Add(-at).Truncate(lookUpInterval).Add(lookUpInterval + at)
}

// assess sets the state from the results of the informer's lists and watches, unless it was
// stopped. It returns when it should be called again at the latest, and whether the kind should
// be looked up, or an error if the informer has to be closed.
func (k *trackedKind) assess(
	ctx context.Context, inf *informer, h *informerHandler, synced bool,
) (d time.Duration, lookUp bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil { // replaceInformer has stopped it since it was last looked at.
		return 0, false, nil
	}
	s := k.status.Load()
	var listErr, watchErr error
	var idle time.Duration // How long no watch has worked.
	d, works, open := lookUpInterval, synced, synced
	for _, p := range inf.parts {
		listErr, watchErr = cmp.Or(p.listErr, listErr), cmp.Or(p.watchErr, watchErr)
		if p.open != nil {
			age := time.Since(p.open.since)
			if age >= watchWorks {
				continue
			}
			d = min(d, watchWorks-age)
		}
		idle = max(idle, time.Since(p.worked))
		works, open = false, open && p.open != nil && s.state != StateDegraded
	}
	failure := cmp.Or(listErr, watchErr)
	switch {
	case inf.IsStopped():
		return 0, false, errors.New("the informer was stopped")
	case h.contradicted.Load():
		return 0, false, errors.Errorf(
			"discovery says that it is namespaced: %t, and its objects say the opposite", h.namespaced,
		)
	case synced && kerrors.IsNotFound(failure):
		return 0, false, failure
	case !synced && listErr != nil:
		return 0, false, listErr
	}
	if synced && k.synced.Load() == nil {
		k.synced.Store(inf)
		_ = k.firstSync.Replace(nil, "") // It has nothing to fail with.
		k.notify()
	}
	// Until the informer has synced, the whole time counts, because an open watch may stream a
	// list that never ends.
	if since := time.Since(s.since); !synced || idle > since {
		idle = since
	}
	waits := !works && (s.state == StateActive || s.state == StateSyncing)
	switch {
	case failure != nil && synced: // Before, a list follows a watch that failed.
		if e := classify(k.id.GroupVersionKind, failure); s.state != StateDegraded ||
			!errors.Is(s.err.Reason, e.Reason) {
			k.setFailed(e)
		}
	case open && s.state != StateActive:
		k.setState(StateActive, nil)
	case waits && idle < syncPatience:
		d = min(d, syncPatience-idle)
	case waits && s.state == StateSyncing:
		k.setFailed(k.failure(ErrNotSynced, nil))
	case waits:
		k.setFailed(k.failure(ErrUnreachable, errors.New("no watch is open")))
	}
	return d, k.epoch != k.last.epoch, nil
}

// lost returns nil if the kind should be looked up at once after its informer was lost: mostly
// the kind was deleted, or is served in another way. It returns the error if the informer
// hadn't synced, or if informers are lost again and again.
func (k *trackedKind) lost(err error, syncedAt time.Time) error {
	if syncedAt.IsZero() {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(syncedAt) > maxBackoff {
		k.last.failures = 0
	}
	if k.last.failures > 0 {
		return err
	}
	k.last.failures++
	return nil
}

// addIndexes adds the indexes that were requested since the informer was opened.
func (k *trackedKind) addIndexes(ctx context.Context, inf *informer) {
	k.mu.Lock()
	var missing []*index
	for _, i := range k.indexes {
		if _, ok := inf.indexes[i]; !ok {
			i.used = true
			missing = append(missing, i)
		}
	}
	k.mu.Unlock()

	for _, i := range missing {
		err := i.panics
		if err == nil {
			i.panics = errors.New("its function panics") // Unless it returns.
			err = i.addTo(ctx, inf, k.obj)
			i.panics = nil
		}
		k.mu.Lock()
		inf.indexes[i] = err
		k.notify()
		k.mu.Unlock()
	}
}
