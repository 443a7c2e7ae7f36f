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

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Random schedules of calls and faults, against a simple model: a controller runs
// or not, and has watches or not; in the end each watch must have been told of the objects in
// the API, no more and no less. One more controller has no model: calls for it are concurrent. A schedule that failed can be run again by its seed.

// wrong returns events that contradict each other or the objects. A kind may come back with
// another scope: an object with a namespace and one without are two, although their names are
// the same, and the deletion of the first may follow the creation of the second.
func (r *recorder) wrong(objects map[client.ObjectKey]*unstructured.Unstructured) string {
	there := make(map[client.ObjectKey]string)
	var wrong []string
	for _, e := range r.all() {
		if uid, known := there[e.key]; e.op == "create" && known && uid != e.uid || e.op != "create" && uid != e.uid {
			wrong = append(wrong, fmt.Sprintf("%s of %s after %q was there", e.op, e.key, uid))
		}
		there[e.key] = e.uid
		if e.op == "delete" {
			delete(there, e.key)
		}
	}
	want := make(map[client.ObjectKey]string)
	for key, o := range objects {
		want[key] = string(o.GetUID())
	}
	return strings.Join(wrong, "; ") + cmp.Diff(want, there)
}

// A modelled controller is the expected state of a controller.
type modelled struct {
	name    string
	running bool
	watches map[watch.WatchID]*recorder
}

// A schedule is a run of one.
type schedule struct {
	t   *testing.T
	rnd *rand.Rand
	r   *testEnv

	defining sync.Mutex

	mu    sync.Mutex
	kinds []watchtest.Kind // As they are defined, or were last.
	lifts map[int]func()   // End the faults of kinds, and the watch of definitions.

	controllers []*modelled // What must be.

	// The handlers of the controller without a model, one for each kind, and its reconciles.
	wild    [scheduleKinds]recorder
	overlap overlap
}

const (
	scheduleKinds       = 4
	definitions         = -1
	scheduleControllers = 3
	metadataWatch       = watch.WatchTypeManagedResource // Of metadata only.
	wild                = "wild"

	// How long calls that wait for informers may. Faults may make them.
	callTimeout = 2 * time.Second
	short       = 50 * time.Millisecond // Of those that needn't.
)

