package watch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Random schedules of calls and faults, against a simple model: a controller runs
// or not, and has watches or not; what is in the API is what each watch must have
// been told in the end, no more and no less. A schedule is a string of bytes, so
// that one that failed can be run again, and a fuzzer can look for others.

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
			if !known {
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

// A schedule is a run of one.
type schedule struct {
	t    *testing.T
	rest []byte
	r    *rig
	log  []string

	defining sync.Mutex

	mu    sync.Mutex
	kinds []watchtest.Kind // As they are defined, or were last.
	lifts map[int]func()

	// What must be, by controller.
	running map[string]map[int]*tally

	// What the engine said of itself when it was looked at.
	page string

	// What must not change any more.
	stopped map[*tally]int
}

const (
	scheduleKinds       = 4
	scheduleControllers = 3

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

func (s *schedule) errorf(format string, args ...any) {
	s.t.Errorf(format, args...)
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
		s.errorf("%s with a context of %s took %s: %v", what, d, took, err)
	}

	s.note("%s: %v", what, err)

	return err
}

// one makes a call that changes what must be.
func (s *schedule) one() {
	c := fmt.Sprintf("c%d", s.next(scheduleControllers))
	i := s.next(scheduleKinds)
	k := s.kind(i)
	ws := s.running[c]

	switch s.next(6) {
	case 0:
		if err := s.r.Start(c, idle()); err != nil {
			s.errorf("Start(%s): %v", c, err)
		}

		if ws == nil {
			s.running[c] = make(map[int]*tally)
		}

		s.note("Start(%s)", c)
	case 1:
		if err := s.call("Stop "+c, time.Second, func(ctx context.Context) error { return s.r.Stop(ctx, c) }); err != nil {
			s.errorf("Stop(%s): %v", c, err)
		}

		for _, rec := range ws {
			s.stopped[rec] = len(rec.all())
		}

		delete(s.running, c)
	case 2, 3, 4:
		rec := ws[i]
		if rec == nil {
			rec = &tally{}
		}

		err := s.call(fmt.Sprintf("StartWatches %s %d", c, i), callTimeout, func(ctx context.Context) error {
			return s.r.StartWatches(ctx, c, watchOf(k, rec))
		})
		if got := errors.Is(err, watch.ErrNotRunning); got != (ws == nil) {
			s.errorf("StartWatches(%s) of a controller that is running=%t: %v", c, ws != nil, err)
		}

		if ws != nil {
			ws[i] = rec
		}
	case 5:
		n := 0
		err := s.call(fmt.Sprintf("StopWatches %s %d", c, i), time.Second, func(ctx context.Context) error {
			var err error
			n, err = s.r.StopWatches(ctx, c, idOf(k))

			return err
		})

		if got := errors.Is(err, watch.ErrNotRunning); got != (ws == nil) || !got && err != nil {
			s.errorf("StopWatches(%s) of a controller that is running=%t: %v", c, ws != nil, err)
		}

		if rec := ws[i]; rec != nil {
			s.stopped[rec] = len(rec.all())
			delete(ws, i)

			if n != 1 {
				s.errorf("StopWatches(%s) stopped %d watches, want 1", c, n)
			}
		}
	}
}

// churn returns something to happen at the same time as a call.
func (s *schedule) churn() func() {
	i, what, arg := s.next(scheduleKinds), s.next(14), s.next(256)
	name := fmt.Sprintf("o%d", arg%5)

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
			s.put(k, name)
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
		case 12:
			_ = s.call(fmt.Sprintf("Get %d", i), 50*time.Millisecond, func(ctx context.Context) error { return s.r.read(ctx, k, name) })
		case 13:
			if err := s.r.infs.RemoveInformer(s.t.Context(), k.New()); err != nil {
				s.errorf("RemoveInformer(...): %v", err)
			}
		}
	}
}

// put an object of a kind, if it is served.
func (s *schedule) put(k watchtest.Kind, name string) {
	// Nobody else defines kinds between the question and the answer.
	s.defining.Lock()
	defer s.defining.Unlock()

	if s.r.api.Objects(k) != nil {
		s.r.api.Put(k.Object(name), k)
	}
}

