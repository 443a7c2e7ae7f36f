//go:build integration && churn

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

const (
	churnKinds       = 50
	churnControllers = 8
	churnWriters     = 4
	churnDefiners    = 2
	churnNames       = 6 // of objects of a kind
	churnHangs       = 3

	// churnPatience is how long a definer waits for a definition to go before
	// it turns to another kind.
	churnPatience = 20 * time.Second

	// churnLeave is how long after the churn all definitions that were deleted
	// must be gone, and churnStuck how many of them needn't be: what the API
	// server doesn't finish isn't ours to prove anything with.
	churnLeave = 2 * time.Minute
	churnStuck = 2

	// churnSettle is how long after that everything must be over.
	churnSettle = 2 * time.Minute

	// churnHeap is what the heap may have grown by in the end, in bytes, however
	// long the churn: the engine that was stopped is still referred to. What runs
	// takes more.
	churnHeap = 3 << 19
)

// 50 kinds come and go, also with another scope and plural, while objects of them
// are written, controllers and watches are started and stopped, and the API
// server hangs at times. In the end every watch that was not stopped knows
// exactly what there is, and none that was stopped has heard anything since.
func TestWatchChurn(t *testing.T) {
	// The usual duration, and a seed of the time.
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("GRAFT_WATCH_CHURN"), "2m"))
	must(t, "GRAFT_WATCH_CHURN", err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("GRAFT_WATCH_SEED"), fmt.Sprint(time.Now().UnixNano())), 10, 64)
	must(t, "GRAFT_WATCH_SEED", err)
	t.Logf("%s with GRAFT_WATCH_SEED=%d", duration, seed)
	ctx := t.Context()
	existing := goleak.IgnoreCurrent()

	// What is there once and stays is no growth.
	must(t, "cannot stop an engine", newEngineRig(t).stop())
	heap, goroutines := footprint()
	r := newEngineRig(t)
	c := newChurn(t, r)
	c.begin(ctx, t)
	churning, enough := context.WithTimeout(ctx, duration)
	defer enough()
	var wg sync.WaitGroup
	actor := func(n int, every time.Duration, act func(ctx context.Context, d *rand.Rand)) {
		// A source of its own makes each actor's choices the seed's alone.
		d := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-churning.Done():
					return
				case <-tick.C:
					// What was begun is finished: only the test's end interrupts.
					act(ctx, d)
				}
			}
		})
	}
	for i := range churnDefiners {
		actor(100+i, 200*time.Millisecond, c.redefine)
	}
	for i := range churnWriters {
		actor(200+i, 25*time.Millisecond, c.write)
	}
	for i, o := range c.controllers {
		actor(300+i, 250*time.Millisecond, o.act)
	}

	// The last one is over, and what it delayed is done, before the churn ends.
	actor(400, duration/(churnHangs+1), c.hang)
	<-churning.Done()
	wg.Wait()
	c.resolve(ctx, t)
	if err := errors.Join(c.errs...); err != nil {
		t.Errorf("The test's own actors failed:\n%v", err)
	}
	busyHeap, _ := footprint()
	t.Logf("definitions were created %d times, controllers started %d times, watches %d; %d hangs, %d events, %d reconciles",
		c.defined.Load(), c.started.Load(), c.watched.Load(), c.hangs.Load(), c.events.Load(), c.reconciles.Load())
	c.settles(ctx, t)
	c.strangers(t)
	must(t, "Stop()", r.stopAll(ctx))
	for _, o := range c.controllers {
		o.stopped()
	}
	if diff := gocmp.Diff([]int64{0, 0}, []int64{r.tally.controllers.Load(), r.tally.watches.Load()}); diff != "" {
		t.Errorf("What was counted as started and not as stopped after the end: controllers, watches: -want, +got:\n%s", diff)
	}

	// What comes late has its chance while everything is deleted.
	c.end(ctx, t)
	must(t, "cannot stop the engine", r.stop())
	if n := c.late.Load(); n != 0 {
		t.Errorf("%d events were delivered to watches, or requests to controllers, that were stopped", n)
	}
	t.Logf("%d log lines:%s", r.lines.total(), r.lines)
	if limit := c.lineLimit(); r.lines.total() > limit {
		t.Errorf("%d log lines, more than %d", r.lines.total(), limit)
	}
	c = nil

	// Connections end when the API server ends them, which it was kept from.
	connections := goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop")
	if err := leftOver(existing, connections); err != nil {
		t.Errorf("Something still runs: %v", err)
	}
	afterHeap, afterGoroutines := footprint()
	if afterHeap > heap+churnHeap {
		t.Errorf("heap of %d bytes in the end, and %d before: it may grow by %d", afterHeap, heap, churnHeap)
	}
	if busyHeap < heap+churnHeap {
		t.Errorf("heap of %d bytes while all ran, and %d before: too little to prove anything", busyHeap, heap)
	}
	if afterGoroutines > goroutines {
		t.Errorf("%d goroutines in the end, %d before", afterGoroutines, goroutines)
	}
}

