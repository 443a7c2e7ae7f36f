package watch_test

import (
	"context"
	"fmt"
	gort "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestFact_KindsDontShareAFate(t *testing.T) {
	prove(t, map[string]fact{
		"FailedWatchIsTriedAgain": {
			reason: "A kind counts as active from before its informer synced, and for ever after: a watch whose restart failed once is silently dead, though it is listed.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.mgr.Elect()
				r.watchCRDs()
				rec := &recorder{}
				r.start("c", idleOptions())
				start := func() error { return r.watchFor(stuckFor, "c", newWatch(widget, rec)) }
				mustSucceed(t, start())

				// The informer goes with the definition, and a restart fails.
				r.api.Undefine(widget)
				advance(time.Second)
				_ = start()
				rec.forget()

				// The kind comes back, and the caller reconciles as always.
				r.define(widget)
				for range 10 {
					if err := start(); err != nil {
						t.Logf("StartWatches(...): %v", err)
					}
					advance(time.Minute)
				}
				ids, err := r.GetWatches("c")
				return found(
					rec.count("create", "one") == 0,
					"10 minutes after the kind came back nothing is delivered; GetWatches(...): %v, %v", ids, err,
				)
			},
		},
		"ReadsDontWaitForAnotherKind": {
			reason: "The cache's write lock is held while an informer syncs: cached reads of every kind wait.",
			scenario: func(t *testing.T, r *testEnv) string {
				stuck, healthy := stuckAndHealthy(t, r)
				r.startController()
				done := background(func() error { return r.watchFor(stuckFor, "c", newWatch(stuck, &recorder{})) })
				r.await(watchtest.Of(stuck))
				took, err := timed(func() error { return r.readFor(20*time.Millisecond, healthy, "one") })
				tookList, errList := timed(func() error {
					return withTimeout(
						t, 20*time.Millisecond, func(ctx context.Context) error { return r.list(ctx, healthy) },
					)
				})
				expectEqual(t, "The kind never syncs.", "StartWatches(...)", anError, <-done)
				return found(
					max(took, tookList) > 20*time.Millisecond+quick,
					"calls with a context of 20 ms: Get: %v after %s, List: %v after %s", err, took, errList, tookList,
				)
			},
		},
		"ControllersDontWaitForEachOther": {
			reason: "A controller's lock is held while an informer syncs, and Stop waits for it with the engine's lock in hand: calls for other controllers wait.",
			scenario: func(t *testing.T, r *testEnv) string {
				stuck, healthy := stuckAndHealthy(t, r)
				r.mgr.Elect()
				r.start("a", idleOptions())
				r.start("b", idleOptions())
				var waited, stopping time.Duration
				started := background(func() (err error) {
					waited, err = timed(func() error { return r.watchFor(stuckFor, "a", newWatch(stuck, &recorder{})) })
					return err
				})
				r.await(watchtest.Of(stuck))
				stopped := background(func() (err error) {
					stopping, err = timed(func() error { return r.Stop(t.Context(), "a") })
					return err
				})
				advance(time.Millisecond)
				var findings []string
				start := time.Now()
				r.IsRunning("b")
				if took := time.Since(start); took > quick {
					findings = append(findings, fmt.Sprintf("IsRunning of another controller took %s", took))
				}
				for what, fn := range map[string]func() error{
					"GetWatches": func() error { _, err := r.GetWatches("b"); return err },
					"StartWatches": func() error {
						return r.StartWatches(t.Context(), "b", newWatch(healthy, &recorder{}))
					},
					"Start": func() error { return r.Start("b", idleOptions()) },
				} {
					// The baseline can be shown to wait only once: after that, it has.
					// A kind that is there syncs at the next poll of its informer.
					if took, err := timed(fn); took > 2*quick {
						findings = append(findings, fmt.Sprintf(
							"%s of another controller took %s: %v", what, took, err,
						))
					}
				}

				// Nor does Stop wait for that, or StartWatches outlive it.
				if stop, start := <-stopped, <-started; stop != nil || start == nil || r.ours != nil &&
					(!errors.Is(start, watch.ErrNotRunning) || waited > quick || stopping > 0) {
					findings = append(findings, fmt.Sprintf(
						"Stop(...): %v after %s, StartWatches(...): %v after %s", stop, stopping, start, waited,
					))
				}
				return strings.Join(findings, "; ")
			},
		},
		"KindsOfABatchDontShareAFate": {
			reason: "One kind that can't be watched fails the rest of the batch, and the composites that need it.",
			scenario: func(t *testing.T, r *testEnv) string {
				dead, healthy := watchtest.NewKind("Dead"), watchtest.NewKind("Healthy")
				r.define(healthy)
				r.startController()
				rec := &recorder{}
				err := r.watchFor(stuckFor, "c", newWatch(dead, &recorder{}), newWatch(healthy, rec))
				expectEqual(t, "The kind doesn't exist.", "StartWatches(...)", anError, err)
				advance(time.Second)
				return found(
					rec.count("create", "one") == 0, "the healthy kind isn't watched, since another could not be: %v",
					err,
				)
			},
		},
	})
}

