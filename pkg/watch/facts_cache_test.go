package watch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

const (
	// quick is how long a call may take that has nothing to wait for, and how
	// much longer than its context any call may take.
	quick = 100 * time.Millisecond

	// stuckFor is how long tests let calls for a kind that never syncs wait.
	stuckFor = 2 * time.Second
)

// kinds of which one doesn't answer lists, and another does.
func stuckAndHealthy(t *testing.T, r *rig) (stuck, healthy watchtest.Kind) {
	t.Helper()
	stuck, healthy = watchtest.NewKind("Stuck"), watchtest.NewKind("Healthy")
	r.api.Define(stuck)
	r.define(healthy)
	t.Cleanup(r.api.Inject(watchtest.Of(stuck), watchtest.Hang()))
	if err := r.read(t.Context(), healthy, "one"); err != nil {
		t.Fatalf("Get(...) of a healthy kind: %v", err)
	}
	return stuck, healthy
}

func TestFact_FailedWatchIsTriedAgain(t *testing.T) {
	prove(t, map[string]fact{"Restart": {
		reason: "A kind counts as active from before its informer synced, and for ever after: a watch whose restart failed once is silently dead, though it is listed.",
		scenario: func(t *testing.T, r *rig) string {
			k := watchtest.NewKind("Widget")
			r.api.Define(k)
			r.mgr.Elect()
			r.watchCRDs()
			rec := &recorder{}
			r.start("c", idle())
			start := func() error { return r.watchFor(stuckFor, "c", watchOf(k, rec)) }
			if err := start(); err != nil {
				t.Fatal(err)
			}

			// The informer goes with the definition, and a restart fails.
			r.api.Undefine(k)
			pass(time.Second)
			_ = start()

			// The kind comes back, and the caller does what it always does.
			r.define(k)
			for range 10 {
				if err := start(); err != nil {
					t.Logf("StartWatches(...): %v", err)
				}
				pass(time.Minute)
			}
			if rec.count("create", "one") == 0 {
				ids, err := r.GetWatches("c")
				return fmt.Sprintf("10 minutes after the kind came back nothing is delivered; GetWatches(...): %v, %v", ids, err)
			}
			return ""
		},
	}})
}

func TestFact_ReadsDontWaitForAnotherKind(t *testing.T) {
	slow := func(what string, took time.Duration, err error) string {
		return found(took > 20*time.Millisecond+quick, "%s with a context of 20 ms took %s: %v", what, took, err)
	}
	prove(t, map[string]fact{
		"FirstTry": {
			reason: "The cache's write lock is held while an informer syncs: cached reads of every kind wait.",
			scenario: func(t *testing.T, r *rig) string {
				stuck, healthy := stuckAndHealthy(t, r)
				r.mgr.Elect()
				r.start("c", idle())
				done := background(func() error { return r.watchFor(stuckFor, "c", watchOf(stuck, &recorder{})) })
				r.await(watchtest.Of(stuck))
				took, err := timed(func() error { return r.readFor(20*time.Millisecond, healthy, "one") })
				tookList, errList := timed(func() error {
					return limited(t, 20*time.Millisecond, func(ctx context.Context) error { return r.list(ctx, healthy) })
				})
				if err := <-done; err == nil {
					t.Error("StartWatches(...) of a kind that never syncs: no error")
				}
				return slow("Get", took, err) + slow("List", tookList, errList)
			},
		},
	})
}

func TestFact_ControllersDontWaitForEachOther(t *testing.T) {
	prove(t, map[string]fact{"IsRunning": {
		reason: "A controller's lock is held while an informer syncs, and Stop waits for it with the engine's lock in hand: calls for other controllers wait.",
		scenario: func(t *testing.T, r *rig) string {
			stuck, healthy := stuckAndHealthy(t, r)
			r.mgr.Elect()
			r.start("a", idle())
			r.start("b", idle())
			started := background(func() error { return r.watchFor(stuckFor, "a", watchOf(stuck, &recorder{})) })
			r.await(watchtest.Of(stuck))
			stopped := background(func() error { return r.Stop(t.Context(), "a") })
			pass(time.Millisecond)
			var findings []string
			start := time.Now()
			r.IsRunning("b")
			if took := time.Since(start); took > quick {
				findings = append(findings, fmt.Sprintf("IsRunning of another controller took %s", took))
			}
			for what, fn := range map[string]func() error{
				"GetWatches":   func() error { _, err := r.GetWatches("b"); return err },
				"StartWatches": func() error { return r.StartWatches(t.Context(), "b", watchOf(healthy, &recorder{})) },
				"Start":        func() error { return r.Start("b", idle()) },
			} {
				// The baseline can be shown to wait only once: after that, it has.
				// A kind that is there syncs at the next poll of its informer.
				if took, err := timed(fn); took > 2*quick {
					findings = append(findings, fmt.Sprintf("%s of another controller took %s: %v", what, took, err))
				}
			}
			<-started
			<-stopped
			return strings.Join(findings, "; ")
		},
	}})
}

