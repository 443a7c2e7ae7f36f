package watch_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Random schedules of calls and faults, against a simple model: a controller runs
// or not, and has watches or not; what is in the API is what each watch must have
// been told in the end, no more and no less. One more controller has no model: everything is
// called for it at once. A schedule is a string of bytes, so that one that failed can be
// run again, and a fuzzer can look for others.

// A tally is a handler's recorder with what it makes of the events: which objects
// there are.
type tally struct {
	recorder
}

// objects returns the objects that there are, by what was told, and what was
// told that can't be.
func (r *tally) objects() (there map[string]string, wrong []string) {
	there = make(map[string]string)
	for _, e := range r.all() {
		uid, known := there[e.name]
		switch e.op {
		case "create":
			if known && uid != e.uid {
				wrong = append(wrong, fmt.Sprintf("%s was created while another of that name was there", e.name))
			}
			there[e.name] = e.uid
		case "update":
			if !known || uid != e.uid {
				wrong = append(wrong, e.name+" was updated and wasn't there")
			}
			there[e.name] = e.uid
		case "delete":
			if !known || uid != e.uid {
				wrong = append(wrong, e.name+" was deleted and wasn't there")
			}
			delete(there, e.name)
		}
	}
	return there, wrong
}

// A wanted watch: its kind's number, and its type.
type wanted struct {
	kind int
	typ  watch.WatchType
}

// Types of watches. The last one is of metadata.
var scheduleTypes = []watch.WatchType{watch.WatchTypeDependency, watch.WatchTypeClaim, watch.WatchTypeManagedResource}

func (w wanted) id(k watchtest.Kind) watch.WatchID { return watch.WatchID{Type: w.typ, GVK: k.GVK} }

// A modelled controller is what a controller must be.
type modelled struct {
	name    string
	running bool
	watches map[wanted]*tally
}

// A listening is a handler that was added to an informer.
type listening struct {
	kind     int
	inf      cache.Informer
	reg      kcache.ResourceEventHandlerRegistration
	recorder *tally
}

// A schedule is a run of one.
type schedule struct {
	t    *testing.T
	rest []byte
	r    *rig
	log  []string

	// The cache is controller-runtime's, and our engine goes around it. What that
	// can't do isn't asked of it.
	around bool

	defining sync.Mutex

	mu      sync.Mutex
	kinds   []watchtest.Kind // As they are defined, or were last.
	lifts   map[int]func()
	indexed map[int]bool
	heard   []*listening

	// Ends the watch of definitions, if there is one.
	unwatch func()

	// What must be.
	controllers []*modelled

	// What the engine said of itself when it was looked at.
	page string

	// What must not change any more.
	stopped map[*tally]int

	// The handlers of the controller that has no model, one for each kind, and what it
	// reconciles.
	wild    [scheduleKinds]recorder
	overlap overlap
}

const (
	scheduleKinds       = 4
	scheduleControllers = 3
	scheduleIndex       = "metadata.name.first"
	wild                = "wild"

	// How long calls that wait for informers may. Faults may make them.
	callTimeout = 2 * time.Second
)

func (s *schedule) next(n int) int {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return int(b) % n
}

func (s *schedule) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *schedule) kind(i int) watchtest.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds[i]
}

// call makes a call whose context ends after a while. It must end by then.
func (s *schedule) call(what string, d time.Duration, fn func(ctx context.Context) error) error {
	took, err := timed(func() error { return limited(s.t, d, fn) })
	if took > d+quick {
		s.t.Errorf("%s with a context of %s took %s: %v", what, d, took, err)
	}
	s.note("%s: %v", what, err)
	return err
}

// over notes that a watch was stopped: it must not be told anything any more.
func (s *schedule) over(rec *tally) {
	n := len(rec.all())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[rec] = n
}

// draw draws some watches.
func (s *schedule) draw() []wanted {
	ws := make([]wanted, 1+s.next(3))
	for i := range ws {
		ws[i] = wanted{kind: s.next(scheduleKinds), typ: scheduleTypes[s.next(len(scheduleTypes))]}
	}
	return ws
}

