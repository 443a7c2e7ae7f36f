package watch_test

import (
	"context"
	"fmt"
	gort "runtime"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// A clingingInformer doesn't let handlers go.
type clingingInformer struct{ cache.Informer }

func (clingingInformer) RemoveEventHandler(kcache.ResourceEventHandlerRegistration) error {
	return errors.New("boom")
}

func TestFact_StopAttemptsEverything(t *testing.T) {
	prove(t, map[string]fact{"AWatchThatCantBeStopped": {
		reason: "Stop returns at the first error: the controller still runs, with some of its watches gone.",
		scenario: func(t *testing.T, r *rig) string {
			var specs []baseline.Watch
			kinds := make([]watchtest.Kind, 5)
			for i := range kinds {
				kinds[i] = watchtest.NewKind(fmt.Sprintf("Widget%d", i))
				r.api.Define(kinds[i])
				specs = append(specs, watchOf(kinds[i], &recorder{}))
			}
			r.mgr.Elect()
			r.start("c", idle())
			r.watch("c", specs...)
			heal := r.breakWatch(kinds[2], specs[2])
			defer heal()
			err := r.stopFor(stuckFor)
			if err == nil {
				t.Error("Stop(...): no error")
			}
			if r.IsRunning("c") {
				ids, _ := r.GetWatches("c")
				return fmt.Sprintf("it still runs, with %d of %d watches: %v", len(ids), len(kinds), err)
			}
			return ""
		},
	}})
}

// breakWatch makes it impossible to stop a watch cleanly: the baseline's informer
// refuses to let its handler go, and our handler doesn't come back.
func (r *rig) breakWatch(k watchtest.Kind, s baseline.Watch) (heal func()) {
	if e, ok := r.engine.(*baseline.Engine); ok {
		src := e.Source("c", idOf(k))
		inf := src.Informer
		src.Informer = clingingInformer{inf}
		return func() { src.Informer = inf }
	}
	entered, release := make(chan struct{}), make(chan struct{})
	var once, released sync.Once
	rec, ok := s.Handler.(*recorder)
	if !ok {
		r.t.Fatalf("a watch of a %T can't be broken", s.Handler)
	}
	rec.mu.Lock()
	rec.before = func() {
		once.Do(func() { close(entered) })
		<-release
	}
	rec.mu.Unlock()
	r.api.Put(k.Object("one"), k)
	<-entered
	return func() { released.Do(func() { close(release) }) }
}

func TestFact_StopBeatsStartWatches(t *testing.T) {
	prove(t, map[string]fact{"StopWhileStarting": {
		reason: "StartWatches has looked the controller up when Stop comes: it returns nil, and leaves a handler that is never removed.",
		scenario: func(t *testing.T, r *rig) string {
			k := r.ready()

			// A call that asks for the scheme is about to start the watch.
			stop := sync.OnceValue(func() error { return r.Stop(t.Context(), "c") })
			r.mgr.set(&r.mgr.onScheme, func() { _ = stop() })
			rec := &recorder{}
			err := r.StartWatches(t.Context(), "c", watchOf(k, rec))
			r.mgr.set(&r.mgr.onScheme, nil)
			if err := stop(); err != nil {
				t.Errorf("Stop(...): %v", err)
			}
			r.api.Put(k.Object("one"), k)
			pass(time.Minute)
			n := rec.count("", "one")
			return found(n > 0, "StartWatches returned %v; after Stop its handler got %d events", err, n)
		},
	}, "StopWhileSyncing": {
		reason: "The informer of a new watch syncs when Stop comes. Stop must not wait for that, and StartWatches must not outlive it.",
		scenario: func(t *testing.T, r *rig) string {
			k := watchtest.NewKind("Widget")
			r.api.Define(k)
			lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
			defer lift()
			r.mgr.Elect()
			r.start("c", idle())
			rec := &recorder{}
			done := background(func() error { return r.watchFor(time.Minute, "c", watchOf(k, rec)) })
			r.await(watchtest.Of(k))
			took, err := timed(func() error { return r.Stop(t.Context(), "c") })
			if waited, err := timed(func() error { return <-done }); err == nil || waited > quick || r.ours != nil && !errors.Is(err, watch.ErrNotRunning) {
				return fmt.Sprintf("StartWatches of a controller that was stopped meanwhile ended after %s: %v", waited, err)
			}
			lift()
			r.api.Put(k.Object("one"), k)
			pass(time.Minute)
			if n := rec.count("", "one"); n > 0 {
				return fmt.Sprintf("after Stop the handler got %d events", n)
			}
			return found(took > quick, "Stop took %s: %v", took, err)
		},
	}})
}

// waitingCollector collects nothing until its context ends.
type waitingCollector struct{}

func (waitingCollector) GarbageCollectWatches(ctx context.Context, _ time.Duration) { <-ctx.Done() }

func TestFact_NothingIsLeftOfWhatStoppedBeforeElection(t *testing.T) {
	prove(t, map[string]fact{
		"Goroutines": {
			reason: "Two goroutines a controller wait for an election that may never come.",
			scenario: func(t *testing.T, r *rig) string {
				before := gort.NumGoroutine()
				for range 1000 {
					o := idle()
					o.Collector = waitingCollector{}
					if err := r.Start("c", o); err != nil {
						t.Fatal(err)
					}
					r.stop("c")
				}
				pass(time.Second)
				after := gort.NumGoroutine()
				return found(after > before+10, "%d goroutines before 1,000 cycles, %d after", before, after)
			},
		},
		"Watches": {
			reason: "A watch that was stopped before the election is added by it, and never removed.",
			scenario: func(t *testing.T, r *rig) string {
				k := watchtest.NewKind("Widget")
				r.define(k)
				r.start("c", idle())
				rec := &recorder{}
				r.watch("c", watchOf(k, rec))
				r.stop("c")
				r.mgr.Elect()
				pass(time.Minute)
				r.api.Put(k.Object("two"), k)
				pass(time.Minute)
				n := len(rec.all())
				return found(n > 0, "after the election the handler of a stopped controller got %d events", n)
			},
		},
	})
}

// A lateFailure is a controller that runs until it is told to fail.
type lateFailure struct {
	kcontroller.Controller

	fail chan error
}

func (c lateFailure) Start(context.Context) error { return <-c.fail }

// failing returns options for such a controller.
func failing(fail chan error) baseline.Options {
	o := idle()
	o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
		c, err := kcontroller.NewUnmanaged(name, o)
		return lateFailure{Controller: c, fail: fail}, err
	}
	return o
}

