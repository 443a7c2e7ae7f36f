package watch

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	firstBackoff   = time.Second
	maxBackoff     = time.Minute
	missingBackoff = 2 * time.Minute  // For a missing kind, if no event of its CRD comes first.
	deletedBackoff = 10 * time.Minute // For a missing kind whose CRD was deleted.
	backoffJitter  = 0.2              // Spreads the retries of kinds that failed together.
	syncTimeout    = time.Minute      // For calls that wait for an informer to sync.
	lookUpInterval = 15 * time.Minute // For kinds that work, in case no event says that one has changed.
	syncPatience   = 2 * time.Minute  // For an informer to sync, and for a watch to open.
	logAgainAfter  = 10 * time.Minute // A kind that was Active for this long logs the same failure again.
)

// A representation is a Go type of objects. A kind has an informer for each that is used.
type representation string

const (
	asTyped        representation = "typed"
	asUnstructured representation = "unstructured"
	asMetadata     representation = "metadata"
)

// A kindKey identifies a kind in a cache.
type kindKey struct {
	schema.GroupVersionKind
	as representation
}

// failure returns an error about the kind.
func (k kindKey) failure(reason, err error) *KindError {
	return &KindError{GVK: k.GroupVersionKind, Reason: reason, Err: err}
}

// An index is added to each informer of its kind.
type index struct {
	name        string
	add         func(ctx context.Context, inf *informer, obj client.Object) error
	replaceable bool // Another index may take its place. Guarded by the cache's mutex.
}

// addTo adds the index to an informer. The caller's function may panic.
func (i *index) addTo(ctx context.Context, inf *informer, obj client.Object) (err error) {
	defer survive(&err)
	return i.add(ctx, inf, obj)
}

// An environment is what the kinds of a cache share.
type environment struct {
	resolver   *resolver
	factory    *informerFactory
	linger     time.Duration
	readLinger time.Duration
	log        atomic.Pointer[logging.Logger]
	delivered  prometheus.Counter          // Events.
	failures   *prometheus.CounterVec      // By reason.
	crds       atomic.Pointer[func() bool] // Reports whether CRDs are watched. Nil if they never were.
	retire     func(*kind) bool            // Removes a kind from the cache unless it is in use.
	reindex    func(kindKey)               // Lets calls index the same fields of a kind again.

	// The context ends when the cache is shut down. The group has all goroutines of the cache.
	ctx     context.Context //nolint:containedctx // Kinds outlive the call that requests them.
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	started chan struct{} // Closed when the cache starts.
}

// ended returns why the cache has ended, or nil.
func (e *environment) ended() error {
	return context.Cause(e.ctx)
}

// crdsWatched reports whether an event comes if a CRD changes.
func (e *environment) crdsWatched() bool {
	watched := e.crds.Load()
	return watched != nil && (*watched)()
}

// A kind keeps an informer for a group, version, kind and representation while it has owners.
// Calls share it with its goroutine. The mutex is never held across a wait.
type kind struct {
	*environment

	key         kindKey
	obj         client.Object
	early       bool    // The kind was requested before the cache was started.
	jitter      float64 // Makes backoffs longer by this part.
	broadcaster *broadcaster
	status      atomic.Pointer[status] // Written with the mutex held.
	keep        atomic.Int64           // Until when the kind stays without owners, in nanoseconds since 1970.
	wake        chan struct{}          // Signals the goroutine that a field below has changed.
	firstSync   *kcache.FIFO           // Synced when an informer has synced for the first time.

	mu           sync.Mutex
	owners       int               // Watches, event handlers, and calls that wait.
	indexes      map[string]*index // By name. Written with the cache's mutex held, too.
	epoch        uint64            // Counts events that may make the last look-up wrong.
	last         attempt
	stop         context.CancelFunc // Stops the informer. Nil if there is none.
	lastInformer *informer          // Nil if there was none, or the kind is missing.
	logged       []error            // Reasons of failures that were logged since the kind worked.
}

// An attempt is the last one to look a kind up and to run an informer for it.
type attempt struct {
	epoch      uint64    // When the kind was looked up. The result is obsolete in a later epoch.
	failedAt   time.Time // Zero while the attempt is in progress.
	failures   int       // In a row.
	requested  bool      // A call failed with its error, and a second has passed since: retry.
	crdDeleted bool      // The kind's CRD was deleted, and the kind wasn't served since.
}

// newKind returns a kind for objects like obj. It isn't running.
func newKind(e *environment, key kindKey, obj client.Object) *kind {
	k := &kind{
		environment: e,
		key:         key,
		obj:         obj,
		early:       !isClosed(e.started),
		jitter:      backoffJitter * float64(crc32.ChecksumIEEE([]byte(key.String()))) / math.MaxUint32,
		broadcaster: newBroadcaster(),
		firstSync:   newSyncSignal(),
		wake:        make(chan struct{}, 1),
		epoch:       1, // The last attempt was in epoch 0.
	}
	k.status.Store(&status{state: StatePending, since: time.Now(), replaced: make(chan struct{})})
	k.keepFor(k.linger)
	return k
}