func TestFact_StopEndsAController(t *testing.T) {
	prove(t, map[string]fact{
		"StopAttemptsEverything": {
			reason: "Stop returns at the first error: the controller still runs, with some of its watches gone.",
			scenario: func(t *testing.T, r *testEnv) string {
				var specs []baseline.Watch
				kinds := manyKinds(r.api, 5)
				for _, k := range kinds {
					specs = append(specs, newWatch(k, &recorder{}))
				}
				r.startController()
				r.watch("c", specs...)
				heal := r.breakWatch(kinds[2], specs[2])
				defer heal()
				err := r.stopFor(stuckFor)
				expectEqual(t, "", "Stop(...)", anError, err)
				ids, _ := r.GetWatches("c")
				return found(r.IsRunning("c"), "it still runs, with %d of %d watches: %v", len(ids), len(kinds), err)
			},
		},
		"StopBeatsStartWatches": {
			reason: "StartWatches has looked the controller up when Stop comes: it returns nil, and leaves a handler that is never removed.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.startController()

				// A call that asks for the scheme is about to start the watch.
				stop := sync.OnceValue(func() error { return r.Stop(t.Context(), "c") })
				r.mgr.onScheme.set(func() { _ = stop() })
				rec := &recorder{}
				err := r.StartWatches(t.Context(), "c", newWatch(widget, rec))
				r.mgr.onScheme.set(nil)
				expectEqual(t, "", "Stop(...)", nil, stop())
				r.api.Put(widget.Object("one"), widget)
				advance(time.Minute)
				n := rec.count("", "one")
				return found(n > 0, "StartWatches returned %v; after Stop its handler got %d events", err, n)
			},
		},
		"EarlierControllersStopNobody": {
			reason: "A controller that fails after it was stopped stops the one that has its name now.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.mgr.Elect()
				fail := make(chan error, 1)
				r.start("c", failing(fail))
				advance(time.Second)

				// That it doesn't end in time is an error.
				_ = r.stopFor(time.Second)
				r.start("c", idleOptions())
				advance(time.Second)
				fail <- errors.New("boom")
				advance(time.Minute)
				return found(!r.IsRunning("c"), "the new controller doesn't run any more")
			},
		},
		"OldReconcilesStartNoWatches": {
			reason: "A reconcile of the old controller starts a watch on the new one: then the new one's own handler is ignored.",
			scenario: func(t *testing.T, r *testEnv) string {
				trigger := watchtest.NewKind("Trigger")
				r.define(trigger)
				r.mgr.Elect()
				was, is := &recorder{}, &recorder{}
				running, proceed := make(chan struct{}), make(chan struct{})
				started := make(chan error, 1)
				r.start("c", withReconciler(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					close(running)
					<-proceed

					// The context has ended, and this one cares as little as its informer.
					ctx = context.WithoutCancel(ctx)
					err := r.StartWatches(ctx, "c", newWatch(widget, was))
					if r.ours != nil {
						// It must not stop the new controller, or wait for it.
						took, stop := timed(func() error { return r.Stop(ctx, "c") })
						if _, watches := r.StopWatches(ctx, "c", watchIDOf(widget)); stop != nil || took > 0 ||
							!errors.Is(watches, watch.ErrNotRunning) {
							t.Errorf(
								"from the old reconcile: Stop(...): %v after %s, StopWatches(...): %v", stop, took,
								watches,
							)
						}
					}
					started <- err
					return reconcile.Result{}, nil
				}))
				r.watch("c", newWatch(trigger, &recorder{}))
				<-running
				_ = r.stopFor(time.Second)
				r.start("c", idleOptions())
				close(proceed)
				err := <-started

				// Even while the new one has no watch of its own.
				advance(time.Second)
				r.api.Put(widget.Object("early"), widget)
				advance(time.Second)
				if n := was.count("", "early"); n > 0 {
					return fmt.Sprintf(
						"StartWatches of the old reconcile returned %v; its handler got %d events", err, n,
					)
				}
				r.watch("c", newWatch(widget, is))
				r.api.Put(widget.Object("one"), widget)
				advance(time.Minute)
				old, current := was.count("", "one"), is.count("", "one")
				return found(
					old > 0 || current == 0,
					"StartWatches of the old reconcile returned %v; its handler got %d events, the new one's %d", err,
					old, current,
				)
			},
		},
	})
}

