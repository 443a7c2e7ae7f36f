package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A representation of objects. A kind has one informer for each that is used.
type representation string

const (
	typed        representation = "typed"
	unstructured representation = "unstructured"
	metadata     representation = "metadata"
)

// A kindID identifies an informer.
type kindID struct {
	schema.GroupVersionKind
	as representation
}

// An index that a caller asked for. It is added to each informer of the kind, as
// they come and go.
type index struct {
	field    string
	extract  client.IndexerFunc
	indexers cache.Indexers // Instead of a field and its function.

	// In which generation it was added, or why not. Guarded by the kind's mutex.
	added uint64
	err   error
}

// A kind is one informer, as its owners see it: they hold on to the kind while
// informers come and go below it. It has one goroutine, run, which alone looks
// up the mapping, opens and closes informers, and moves the state. All others
// change what the goroutine reads, and poke it. Its mutex is never held across
// anything that waits.
type kind struct {
	set *kindSet
	id  kindID
	obj client.Object
	fan *fan

	// What reads use: the informer that is synced. Nil if none is.
	current atomic.Pointer[opened]

	// When it was last read, in nanoseconds since 1970; 0 is never.
	lastRead atomic.Int64

	wake    chan struct{} // Pokes run.
	retired bool          // Of run alone: it isn't in the set any more.

	mu         sync.Mutex
	state      State
	since      time.Time
	err        *KindError
	generation uint64
	mapping    *meta.RESTMapping
	changed    chan struct{} // Closed, and replaced, when anything above changes.
	indexes    []*index
	owners     map[any]struct{}
	idleSince  time.Time // When the last owner went.

	// Backoff.
	failures int
	nextTry  time.Time

	// When the informer synced, and how often in a row a kind that had synced was
	// lost soon after.
	synced   time.Time
	relapses int

	// What run is to react to.
	order     order
	outcome   error    // Of the last list or watch; nil is good.
	opening   *opened  // Not yet synced.
	unstarted bool     // Won't sync until somebody else starts it.
	seen      sighting // Of the CRD.
	left      bool     // The CRD was seen to go, and nothing since.

	// While run looks up the mapping and opens an informer it can't be told
	// anything. What should have been is done right afterwards.
	busy  bool
	after order
}

// An order is what run must do with the informer that it has.
type order int

const (
	carryOn order = iota
	reopen        // The informer must be replaced.
	sleep         // The kind is gone.
)

// A sighting of a kind's CRD.
type sighting struct {
	uid      types.UID
	resource string
	scope    meta.RESTScopeName
}

func newKind(s *kindSet, id kindID, obj client.Object) *kind {
	return &kind{
		set:       s,
		id:        id,
		obj:       obj,
		fan:       newFan(),
		wake:      make(chan struct{}, 1),
		state:     StatePending,
		since:     s.clock.Now(),
		idleSince: s.clock.Now(),
		changed:   make(chan struct{}),
		owners:    make(map[any]struct{}),
	}
}

func (k *kind) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// move to a state. The mutex must be held.
func (k *kind) move(s State, err *KindError) {
	if k.state != s {
		k.state = s
		k.since = k.set.clock.Now()
	}
	k.err = err
	close(k.changed)
	k.changed = make(chan struct{})
}

// touch notes that the kind was read: reads own an informer for a while. Many may
// read at once, on as many cores, and would all write to the same memory.
func (k *kind) touch() {
	now := k.set.clock.Now().UnixNano()
	if since := now - k.lastRead.Load(); since < 0 || since > int64(readPrecision*float64(k.set.readLinger)) {
		k.lastRead.Store(now)
	}
}

func (k *kind) release(owner any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.owners, owner)
	if len(k.owners) == 0 {
		k.idleSince = k.set.clock.Now()
		k.poke()
	}
}

// errRetired means that the kind isn't in the set any more: ask the set again.
var errRetired = errors.New("kind is retired")

// wait for the informer to be synced. It returns nil without an error if the
// set isn't started, so that nothing could sync. It fails at once while trying
// is known to be no use, and otherwise when the context ends.
func (k *kind) wait(ctx context.Context) (*opened, error) {
	for {
		if o := k.current.Load(); o != nil {
			return o, nil
		}
		k.mu.Lock()
		changed, err, state, unstarted, isOpening := k.changed, k.err, k.state, k.unstarted, k.opening != nil
		o := k.current.Load()
		k.mu.Unlock()

		switch {
		case o != nil:
			// It synced between the two looks, and the change that said so is
			// over: nobody would wake us.
			return o, nil
		case k.set.ctx.Err() != nil:
			return nil, &KindError{GVK: k.id.GroupVersionKind, Reason: ErrNotSynced, Err: ErrShutDown}
		case state == StateStopped:
			return nil, errRetired
		case !k.set.isStarted(), unstarted:
			return nil, nil
		case err != nil && (state == StateDormant || state == StateDegraded) && !isOpening:
			return nil, err
		}

		select {
		case <-changed:
		case <-k.set.ctx.Done():
		case <-ctx.Done():
			return nil, k.late(ctx)
		}
	}
}