// one draws a call to a controller that changes what must be. Calls to different
// controllers may be made at once.
func (s *schedule) one(c *modelled) func() {
	what, ws, mask := s.next(10), s.draw(), s.next(1<<scheduleKinds)
	return func() {
		switch what {
		case 0, 1:
			s.start(c)
		case 2:
			s.stop(c)
		case 3, 4, 5, 6:
			s.startWatches(c, ws)
		case 7, 8:
			s.stopWatches(c, ws)
		case 9:
			s.collect(c, mask)
		}
		s.compare(c)
	}
}

func (s *schedule) start(c *modelled) {
	if err := s.r.Start(c.name, idle()); err != nil {
		s.t.Errorf("Start(%s): %v", c.name, err)
	}
	c.running = true
	s.note("Start(%s)", c.name)
}

func (s *schedule) stop(c *modelled) {
	if err := s.call("Stop "+c.name, time.Second, func(ctx context.Context) error { return s.r.Stop(ctx, c.name) }); err != nil {
		s.t.Errorf("Stop(%s): %v", c.name, err)
	}
	for w, rec := range c.watches {
		s.over(rec)
		delete(c.watches, w)
	}
	c.running = false
}

func (s *schedule) startWatches(c *modelled, ws []wanted) {
	specs := make([]spec, len(ws))
	recs := make(map[wanted]*tally)
	for i, w := range ws {
		if recs[w] == nil { // Twice in a batch is once.
			recs[w] = c.watches[w]
		}
		if recs[w] == nil {
			recs[w] = &tally{}
		}
		k := s.kind(w.kind)
		specs[i] = spec{kind: k.New(), typ: w.typ, handler: recs[w]}
		if w.typ == watch.WatchTypeManagedResource && !s.around {
			// Around another cache this leaves a goroutine of client-go's.
			specs[i].kind = partial(k)
		}
	}
	err := s.call(fmt.Sprintf("StartWatches %s %v", c.name, ws), callTimeout, func(ctx context.Context) error {
		return s.r.StartWatches(ctx, c.name, specs...)
	})
	if got := errors.Is(err, watch.ErrNotRunning); got == c.running {
		s.t.Errorf("StartWatches(%s) of a controller that is running=%t: %v", c.name, c.running, err)
	}
	if errors.Is(err, watch.ErrConflictingWatch) || errors.Is(err, watch.ErrInvalidWatch) {
		s.t.Errorf("StartWatches(%s) of watches that are well: %v", c.name, err)
	}
	if c.running {
		maps.Copy(c.watches, recs)
	}
}

func (s *schedule) stopWatches(c *modelled, ws []wanted) {
	ids := make([]watch.WatchID, len(ws))
	gone := make(map[wanted]bool)
	for i, w := range ws {
		ids[i] = w.id(s.kind(w.kind))
		if c.watches[w] != nil {
			gone[w] = true
		}
	}
	n := 0
	err := s.call(fmt.Sprintf("StopWatches %s %v", c.name, ws), time.Second, func(ctx context.Context) error {
		var err error
		n, err = s.r.StopWatches(ctx, c.name, ids...)
		return err
	})
	if got := errors.Is(err, watch.ErrNotRunning); got == c.running || !got && err != nil {
		s.t.Errorf("StopWatches(%s) of a controller that is running=%t: %v", c.name, c.running, err)
	}
	if n != len(gone) {
		s.t.Errorf("StopWatches(%s) stopped %d watches, want %d", c.name, n, len(gone))
	}
	for w := range gone {
		s.over(c.watches[w])
		delete(c.watches, w)
	}
}

// collect lets a collector stop the dependencies on kinds that aren't in the mask.
func (s *schedule) collect(c *modelled, mask int) {
	tracker := watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) {
		var needed []schema.GroupVersionKind
		for i := range scheduleKinds {
			if mask&(1<<i) != 0 {
				needed = append(needed, s.kind(i).GVK)
			}
		}
		return needed, nil
	})
	gc := watch.NewGarbageCollector(c.name, s.r.ours, tracker, scheduleTypes[:1])
	err := s.call(fmt.Sprintf("Collect %s all but %b", c.name, mask), time.Second, gc.GarbageCollectWatchesNow)
	if got := errors.Is(err, watch.ErrNotRunning); got == c.running || !got && err != nil {
		s.t.Errorf("GarbageCollectWatchesNow() of a controller that is running=%t: %v", c.running, err)
	}
	for w, rec := range c.watches {
		if mask != 0 && mask&(1<<w.kind) == 0 && w.typ == scheduleTypes[0] {
			s.over(rec)
			delete(c.watches, w)
		}
	}
}