// A clingingInformer doesn't let handlers go.
type clingingInformer struct{ cache.Informer }

func (clingingInformer) RemoveEventHandler(kcache.ResourceEventHandlerRegistration) error {
	return errors.New("boom")
}

// breakWatch makes it impossible to stop a watch cleanly: the baseline's informer
// refuses to let its handler go, and our handler doesn't come back.
func (r *testEnv) breakWatch(k watchtest.Kind, s baseline.Watch) (heal func()) {
	if e, ok := r.engine.(*baseline.Engine); ok {
		src := e.Source("c", watchIDOf(k))
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
	rec.before.set(func() {
		once.Do(func() { close(entered) })
		<-release
	})
	r.api.Put(k.Object("one"), k)
	<-entered
	return func() { released.Do(func() { close(release) }) }
}

// waitingCollector collects nothing until its context ends.
type waitingCollector struct{}

func (waitingCollector) GarbageCollectWatches(ctx context.Context, _ time.Duration) { <-ctx.Done() }

func TestFact_NothingIsLeftOfWhatStoppedBeforeElection(t *testing.T) {
	prove(t, map[string]fact{
		"Goroutines": {
			reason: "Two goroutines a controller wait for an election that may never come.",
			scenario: func(t *testing.T, r *testEnv) string {
				before := gort.NumGoroutine()
				for range 1000 {
					o := idleOptions()
					o.Collector = waitingCollector{}
					mustSucceed(t, r.Start("c", o))
					r.stop("c")
				}
				advance(time.Second)
				after := gort.NumGoroutine()
				return found(after > before+10, "%d goroutines before 1,000 cycles, %d after", before, after)
			},
		},
		"Watches": {
			reason: "A watch that was stopped before the election is added by it, and never removed.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.start("c", idleOptions())
				rec := &recorder{}
				r.watch("c", newWatch(widget, rec))
				r.stop("c")
				r.mgr.Elect()
				advance(time.Minute)
				r.api.Put(widget.Object("two"), widget)
				advance(time.Minute)
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
	o := idleOptions()
	o.NewController = func(name string, o kcontroller.Options) (kcontroller.Controller, error) {
		c, err := kcontroller.NewUnmanaged(name, o)
		return lateFailure{Controller: c, fail: fail}, err
	}
	return o
}

func TestFact_KeysAreReconciledOnceAtATime(t *testing.T) {
	again := func(t *testing.T, r *testEnv, patience time.Duration) string {
		t.Helper()
		r.mgr.Elect()
		o := &overlap{}
		slow := withReconciler(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			defer o.enter(req)()

			// One that doesn't look at its context, as calls to clouds may not.
			time.Sleep(5 * time.Second)
			return reconcile.Result{}, nil
		})
		start := func() {
			t.Helper()
			r.start("c", slow)
			mustSucceed(t, r.watchFor(time.Minute, "c", newWatch(widget, &recorder{})))
		}
		start()
		eventually(t, "a reconcile runs", func() bool { _, running := o.result(); return running > 0 })
		took, _ := timed(func() error { return r.stopFor(patience) })
		expectBetween(t, "It heeds its context.", "Stop(...)", 0, patience+quick, took)
		start()
		advance(time.Minute)
		most, _ := o.result()
		return found(most > 1, "a key was reconciled %d times at once, with one worker", most)
	}
	prove(t, map[string]fact{
		"PatientStop": {
			reason:   "Stop doesn't wait for reconciles that run, so that the next controller of the name overlaps the last.",
			scenario: func(t *testing.T, r *testEnv) string { return again(t, r, time.Minute) },
		},
		"ImpatientStop": {
			reason:   "A Stop that gives up must not let the next controller overlap the last either.",
			scenario: func(t *testing.T, r *testEnv) string { return again(t, r, time.Second) },
		},
	})
}

func TestFact_MetricsMatchWhatRuns(t *testing.T) {
	check := func(r *testEnv, controllers, watches int64) string {
		c, w := r.metrics.running()
		return found(
			c != controllers || w != watches, "started minus stopped: %d controllers, want %d; %d watches, want %d", c,
			controllers, w, watches,
		)
	}
	prove(t, map[string]fact{
		"Stop": {
			reason: "Stop counts no watches.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.startController()
				r.watch("c", newWatch(widget, &recorder{}))
				advance(time.Second)
				expectEqual(t, "", "while it runs", "", check(r, 1, 1))
				r.stop("c")
				advance(time.Second)
				return check(r, 0, 0)
			},
		},
		"Failure": {
			reason: "A controller that ends with an error isn't counted as stopped.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.mgr.Elect()
				fail := make(chan error, 1)
				r.start("c", failing(fail))
				r.watch("c", newWatch(widget, &recorder{}))
				advance(time.Second)
				fail <- errors.New("boom")
				advance(time.Minute)
				expectEqual(t, "The controller failed.", "IsRunning(...)", false, r.IsRunning("c"))
				return check(r, 0, 0)
			},
		},
	})
}

// A scenario is a schedule of calls and faults. It returns what went wrong, or
// nothing.
type scenario func(t *testing.T, r *testEnv) (finding string)

// found returns a finding if something is wrong.
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
}