func TestFact_KindsOfABatchDontShareAFate(t *testing.T) {
	prove(t, map[string]fact{"DeadKindFirst": {
		reason: "One kind that can't be watched fails the rest of the batch, and whatever needs it.",
		scenario: func(t *testing.T, r *rig) string {
			dead, healthy := watchtest.NewKind("Dead"), watchtest.NewKind("Healthy")
			r.define(healthy)
			r.mgr.Elect()
			r.start("c", idle())
			rec := &recorder{}
			err := r.watchFor(stuckFor, "c", watchOf(dead, &recorder{}), watchOf(healthy, rec))
			if err == nil {
				t.Error("StartWatches(...) of a kind that doesn't exist: no error")
			}
			pass(time.Second)
			return found(rec.count("create", "one") == 0, "the healthy kind isn't watched, since another could not be: %v", err)
		},
	}})
}

func TestFact_InformersGoWithTheirLastWatch(t *testing.T) {
	open := func(r *rig, k watchtest.Kind) string {
		n := r.api.Open(watchtest.Of(k))
		return found(n > 0, "%d informers watch %s", n, k.GVK.Kind)
	}
	prove(t, map[string]fact{
		"StopWatches": {
			reason: "No informer is removed when the last watch goes.",
			scenario: func(t *testing.T, r *rig) string {
				k := r.ready()
				r.watch("c", watchOf(k, &recorder{}))
				if n, err := r.StopWatches(t.Context(), "c", idOf(k)); n != 1 || err != nil {
					t.Fatalf("StopWatches(...): %d, %v", n, err)
				}
				pass(time.Hour)
				return open(r, k)
			},
		},
		"VersionNotServed": {
			reason: "The collector looks at definitions that go, not at versions that aren't served any more: an informer asks for ever.",
			scenario: func(t *testing.T, r *rig) string {
				k := r.ready()
				r.watchCRDs()
				r.watch("c", watchOf(k, &recorder{}))
				r.api.Unserve(k)
				pass(time.Minute)
				n := requestsIn(10*time.Hour, r.api, watchtest.Of(k))
				return found(n > 200, "%d requests in ten hours for a version that isn't served", n)
			},
		},
		"Metadata": {
			// Around another cache this may leave a goroutine of client-go's: see drainedWatch.
			cache:  true,
			reason: "The collector knows unstructured informers only.",
			scenario: func(t *testing.T, r *rig) string {
				k := r.ready()
				r.watchCRDs()
				w := watchOf(k, &recorder{})
				w.Kind = partial(k)
				r.watch("c", w)
				r.api.Undefine(k)
				pass(time.Minute)
				n := requestsIn(10*time.Hour, r.api, watchtest.Of(k))
				return found(n > 200, "%d requests in ten hours for a kind that's gone", n)
			},
		},
	})
}