func TestFact_OldIncarnationsStopNobody(t *testing.T) {
	prove(t, map[string]fact{"LateFailure": {
		reason: "A controller that fails after it was stopped stops the one that has its name now.",
		scenario: func(t *testing.T, r *rig) string {
			r.mgr.Elect()
			fail := make(chan error, 1)
			r.start("c", failing(fail))
			pass(time.Second)

			// That it doesn't end in time is an error.
			_ = r.stopFor(time.Second)
			r.start("c", idle())
			pass(time.Second)
			fail <- errors.New("boom")
			pass(time.Minute)
			if !r.IsRunning("c") {
				return "the new controller doesn't run any more"
			}
			return ""
		},
	}})
}

func TestFact_KeysAreReconciledOnceAtATime(t *testing.T) {
	again := func(t *testing.T, r *rig, patience time.Duration) string {
		t.Helper()
		k := watchtest.NewKind("Widget")
		r.define(k)
		r.mgr.Elect()
		o := &overlap{}
		slow := reconciling(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			defer o.enter(req)()

			// One that doesn't look at its context, as calls to clouds may not.
			time.Sleep(5 * time.Second)
			return reconcile.Result{}, nil
		})
		start := func() {
			t.Helper()
			r.start("c", slow)
			if err := r.watchFor(time.Minute, "c", watchOf(k, &recorder{})); err != nil {
				t.Fatal(err)
			}
		}
		start()
		eventually(t, "a reconcile runs", func() bool { _, running := o.result(); return running > 0 })
		took, err := timed(func() error { return r.stopFor(patience) })
		if took > patience+quick {
			t.Errorf("Stop(...) with a context of %s took %s: %v", patience, took, err)
		}
		start()
		pass(time.Minute)
		most, _ := o.result()
		return found(most > 1, "a key was reconciled %d times at once, with one worker", most)
	}
	prove(t, map[string]fact{
		"PatientStop": {
			reason:   "Stop doesn't wait for reconciles that run, so that the next controller of the name overlaps the last.",
			scenario: func(t *testing.T, r *rig) string { return again(t, r, time.Minute) },
		},
		"ImpatientStop": {
			reason:   "A Stop that gives up must not let the next controller overlap the last either.",
			scenario: func(t *testing.T, r *rig) string { return again(t, r, time.Second) },
		},
	})
}