func (s *schedule) note(format string, args ...any) {
	s.t.Log(time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

func (s *schedule) kind(i int) watchtest.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds[i]
}

// call makes a call whose context ends after a while. It must end by then.
func (s *schedule) call(what string, d time.Duration, fn func(ctx context.Context) error) error {
	took, err := timed(func() error { return withTimeout(s.t, d, fn) })
	expectBetween(s.t, "It heeds its context.", what, 0, d+quick, took)
	s.note("%s: %v", what, err)
	return err
}

// over notes that watches were stopped: they must not be told anything any more. It
// returns how many there were.
func (s *schedule) over(c *modelled, ids []watch.WatchID) (n int) {
	for _, id := range ids {
		if rec := c.watches[id]; rec != nil {
			rec.before.set(func() { s.t.Errorf("%s: a watch of %s that was stopped gets an event", c.name, id.GVK) })
			delete(c.watches, id)
			n++
		}
	}
	return n
}

// one draws a call to a controller that changes its expected state. Calls to different
// controllers may be concurrent.
func (s *schedule) one(c *modelled) func() {
	what := s.rnd.IntN(9)
	ids := make([]watch.WatchID, 1+s.rnd.IntN(3))
	types := []watch.WatchType{watch.WatchTypeDependency, watch.WatchTypeClaim, metadataWatch}
	for i := range ids {
		ids[i] = watch.WatchID{Type: types[s.rnd.IntN(len(types))], GVK: s.kind(s.rnd.IntN(scheduleKinds)).GVK}
	}
	return func() {
		switch {
		case what < 2:
			s.note("Start(%s)", c.name)
			s.r.start(c.name, idleOptions())
			c.running = true
		case what == 2:
			s.stop(c)
		case what < 7:
			s.startWatches(c, ids)
		default:
			s.stopWatches(c, ids)
		}
		s.compare(c)
	}
}

// notRunning reports whether an error says so, in the words of upstream's engine.
func notRunning(err error, name string) bool {
	return errors.Is(err, watch.ErrNotRunning) && err.Error() == fmt.Sprintf("controller %q is not running", name)
}

func (s *schedule) stop(c *modelled) {
	expectEqual(
		s.t, "", "Stop("+c.name+")", nil,
		s.call("Stop "+c.name, time.Second, func(ctx context.Context) error { return s.r.Stop(ctx, c.name) }),
	)
	s.over(c, slices.Collect(maps.Keys(c.watches)))
	c.running = false
}

func (s *schedule) startWatches(c *modelled, ids []watch.WatchID) {
	specs := make([]baseline.Watch, len(ids))
	recs := maps.Clone(c.watches)
	for i, id := range ids {
		if recs[id] == nil { // Twice in a batch is once.
			recs[id] = &recorder{}
		}
		k := watchtest.Kind{GVK: id.GVK}
		specs[i] = baseline.Watch{Kind: k.New(), Type: id.Type, Handler: recs[id]}
		if id.Type == metadataWatch {
			specs[i].Kind = newPartialMetadata(k)
		}
	}
	err := s.call(fmt.Sprintf("StartWatches %s %v", c.name, ids), callTimeout, func(ctx context.Context) error {
		return s.r.StartWatches(ctx, c.name, specs...)
	})
	expectEqual(
		s.t, "Only a controller that runs has watches.", "StartWatches("+c.name+") says that it doesn't", !c.running,
		notRunning(err, c.name),
	)
	refused := errors.Is(err, watch.ErrConflictingWatch) || errors.Is(err, watch.ErrInvalidWatch)
	expectEqual(s.t, "The watches are well.", "StartWatches("+c.name+") refuses them", false, refused)
	if c.running {
		c.watches = recs
	}
}

func (s *schedule) stopWatches(c *modelled, ids []watch.WatchID) {
	n := 0
	err := s.call(fmt.Sprintf("StopWatches %s %v", c.name, ids), time.Second, func(ctx context.Context) error {
		var err error
		n, err = s.r.StopWatches(ctx, c.name, ids...)
		return err
	})
	expectEqual(
		s.t, "", "StopWatches("+c.name+") says that it runs, or that it doesn't", []bool{c.running, !c.running},
		[]bool{
			err == nil, notRunning(err, c.name),
		},
	)
	expectEqual(s.t, "", "watches that StopWatches("+c.name+") stopped", s.over(c, ids), n)
}

// compare compares a controller with its model.
func (s *schedule) compare(c *modelled) {
	expectEqual(s.t, "", "IsRunning("+c.name+")", c.running, s.r.IsRunning(c.name))
	ids, err := s.r.GetWatches(c.name)
	expectEqual(
		s.t, "Only a controller that runs has watches.", "GetWatches("+c.name+") says that it doesn't", !c.running,
		notRunning(err, c.name),
	)
	if len(ids) != len(c.watches) || slices.ContainsFunc(ids, func(id watch.WatchID) bool {
		return c.watches[id] == nil
	}) {
		s.t.Errorf("GetWatches(%s) = %v, want %v", c.name, ids, slices.Collect(maps.Keys(c.watches)))
	}
}

// wildly makes a call for the controller without a model.
func (s *schedule) wildly(k watchtest.Kind, rec *recorder, arg int) {
	err := s.call(fmt.Sprintf("wild %d of %s", arg%8, k.GVK.Kind), short, func(ctx context.Context) error {
		switch arg % 8 {
		case 0:
			return s.r.Stop(ctx, wild)
		case 1, 2:
			_, err := s.r.StopWatches(ctx, wild, watchIDOf(k))
			return err
		case 3, 4:
			return s.r.Start(
				wild,
				withReconciler(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
					defer s.overlap.enter(req)()
					time.Sleep(20 * time.Millisecond)
					return reconcile.Result{}, nil
				}),
			)
		default:
			return s.r.StartWatches(ctx, wild, newWatch(k, rec))
		}
	})
	expectEqual(s.t, "The kind is well.", "the call is refused", false, errors.Is(err, watch.ErrInvalidWatch))
}