func (s *schedule) fault(i int, m watchtest.Match, arg int) {
	faults := []watchtest.Fault{
		watchtest.Hang(), watchtest.Refuse(), watchtest.Delay(time.Second), watchtest.TooManyRequests(1),
		watchtest.Status(http.StatusForbidden), watchtest.Status(http.StatusNotFound), watchtest.Status(http.StatusInternalServerError),
	}

	s.lift(i)

	lift := s.r.api.Inject(m, faults[arg%len(faults)])

	s.mu.Lock()
	defer s.mu.Unlock()

	if was := s.lifts[i]; was != nil {
		defer was()
	}

	s.lifts[i] = lift
}

func (s *schedule) lift(i int) {
	s.mu.Lock()
	lift := s.lifts[i]
	delete(s.lifts, i)
	s.mu.Unlock()

	if lift != nil {
		lift()
	}
}

// runSchedule runs a schedule to its end, lets everything heal, and looks.
func runSchedule(t *testing.T, data []byte) {
	t.Helper()

	bubble(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		s := &schedule{
			t: t, rest: data, r: graft(t, api),
			lifts:   make(map[int]func()),
			running: make(map[string]map[int]*tally),
			stopped: make(map[*tally]int),
		}

		for i := range scheduleKinds {
			k := watchtest.NewKind(fmt.Sprintf("Widget%d", i))
			s.kinds = append(s.kinds, k)
			api.Define(k)
		}

		defer func() {
			for i := range scheduleKinds {
				s.lift(i)
			}

			if t.Failed() {
				t.Logf("schedule %q:\n%s\n%s", data, strings.Join(s.log, "\n"), s.page)
			}
		}()

		if s.next(2) == 1 {
			if err := s.r.GarbageCollectCustomResourceInformers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		s.r.mgr.Elect()

		for len(s.rest) > 0 && !t.Failed() {
			var wg sync.WaitGroup

			for range s.next(3) {
				fn := s.churn()

				wg.Go(fn)
			}

			s.one()
			wg.Wait()

			if s.next(3) == 0 {
				pass(time.Duration(s.next(256)) * 250 * time.Millisecond)
			}
		}

		s.heal()
		s.check()
	})
}

// heal lets everything be well for a while.
func (s *schedule) heal() {
	for i := range scheduleKinds {
		s.lift(i)
		s.r.api.Define(s.kinds[i])
	}

	// Backoff without definitions is at most a minute; that of informers, too.
	pass(5 * time.Minute)

	for _, k := range s.kinds {
		s.r.api.Put(k.Object("last"), k)
	}

	pass(10 * time.Second)
}

// check compares what is with what must be.
func (s *schedule) check() {
	live := 0

	for c, ws := range s.running {
		for i, rec := range ws {
			live++

			want := make(map[string]string)
			for key, o := range s.r.api.Objects(s.kinds[i]) {
				want[key.Name] = string(o.GetUID())
			}

			got, wrong := rec.objects()
			if len(wrong) > 0 {
				s.errorf("watch %s %d was told what can't be: %s", c, i, strings.Join(wrong, "; "))
			}

			if !maps.Equal(want, got) {
				s.errorf("watch %s %d knows %v, and there are %v", c, i, got, want)
			}
		}
	}

	for rec, n := range s.stopped {
		if got := len(rec.all()); got != n {
			s.errorf("a watch that was stopped got %d more events", got-n)
		}
	}

	if c, w := s.r.metrics.running(); c != len(s.running) || w != live {
		s.errorf("started minus stopped: %d controllers, %d watches; want %d, %d", c, w, len(s.running), live)
	}

	snapshot := s.r.ours.Snapshot()
	s.page = snapshot.String()

	for _, c := range snapshot.Controllers {
		for _, w := range c.Watches {
			if w.State != watch.StateActive {
				s.errorf("watch %s %s is %s: %s", c.Name, w.GVK, w.State, w.Error)
			}
		}
	}

	// And it all goes.
	for _, c := range slices.Sorted(maps.Keys(s.running)) {
		if err := s.r.Stop(s.t.Context(), c); err != nil {
			s.errorf("Stop(%s): %v", c, err)
		}
	}

	pass(time.Hour)

	for _, k := range s.kinds {
		if n := s.r.api.Open(watchtest.Of(k)); n != 0 {
			s.errorf("%d informers of %s are left", n, k.GVK.Kind)
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
	n := 25
	if testing.Short() {
		n = 5
	}

	for seed := range n {
		t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			runSchedule(t, randomSchedule(uint64(seed), 400)) //nolint:gosec // It isn't negative.
		})
	}
}

func FuzzSchedule(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(randomSchedule(seed, 100))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		// Longer ones find nothing that shorter ones don't, later.
		runSchedule(t, data[:min(len(data), 1000)])
	})
}