func TestFact_OldReconcilesStartNoWatches(t *testing.T) {
	prove(t, map[string]fact{"OldHandler": {
		reason: "A reconcile of the old controller starts a watch on the new one: then the new one's own handler is ignored.",
		scenario: func(t *testing.T, r *rig) string {
			trigger, k := watchtest.NewKind("Trigger"), watchtest.NewKind("Widget")
			r.api.Define(trigger)
			r.api.Define(k)
			r.api.Put(trigger.Object("one"), trigger)
			r.mgr.Elect()
			was, is := &recorder{}, &recorder{}
			running, proceed := make(chan struct{}), make(chan struct{})
			started := make(chan error, 1)
			r.start("c", reconciling(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				close(running)
				<-proceed

				// The context has ended, and this one cares as little as its informer.
				ctx = context.WithoutCancel(ctx)
				err := r.StartWatches(ctx, "c", watchOf(k, was))
				if r.ours != nil {
					// Nor does it stop what is another's, or wait for that, which waits for it.
					took, stop := timed(func() error { return r.Stop(ctx, "c") })
					if _, watches := r.StopWatches(ctx, "c", idOf(k)); stop != nil || took > 0 || !errors.Is(watches, watch.ErrNotRunning) {
						t.Errorf("from the old reconcile: Stop(...): %v after %s, StopWatches(...): %v", stop, took, watches)
					}
				}
				started <- err
				return reconcile.Result{}, nil
			}))
			r.watch("c", watchOf(trigger, &recorder{}))
			<-running
			_ = r.stopFor(time.Second)
			r.start("c", idle())
			close(proceed)
			err := <-started

			// Even while the new one has no watch of its own.
			pass(time.Second)
			r.api.Put(k.Object("early"), k)
			pass(time.Second)
			if n := was.count("", "early"); n > 0 {
				return fmt.Sprintf("StartWatches of the old reconcile returned %v; its handler got %d events", err, n)
			}
			r.watch("c", watchOf(k, is))
			r.api.Put(k.Object("one"), k)
			pass(time.Minute)
			if was.count("", "one") > 0 || is.count("", "one") == 0 {
				return fmt.Sprintf("StartWatches of the old reconcile returned %v; its handler got %d events, the new one's %d",
					err, was.count("", "one"), is.count("", "one"))
			}
			return ""
		},
	}})
}