// compare asks what a controller has.
func (s *schedule) compare(c *modelled) {
	if got := s.r.IsRunning(c.name); got != c.running {
		s.t.Errorf("IsRunning(%s) = %t, want %t", c.name, got, c.running)
	}
	ids, err := s.r.GetWatches(c.name)
	if got := errors.Is(err, watch.ErrNotRunning); got == c.running {
		s.t.Errorf("GetWatches(%s) of a controller that is running=%t: %v", c.name, c.running, err)
	}
	want, got := make(map[watch.WatchID]bool), make(map[watch.WatchID]bool)
	for w := range c.watches {
		want[w.id(s.kind(w.kind))] = true
	}
	for _, id := range ids {
		got[id] = true
	}
	if !maps.Equal(want, got) {
		s.t.Errorf("GetWatches(%s) = %v, want %v", c.name, got, want)
	}
}

// wildly makes a call for the controller without a model.
func (s *schedule) wildly(i, arg int) {
	k := s.kind(i)
	err := s.call(fmt.Sprintf("wild %d of %d", arg%8, i), 50*time.Millisecond, func(ctx context.Context) error {
		switch arg % 8 {
		case 0:
			return s.r.Stop(ctx, wild)
		case 1, 2:
			_, err := s.r.StopWatches(ctx, wild, idOf(k))
			return err
		case 3, 4:
			return s.r.Start(wild, reconciling(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				defer s.overlap.enter(req)()
				time.Sleep(20 * time.Millisecond)
				return reconcile.Result{}, nil
			}))
		default:
			return s.r.StartWatches(ctx, wild, watchOf(k, &s.wild[i]))
		}
	})
	if errors.Is(err, watch.ErrInvalidWatch) {
		s.t.Errorf("a call for a kind that is well: %v", err)
	}
}

// churn draws something to happen at the same time as a call.
func (s *schedule) churn() func() {
	i, what, arg := s.next(scheduleKinds), s.next(28), s.next(256)
	name := fmt.Sprintf("o%d", arg%5)
	if s.around && (what == 1 || what == 2 || what == 10) {
		// Such a cache doesn't find what is served elsewhere, and locks what it
		// needs to read while it looks for a kind.
		what = 3
	}
	return func() {
		k := s.kind(i)
		s.note("churn %d of %d with %d", what, i, arg)
		if what < 4 {
			// An API server doesn't establish two definitions of one kind.
			s.defining.Lock()
			defer s.defining.Unlock()
			k = s.kind(i)
		}
		switch what {
		case 0:
			s.r.api.Undefine(k)
		case 1, 2:
			is := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
			if arg&1 != 0 {
				is = is.ClusterScoped()
			}
			if arg&2 != 0 {
				is = is.Named("moved" + is.Plural)
			}
			s.mu.Lock()
			s.kinds[i] = is
			s.mu.Unlock()
			if what == 1 {
				s.r.api.Replace(k, is)
				return
			}
			s.r.api.Undefine(k)
			s.r.api.Define(is)
		case 3:
			s.r.api.Define(k)
		case 4, 5:
			s.put(i, name)
		case 6:
			s.r.api.Remove(k, k.Key(name))
		case 7:
			s.r.api.Disconnect(watchtest.Of(k))
		case 8:
			s.r.api.Compact(k)
			s.r.api.Disconnect(watchtest.Of(k))
		case 9:
			s.fault(i, watchtest.Of(k), arg)
		case 10:
			s.fault(i, watchtest.DiscoveryOf(k), arg)
		case 11:
			s.lift(i)
		default:
			s.look(what, i, arg)
		}
	}
}