// churn draws something to happen at the same time as a call.
func (s *schedule) churn() func() {
	i, what, arg := s.rnd.IntN(scheduleKinds), s.rnd.IntN(24), s.rnd.IntN(256)
	name := fmt.Sprintf("o%d", arg%5)
	return func() {
		k := s.kind(i)
		s.note("churn %d of %d with %d", what, i, arg)
		if what < 6 {
			// An API server doesn't establish two definitions of one kind, nor is anything put
			// in a namespace where there are none.
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
			if what == 2 {
				s.r.api.Undefine(k)
				s.r.api.Define(is)
				return
			}
			s.r.api.Replace(k, is)
		case 3:
			s.r.api.Define(k)
		case 4, 5:
			if s.r.api.Objects(k) != nil {
				s.r.api.Put(k.Object(name), k)
			}
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
			s.lift(i, nil)
		case 12:
			_ = s.call(
				fmt.Sprintf("Get %d", i), short, func(ctx context.Context) error { return s.r.read(ctx, k, "o1") },
			)
		case 13:
			expectEqual(s.t, "", "RemoveInformer(...)", nil, s.r.infs.RemoveInformer(s.t.Context(), k.New()))
		case 14:
			_ = s.call(fmt.Sprintf("List %d", i), short, func(ctx context.Context) error { return s.r.list(ctx, k) })
		case 15:
			s.watchDefinitions(arg%2 == 0)
		case 16:
			s.r.api.Disconnect(watchtest.Of(watchtest.CRD()))
			if arg%2 == 0 {
				s.r.api.Compact(watchtest.CRD())
			}
		case 17:
			s.r.mgr.Elect()
		case 18:
			_ = s.r.ours.Snapshot()
			_ = s.r.infs.ActiveInformers()
		default:
			s.wildly(k, &s.wild[i], arg)
		}
	}
}

// watchDefinitions begins or ends to.
func (s *schedule) watchDefinitions(on bool) {
	ctx, unwatch := context.WithCancel(s.t.Context())
	if on {
		expectEqual(
			s.t, "", "GarbageCollectCustomResourceInformers(...)", nil, s.r.GarbageCollectCustomResourceInformers(ctx),
		)
	}
	s.lift(definitions, unwatch)
}

func (s *schedule) fault(i int, m watchtest.Match, arg int) {
	faults := []watchtest.Fault{
		watchtest.Hang(), watchtest.Refuse(), watchtest.Delay(time.Second), watchtest.TooManyRequests(1),
		watchtest.Status(http.StatusForbidden), watchtest.Status(http.StatusNotFound),
		watchtest.Status(http.StatusInternalServerError),
	}
	s.lift(i, s.r.api.Inject(m, faults[arg%len(faults)]))
}

// lift ends the fault of a kind, and keeps the function that ends the next one.
func (s *schedule) lift(i int, by func()) {
	s.mu.Lock()
	was := s.lifts[i]
	s.lifts[i] = by
	s.mu.Unlock()
	if was != nil {
		was()
	}
}

// heal lets everything be well for a while.
func (s *schedule) heal() {
	s.r.mgr.Elect()
	for i := range scheduleKinds {
		s.lift(i, nil)
		s.r.api.Define(s.kinds[i])
	}

	// Backoff without definitions is at most a minute, and a little; the same holds for
	// informers.
	advance(5 * time.Minute)
	for _, k := range s.kinds {
		s.r.api.Put(k.Object("last"), k)
	}
	advance(10 * time.Second)
}

// counted checks what runs by the metrics.
func (s *schedule) counted(controllers, watches int64) {
	c, w := s.r.metrics.running()
	expectEqual(s.t, "", "controllers, watches: started minus stopped", []int64{controllers, watches}, []int64{c, w})
}

