package watch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

const (
	// readWindow is how long reads are sampled before it's the other rig's turn,
	// and how long somebody asks meanwhile for a kind that is in trouble.
	readWindow = 100 * time.Millisecond

	// readWindows is how often each rig has its turn in an iteration.
	readWindows = 5

	// waiting is a read that isn't merely slow.
	waiting = readWindow / 10

	// readObjects is how many there are to list.
	readObjects = 10
)

// A readTrouble is what happens to another kind while a healthy one is read.
type readTrouble struct {
	name string

	// ask for the other kind until it is over, in the i-th window. asked must be
	// called when somebody waits for it.
	ask func(r *readRig, i int, asked func())
}

func readTroubles() []readTrouble {
	return []readTrouble{
		// What the others are compared with, compared with itself: how far from 1
		// this is says how much the figures are worth.
		{"Nothing", func(_ *readRig, _ int, asked func()) {
			asked()
			time.Sleep(readWindow)
		}},
		{"NeverSyncs", func(r *readRig, i int, asked func()) {
			// One that is new: one that was asked for before may be known to be
			// in trouble.
			k := watchtest.NewKind(fmt.Sprintf("Stuck%d", i))
			r.api.Define(k)

			lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
			r.b.Cleanup(lift)

			r.request(readWindow, watchtest.Of(k), asked, func(ctx context.Context) {
				_ = r.reader.Get(ctx, k.Key("x"), k.New())
			})
		}},
		{"IsLookedUpSlowly", func(r *readRig, i int, asked func()) {
			// Another version, which has to be looked up.
			k := r.other
			k.GVK.Version = fmt.Sprintf("v%d", i+2)

			defer r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Delay(readWindow))()

			// The delay ends it.
			r.request(time.Minute, watchtest.DiscoveryOf(k), asked, func(ctx context.Context) {
				_ = r.reader.Get(ctx, k.Key("x"), k.New())
			})
		}},
	}
}

// A readRig has a kind that is fine and is read.
type readRig struct {
	*benchRig

	b       *testing.B
	healthy watchtest.Kind
	other   watchtest.Kind
}

func newReadRig(b *testing.B, side benchSide) *readRig {
	b.Helper()

	r := &readRig{b: b, healthy: watchtest.NewKind("Healthy"), other: watchtest.NewKind("Other")}
	api := watchtest.NewAPI(r.healthy, r.other)

	for i := range readObjects {
		api.Put(r.healthy.Object(fmt.Sprintf("o%d", i)), r.healthy)
	}

	r.benchRig = side.make(b, api, watch.WithReadLinger(time.Hour))

	return r
}

// request makes a call, and says when the API server has a request for it.
func (r *readRig) request(d time.Duration, m watchtest.Match, asked func(), call func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()

	var wg sync.WaitGroup

	wg.Go(func() { call(ctx) })

	if err := r.api.AwaitOpen(ctx, m, 1); err != nil {
		r.b.Errorf("nothing was requested for the other kind: %v", err)
	}

	asked()
	wg.Wait()
}

// sample reads for as long as ask takes, and returns how much of that time was
// spent waiting.
func (r *readRig) sample(read func(ctx context.Context, r *readRig) error, i int, ask func(r *readRig, i int, asked func()), out *sample) (waited, total time.Duration) {
	asked := make(chan struct{})

	var over atomic.Bool

	done := background(func() error {
		ask(r, i, sync.OnceFunc(func() { close(asked) }))
		over.Store(true)

		return nil
	})

	<-asked

	ctx := context.Background()
	began := time.Now()

	for !over.Load() {
		start := time.Now()

		if err := read(ctx, r); err != nil {
			r.b.Errorf("cannot read the healthy kind: %v", err)
		}

		took := time.Since(start)
		if took > waiting {
			waited += took
		}

		*out = append(*out, took)
	}

	<-done

	return waited, time.Since(began)
}

// Cached reads of a healthy kind while somebody asks for another one, which never
// syncs, or which is looked up slowly. One rig has the trouble, the other none;
// they take turns. Reported are percentiles with the trouble, how many times that
// of quiet the p99 is, and which part of the time went by waiting for a read that
// took more than a tenth of the time that the trouble lasts. One goroutine reads,
// so a read that waits for the whole time is the only one.
func BenchmarkReadWhileAnotherKind(b *testing.B) {
	reads := []struct {
		name string
		read func(ctx context.Context, r *readRig) error
	}{
		{"Get", func(ctx context.Context, r *readRig) error {
			return r.reader.Get(ctx, r.healthy.Key("o1"), r.healthy.New())
		}},
		{"List", func(ctx context.Context, r *readRig) error {
			return r.reader.List(ctx, r.healthy.NewList())
		}},
	}

	for _, op := range reads {
		for _, trouble := range readTroubles() {
			for _, side := range []benchSide{controllerRuntime(), engineShaped(), ours()} {
				b.Run(fmt.Sprintf("%s/%s/%s", op.name, trouble.name, side.name), func(b *testing.B) {
					quiet, troubled := newReadRig(b, side), newReadRig(b, side)

					for _, r := range []*readRig{quiet, troubled} {
						if err := op.read(context.Background(), r); err != nil {
							b.Fatal(err)
						}
					}

					calm := readTroubles()[0].ask
					without, with := make(sample, 0, 1<<20), make(sample, 0, 1<<20)

					var waited, total time.Duration

					turns := []func(i int){
						func(i int) { quiet.sample(op.read, i, calm, &without) },
						func(i int) {
							w, t := troubled.sample(op.read, i, trouble.ask, &with)
							waited += w
							total += t
						},
					}

					// What happens once doesn't count.
					quiet.sample(op.read, 0, calm, &without)
					without = without[:0]

					for i := 0; b.Loop(); {
						for range readWindows {
							// Neither is always first.
							for _, turn := range turns {
								turn(i)
							}

							slices.Reverse(turns)

							i++
						}
					}

					p50, p99, most := with.sorted()
					_, quietP99, _ := without.sorted()

					noTotals(b)
					b.ReportMetric(float64(p50), "p50-ns")
					b.ReportMetric(float64(p99), "p99-ns")
					b.ReportMetric(float64(most), "max-ns")
					b.ReportMetric(float64(quietP99), "quiet-p99-ns")
					b.ReportMetric(float64(p99)/float64(quietP99), "x-quiet")
					b.ReportMetric(100*waited.Seconds()/total.Seconds(), "waiting-%")
					b.ReportMetric(float64(len(with)), "reads")
				})
			}
		}
	}
}