// look makes a call that changes nothing that a controller wants.
func (s *schedule) look(what, i, arg int) {
	k := s.kind(i)
	short := 50 * time.Millisecond
	switch what {
	case 12:
		_ = s.call(fmt.Sprintf("Get %d", i), short, func(ctx context.Context) error { return s.r.read(ctx, k, "o1") })
	case 13:
		if err := s.r.infs.RemoveInformer(s.t.Context(), k.New()); err != nil {
			s.t.Errorf("RemoveInformer(...): %v", err)
		}
	case 14:
		_ = s.call(fmt.Sprintf("List %d", i), short, func(ctx context.Context) error { return s.r.list(ctx, k) })
	case 15:
		s.mu.Lock()
		first := !s.indexed[i]
		s.indexed[i] = true
		s.mu.Unlock()
		if first {
			_ = s.call(fmt.Sprintf("IndexField %d", i), short, func(ctx context.Context) error {
				return s.r.infs.IndexField(ctx, k.New(), scheduleIndex, func(o client.Object) []string { return []string{o.GetName()[:1]} })
			})
		}
	case 16:
		s.listen(i)
	case 17:
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.heard) == 0 {
			return
		}
		l := s.heard[arg%len(s.heard)]
		s.heard = slices.DeleteFunc(s.heard, func(o *listening) bool { return o == l })
		if err := l.inf.RemoveEventHandler(l.reg); err != nil {
			s.t.Errorf("RemoveEventHandler(...): %v", err)
		}
	case 18:
		s.watchDefinitions(arg%2 == 0)
	case 19:
		s.r.api.Disconnect(watchtest.Of(watchtest.CRD()))
		if arg%2 == 0 {
			s.r.api.Compact(watchtest.CRD())
		}
	case 20:
		s.r.mgr.Elect()
	case 21:
		_ = s.r.ours.Snapshot()
		_ = s.r.infs.ActiveInformers()
		_ = s.call("IsAuthorizedFor", short, func(ctx context.Context) error {
			_, err := s.r.ours.IsAuthorizedFor(ctx, k.GVK, "default")
			return err
		})
	default:
		s.wildly(i, arg)
	}
}

// listen adds a handler to a kind's informer.
func (s *schedule) listen(i int) {
	k := s.kind(i)
	waits := cache.BlockUntilSynced(false)
	inf, err := s.r.infs.GetInformer(s.t.Context(), k.New(), waits)
	if err != nil {
		s.t.Errorf("GetInformer(...) without waiting: %v", err)
		return
	}
	l := &listening{kind: i, inf: inf, recorder: &tally{}}
	if l.reg, err = inf.AddEventHandler(l.recorder.funcs()); err != nil {
		s.t.Errorf("AddEventHandler(...): %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, l)
}

// watchDefinitions begins or ends to.
func (s *schedule) watchDefinitions(on bool) {
	var unwatch context.CancelFunc
	if on {
		var ctx context.Context
		ctx, unwatch = context.WithCancel(s.t.Context())
		if err := s.r.GarbageCollectCustomResourceInformers(ctx); err != nil {
			s.t.Errorf("GarbageCollectCustomResourceInformers(...): %v", err)
		}
	}
	s.mu.Lock()
	was := s.unwatch
	s.unwatch = unwatch
	s.mu.Unlock()
	if was != nil {
		was()
	}
}

// put an object of a kind, if it is served.
func (s *schedule) put(i int, name string) {
	// No other goroutine defines kinds between the question and the answer, or puts what
	// is in a namespace where there are none.
	s.defining.Lock()
	defer s.defining.Unlock()
	k := s.kind(i)
	if s.r.api.Objects(k) != nil {
		s.r.api.Put(k.Object(name), k)
	}
}

func (s *schedule) fault(i int, m watchtest.Match, arg int) {
	faults := []watchtest.Fault{
		watchtest.Hang(), watchtest.Refuse(), watchtest.Delay(time.Second), watchtest.TooManyRequests(1),
		watchtest.Status(http.StatusForbidden), watchtest.Status(http.StatusNotFound), watchtest.Status(http.StatusInternalServerError),
	}
	s.replaceLift(i, s.r.api.Inject(m, faults[arg%len(faults)]))
}

// lift the fault of a kind, if there is one.
func (s *schedule) lift(i int) { s.replaceLift(i, nil) }

func (s *schedule) replaceLift(i int, by func()) {
	s.mu.Lock()
	was := s.lifts[i]
	s.lifts[i] = by
	s.mu.Unlock()
	if was != nil {
		was()
	}
}

// runSchedule runs a schedule to its end, lets everything heal, and looks.
func runSchedule(t *testing.T, data []byte, around bool) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		s := &schedule{
			t: t, rest: data, around: around,
			lifts:   make(map[int]func()),
			indexed: make(map[int]bool),
			stopped: make(map[*tally]int),
		}
		if around {
			tracking := watch.TrackInformers(plainCache(t, api.Config()), scheme())
			startCache(t, tracking)
			s.r = graftOn(t, api, api.Config(), tracking)
		} else {
			s.r = graft(t, api)
		}
		for i := range scheduleKinds {
			k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
			s.kinds = append(s.kinds, k)
			api.Define(k)
		}
		for i := range scheduleControllers {
			s.controllers = append(s.controllers, &modelled{name: fmt.Sprintf("c%d", i), watches: make(map[wanted]*tally)})
		}
		defer func() {
			for i := range scheduleKinds {
				s.lift(i)
			}
			s.watchDefinitions(false)
			if t.Failed() {
				t.Logf("schedule %q:\n%s\n%s", data, strings.Join(s.log, "\n"), s.page)
			}
		}()
		s.watchDefinitions(s.next(2) == 1)
		if s.next(4) != 0 {
			s.r.mgr.Elect()
		}
		for len(s.rest) > 0 && !t.Failed() {
			var wg sync.WaitGroup
			for range s.next(5) {
				fn := s.churn()
				wg.Go(fn)
			}

			// One or two calls, never two to one controller.
			n, first := 1+s.next(2), s.next(scheduleControllers)
			for i := range n {
				fn := s.one(s.controllers[(first+i)%scheduleControllers])
				wg.Go(fn)
			}
			wg.Wait()
			if s.next(3) == 0 {
				pass(time.Duration(s.next(256)) * 250 * time.Millisecond)
			}
		}
		s.heal()
		s.check()
		s.end()
	})
}