// check compares all controllers with their models.
func (s *schedule) check() {
	var live, running int64
	for _, c := range s.controllers {
		s.compare(c)
		if c.running {
			running++
		}
		for id, rec := range c.watches {
			live++
			i := slices.IndexFunc(s.kinds, func(k watchtest.Kind) bool { return k.GVK == id.GVK })
			expectEqual(s.t, "", fmt.Sprintf("watch %s %v", c.name, id), "", rec.wrong(s.r.api.Objects(s.kinds[i])))
		}
	}
	if s.r.IsRunning(wild) {
		running++
	}
	ids, _ := s.r.GetWatches(wild) // None if it doesn't run.
	live += int64(len(ids))
	for i, k := range s.kinds {
		want := 0
		if slices.Contains(ids, watchIDOf(k)) {
			want = 1
		}
		expectEqual(
			s.t, "", fmt.Sprintf("how often watches of %d were told of the last object", i), want,
			s.wild[i].count("create", "last"),
		)
	}
	most, _ := s.overlap.result()
	expectBetween(s.t, "", "how often a key was reconciled at once", 0, 1, most)
	s.counted(running, live)
	for _, c := range s.r.ours.Snapshot().Controllers {
		for _, w := range c.Watches {
			expectEqual(s.t, w.Error, fmt.Sprintf("watch %s %s", c.Name, w.GVK), watch.StateActive, w.State)
		}
	}
}

// end stops all controllers, and checks that nothing is left.
func (s *schedule) end() {
	for _, c := range s.controllers {
		s.stop(c)
		err := s.r.StartWatches(s.t.Context(), c.name, newWatch(s.kinds[0], &recorder{}))
		expectEqual(
			s.t, "", "StartWatches("+c.name+") after the end says that it doesn't run", true, notRunning(err, c.name),
		)
	}
	s.r.stop(wild)
	for i, k := range s.kinds {
		s.wild[i].before.set(func() {
			s.t.Errorf("%s: a handler of a controller that was stopped gets an event", wild)
		})
		s.r.api.Put(k.Object("late"), k)
	}
	advance(time.Hour)
	s.counted(0, 0)
	for _, k := range s.kinds {
		expectEqual(s.t, "", "informers of "+k.GVK.Kind, 0, s.r.api.Open(watchtest.Of(k)))
	}
}

// Each runs to its end, lets everything heal, and looks.
func TestRandomSchedules(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		inBubble(t, fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			api := watchtest.NewAPI()
			s := &schedule{
				t: t, r: newGraftEnv(t, api),
				rnd:   rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // It must be the same each time.
				lifts: make(map[int]func()),
			}
			for i := range scheduleKinds {
				k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				s.kinds = append(s.kinds, k)
				api.Define(k)
			}
			for i := range scheduleControllers {
				s.controllers = append(s.controllers, &modelled{
					name:    fmt.Sprintf("c%d", i),
					watches: make(map[watch.WatchID]*recorder),
				})
			}
			defer func() {
				for i := range scheduleKinds {
					s.lift(i, nil)
				}
				s.watchDefinitions(false)
				if t.Failed() {
					t.Log(strings.Join(s.r.ours.Snapshot().Summary, "\n"))
				}
			}()
			s.watchDefinitions(s.rnd.IntN(2) == 1)
			if s.rnd.IntN(4) != 0 {
				s.r.mgr.Elect()
			}
			for round := 0; round < 20 && !t.Failed(); round++ {
				var wg sync.WaitGroup
				for range s.rnd.IntN(5) {
					fn := s.churn()
					wg.Go(fn)
				}

				// One or two calls, never two to one controller.
				n, first := 1+s.rnd.IntN(2), s.rnd.IntN(scheduleControllers)
				for i := range n {
					fn := s.one(s.controllers[(first+i)%scheduleControllers])
					wg.Go(fn)
				}
				wg.Wait()
				if s.rnd.IntN(3) == 0 {
					advance(time.Duration(s.rnd.IntN(256)) * 250 * time.Millisecond)
				}
			}
			s.heal()
			s.check()
			s.end()
		})
	}
}
