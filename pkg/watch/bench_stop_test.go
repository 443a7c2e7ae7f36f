package watch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// outage is how long the API server doesn't answer if Stop waits for it.
const outage = 500 * time.Millisecond

// Stopping controllers with many watches, whatever the API server does: the
// baseline's and ours in turn. Our Stop returns when nothing runs any more. The
// baseline's waits for nothing.
func BenchmarkStop(b *testing.B) {
	troubles := []struct {
		name string

		// inject the trouble. settle ends it, and waits for what it began.
		inject func(b *testing.B, r *benchRig, i int) (settle func())
	}{
		{"Healthy", func(*testing.B, *benchRig, int) func() { return func() {} }},
		{"Refusing", func(_ *testing.B, r *benchRig, _ int) func() { return r.api.Down() }},
		{"Hanging", func(_ *testing.B, r *benchRig, _ int) func() { return r.api.Freeze() }},
		{"HangingWhileOneMoreIsStarted", startWhileHanging},
	}
	for _, n := range []int{1, 100, 200, 1000} {
		b.Run(fmt.Sprintf("Watches=%d", n), func(b *testing.B) {
			sides := []benchSide{engineShaped(), ours()}
			rigs := make([]*benchRig, len(sides))
			watches := make([][]baseline.Watch, len(sides))
			for i, side := range sides {
				api := watchtest.NewAPI()
				kinds := manyKinds(api, n)
				api.Put(kinds[0].Object("one"), kinds[0])
				watches[i] = watchesOf(kinds)
				rigs[i] = side.make(b, api)
				rigs[i].mgr.Elect()
				rigs[i].warm(b, watches[i])
			}
			for _, trouble := range troubles {
				b.Run(trouble.name, func(b *testing.B) {
					stopped := make([]sample, len(sides))
					for round := 0; b.Loop(); round++ {
						for i, r := range rigs {
							stopped[i] = append(stopped[i], r.startAndStop(b, watches[i], func() func() { return trouble.inject(b, r, round) }))
						}
					}
					noTotals(b)
					for i, side := range sides {
						p50, _, most := stopped[i].sorted()
						b.ReportMetric(milliseconds(p50), side.name+"-p50-ms")
						b.ReportMetric(milliseconds(most), side.name+"-max-ms")
					}
				})
			}
		})
	}
}

// startAndStop starts a controller, stops it while there is trouble, and waits until it
// has ended. It returns how long Stop took.
func (r *benchRig) startAndStop(b *testing.B, ws []baseline.Watch, inject func() (settle func())) time.Duration {
	b.Helper()
	up, down := r.startController(b, ws...)
	<-up
	settle := inject()
	defer settle()
	began := time.Now()
	if err := r.engine.Stop(context.Background(), benchController); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	<-down
	return took
}

// startWhileHanging asks for one watch more while the API server doesn't answer.
func startWhileHanging(b *testing.B, r *benchRig, round int) (settle func()) {
	b.Helper()
	k := watchtest.NewKind(fmt.Sprintf("OneMore%d", round))
	r.api.Define(k)
	thaw := r.api.Freeze()
	end := time.AfterFunc(outage, thaw)
	started := background(func() error {
		return r.engine.StartWatches(context.Background(), benchController, watchOf(k, &recorder{}))
	})
	if err := r.api.AwaitOpen(context.Background(), watchtest.DiscoveryOf(k)); err != nil {
		b.Fatal(err)
	}
	return func() {
		end.Stop()
		thaw()

		// Ours says that the controller was stopped. The baseline has started it.
		<-started
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