// prove runs the same scenario on both engines.
func prove(t *testing.T, facts map[string]fact) {
	t.Helper()
	for name, f := range facts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "Baseline", func(t *testing.T) {
				finding := f.scenario(t, newBaselineEnv(t, newAPIWithObject()))
				if finding == "" {
					t.Errorf("\n%s\nThe baseline doesn't show it: the scenario proves nothing.", f.reason)
				}
				t.Logf("as expected: %s", finding)
			})
			inBubble(t, "Graft", func(t *testing.T) {
				expectEqual(t, f.reason, "found", "", f.scenario(t, newGraftEnv(t, newAPIWithObject())))
			})
		})
	}
}

const (
	// quick is how long a call may take that has nothing to wait for, and how
	// much longer than its context any call may take.
	quick = 100 * time.Millisecond

	// stuckFor is how long tests let calls for a kind that never syncs wait.
	stuckFor = 2 * time.Second
)

// stuckAndHealthy defines a kind whose lists hang, and one that works.
func stuckAndHealthy(t *testing.T, r *testEnv) (stuck, healthy watchtest.Kind) {
	t.Helper()
	stuck, healthy = watchtest.NewKind("Stuck"), watchtest.NewKind("Healthy")
	r.api.Define(stuck)
	r.define(healthy)
	t.Cleanup(r.api.Inject(watchtest.Of(stuck), watchtest.Hang()))
	r.mustRead(healthy)
	return stuck, healthy
}