// late says why a wait ended without a synced informer.
func (k *kind) late(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &KindError{GVK: k.id.GroupVersionKind, Reason: ErrNotSynced, Err: ctx.Err()}
	if k.err != nil {
		e.Reason = k.err.Reason
		e.Err = fmt.Errorf("%w: %w", ctx.Err(), k.err)
	}
	return e
}

// run drives the kind until it is retired or the set ends.
func (k *kind) run() {
	defer k.end()

	ctx := k.set.ctx
	for ctx.Err() == nil {
		if k.set.retire(k) {
			return
		}
		if d := k.cooling(); d > 0 {
			k.pause(ctx, d)
			continue
		}

		k.begin()
		rctx, cancel := context.WithTimeout(ctx, k.set.resolveTimeout)
		m, err := k.set.backend.resolve(rctx, k.id.GroupVersionKind)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				k.failed(classify(k.id.GroupVersionKind, err))
			}
			continue
		}
		k.session(ctx, m)
	}
}

// begin to look up the mapping and to open an informer.
func (k *kind) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = true
	k.after = carryOn
}

// finish what began. It returns whether to carry on: if not, something happened
// meanwhile that makes the outcome old news. The mutex must be held.
func (k *kind) finish() bool {
	k.busy = false
	if k.after == carryOn {
		return true
	}
	k.order = k.after
	k.after = carryOn
	k.obey()
	return false
}

// end says that nothing will happen any more.
func (k *kind) end() {
	k.current.Store(nil)
	k.fan.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.move(StateStopped, nil)
}

// cooling returns how long not to try.
func (k *kind) cooling() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nextTry.Sub(k.set.clock.Now())
}

// pause until there may be something to do, or the time is over. A kind without
// owners wakes up to retire.
func (k *kind) pause(ctx context.Context, d time.Duration) {
	if r, ok := k.retiresIn(); ok && (d <= 0 || r < d) {
		d = max(r, time.Millisecond)
	}
	var timeout <-chan time.Time
	if d > 0 {
		t := k.set.clock.NewTimer(d)
		defer t.Stop()
		timeout = t.C()
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-timeout:
	}
}

// retiresIn returns when the kind may go if nobody wants it until then.
func (k *kind) retiresIn() (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.owners) > 0 {
		return 0, false
	}
	at := k.idleSince.Add(k.set.linger)
	if n := k.lastRead.Load(); n != 0 {
		if r := time.Unix(0, n).Add(k.set.readLinger); r.After(at) {
			at = r
		}
	}
	return at.Sub(k.set.clock.Now()), true
}

// failed notes that there is no informer, and when to try again.
func (k *kind) failed(err *KindError) {
	k.current.Store(nil)
	if errors.Is(err.Reason, ErrNoSuchKind) {
		// Its objects went with it.
		k.fan.clear()
	}

	k.mu.Lock()
	// What we were told meanwhile is newer than the failure.
	news := k.finish() && k.failLocked(err)
	k.mu.Unlock()
	k.logFailure(err, news)
}

// failLocked returns whether this is news. The mutex must be held.
func (k *kind) failLocked(err *KindError) bool {
	k.set.failures.add(err)
	news := k.state != stateFor(err)
	k.opening = nil
	k.failures++
	k.nextTry = k.set.clock.Now().Add(k.set.backoff(k.failures, k.patience(err)))
	k.move(stateFor(err), err)
	return news
}

// patience returns how long to wait, at most, before trying again what failed. The
// mutex must be held.
func (k *kind) patience(err *KindError) time.Duration {
	switch {
	case !errors.Is(err.Reason, ErrNoSuchKind), k.set.crdsWatched.Load() == 0:
		return lastBackoff
	case k.seen.uid != "":
		// It isn't served although its CRD says so. Soon it will be.
		return lastBackoff
	case k.left:
		return vanishedBackoff
	default:
		return goneBackoff
	}
}

// logFailure writes a line when a kind fails, and none when it goes on failing.
func (k *kind) logFailure(err *KindError, news bool) {
	if news {
		k.set.log.Info("Cannot watch kind; will resume when it can be watched", "gvk", k.id.GroupVersionKind, "state", stateFor(err), "error", err)
	}
}

func stateFor(err *KindError) State {
	if errors.Is(err.Reason, ErrNoSuchKind) {
		return StateDormant
	}
	return StateDegraded
}