// A slot is one of the kinds.
type slot struct {
	changing sync.Mutex // held while the kind is defined or undefined

	// writing is held, shared, while an object is written. While it is held
	// exclusively, no write is in progress.
	writing sync.RWMutex

	// unknown says that the answer to a write never came, under this plural.
	unknown atomic.Bool

	mu   sync.Mutex
	as   served // or as it will be
	is   presence
	gone served // while it leaves
}

// A presence says whether a kind is there.
type presence int

const (
	absent presence = iota
	present
	leaving // its definition was deleted, and isn't gone
)

func (s *slot) get() (served, presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.as, s.is
}

func (s *slot) set(as served, is presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.as, s.is = as, is
}

type churn struct {
	r           *engineRig
	kinds       []*slot
	controllers []*actor

	defined, hangs, started, watched, events, reconciles, late atomic.Int64

	mu   sync.Mutex
	errs []error
}

func newChurn(t *testing.T, r *engineRig) *churn {
	t.Helper()
	c := &churn{r: r}
	for i := range churnKinds {
		c.kinds = append(c.kinds, &slot{as: served{kind: fmt.Sprintf("Churn%d", i), plural: fmt.Sprintf("churn%ds", i), namespaced: i%2 == 0}})
	}
	for i := range churnControllers {
		c.controllers = append(c.controllers, &actor{churn: c, name: fmt.Sprintf("churn/%d", i), listeners: map[watch.WatchID]*listener{}})
	}
	return c
}

func (c *churn) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// begin defines all kinds.
func (c *churn) begin(ctx context.Context, t *testing.T) {
	t.Helper()
	t.Cleanup(func() { must(t, "Resume()", plane.Resume()) })
	c.all(t, func(s *slot) error {
		as, _ := s.get()
		if err := c.r.operator.define(ctx, as); err != nil {
			return err
		}
		c.defined.Add(1)
		s.set(as, present)
		return nil
	})
}

// end deletes all objects, and asks for all definitions to be deleted. It doesn't
// wait for that: the API server takes five seconds for each, and does five at a
// time.
func (c *churn) end(ctx context.Context, t *testing.T) {
	t.Helper()
	c.all(t, func(s *slot) error {
		as, is := s.get()
		if is != present {
			return nil
		}
		return errors.Join(
			c.r.operator.of(as).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			c.r.operator.Resource(crds).Delete(ctx, as.definition().GetName(), metav1.DeleteOptions{}),
		)
	})
}

func (c *churn) all(t *testing.T, do func(s *slot) error) {
	t.Helper()
	inParallel(t, lanes, len(c.kinds), func(i int) error { return do(c.kinds[i]) })
}