func TestFact_InformersGoWithTheirLastWatch(t *testing.T) {
	open := func(r *testEnv, k watchtest.Kind) string {
		n := r.api.Open(watchtest.Of(k))
		return found(n > 0, "%d informers watch %s", n, k.GVK.Kind)
	}
	prove(t, map[string]fact{
		"StopWatches": {
			reason: "No informer is removed when the last watch goes.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.startController()
				r.watch("c", newWatch(widget, &recorder{}))
				if n, err := r.StopWatches(t.Context(), "c", watchIDOf(widget)); n != 1 || err != nil {
					t.Fatalf("StopWatches(...): %d, %v", n, err)
				}
				advance(time.Hour)
				return open(r, widget)
			},
		},
		"VersionNotServed": {
			reason: "The collector looks at definitions that go, not at versions that aren't served any more: an informer asks for ever.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.startController()
				r.watchCRDs()
				r.watch("c", newWatch(widget, &recorder{}))
				r.api.Unserve(widget)
				advance(time.Minute)
				n := requestsIn(10*time.Hour, r.api, watchtest.Of(widget))
				return found(n > 200, "%d requests in ten hours for a version that isn't served", n)
			},
		},
		"Metadata": {
			reason: "The collector knows unstructured informers only.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.startController()
				r.watchCRDs()
				w := newWatch(widget, &recorder{})
				w.Kind = newPartialMetadata(widget)
				r.watch("c", w)
				r.api.Undefine(widget)
				advance(time.Minute)
				n := requestsIn(10*time.Hour, r.api, watchtest.Of(widget))
				return found(n > 200, "%d requests in ten hours for a kind that's gone", n)
			},
		},
	})
}

func TestFact_CacheKeepsUpWithItsKinds(t *testing.T) {
	prove(t, map[string]fact{
		"WaiterOfARemovedInformer": {
			reason: "Who waits for an informer that is removed waits until its own context ends, though the kind is fine.",
			scenario: func(t *testing.T, r *testEnv) string {
				lift := r.api.Inject(watchtest.Of(widget), watchtest.Hang())
				defer lift()
				infs := r.informers()
				var took time.Duration
				done := background(func() error {
					var err error
					took, err = timed(func() error {
						return withTimeout(t, time.Minute, func(ctx context.Context) error {
							_, err := infs.GetInformer(ctx, widget.New())
							return err
						})
					})
					return err
				})
				r.await(watchtest.Of(widget))
				mustSucceed(t, infs.RemoveInformer(t.Context(), widget.New()))

				// The informer notices before it gets its answer.
				advance(time.Millisecond)
				lift()
				err := <-done
				return found(took > 10*time.Second, "GetInformer of a healthy kind took %s: %v", took, err)
			},
		},
		"HandlerOfARemovedInformer": {
			reason: "A handler can be added to an informer that is dead, without an error, and never hears a thing.",
			scenario: func(t *testing.T, r *testEnv) string {
				// An informer takes a moment to notice: a late call gets an error.
				for i := range 50 {
					if f := handlerOfRemoved(t, r, watchtest.NewKind(fmt.Sprintf("Widget%d", i))); f != "" {
						return f
					}
				}
				return ""
			},
		},
		"ReadOfAKindThatsGone": {
			reason: "The mapper knows a kind whose definition is gone, so a read makes an informer that asks for it for ever.",
			scenario: func(t *testing.T, r *testEnv) string {
				r.watchCRDs()
				r.mustRead(widget)
				r.api.Undefine(widget)
				advance(time.Second)
				err := r.readFor(stuckFor, widget, "one")
				expectEqual(t, "The kind is gone.", "Get(...)", anError, err)
				advance(time.Minute)
				n := requestsIn(time.Hour, r.api, watchtest.Of(widget))
				return found(n > 20, "%d requests in an hour, after one read that failed: %v", n, err)
			},
		},
		"AnotherScope": {
			reason: "The mapper remembers the scope: reads of a kind that came back with another never find a thing.",
			scenario: func(t *testing.T, r *testEnv) string {
				return movedKind(t, r, watchtest.NewKind("Gadget").ClusterScoped(), watchtest.NewKind("Gadget"))
			},
		},
		"AnotherPlural": {
			reason: "The mapper remembers the plural: a kind that came back with another is asked for where it isn't.",
			scenario: func(t *testing.T, r *testEnv) string {
				return movedKind(t, r, watchtest.NewKind("Gadget"), watchtest.NewKind("Gadget").Named("gadgetry"))
			},
		},
	})
}

