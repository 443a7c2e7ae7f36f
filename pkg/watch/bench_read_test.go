package watch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

const (
	// readWindow is how long reads are sampled before it's the other rig's turn.
	readWindow = 50 * time.Millisecond

	// readTurns is how often each rig has its turn in an iteration.
	readTurns = 7

	// troubleLasts is how long calls ask for a kind that is in trouble: all the
	// while, also if it takes a moment to see that he does.
	troubleLasts = 2 * readWindow

	// waiting is a read that isn't merely slow.
	waiting = readWindow / 10

	// readObjects is how many there are to list.
	readObjects = 10
)

// A readTrouble is what happens to another kind while a healthy one is read.
type readTrouble struct {
	name string

	// ask for the other kind until it is over, in the i-th window. asked must be
	// called when a call waits for it.
	ask func(r *readRig, i int, asked func())
}

func readTroubles() []readTrouble {
	return []readTrouble{
		// What the others are compared with, compared with itself: how far from 1
		// this is says how much the figures are worth.
		{"Nothing", func(_ *readRig, _ int, asked func()) { asked() }},
		{"NeverSyncs", func(r *readRig, i int, asked func()) {
			// One that is new: one that was asked for before may be known to be
			// in trouble.
			k := watchtest.NewKind(fmt.Sprintf("Stuck%d", i))
			r.api.Define(k)
			lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
			r.b.Cleanup(lift)
			r.request(troubleLasts, watchtest.Of(k), asked, func(ctx context.Context) {
				_ = r.reader.Get(ctx, k.Key("x"), k.New())
			})
		}},
		{"IsLookedUpSlowly", func(r *readRig, i int, asked func()) {
			// Another version, which has to be looked up.
			k := r.other
			k.GVK.Version = fmt.Sprintf("v%d", i+2)
			defer r.api.Inject(watchtest.DiscoveryOf(k), watchtest.Delay(troubleLasts))()

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
	if err := r.api.AwaitOpen(ctx, m); err != nil {
		r.b.Errorf("nothing was requested for the other kind: %v", err)
	}
	asked()
	wg.Wait()
}

// A readSample is what was seen in all windows of a rig.
type readSample struct {
	took sample

	// p99 of each window.
	p99s []time.Duration

	// How much of the time went by waiting for a read that isn't merely slow.
	waited, total time.Duration
}

// sample reads for a while, during the i-th trouble.
func (s *readSample) sample(r *readRig, read func(ctx context.Context, r *readRig) error, i int, ask func(r *readRig, i int, asked func())) {
	asked := make(chan struct{})
	done := background(func() error {
		ask(r, i, sync.OnceFunc(func() { close(asked) }))
		return nil
	})
	<-asked
	ctx := context.Background()
	began := time.Now()
	n := len(s.took)
	for start := began; start.Sub(began) < readWindow; start = time.Now() {
		if err := read(ctx, r); err != nil {
			r.b.Errorf("cannot read the healthy kind: %v", err)
		}
		took := time.Since(start)
		if took > waiting {
			s.waited += took
		}
		s.took = append(s.took, took)
	}
	s.total += time.Since(began)
	<-done
	_, p99, _ := s.took[n:].sorted()
	s.p99s = append(s.p99s, p99)
}

// Cached reads of a healthy kind while calls ask for another one, which never
// syncs, or which is looked up slowly. One rig has the trouble, the other none;
// they take turns, so that whatever else runs slows down both. Reported are, with
// the trouble, percentiles of all reads, and the part of the time that went by
// waiting for a read. x-quiet is how many times that of quiet the p99 is, in the
// median of all turns. One goroutine reads, so a read that waits for the whole time
// is the only one.
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
					calm := readTroubles()[0].ask
					quiet, troubled := newReadRig(b, side), newReadRig(b, side)
					without, with := &readSample{}, &readSample{}

					// What happens only once doesn't count.
					for _, r := range []*readRig{quiet, troubled} {
						(&readSample{}).sample(r, op.read, 0, calm)
					}
					turns := []func(i int){
						func(i int) { without.sample(quiet, op.read, i, calm) },
						func(i int) { with.sample(troubled, op.read, i, trouble.ask) },
					}
					for i := 0; b.Loop(); {
						for range readTurns {
							for _, turn := range turns {
								turn(i)
							}

							// Neither is always first.
							slices.Reverse(turns)
							i++
						}
					}
					ratios := make([]float64, len(with.p99s))
					for i := range ratios {
						ratios[i] = float64(with.p99s[i]) / float64(without.p99s[i])
					}
					slices.Sort(ratios)
					p50, p99, _ := with.took.sorted()
					noTotals(b)
					b.ReportMetric(float64(p50), "p50-ns")
					b.ReportMetric(float64(p99), "p99-ns")
					b.ReportMetric(ratios[len(ratios)/2], "x-quiet")
					b.ReportMetric(100*with.waited.Seconds()/with.total.Seconds(), "waiting-%")
				})
			}
		}
	}
}