// heal lets everything be well for a while.
func (s *schedule) heal() {
	s.r.mgr.Elect()
	for i := range scheduleKinds {
		s.lift(i)
		s.r.api.Define(s.kinds[i])
	}

	// Backoff without definitions is at most a minute, and a little; that of
	// informers, too.
	pass(5 * time.Minute)
	for _, k := range s.kinds {
		s.r.api.Put(k.Object("last"), k)
	}
	pass(10 * time.Second)
}

// knows compares what a handler was told with what there is.
func (s *schedule) knows(who string, i int, rec *tally) {
	want := make(map[string]string)
	for key, o := range s.r.api.Objects(s.kinds[i]) {
		want[key.Name] = string(o.GetUID())
	}
	got, wrong := rec.objects()
	if len(wrong) > 0 {
		s.t.Errorf("%s was told what can't be: %s", who, strings.Join(wrong, "; "))
	}
	if !maps.Equal(want, got) {
		s.t.Errorf("%s knows %v, and there are %v", who, got, want)
	}
}

// quiet checks that watches that were stopped were told nothing more.
func (s *schedule) quiet() {
	for rec, n := range s.stopped {
		if got := len(rec.all()); got != n {
			s.t.Errorf("a watch that was stopped got %d more events", got-n)
		}
	}
}

// counted checks what runs by the metrics.
func (s *schedule) counted(controllers, watches int) {
	if c, w := s.r.metrics.running(); c != controllers || w != watches {
		s.t.Errorf("started minus stopped: %d controllers, %d watches; want %d, %d", c, w, controllers, watches)
	}
}

