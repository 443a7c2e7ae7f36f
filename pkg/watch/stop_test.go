package watch_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// What stops needs nothing from the API server, and asks it for nothing.
func TestStopNeedsNoAPIServer(t *testing.T) {
	troubles := map[string]struct {
		reason  string
		trouble func(api *watchtest.API) (heal func())
	}{
		"Healthy": {
			reason:  "A healthy API server gets no request either.",
			trouble: func(*watchtest.API) func() { return func() {} },
		},
		"Refusing": {reason: "Connections are refused.", trouble: (*watchtest.API).Down},
		"Hanging":  {reason: "Requests hang.", trouble: (*watchtest.API).Freeze},
		"HangingAndCut": {
			reason: "Requests hang, and all open ones are cut.",
			trouble: func(api *watchtest.API) func() {
				thaw := api.Freeze()
				api.Disconnect(watchtest.Everything())
				return thaw
			},
		},
	}
	stops := map[string]func(r *testEnv, ids []watch.WatchID) (int, error){
		"Stop": func(r *testEnv, ids []watch.WatchID) (int, error) {
			return len(ids), r.Stop(r.t.Context(), "c")
		},
		"StopWatches": func(r *testEnv, ids []watch.WatchID) (int, error) {
			return r.StopWatches(r.t.Context(), "c", ids...)
		},
	}
	for name, tc := range troubles {
		for how, stop := range stops {
			inBubble(t, name+"/"+how, func(t *testing.T) {
				// With a hanging API server the number matters.
				n := 20
				if name == "Hanging" {
					n = 200
				}
				r := newRunningEnv(t, watchtest.NewAPI())
				kinds := manyKinds(r.api, n)
				r.watch("c", watchesOf(kinds)...)
				ids, err := r.GetWatches("c")
				if err != nil || len(ids) != n {
					t.Fatalf("GetWatches(...): %d, %v", len(ids), err)
				}
				defer tc.trouble(r.api)()
				advance(time.Minute)
				r.api.Forget()
				expectWithin(
					t, tc.reason, "stopping", time.Second, nil,
					func() (err error) { n, err = stop(r, ids); return err },
				)
				expectEqual(t, tc.reason, "watches that were stopped", len(ids), n)
				if c, w := r.metrics.running(); w != 0 || c != 0 && how != "StopWatches" {
					t.Errorf("\n%s\nafterwards %d controllers and %d watches are counted", tc.reason, c, w)
				}
				expectEqual(t, tc.reason, "requests of stopping", 0, len(r.api.Requests(watchtest.Everything())))

				// The informers linger, and then go, also without an answer.
				advance(time.Hour)
				expectEqual(
					t, tc.reason, "requests between one and two hours later", 0,
					requestsIn(time.Hour, r.api, watchtest.Everything()),
				)
				expectEqual(
					t, tc.reason, "requests that are open two hours later", 0, r.api.Open(watchtest.Everything()),
				)
			})
		}
	}
}

// Stop attempts everything, joins errors, always ends not running, and may be
// called again: without an error when nothing runs any more.
func TestStopAlwaysStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, watchtest.NewAPI())
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		defer release()
		stuck := func() *recorder { return newRecorder(func() { <-released }) }
		a, b, c := watchtest.NewKind("A"), watchtest.NewKind("B"), watchtest.NewKind("C")
		for _, k := range []watchtest.Kind{a, b, c} {
			r.define(k)
		}
		r.watch("c", newWatch(a, stuck()), newWatch(b, stuck()), newWatch(c, &recorder{}))
		advance(time.Second)
		var n int
		err := withTimeout(t, time.Second, func(ctx context.Context) (err error) {
			n, err = r.StopWatches(ctx, "c", watchIDOf(a), watchIDOf(b), watchIDOf(c), watchIDOf(a))
			return err
		})
		expectEqual(t, "", "StopWatches(...)", []any{3, watch.ErrNotDrained}, []any{n, err})
		for _, k := range []watchtest.Kind{a, b} {
			if err == nil || !strings.Contains(err.Error(), k.GVK.String()) {
				t.Errorf("StopWatches(...): the error doesn't name %s: %v", k.GVK, err)
			}
		}
		ids, err := r.GetWatches("c")
		expectEqual(t, "", "GetWatches(...)", []any{0, nil}, []any{len(ids), err})
		r.watch("c", newWatch(a, stuck()))
		advance(time.Second)
		expectEqual(t, "", "Stop(...)", watch.ErrNotDrained, r.stopFor(time.Second))
		expectEqual(t, "It was stopped.", "IsRunning(...)", false, r.IsRunning("c"))

		// It must not look as if nothing ran any more.
		expectEqual(t, "", "Stop(...) again", watch.ErrNotDrained, r.stopFor(time.Second))
		stopped := background(func() error { return r.Stop(t.Context(), "c") })
		advance(time.Second)
		release()
		expectEqual(t, "", "Stop(...) of what ends while it waits", nil, <-stopped)
		expectWithin(t, "", "Stop(...) of what has ended", 0, nil, func() error { return r.Stop(t.Context(), "c") })
	})
}