// session is the life of one informer.
func (k *kind) session(ctx context.Context, m *meta.RESTMapping) {
	k.mu.Lock()
	k.generation++
	generation := k.generation
	k.mapping = m
	if m != nil {
		k.left = false
	}
	k.order = carryOn
	k.outcome = nil
	k.unstarted = false
	// Until we know better, what was wrong is still wrong: callers that fail
	// fast go on doing so, and only one that comes back to life is seen.
	if k.err == nil || !k.err.verdict() {
		k.move(StateSyncing, k.err)
	}
	k.mu.Unlock()

	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	octx, done := context.WithTimeout(sctx, k.set.resolveTimeout)
	o, err := k.set.backend.open(octx, opening{
		run:       sctx,
		id:        k.id,
		obj:       k.obj,
		mapping:   m,
		report:    func(err error) { k.report(generation, err) },
		unstarted: func() { k.reportUnstarted(generation) },
	})
	done()
	if err != nil {
		if ctx.Err() == nil {
			k.failed(classify(k.id.GroupVersionKind, err))
		}
		return
	}
	defer k.close(o)

	reg, err := o.informer.AddEventHandler(k.fan.begin(generation))
	if err != nil {
		k.failed(classify(k.id.GroupVersionKind, err))
		return
	}
	k.mu.Lock()
	carryOn := k.finish()
	if carryOn {
		k.opening = o
	}
	k.mu.Unlock()
	if !carryOn {
		return
	}

	o.start()
	if !k.sync(ctx, o, reg, generation) {
		return
	}
	k.hold(ctx, o, generation)
}

// close an informer. Nobody waits for it: what still comes from it is ignored.
func (k *kind) close(o *opened) {
	k.current.Store(nil)
	k.mu.Lock()
	k.opening = nil
	k.unstarted = false
	if k.state == StateActive || k.state == StateSyncing {
		k.move(StatePending, nil)
	}
	k.mu.Unlock()
	o.close()
}

// report takes the outcome of a list or watch of an informer.
func (k *kind) report(generation uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.generation != generation || (err == nil && k.outcome == nil) {
		return
	}
	k.outcome = err
	k.poke()
}

// reportUnstarted takes that an informer won't sync for now, so that it is no use
// to wait for it.
func (k *kind) reportUnstarted(generation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.generation != generation || k.current.Load() != nil {
		return
	}
	k.unstarted = true
	k.move(k.state, k.err)
}

// Informers don't say when they have synced, so they are asked: often at first,
// to lose little time, then seldom.
const (
	firstPoll = time.Millisecond
	lastPoll  = 100 * time.Millisecond
)

// sync waits for the informer to sync. It returns false if the informer has to
// go.
func (k *kind) sync(ctx context.Context, o *opened, reg cache.ResourceEventHandlerRegistration, generation uint64) bool {
	poll := firstPoll
	timer := k.set.clock.NewTimer(poll)
	defer timer.Stop()
	began := k.set.clock.Now()
	for !o.informer.HasSynced() || !reg.HasSynced() {
		if !k.proceed(o) || k.set.retire(k) || k.stillGone(began) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-k.wake:
		case <-timer.C():
			poll = min(2*poll, lastPoll)
			timer.Reset(poll)
		}
	}

	k.fan.settle(generation)
	k.addIndexes(ctx, o, generation)

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.order != carryOn {
		k.obey()
		return false
	}
	k.failures = 0
	k.synced = k.set.clock.Now()
	k.left = false
	k.opening = nil
	k.unstarted = false
	k.current.Store(o)
	k.move(StateActive, nil)
	return true
}

// stillGone gives up an informer of a kind that went, and of which nobody tells
// whether it is back: a cache that isn't ours neither looks kinds up for us nor
// says how lists turn out. Its informer would go on for ever.
func (k *kind) stillGone(began time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.left || k.set.clock.Since(began) < k.set.resolveTimeout {
		return false
	}
	k.failLocked(&KindError{GVK: k.id.GroupVersionKind, Reason: ErrNoSuchKind})
	return true
}

// addIndexes adds what was asked for since the informer was opened.
func (k *kind) addIndexes(ctx context.Context, o *opened, generation uint64) {
	k.mu.Lock()
	missing := make([]*index, 0, len(k.indexes))
	for _, i := range k.indexes {
		if i.added != generation {
			missing = append(missing, i)
		}
	}
	k.mu.Unlock()

	for _, i := range missing {
		err := o.index(ctx, k.obj, i)
		k.mu.Lock()
		i.added, i.err = generation, err
		k.move(k.state, k.err)
		k.mu.Unlock()
	}
}

// hold keeps the informer until it has to go.
func (k *kind) hold(ctx context.Context, o *opened, generation uint64) {
	for {
		if ctx.Err() != nil || !k.proceed(o) || k.set.retire(k) {
			return
		}
		k.addIndexes(ctx, o, generation)
		k.pause(ctx, o.recheck)
	}
}