// check compares what is with what must be.
func (s *schedule) check() {
	live, running := 0, 0
	for _, c := range s.controllers {
		s.compare(c)
		if c.running {
			running++
		}
		for w, rec := range c.watches {
			live++
			s.knows(fmt.Sprintf("watch %s %v", c.name, w), w.kind, rec)
		}
	}
	for _, l := range s.heard {
		s.knows(fmt.Sprintf("a handler of %d", l.kind), l.kind, l.recorder)
		if !l.reg.HasSynced() {
			s.t.Errorf("a handler of %d wasn't told all that there is", l.kind)
		}
	}
	s.quiet()
	if s.r.IsRunning(wild) {
		running++
	}
	ids, _ := s.r.GetWatches(wild) // None if it doesn't run.
	live += len(ids)
	for i, k := range s.kinds {
		want := 0
		if slices.Contains(ids, idOf(k)) {
			want = 1
		}
		if got := s.wild[i].count("create", "last"); got != want {
			s.t.Errorf("%d watches of %d were told %d times of the last object", want, i, got)
		}
	}
	if most, _ := s.overlap.result(); most > 1 {
		s.t.Errorf("a key was reconciled %d times at once", most)
	}
	s.counted(running, live)
	for i, k := range s.kinds {
		if !s.indexed[i] {
			continue
		}
		l := k.NewList()
		if err := s.r.reader.List(s.t.Context(), l, client.MatchingFields{scheduleIndex: "l"}); err != nil || len(l.Items) != 1 {
			s.t.Errorf("by its index kind %d has %d objects, %v; want 1", i, len(l.Items), err)
		}
	}
	snapshot := s.r.ours.Snapshot()
	s.page = strings.Join(snapshot.Summary, "\n")
	for _, c := range snapshot.Controllers {
		for _, w := range c.Watches {
			if w.State != watch.StateActive {
				s.t.Errorf("watch %s %s is %s: %s", c.Name, w.GVK, w.State, w.Error)
			}
		}
	}
}

// end stops everything, and looks what is left.
func (s *schedule) end() {
	for _, l := range s.heard {
		if err := l.inf.RemoveEventHandler(l.reg); err != nil {
			s.t.Errorf("RemoveEventHandler(...): %v", err)
		}
	}
	for _, c := range s.controllers {
		s.stop(c)
		if err := s.r.StartWatches(s.t.Context(), c.name, watchOf(s.kinds[0], &recorder{})); !errors.Is(err, watch.ErrNotRunning) {
			s.t.Errorf("StartWatches(%s) after the end: %v", c.name, err)
		}
	}
	if err := s.r.Stop(s.t.Context(), wild); err != nil {
		s.t.Errorf("Stop(%s): %v", wild, err)
	}
	for _, k := range s.kinds {
		s.r.api.Put(k.Object("late"), k)
	}
	pass(time.Hour)
	for i := range s.wild {
		if n := s.wild[i].count("", "late"); n > 0 {
			s.t.Errorf("a handler of a controller that was stopped got %d events", n)
		}
	}
	s.quiet()
	s.counted(0, 0)
	for i, k := range s.kinds {
		want := 0
		if s.indexed[i] {
			want = 1 // An index stays.
		}
		if n := s.r.api.Open(watchtest.Of(k)); n != want {
			s.t.Errorf("%d informers of %s are left, want %d", n, k.GVK.Kind, want)
		}
	}
}

// randomSchedule returns the schedule of a seed.
func randomSchedule(seed uint64, length int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It must be the same each time.
	out := make([]byte, length)
	for i := range out {
		out[i] = byte(rnd.UintN(256))
	}
	return out
}

func TestRandomSchedules(t *testing.T) {
	cases := map[string]struct {
		around bool
		seeds  int
	}{
		"Graft":                   {seeds: 60},
		"GraftAroundAnotherCache": {around: true, seeds: 20},
	}
	for name, tc := range cases {
		if testing.Short() {
			tc.seeds = 5
		}
		t.Run(name, func(t *testing.T) {
			for seed := range tc.seeds {
				t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
					runSchedule(t, randomSchedule(uint64(seed), 400), tc.around) //nolint:gosec // It isn't negative.
				})
			}
		})
	}
}

// Run it with -fuzzminimizetime=1x: the same input doesn't cover quite the same code
// each time, since goroutines take turns by chance, and to look for a smaller one
// that does takes a minute for each.
func FuzzSchedule(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(randomSchedule(seed, 100))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Longer ones find nothing that shorter ones don't, later.
		runSchedule(t, data[:min(len(data), 1000)], false)
	})
}