// A controller that is stopped at the moment of the election doesn't start.
func TestStop_AtTheElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, watchtest.NewAPI())
		r.mgr.Elect()
		r.mgr.onElected.set(func() {
			r.mgr.onElected.set(nil)
			_ = r.stopFor(0) // It can't wait for what waits for it.
		})
		r.start("c", idleOptions())
		advance(time.Second)
		expectEqual(t, "", "controllers that were started", int64(0), r.metrics.controllersStarted.Load())
	})
}

// A reconcile that stops its own controller doesn't wait for itself. One that stops another
// controller waits, also for a controller of the same name of another engine. The name can be
// started again.
func TestStop_FromAReconcile(t *testing.T) {
	cases := map[string]struct {
		from string
		left int64 // Controllers that run afterwards.
	}{"OfItsOwn": {from: "c", left: 1}, "OfAnother": {from: "other", left: 1}, "OfAnotherEngine": {from: "c", left: 0}}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newGraftEnv(t, newAPIWithObject())
			r.mgr.Elect()
			ran := make(chan struct{}, 10)
			o := withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				ran <- struct{}{}
				return reconcile.Result{}, nil
			})
			caller := r
			if name == "OfAnotherEngine" {
				caller = newGraftEnv(t, newAPIWithObject())
				caller.mgr.Elect()
			}
			if name != "OfItsOwn" {
				r.start("c", o)
			}
			stopped := make(chan error, 1)
			caller.start(
				tc.from,
				withReconciler(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					watched := r.StartWatches(ctx, "c")
					took, err := timed(func() error { return r.Stop(ctx, "c") })
					if c, _ := r.metrics.running(); took > quick || c != tc.left {
						err = stderrors.Join(err, fmt.Errorf("%d controllers run after %s", c, took))
					}
					stopped <- stderrors.Join(watched, err)
					return reconcile.Result{}, nil
				}),
			)
			_ = caller.StartWatches(t.Context(), tc.from, newWatch(widget, &recorder{})) // It may be stopped by now.
			expectEqual(
				t, "", "Stop(...) from a reconcile, IsRunning(...)", []any{nil, false},
				[]any{<-stopped, r.IsRunning("c")},
			)
			r.start("c", o)
			r.watch("c", newWatch(widget, &recorder{}))
			<-ran
		})
	}
}

// A handler stops its own watch without waiting for itself, also if it started it again. One
// that heeds its context lets StopWatches return.
func TestStopWatches_WhileItsHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRunningEnv(t, newAPIWithObject())
		stop := func(ctx context.Context) error {
			n, err := r.StopWatches(ctx, "c", watchIDOf(widget))
			if n != 1 {
				err = stderrors.Join(err, fmt.Errorf("%d watches were stopped", n))
			}
			return err
		}
		var handled context.Context
		r.watch("c", newWatch(widget, onCreate(func(ctx context.Context, _ client.Object) { handled = ctx })))
		advance(time.Second)
		expectEqual(t, "The handler returned.", "its context's error", context.Canceled, handled.Err())
		mustSucceed(t, stop(t.Context()))
		stopped := make(chan error)
		r.watch("c", newWatch(widget, onCreate(func(ctx context.Context, _ client.Object) {
			err := stop(ctx)
			_ = r.StartWatches(ctx, "c", newWatch(widget, &recorder{}))
			stopped <- stderrors.Join(err, stop(ctx))
		})))
		expectEqual(t, "", "StopWatches(...) from a handler", nil, <-stopped)
		advance(time.Second)
		r.watch("c", newWatch(widget, onCreate(func(ctx context.Context, _ client.Object) {
			<-ctx.Done()
			time.Sleep(time.Second)
		})))
		advance(time.Second)
		if took, err := timed(func() error { return stop(t.Context()) }); err != nil || took != time.Second {
			t.Errorf("StopWatches(...) of a handler that heeds its context: %v after %s", err, took)
		}
	})
}