func TestFact_CacheKeepsUpWithItsKinds(t *testing.T) {
	prove(t, map[string]fact{
		"WaiterOfARemovedInformer": {
			reason: "Who waits for an informer that is removed waits until its own context ends, though the kind is fine.",
			scenario: func(t *testing.T, r *rig) string {
				k := watchtest.NewKind("Widget")
				r.api.Define(k)
				lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
				defer lift()
				infs := r.informers()
				var took time.Duration
				done := background(func() error {
					var err error
					took, err = timed(func() error {
						return limited(t, time.Minute, func(ctx context.Context) error {
							_, err := infs.GetInformer(ctx, k.New())
							return err
						})
					})
					return err
				})
				r.await(watchtest.Of(k))
				if err := infs.RemoveInformer(t.Context(), k.New()); err != nil {
					t.Fatal(err)
				}

				// The informer notices before it gets its answer.
				pass(time.Millisecond)
				lift()
				err := <-done
				return found(took > 10*time.Second, "GetInformer of a healthy kind took %s: %v", took, err)
			},
		},
		"HandlerOfARemovedInformer": {
			reason: "A handler can be added to an informer that is dead, without an error, and never hears a thing.",
			scenario: func(t *testing.T, r *rig) string {
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
			scenario: func(t *testing.T, r *rig) string {
				k := watchtest.NewKind("Widget")
				r.define(k)
				r.watchCRDs()
				r.reads(k)
				r.api.Undefine(k)
				pass(time.Second)
				err := r.readFor(stuckFor, k, "one")
				if err == nil {
					t.Error("Get(...) of a kind that's gone: no error")
				}
				pass(time.Minute)
				n := requestsIn(time.Hour, r.api, watchtest.Of(k))
				return found(n > 20, "%d requests in an hour, after one read that failed: %v", n, err)
			},
		},
		"AnotherScope": {
			cache:  true,
			reason: "The mapper remembers the scope: reads of a kind that came back with another never find a thing.",
			scenario: func(t *testing.T, r *rig) string {
				return movedKind(t, r, watchtest.NewKind("Widget").ClusterScoped(), watchtest.NewKind("Widget"))
			},
		},
		"AnotherPlural": {
			cache:  true,
			reason: "The mapper remembers the plural: a kind that came back with another is asked for where it isn't.",
			scenario: func(t *testing.T, r *rig) string {
				return movedKind(t, r, watchtest.NewKind("Widget"), watchtest.NewKind("Widget").Named("widgetry"))
			},
		},
	})
}

// handlerOfRemoved reports whether a handler that was added to an informer right
// after that was removed, without an error, hears of objects.
func handlerOfRemoved(t *testing.T, r *rig, k watchtest.Kind) string {
	t.Helper()
	r.api.Define(k)
	inf, err := r.infs.GetInformer(t.Context(), k.New())
	if err != nil {
		t.Fatal(err)
	}
	r.remove(k)
	rec := &recorder{}
	reg, err := inf.AddEventHandler(rec.funcs())
	if err != nil {
		return ""
	}
	pass(time.Second)
	r.api.Put(k.Object("one"), k)
	pass(time.Minute)
	if rec.count("create", "one") == 0 {
		return "AddEventHandler returned no error, and an object that came later was not delivered"
	}
	if err := inf.RemoveEventHandler(reg); err != nil {
		t.Errorf("RemoveEventHandler(...): %v", err)
	}
	return ""
}

// movedKind reports whether reads find objects of a kind that came back elsewhere.
func movedKind(t *testing.T, r *rig, was, is watchtest.Kind) string {
	t.Helper()
	r.define(was)
	r.watchCRDs()
	r.reads(was)
	r.api.Undefine(was)
	pass(time.Second)
	r.api.Define(is)
	r.api.Put(is.Object("two"), is)
	var err error
	for range 10 {
		if err = r.readFor(stuckFor, is, "two"); err == nil {
			return ""
		}
		pass(time.Minute)
	}
	return fmt.Sprintf("10 minutes after the kind came back: %v", err)
}

// The cache of controller-runtime waits with locks of package sync, so this one
// takes real time on the baseline: what blocks does so until the test lets go.
func TestFact_DiscoveryHoldsUpReads(t *testing.T) {
	t.Run("Baseline", func(t *testing.T) {
		r := newBaseline(t, watchtest.NewAPI(), func() baseline.Lock { return &sync.RWMutex{} })
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
		r := graft(t, watchtest.NewAPI())
		slow, done := slowDiscovery(t, r)
		defer func() { slow(); <-done }()
		if took, err := timed(func() error { return r.read(t.Context(), watchtest.NewKind("Healthy"), "one") }); err != nil || took > quick {
			t.Errorf("Get(...) during the discovery of another kind: %v after %s", err, took)
		}
	})
}

// slowDiscovery reads a kind whose discovery hangs until it is told not to.
func slowDiscovery(t *testing.T, r *rig) (lift func(), done <-chan error) {
	t.Helper()
	slow, healthy := watchtest.NewKind("Slow"), watchtest.NewKind("Healthy")
	r.define(healthy)
	r.reads(healthy)
	r.define(slow)
	lift = r.api.Inject(watchtest.DiscoveryOf(slow), watchtest.Hang())
	t.Cleanup(lift)
	done = background(func() error { return r.read(t.Context(), slow, "one") })
	r.await(watchtest.DiscoveryOf(slow))
	return lift, done
}
