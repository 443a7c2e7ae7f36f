package asyncstate_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// heap in use, when all that can go has gone.
func heap() uint64 {
	var m runtime.MemStats

	for range 3 {
		runtime.GC()
	}

	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// instant returns a connector to clients whose creates end when release is closed,
// or at once if it is nil.
func instant(release <-chan struct{}) upstream.ExternalConnector {
	return upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
		return &upstream.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
				return upstream.ExternalObservation{}, nil
			},
			CreateFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
				if release != nil {
					<-release
				}

				meta.SetExternalName(mg, "id")

				return upstream.ExternalCreation{}, nil
			},
			DisconnectFn: func(context.Context) error { return nil },
		}, nil
	})
}

// Nothing is kept of objects that are gone.
func TestNothingIsKept(t *testing.T) {
	a := newFastAPI()
	tr := asyncstate.NewTracker(a)

	objects := 100_000
	if underRace {
		objects = 5_000
	}

	if n := bytesKept(t, a, tr, objects); n > 32 {
		t.Errorf("Of each object %.1f bytes are kept", n)
	}
}

// BenchmarkLookup looks operations up while there are 100,000 of them.
func BenchmarkLookup(b *testing.B) {
	const objects = 100_000

	a := newFastAPI()
	release := make(chan struct{})
	tr := asyncstate.NewTracker(a, asyncstate.WithMaxOperations(objects))
	c := asyncstate.Connector(instant(release), tr)
	uids := make([]types.UID, objects)

	for i := range objects {
		o := a.add(fmt.Sprintf("b-%d", i))
		uids[i] = o.GetUID()

		if _, err := reconcileDirectly(context.Background(), c, o); err != nil {
			b.Fatal(err)
		}
	}

	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			var wg sync.WaitGroup

			for g := range n {
				wg.Go(func() {
					for i := g; i < b.N; i += n {
						if _, ok := tr.Lookup(uids[i*7919%objects]); !ok {
							b.Error("it should run")
							return
						}
					}
				})
			}

			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lookups/s")
		})
	}

	close(release)

	for asyncstate.Remembered(tr) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkIdleObject measures what a tracker keeps of an object whose operation
// has ended.
func BenchmarkIdleObject(b *testing.B) {
	a := newFastAPI()
	tr := asyncstate.NewTracker(a)

	b.ReportMetric(bytesKept(b, a, tr, b.N+10_000), "bytes/object")
}

// bytesKept returns how many bytes of an object remain when it has had an operation
// and is gone.
func bytesKept(tb testing.TB, a *fastAPI, tr *asyncstate.Tracker, objects int) float64 {
	tb.Helper()

	c := asyncstate.Connector(instant(nil), tr)

	through := func(n int) {
		for i := range n {
			o := a.add(fmt.Sprintf("b-%d-%d", n, i))

			for begun := false; !begun; runtime.Gosched() {
				var err error
				if begun, err = reconcileDirectly(context.Background(), c, o); err != nil {
					tb.Fatal(err)
				}
			}

			for asyncstate.Remembered(tr) > 50 {
				runtime.Gosched()
			}

			a.remove(o.GetName())
		}

		for asyncstate.Remembered(tr) > 0 {
			runtime.Gosched()
		}
	}

	through(1000)

	before := heap()

	through(objects)

	after := heap()
	runtime.KeepAlive(tr)

	return max(0, float64(after)-float64(before)) / float64(objects)
}

// writes returns what it takes to create, update and delete an object.
func writes(tb testing.TB, synchronous bool, verbs ...string) (create, update, del int) {
	tb.Helper()

	w := newWorld(tb, nothing, bucket("b"))
	w.synchronous = synchronous

	if w.cloud.takes = time.Minute; synchronous {
		w.cloud.takes = 0
	}

	w.start()
	defer w.end()

	step := func() int {
		pass(10 * time.Minute)

		n := w.api.Writes()
		if len(verbs) > 0 {
			n = w.api.Count(verbs...)
		}

		w.api.Forget()

		return n
	}

	create = step()

	w.edit("b", func(b *testkit.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })

	update = step()

	w.delete("b")

	return create, update, step()
}

// An operation writes at most two times more than a synchronous one does: its
// record, and its result. What it says of itself in status is beside that.
func TestOperationWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verbs := []string{testkit.Update, testkit.Patch}
		create, update, del := writes(t, false, verbs...)
		screate, supdate, sdel := writes(t, true, verbs...)

		for name, n := range map[string]int{"create": create - screate, "update": update - supdate, "delete": del - sdel} {
			if n > 2 {
				t.Errorf("A %s writes %d times more", name, n)
			}
		}
	})
}

// BenchmarkOperationWrites counts the writes of operations, beside synchronous ones.
func BenchmarkOperationWrites(b *testing.B) {
	for range b.N {
		// Only tests have a time of their own.
		count := func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				create, update, del := writes(t, false)
				b.ReportMetric(float64(create), "writes/create")
				b.ReportMetric(float64(update), "writes/update")
				b.ReportMetric(float64(del), "writes/delete")
			})
		}

		if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "writes", F: count}}) {
			b.Error("cannot count writes")
		}
	}
}