// A watch that is stopped while StartWatches waits, for it or for another one, is no error
// of that, which doesn't wait for it any more.
func TestStartWatches_OfWhatIsStoppedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stuck, other := watchtest.NewKind("Stuck"), watchtest.NewKind("Other")
		r := newRunningEnv(t, watchtest.NewAPI(widget, stuck, other))
		defer r.api.Inject(watchtest.Of(stuck), watchtest.Hang())()
		defer r.api.Inject(watchtest.Of(other), watchtest.Hang())()
		started := background(func() error {
			return r.StartWatches(t.Context(), "c", newWatch(stuck, &recorder{}), newWatch(widget, &recorder{}))
		})
		advance(time.Second)
		r.mustStopWatches(watchIDOf(widget))
		if err := <-started; !errors.Is(err, watch.ErrNotSynced) || errors.Is(err, watch.ErrShutDown) {
			t.Errorf("StartWatches(...): got %v, want %v", err, watch.ErrNotSynced)
		}
		started = background(func() error { return r.StartWatches(t.Context(), "c", newWatch(other, &recorder{})) })
		advance(time.Second)
		r.mustStopWatches(watchIDOf(other))
		expectWithin(t, "", "StartWatches(...) of what is stopped", 0, nil, func() error { return <-started })
	})
}

// Controllers that are started and stopped behind one that hangs leave nothing, and
// the last one waits for it.
func TestStart_BehindAHangingController(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGraftEnv(t, newAPIWithObject())
		r.mgr.Elect()
		release, hangs := make(chan struct{}), make(chan struct{})
		r.start("c", withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			close(hangs)
			<-release
			return reconcile.Result{}, nil
		}))
		r.watch("c", newWatch(widget, &recorder{}))
		<-hangs
		stop := func() error { return r.stopFor(time.Second) }
		expectEqual(t, "", "Stop(...)", watch.ErrNotDrained, stop())
		_, w := r.metrics.running()
		expectEqual(t, "", "watches of a controller that hangs", int64(0), w)
		advance(time.Minute)
		before := runtime.NumGoroutine()
		for range 50 {
			r.start("c", idleOptions())
			expectEqual(t, "An earlier controller runs.", "Stop(...)", watch.ErrNotDrained, stop())
		}
		advance(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 25 { // Others have some that come and go.
			t.Errorf("50 controllers that never ran left %d goroutines", n)
		}
		var ran atomic.Bool
		r.start("c", withReconciler(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			ran.Store(true)
			return reconcile.Result{}, nil
		}))
		r.watch("c", newWatch(widget, &recorder{}))
		advance(time.Minute)
		if !slices.Contains(r.shown(), "graft_watch_controllers state=Waiting 1") {
			t.Errorf("no controller waits: %q", r.shown())
		}
		if s := r.ours.Snapshot().Summary; !slices.Contains(
			s, "c: the controller was stopped, and a reconcile or handler of it still runs",
		) {
			t.Errorf("the summary doesn't say that a controller ends: %q", s)
		}
		expectEqual(t, "The controller before it runs.", "reconciles", false, ran.Load())
		close(release)
		advance(time.Minute)
		expectEqual(t, "The controller before it ended.", "reconciles", true, ran.Load())
		expectEqual(t, "", "Stop(...)", nil, stop())
		expectEqual(t, "", "ending", 0, len(r.ours.Snapshot().Ending))
	})
}