// proceed decides whether the informer may stay.
func (k *kind) proceed(o *opened) bool {
	stay, news := k.decide(o)
	if news != nil {
		k.logFailure(news, true)
	}
	return stay
}

// decide also returns what there is to log.
func (k *kind) decide(o *opened) (bool, *KindError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.order == carryOn && o.informer.IsStopped() {
		// Somebody else removed it.
		k.order = reopen
	}
	if k.order != carryOn {
		k.obey()
		return false, nil
	}

	isSynced := k.current.Load() != nil
	if k.outcome == nil {
		if isSynced && k.state != StateActive {
			k.move(StateActive, nil)
		}
		if !isSynced && k.state == StateDegraded {
			k.move(StateSyncing, nil)
		}
		return true, nil
	}

	err := classify(k.id.GroupVersionKind, k.outcome)
	if isSynced && errors.Is(err.Reason, ErrNoSuchKind) {
		return false, k.lost(err)
	}
	if !isSynced && err.verdict() {
		// Informers try for ever, at their own pace and with a log line each
		// time. We have our own backoff, and know when a CRD comes.
		if k.failLocked(err) {
			return false, err
		}
		return false, nil
	}

	// The informer tries again by itself, with a backoff of its own.
	news := k.state != StateDegraded
	if news {
		k.set.failures.add(err)
	}
	if news || k.err == nil || !errors.Is(k.err.Reason, err.Reason) {
		k.move(StateDegraded, err)
	}
	k.err = err
	if news {
		return true, err
	}
	return true, nil
}

// lost is called when a kind that has synced isn't served any more. It returns what
// there is to log. The mutex must be held.
func (k *kind) lost(err *KindError) *KindError {
	k.current.Store(nil)
	k.relapses++
	if k.set.clock.Since(k.synced) > lastBackoff {
		k.relapses = 1
	}
	if k.relapses == 1 {
		// It answered before, so either the kind went or it is served elsewhere.
		// Looking it up again tells.
		k.move(StatePending, nil)
		return nil
	}

	// It can be looked up and listed, and then not watched. That has to have its
	// backoff, too: as long as if it had never synced.
	k.failures = k.relapses - 2
	k.failLocked(err)
	if k.relapses > 2 {
		return nil // That it comes back in between is no news.
	}
	return err
}

// obey what was ordered. The mutex must be held.
func (k *kind) obey() {
	k.current.Store(nil)
	k.opening = nil
	k.failures = 0
	k.relapses = 0
	k.nextTry = time.Time{}
	switch k.order {
	case sleep:
		k.fan.clear()
		err := &KindError{GVK: k.id.GroupVersionKind, Reason: ErrNoSuchKind}
		k.left = true
		k.failures = maxFailures
		k.nextTry = k.set.clock.Now().Add(k.set.backoff(k.failures, k.patience(err)))
		k.move(StateDormant, err)
	case carryOn, reopen:
		k.move(StatePending, nil)
	}
	k.order = carryOn
}

// command makes run do something about its informer. The mutex must be held.
func (k *kind) command(o order) {
	if k.busy {
		k.after = o
		return
	}
	k.order = o
	if k.current.Load() == nil && k.opening == nil {
		// There is no informer that must go.
		k.obey()
	}
	k.poke()
}

// sighted is called when the kind's CRD was seen, serving it.
func (k *kind) sighted(s sighting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.seen
	k.seen = s
	k.left = false

	has := k.current.Load() != nil || k.opening != nil
	moved := has && k.mapping != nil && (k.mapping.Resource.Resource != s.resource || k.mapping.Scope.Name() != s.scope)
	replaced := before.uid != "" && before.uid != s.uid
	news := before != s
	switch {
	case moved, replaced, news && (k.busy || k.order == sleep):
		// One that was told to sleep, and hasn't yet, would sleep through it.
		k.command(reopen)
	case news && !has && k.state != StatePending:
		// No need to wait: it is there now. If that isn't news, and it isn't found
		// yet, it has its backoff.
		k.failures = 0
		k.nextTry = time.Time{}
		k.move(StatePending, nil)
		k.poke()
	}
}

// vanished is called when the kind's CRD is gone, or doesn't serve it any more. That
// of a CRD that was replaced by another one is old news.
func (k *kind) vanished(s sighting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen.uid != "" && k.seen.uid != s.uid {
		return
	}
	if k.current.Load() != nil && k.mapping != nil && k.mapping.Resource.Resource != s.resource {
		// It was found to be elsewhere before anybody told us.
		return
	}
	k.seen = sighting{}
	k.command(sleep)
}

// untold is called when nobody watches CRDs any more: the kind has to look by
// itself whether it is back.
func (k *kind) untold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = sighting{}
	k.left = false
	if soon := k.set.clock.Now().Add(k.set.spread(lastBackoff)); k.nextTry.After(soon) {
		k.nextTry = soon
		k.poke()
	}
}