func (k *kind) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// update calls fn with the mutex held, and signals the goroutine.
func (k *kind) update(fn func()) {
	k.mu.Lock()
	fn()
	k.mu.Unlock()
	k.signal()
}

// setStatus changes a copy of the status, and wakes calls that wait. A kind that was Active for long logs
// its next failure. The mutex must be held.
func (k *kind) setStatus(change func(s *status)) {
	last := k.status.Load()
	next := *last
	change(&next)
	if next.state != last.state {
		if last.state == StateActive && time.Since(last.since) > logAgainAfter {
			k.logged = nil
		}
		next.since = time.Now()
	}
	next.replaced = make(chan struct{})
	k.status.Store(&next)
	close(last.replaced)
}

// setFailed counts a failure, and sets the status for it. It logs the failure unless one with
// the same reason was logged, or only callers that get the error need to know. The mutex must
// be held.
func (k *kind) setFailed(err *KindError) {
	k.failures.WithLabelValues(reasons()[err.Reason]).Inc()
	k.setStatus(func(s *status) { // Before logged is read, because it may clear it.
		s.state, s.err = StateDegraded, err
		if err.missing() {
			s.state = StateDormant
		}
	})
	s := k.status.Load()
	_, subscriptions := k.broadcaster.counts()
	if (subscriptions > 0 || s.informer != nil) && !slices.Contains(k.logged, err.Reason) {
		k.logged = append(k.logged, err.Reason)
		k.wg.Go(func() { // Without the mutex.
			(*k.log.Load()).Info(
				"Cannot watch kind; will resume when it can be watched",
				"gvk", k.key.GroupVersionKind, "state", s.state, "error", err,
			)
		})
	}
}

// crdChanged increments the epoch, which makes the kind look itself up, and ends the backoff. The
// informer stays until the look-up shows that it is wrong.
func (k *kind) crdChanged(op operation) {
	k.update(func() {
		k.epoch++
		k.last.failures, k.last.crdDeleted = 0, op == deleted
	})
}

// replaceInformer increments the epoch and stops the informer. It is out of use on return.
func (k *kind) replaceInformer() {
	k.update(func() {
		k.epoch++
		k.last.failures = 0
		if k.stop != nil {
			k.stop()
		}
		k.keep.Store(0) // Earlier reads don't keep the next informer.
		k.broadcaster.follow(nil)
		if k.status.Load().informer != nil {
			k.setStatus(func(s *status) { s.state, s.err, s.informer = StatePending, nil, nil })
		}
	})
}

// keepFor makes the kind stay for a time though it has no owners.
func (k *kind) keepFor(d time.Duration) {
	k.keep.Store(max(k.keep.Load(), time.Now().Add(d).UnixNano()))
}

// release removes an owner.
func (k *kind) release() {
	k.update(func() {
		k.owners--
		k.keepFor(k.linger)
	})
}

// inUse reports whether the kind has owners. An index doesn't own a missing kind: it is added
// when the kind comes back. The mutex must be held.
func (k *kind) inUse() bool {
	return k.owners > 0 || len(k.indexes) > 0 && k.status.Load().state != StateDormant
}

// retiresIn returns the time until the kind is removed if no owner comes.
func (k *kind) retiresIn() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse() {
		return math.MaxInt64
	}
	return time.Until(time.Unix(0, k.keep.Load()))
}

// wait waits until the informer is synced. It returns nil
// without an error if the cache isn't started. It fails at once if the kind is known to be in
// trouble, and makes it retry soon. Otherwise it waits until the context ends, at most a minute.
func (k *kind) wait(ctx context.Context) (*informer, error) {
	if inf := k.status.Load().informer; inf != nil {
		return inf, nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	k.update(func() { k.owners++ })
	defer k.release()
	for {
		k.mu.Lock()
		s := k.status.Load()
		failure := s.err
		if failure == nil && s.state == StateSyncing && time.Since(s.since) >= syncTimeout {
			failure = k.key.failure(ErrNotSynced, nil)
		}
		failFast := failure != nil && k.epoch == k.last.epoch
		if failFast && !k.last.failedAt.IsZero() && time.Since(k.last.failedAt) >= firstBackoff {
			k.last.requested = true
		}
		k.mu.Unlock()

		switch {
		case s.informer != nil:
			return s.informer, nil
		case k.ended() != nil, s.state == StateStopped:
			return nil, k.key.failure(ErrNotSynced, k.ended())
		case !isClosed(k.started):
			return nil, nil
		case failFast:
			return nil, failure
		}
		select {
		case <-s.replaced:
		case <-k.ctx.Done():
		case <-ctx.Done():
			if failure != nil {
				return nil, k.key.failure(failure.Reason, fmt.Errorf("%w: %w", ctx.Err(), failure))
			}
			return nil, k.key.failure(ErrNotSynced, ctx.Err())
		}
	}
}