// redefine takes a kind away, or brings one back, maybe served otherwise. One in
// three that goes comes back at once.
func (c *churn) redefine(ctx context.Context, d *rand.Rand) {
	s := c.kinds[d.IntN(len(c.kinds))]
	atOnce, scope, plural := d.IntN(3) == 0, d.IntN(3) == 0, d.IntN(3) == 0
	if !s.changing.TryLock() {
		return
	}
	defer s.changing.Unlock()
	switch as, is := s.get(); is {
	case present:
		if !c.undefine(ctx, s, as, scope, plural) || !atOnce {
			return
		}
	case leaving:
		if !c.gone(ctx, s) || !atOnce {
			return
		}
	case absent:
	}
	c.define(ctx, s)
}

// undefine takes a kind away, and decides how it will come back. It returns
// whether it is gone.
//
// A create that began before the definition was deleted may end after it is gone:
// the API server even keeps one waiting for two seconds if the definition is new.
// The object stays in the store then. If the kind comes back with the other scope
// under the same plural, the API server can't make sense of the object's key, and
// fails to list the kind, and so to delete its definition, for ever. So no write
// may be in progress then.
func (c *churn) undefine(ctx context.Context, s *slot, as served, scope, plural bool) bool {
	next := as
	if scope {
		next.namespaced = !as.namespaced
		if !plural {
			s.writing.Lock()
			defer s.writing.Unlock()
			plural = s.unknown.Load()
		}
	}
	if plural {
		next.plural += "x"
	}
	s.mu.Lock()
	s.as, s.is, s.gone = next, leaving, as
	s.mu.Unlock()
	if plural {
		defer s.unknown.Store(false)
	}
	return c.gone(ctx, s)
}

// gone returns whether a definition that was to be deleted is gone.
func (c *churn) gone(ctx context.Context, s *slot) bool {
	ctx, cancel := context.WithTimeout(ctx, churnPatience)
	defer cancel()
	if err := c.r.operator.undefine(ctx, s.gone); err != nil {
		return false
	}
	as, _ := s.get()
	s.set(as, absent)
	return true
}

func (c *churn) define(ctx context.Context, s *slot) {
	ctx, cancel := context.WithTimeout(ctx, churnLeave)
	defer cancel()
	as, _ := s.get()
	if err := c.r.operator.define(ctx, as); err != nil {
		c.failed(fmt.Errorf("cannot define %s: %w", as.kind, err))
	}
	c.defined.Add(1)
	s.set(as, present)
}

// resolve waits until all definitions that were deleted are gone. It forgives few.
func (c *churn) resolve(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, churnLeave)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range c.kinds {
		if _, is := s.get(); is == leaving {
			wg.Go(func() {
				gone := false
				for !gone && ctx.Err() == nil {
					gone = c.gone(ctx, s)
				}
			})
		}
	}
	wg.Wait()
	stuck := 0
	for _, s := range c.kinds {
		if _, is := s.get(); is == leaving {
			stuck++
		}
	}
	if stuck > churnStuck {
		t.Errorf("the API server doesn't finish deleting %d of %d kinds, more than %d: this proves nothing", stuck, churnKinds, churnStuck)
	}
}

// write creates, changes or deletes an object. The kind may be gone, the object
// there already: the API server says so.
func (c *churn) write(ctx context.Context, d *rand.Rand) {
	s := c.kinds[d.IntN(len(c.kinds))]
	name, what, value := fmt.Sprintf("object-%d", d.IntN(churnNames)), d.IntN(4), d.Int()
	if !s.writing.TryRLock() {
		return
	}
	defer s.writing.RUnlock()
	as, is := s.get()
	if is != present {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o := as.object(name)
	o.Object["spec"] = map[string]any{"value": strconv.Itoa(value)}
	switch what {
	case 0:
		_ = c.r.operator.of(as).Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		_, _ = c.r.operator.of(as).Create(ctx, o, metav1.CreateOptions{})
	default:
		_, _ = c.r.operator.of(as).Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: "churn", Force: true})
	}
	if ctx.Err() != nil {
		s.unknown.Store(true)
	}
}