// handlerOfRemoved reports whether a handler that was added to an informer right
// after that was removed, without an error, hears of objects.
func handlerOfRemoved(t *testing.T, r *testEnv, k watchtest.Kind) string {
	t.Helper()
	r.api.Define(k)
	inf := r.informer(k)
	r.remove(k)
	rec := &recorder{}
	reg, err := inf.AddEventHandler(rec.funcs())
	if err != nil {
		return ""
	}
	advance(time.Second)
	r.api.Put(k.Object("one"), k)
	advance(time.Minute)
	if rec.count("create", "one") == 0 {
		return "AddEventHandler returned no error, and an object that came later was not delivered"
	}
	expectEqual(t, "", "RemoveEventHandler(...)", nil, inf.RemoveEventHandler(reg))
	return ""
}

// movedKind reports whether reads find objects of a kind that came back elsewhere.
func movedKind(t *testing.T, r *testEnv, was, is watchtest.Kind) string {
	t.Helper()
	r.define(was)
	r.watchCRDs()
	r.mustRead(was)
	r.api.Undefine(was)
	advance(time.Second)
	r.api.Define(is)
	r.api.Put(is.Object("two"), is)
	var err error
	for range 10 {
		if err = r.readFor(stuckFor, is, "two"); err == nil {
			return ""
		}
		advance(time.Minute)
	}
	return fmt.Sprintf("10 minutes after the kind came back: %v", err)
}

// The cache of controller-runtime waits with locks of package sync, so this one
// takes real time on the baseline: what blocks does so until the test lets go.
func TestFact_DiscoveryHoldsUpReads(t *testing.T) {
	t.Run("Baseline", func(t *testing.T) {
		r := newBaselineEnvWith(t, watchtest.NewAPI(), func() baseline.Lock { return &sync.RWMutex{} })
		slow, done := slowDiscovery(t, r)

		// In a cache that doesn't wait this takes microseconds.
		read := background(func() error { return r.readFor(20*time.Millisecond, watchtest.NewKind("Healthy"), "one") })
		select {
		case err := <-read:
			t.Errorf("Get(...) didn't wait for the discovery of another kind: %v", err)
		case <-time.After(500 * time.Millisecond):
		}
		slow()
		<-read
		<-done
	})
	inBubble(t, "Graft", func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI())
		slow, done := slowDiscovery(t, r)
		defer func() { slow(); <-done }()
		expectWithin(
			t, "", "Get(...) during the discovery of another kind", quick, nil,
			func() error { return r.read(t.Context(), watchtest.NewKind("Healthy"), "one") },
		)
	})
}

// slowDiscovery reads a kind whose discovery hangs until it is told not to.
func slowDiscovery(t *testing.T, r *testEnv) (lift func(), done <-chan error) {
	t.Helper()
	slow, healthy := watchtest.NewKind("Slow"), watchtest.NewKind("Healthy")
	r.define(healthy)
	r.mustRead(healthy)
	r.define(slow)
	lift = r.api.Inject(watchtest.DiscoveryOf(slow), watchtest.Hang())
	t.Cleanup(lift)
	done = background(func() error { return r.read(t.Context(), slow, "one") })
	r.await(watchtest.DiscoveryOf(slow))
	return lift, done
}
