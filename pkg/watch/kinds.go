package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A backend makes informers.
type backend interface {
	// resolve finds out how the API server serves a kind. It may wait, until
	// its context ends.
	resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)

	// open makes an informer. It may wait, until its context ends.
	open(ctx context.Context, o opening) (*opened, error)
}

// An opening says which informer to make.
type opening struct {
	run     context.Context //nolint:containedctx // The informer runs until it ends.
	id      kindID
	obj     client.Object
	mapping *meta.RESTMapping

	// report must be called with the outcome of each list and watch.
	report func(error)

	// unstarted must be called if the informer won't sync until somebody else
	// starts it.
	unstarted func()
}

// An opened informer.
type opened struct {
	informer cache.Informer
	reader   client.Reader

	// index adds an index. It may wait for the informer to sync.
	index func(ctx context.Context, obj client.Object, i *index) error

	// start the informer, without waiting.
	start func()

	// close the informer, without waiting.
	close func()

	// recheck is how often to ask whether somebody else stopped the informer;
	// zero if nobody can.
	recheck time.Duration
}

// Defaults of a cache.
const (
	defaultLinger         = 30 * time.Second
	defaultReadLinger     = 10 * time.Minute
	defaultResolveTimeout = 30 * time.Second

	firstBackoff = time.Second
	lastBackoff  = time.Minute

	// With CRDs watched, a kind that isn't there and has none is looked up only in
	// case that it isn't defined by a CRD.
	goneBackoff = 2 * time.Minute

	// A kind whose CRD went is looked up only in case that it comes back without
	// one.
	vanishedBackoff = time.Hour

	// Enough to be at the last backoff.
	maxFailures = 32

	// How exactly it is known when a kind was read last: this part of how long
	// reads keep it. Reads that come close together then don't write.
	readPrecision = 1.0 / 64

	// By how much a backoff may be longer, so that kinds that failed together don't
	// all try again together.
	backoffSpread = 0.2
)

// A kindSet is all the kinds of a cache. Its mutex guards the map, and is never
// held across anything that waits. Who needs a kind's mutex, too, takes it second.
type kindSet struct {
	backend backend
	clock   clock.WithTicker
	random  func() float64 // In [0, 1). Spreads backoffs.
	log     logging.Logger

	linger         time.Duration
	readLinger     time.Duration
	resolveTimeout time.Duration

	// Ends when the set is shut down.
	ctx    context.Context //nolint:containedctx // Kinds live longer than the call that asks for them.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// handlers of GetInformer's callers that run.
	handlers sync.WaitGroup

	delivered atomic.Uint64 // Events.
	failures  failureCounts

	// How many watch CRDs for the set.
	crdsWatched atomic.Int32

	// Closed when kinds start to run.
	starting chan struct{}

	mu    sync.RWMutex
	kinds map[kindID]*kind

	// What the CRDs that are established define, while they are watched. A kind
	// that is asked for later than its CRD came knows of it all the same.
	definitions map[schema.GroupKind]definition
}

// A definition is what a CRD defines.
type definition struct {
	sighting
	served []string // Versions.
}

func newKindSet(b backend) *kindSet {
	ctx, cancel := context.WithCancel(context.Background())
	return &kindSet{
		backend:        b,
		clock:          clock.RealClock{},
		random:         rand.Float64,
		log:            logging.NewNopLogger(),
		linger:         defaultLinger,
		readLinger:     defaultReadLinger,
		resolveTimeout: defaultResolveTimeout,
		ctx:            ctx,
		cancel:         cancel,
		starting:       make(chan struct{}),
		kinds:          make(map[kindID]*kind),
		definitions:    make(map[schema.GroupKind]definition),
	}
}

func (s *kindSet) isStarted() bool {
	select {
	case <-s.starting:
		return true
	default:
		return false
	}
}

// start running kinds.
func (s *kindSet) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStarted() || s.ctx.Err() != nil {
		return
	}
	close(s.starting)
	for _, k := range s.kinds {
		s.wg.Go(k.run)
		// Who waits does so for good reason now.
		k.mu.Lock()
		k.move(k.state, k.err)
		k.mu.Unlock()
	}
}