// hang stops the API server for a few seconds.
func (c *churn) hang(ctx context.Context, d *rand.Rand) {
	if c.hangs.Load() == churnHangs {
		return
	}
	if err := plane.Pause(); err != nil {
		c.failed(err)
		return
	}
	c.hangs.Add(1)
	paused, cancel := context.WithTimeout(ctx, time.Duration(2+d.IntN(4))*time.Second)
	defer cancel()
	<-paused.Done()
	if err := plane.Resume(); err != nil {
		c.failed(err)
	}
}

// An actor starts and stops a controller and its watches. It is the only one
// that does, so it knows what must run.
type actor struct {
	churn *churn
	name  string

	incarnation int
	over        *atomic.Bool // that this incarnation was stopped
	listeners   map[watch.WatchID]*listener
}

func (a *actor) act(ctx context.Context, d *rand.Rand) {
	var err error
	switch n := d.IntN(16); {
	case a.over == nil:
		err = a.start()
	case n == 0:
		err = a.stop(ctx)
	case n < 5:
		err = a.stopWatches(ctx, d)
	default:
		err = a.startWatches(ctx, d)
	}
	if err != nil {
		a.churn.failed(fmt.Errorf("%s: %w", a.name, err))
	}
}

func (a *actor) start() error {
	over := &atomic.Bool{}
	c := a.churn
	if err := c.r.Start(a.name, reconciling(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		c.reconciles.Add(1)
		if over.Load() {
			c.late.Add(1)
		}
		return reconcile.Result{}, nil
	})); err != nil {
		return err
	}
	a.incarnation++
	a.over = over
	c.started.Add(1)
	return nil
}

func (a *actor) stop(ctx context.Context) error {
	began := time.Now()
	if err := a.churn.r.Stop(ctx, a.name); err != nil {
		return err
	}
	a.stopped()
	return quick("Stop", began)
}

// stopped marks all listeners: from now on they may get no event.
func (a *actor) stopped() {
	if a.over != nil {
		a.over.Store(true)
		a.over = nil
	}
	for id, l := range a.listeners {
		l.stopped.Store(true)
		delete(a.listeners, id)
	}
}

func (a *actor) startWatches(ctx context.Context, d *rand.Rand) error {
	var ws []watch.Watch
	c := a.churn
	added := map[watch.WatchID]*listener{}
	for range 1 + d.IntN(5) {
		as, _ := c.kinds[d.IntN(len(c.kinds))].get()
		id := watch.WatchID{Type: watch.WatchTypeDependency, GVK: as.gvk()}
		l := a.listeners[id]
		if l == nil {
			l = added[id]
		}
		if l == nil {
			l = &listener{name: fmt.Sprintf("%s, incarnation %d, %s", a.name, a.incarnation, as.kind), events: &c.events, late: &c.late, known: map[types.UID]string{}}
			added[id] = l
			c.watched.Add(1)
		}
		ws = append(ws, watch.WatchFor(as.empty(), id.Type, l))
	}

	// A kind that isn't there, or an API server that hangs, is nothing to wait
	// for: the watch begins to deliver when it can.
	limit := 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := c.r.StartWatches(ctx, a.name, ws...)
	maps.Copy(a.listeners, added)
	for _, known := range []error{watch.ErrNotRunning, watch.ErrInvalidWatch, watch.ErrConflictingWatch, watch.ErrForbidden} {
		if errors.Is(err, known) {
			return err
		}
	}
	return quick("StartWatches", began.Add(limit))
}