// Sources get an informer that lets Stop in while Start adds its handler. That is also a
// data race on the baseline's registration, which a race detector would report as a
// failure of this test: so the order there is one that it takes for safe.
func TestFact_SourcesStopWhileTheyStart(t *testing.T) {
	type stoppable interface {
		source.Source
		Stop(ctx context.Context) error
	}
	cases := map[string]struct {
		source func(inf cache.Informer) stoppable
		waits  bool // Stop waits for Start.
		want   int  // Handlers that are left.
	}{
		"Baseline": {func(inf cache.Informer) stoppable {
			return &baseline.Source{Informer: inf, Watch: baseline.Watch{Handler: &recorder{}}}
		}, false, 1},
		"Graft": {func(inf cache.Informer) stoppable { return watch.NewStoppableSource(inf, &recorder{}) }, true, 0},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			inf := &fakeInformer{adding: make(chan struct{}), add: make(chan struct{})}
			src := tc.source(inf)
			started := background(func() error { return src.Start(t.Context(), nil) })
			<-inf.adding
			stopped := background(func() error { return src.Stop(t.Context()) })
			var err error
			if !tc.waits {
				err = <-stopped
			}
			close(inf.add)
			<-started
			if tc.waits {
				err = <-stopped
			}
			if err != nil || inf.handlers != tc.want {
				t.Errorf("Stop(...): %v, and %d handlers are left, want %d", err, inf.handlers, tc.want)
			}
		})
	}
}

func TestFact_MetricsMatchWhatRuns(t *testing.T) {
	check := func(r *rig, controllers, watches int) string {
		c, w := r.metrics.running()
		return found(c != controllers || w != watches, "started minus stopped: %d controllers, want %d; %d watches, want %d", c, controllers, w, watches)
	}
	prove(t, map[string]fact{
		"Stop": {
			reason: "Stop counts no watches.",
			scenario: func(t *testing.T, r *rig) string {
				k := r.ready()
				r.watch("c", watchOf(k, &recorder{}))
				pass(time.Second)
				if f := check(r, 1, 1); f != "" {
					t.Errorf("while it runs: %s", f)
				}
				r.stop("c")
				pass(time.Second)
				return check(r, 0, 0)
			},
		},
		"Failure": {
			reason: "A controller that ends with an error isn't counted as stopped.",
			scenario: func(t *testing.T, r *rig) string {
				r.mgr.Elect()
				fail := make(chan error, 1)
				r.start("c", failing(fail))
				pass(time.Second)
				fail <- errors.New("boom")
				pass(time.Minute)
				if r.IsRunning("c") {
					t.Error("IsRunning(...) is true after the controller failed")
				}
				return check(r, 0, 0)
			},
		},
	})
}

// A scenario is a schedule of calls and faults. It returns what went wrong, or
// nothing.
type scenario func(t *testing.T, r *rig) (finding string)

// found returns what is wrong, if something is.
func found(wrong bool, format string, args ...any) string {
	if !wrong {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// A fact is something that is wrong with the baseline, and must not be with our
// engine. Each reason says what.
type fact struct {
	reason   string
	scenario scenario

	// cache says that the fact is controller-runtime's cache's: it stays when our
	// engine and tracking go around that, instead of a cache of ours.
	cache bool
}

// prove runs the same scenario on both engines: ours with its own cache, and with
// one that it wraps.
func prove(t *testing.T, facts map[string]fact) {
	t.Helper()
	for name, f := range facts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "Baseline", func(t *testing.T) {
				finding := f.scenario(t, onBaseline(t, watchtest.NewAPI()))
				if finding == "" {
					t.Errorf("\n%s\nThe baseline doesn't show it: the scenario proves nothing.", f.reason)
				}
				t.Logf("as expected: %s", finding)
			})
			inBubble(t, "Graft", func(t *testing.T) {
				if finding := f.scenario(t, graft(t, watchtest.NewAPI())); finding != "" {
					t.Errorf("\n%s\nFound: %s", f.reason, finding)
				}
			})
			if f.cache {
				return
			}
			inBubble(t, "GraftAroundAnotherCache", func(t *testing.T) {
				r, plain := around(t, watchtest.NewAPI())
				startCache(t, plain)
				if finding := f.scenario(t, r); finding != "" {
					t.Errorf("\n%s\nFound: %s", f.reason, finding)
				}
			})
		})
	}
}