// shutdown stops everything, and waits for it.
func (s *kindSet) shutdown() {
	// Under the lock, so that nobody adds to the group that we wait for.
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	s.handlers.Wait()
}

// find a kind that is there.
func (s *kindSet) find(id kindID) *kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kinds[id]
}

// acquire a kind for an owner, which must release it.
func (s *kindSet) acquire(id kindID, obj client.Object, owner any) (*kind, error) {
	return s.get(id, obj, func(k *kind) { k.owners[owner] = struct{}{} })
}

// get a kind, making it if need be. What is done with it by use happens before
// it can retire.
func (s *kindSet) get(id kindID, obj client.Object, use func(*kind)) (*kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, &KindError{GVK: id.GroupVersionKind, Reason: ErrNotSynced, Err: ErrShutDown}
	}
	k, ok := s.kinds[id]
	if !ok {
		k = newKind(s, id, exampleOf(id, obj))
		if d := s.definitions[id.GroupKind()]; slices.Contains(d.served, id.Version) {
			k.seen = d.sighting
		}
		s.kinds[id] = k
	}
	k.mu.Lock()
	use(k)
	k.mu.Unlock()
	if !ok && s.isStarted() {
		s.wg.Go(k.run)
	}
	return k, nil
}

// retire a kind that nobody wants. It isn't in the set any more if true. Only its
// own goroutine asks.
func (s *kindSet) retire(k *kind) bool {
	if k.retired {
		// Who found it before it was, and reads it now, asks the set again.
		return true
	}
	if in, idle := k.retiresIn(); !idle || in > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Somebody may have come while we took the lock.
	if in, idle := k.retiresIn(); !idle || in > 0 {
		return false
	}
	s.forget(k)
	k.retired = true
	return true
}

// forget a kind. The mutex must be held.
func (s *kindSet) forget(k *kind) {
	if s.kinds[k.id] == k {
		delete(s.kinds, k.id)
	}
}

// release a kind. Before the set is started no goroutine is there to retire it.
func (s *kindSet) release(k *kind, owner any) {
	k.release(owner)
	if s.isStarted() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStarted() { // Since we asked.
		return
	}
	k.mu.Lock()
	unused := len(k.owners) == 0 && k.lastRead.Load() == 0
	k.mu.Unlock()
	if unused {
		s.forget(k)
	}
}

// all kinds, in no order.
func (s *kindSet) all() []*kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*kind, 0, len(s.kinds))
	for _, k := range s.kinds {
		out = append(out, k)
	}
	return out
}

// of returns the kinds of a group and kind, in all versions and representations.
func (s *kindSet) of(gk schema.GroupKind) []*kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*kind
	for id, k := range s.kinds {
		if id.GroupKind() == gk {
			out = append(out, k)
		}
	}
	return out
}

// defined notes what a CRD defines.
func (s *kindSet) defined(gk schema.GroupKind, d definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crdsWatched.Load() > 0 { // It may be told late.
		s.definitions[gk] = d
	}
}

// undefined notes that a CRD went. Another may define the kind by now.
func (s *kindSet) undefined(gk schema.GroupKind, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.definitions[gk].uid == uid {
		delete(s.definitions, gk)
	}
}

// watchCRDs notes that one more, or one less, watches CRDs for the set.
func (s *kindSet) watchCRDs(n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crdsWatched.Add(n) > 0 {
		return
	}
	// Nobody tells any more when they come and go.
	clear(s.definitions)
	for _, k := range s.kinds {
		k.untold()
	}
}

// backoff returns how long to wait after so many failures. It grows up to limit,
// before it is spread.
func (s *kindSet) backoff(failures int, limit time.Duration) time.Duration {
	d := firstBackoff
	for range failures - 1 {
		if d *= 2; d >= limit {
			d = limit
			break
		}
	}
	return s.spread(d)
}

// spread makes a wait a little longer.
func (s *kindSet) spread(d time.Duration) time.Duration {
	return d + time.Duration(s.random()*backoffSpread*float64(d))
}