func (a *actor) stopWatches(ctx context.Context, d *rand.Rand) error {
	var ids []watch.WatchID
	for range 1 + d.IntN(3) {
		as, _ := a.churn.kinds[d.IntN(len(a.churn.kinds))].get()
		ids = append(ids, watch.WatchID{Type: watch.WatchTypeDependency, GVK: as.gvk()})
	}
	began := time.Now()
	want := map[watch.WatchID]bool{}
	for _, id := range ids {
		if a.listeners[id] != nil {
			want[id] = true
		}
	}
	n, err := a.churn.r.StopWatches(ctx, a.name, ids...)
	if err != nil {
		return err
	}
	if n != len(want) {
		return fmt.Errorf("StopWatches stopped %d, want %d", n, len(want))
	}
	for id := range want {
		a.listeners[id].stopped.Store(true)
		delete(a.listeners, id)
	}
	return quick("StopWatches", began)
}

// quick returns an error if something that began, or should have ended, a while
// ago took too long.
func quick(what string, began time.Time) error {
	if took := time.Since(began); took > busy {
		return fmt.Errorf("%s took %s", what, took)
	}
	return nil
}

// settles waits until each watch knows exactly what there is, and its state says
// whether the kind is there.
func (c *churn) settles(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, churnSettle)
	defer cancel()
	var wrong []string
	watches := 0
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		wrong, watches = c.wrong(ctx)
		return len(wrong) == 0, nil
	})
	if err != nil {
		t.Errorf("%d of %d watches don't know what there is:", len(wrong), watches)
		for _, w := range wrong {
			t.Log(w)
		}
	}
	if got := c.r.tally.watches.Load(); got != int64(watches) {
		t.Errorf("%d watches are counted as started and not stopped, want %d", got, watches)
	}
	if watches < churnControllers {
		t.Errorf("only %d watches are left, too few to prove anything: lengthen the churn", watches)
	}
	t.Logf("%d watches know what there is", watches)
}

func (c *churn) wrong(ctx context.Context) (wrong []string, watches int) {
	states := map[string]map[watch.WatchID]watch.State{}
	for _, s := range c.r.Snapshot().Controllers {
		states[s.Name] = map[watch.WatchID]watch.State{}
		for _, w := range s.Watches {
			states[s.Name][watch.WatchID{Type: w.Type, GVK: w.GVK}] = w.State
		}
	}
	for _, s := range c.kinds {
		as, is := s.get()
		want, state := map[types.UID]string{}, watch.StateDormant
		if is == present {
			var err error
			state = watch.StateActive
			if want, err = c.r.operator.objects(ctx, as); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %v", as.kind, err))
				continue
			}
		}
		id := watch.WatchID{Type: watch.WatchTypeDependency, GVK: as.gvk()}
		for _, a := range c.controllers {
			l := a.listeners[id]
			if l == nil {
				if _, ok := states[a.name][id]; ok {
					wrong = append(wrong, fmt.Sprintf("%s: %s is watched, and shouldn't be", a.name, as.kind))
				}
				continue
			}
			watches++
			if is == leaving {
				// It is unknown which objects exist.
				continue
			}
			if diff := gocmp.Diff(want, l.heard()); diff != "" || states[a.name][id] != state {
				wrong = append(wrong, fmt.Sprintf("%s: state %q, want %q: -want, +got:\n%s", l.name, states[a.name][id], state, diff))
			}
		}
	}
	return wrong, watches
}

// strangers fails the test if a live watch was told of the deletion of what it
// didn't know, for instance twice.
func (c *churn) strangers(t *testing.T) {
	t.Helper()
	for _, a := range c.controllers {
		for _, l := range a.listeners {
			l.mu.Lock()
			for _, s := range l.strange {
				t.Error(s)
			}
			l.mu.Unlock()
		}
	}
}

// lineLimit is how many lines may be logged: one when a kind begins to fail, be
// it because it went or because the API server hangs, and a few of the manager's
// at its end.
func (c *churn) lineLimit() int {
	return int(c.defined.Load()) + churnKinds*int(c.hangs.Load()) + 20
}
