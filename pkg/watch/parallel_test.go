package watch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Many goroutines call everything at once, on the same few controllers and
// kinds, while the kinds come and go. Where the interleaving is chance, what must
// hold in the end isn't.
func TestParallelCalls(t *testing.T) {
	const (
		workers     = 8
		calls       = 150
		controllers = 2
	)
	bubble(t, func(t *testing.T) {
		kinds := []watchtest.Kind{watchtest.NewKind("A"), watchtest.NewKind("B"), watchtest.NewKind("C")}
		api := watchtest.NewAPI(kinds...)
		r := graft(t, api)
		r.watchCRDs()
		var overlaps [controllers]overlap
		options := func(c int) startOptions {
			return reconciling(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				defer overlaps[c].enter(req)()
				time.Sleep(time.Duration(rand.N(20)) * time.Millisecond) //nolint:gosec // Chance is all we want.
				return reconcile.Result{}, nil
			})
		}
		var wg sync.WaitGroup
		recs := make([]*recorder, workers)
		for w := range workers {
			recs[w] = &recorder{}
			wg.Go(func() {
				for range calls {
					c := rand.IntN(controllers) //nolint:gosec // As above.
					name := fmt.Sprintf("c%d", c)
					k := kinds[rand.IntN(len(kinds))]                                                                //nolint:gosec // As above.
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(50))*time.Millisecond) //nolint:gosec // As above.
					var err error
					took, _ := timed(func() error {
						switch rand.IntN(10) { //nolint:gosec // As above.
						case 0:
							err = r.Start(name, options(c))
						case 1:
							err = r.Stop(ctx, name)
						case 2:
							_, err = r.StopWatches(ctx, name, idOf(k))
						case 3:
							err = r.infs.RemoveInformer(ctx, k.New())
						case 4:
							err = r.read(ctx, k, "one")
						case 5:
							r.ours.Snapshot()
						case 6:
							api.Define(k)
						case 7:
							if rand.IntN(4) == 0 { //nolint:gosec // As above.
								api.Undefine(k)
							}
						case 8:
							r.mgr.Elect()
						default:
							err = r.StartWatches(ctx, name, watchOf(k, recs[w]))
						}
						return err
					})
					cancel()
					if took > 50*time.Millisecond+quick {
						t.Errorf("a call took %s: %v", took, err)
					}
					time.Sleep(time.Duration(rand.N(10)) * time.Millisecond) //nolint:gosec // As above.
				}
			})
		}
		wg.Wait()
		r.mgr.Elect()
		for c := range overlaps {
			if most, _ := overlaps[c].result(); most > 1 {
				t.Errorf("a key was reconciled %d times at once", most)
			}
		}

		// All is well again: each watch that there is hears of each object, once.
		for i, k := range kinds {
			api.Define(k)
			api.Put(k.Object(fmt.Sprintf("last%d", i)), k)
		}
		pass(5 * time.Minute)
		want := 0
		for c := range controllers {
			ids, err := r.GetWatches(fmt.Sprintf("c%d", c))
			if err != nil && !errors.Is(err, watch.ErrNotRunning) {
				t.Error(err)
			}
			want += len(ids)
		}
		got := 0
		for _, rec := range recs {
			for i := range kinds {
				got += rec.count("create", fmt.Sprintf("last%d", i))
			}
		}
		if got != want {
			t.Errorf("%d watches were told %d times of the last objects", want, got)
		}

		// And when all is stopped, no handler gets events, and nothing is counted.
		for c := range controllers {
			if err := r.Stop(t.Context(), fmt.Sprintf("c%d", c)); err != nil {
				t.Error(err)
			}
		}
		for _, rec := range recs {
			rec.forget()
		}
		for _, k := range kinds {
			api.Put(k.Object("late"), k)
		}
		pass(time.Hour)
		for _, rec := range recs {
			if n := len(rec.all()); n > 0 {
				t.Errorf("%d events after all was stopped", n)
			}
		}
		if c, w := r.metrics.running(); c != 0 || w != 0 {
			t.Errorf("started minus stopped: %d controllers, %d watches", c, w)
		}
		if n := api.Open(watchtest.Of(kinds[0]).Or(watchtest.Of(kinds[1])).Or(watchtest.Of(kinds[2]))); n > 0 {
			t.Errorf("%d informers are left", n)
		}
	})
}

// However a collector and those who need a watch meet, the watch is there
// for as long as it is needed.
func TestCollectorsMeetRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := watchtest.NewKind("A"), watchtest.NewKind("B")
		r := running(t, watchtest.NewAPI(a, b))
		rec := &recorder{}
		r.watch("c", watchOf(a, rec))
		var (
			mu   sync.Mutex
			need int
		)
		tracker := watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) {
			mu.Lock()
			defer mu.Unlock()
			out := []schema.GroupVersionKind{a.GVK}
			if need > 0 {
				out = append(out, b.GVK)
			}
			return out, nil
		})
		gc := watch.NewGarbageCollector("c", r.ours, tracker, []watch.WatchType{watch.WatchTypeDependency})
		ctx, cancel := context.WithCancel(t.Context())
		var collectors, users sync.WaitGroup
		for range 2 {
			collectors.Go(func() {
				for ctx.Err() == nil {
					if err := gc.GarbageCollectWatchesNow(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(rand.N(3)) * time.Millisecond) //nolint:gosec // Chance is all we want.
				}
			})
		}
		for range 4 {
			users.Go(func() {
				for range 200 {
					mu.Lock()
					need++
					mu.Unlock()
					if err := r.StartWatches(t.Context(), "c", watchOf(b, rec)); err != nil {
						t.Error(err)
					}
					for range 3 {
						if ids, err := r.GetWatches("c"); err != nil || !slices.Contains(ids, idOf(b)) {
							t.Errorf("a watch that is needed isn't there: %v, %v", ids, err)
						}
						time.Sleep(time.Duration(rand.N(3)) * time.Millisecond) //nolint:gosec // As above.
					}
					mu.Lock()
					need--
					mu.Unlock()
					time.Sleep(time.Duration(rand.N(10)) * time.Millisecond) //nolint:gosec // As above.
				}
			})
		}
		users.Wait()
		cancel()
		collectors.Wait()
	})
}
