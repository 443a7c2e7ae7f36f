package watch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// outage is how long the API server doesn't answer if Stop waits for it.
const outage = 500 * time.Millisecond

// Stopping controllers with many watches, whatever the API server does: the
// baseline's and ours in turn. The baseline's Stop doesn't wait for what runs; ours
// returns when nothing runs any more.
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
			watches := make([][]spec, len(sides))

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
					took := make([]sample, len(sides))

					for round := 0; b.Loop(); round++ {
						for i, r := range rigs {
							up, ended := r.startController(b, watches[i]...)
							<-up

							settle := trouble.inject(b, r, round)

							d, err := timed(func() error { return r.engine.Stop(context.Background(), benchController) })
							if err != nil {
								b.Fatal(err)
							}

							settle()
							<-ended

							took[i] = append(took[i], d)
						}
					}

					noTotals(b)

					for i, side := range sides {
						p50, _, most := took[i].sorted()
						b.ReportMetric(milliseconds(p50), side.name+"-p50-ms")
						b.ReportMetric(milliseconds(most), side.name+"-max-ms")
					}
				})
			}
		})
	}
}

// startWhileHanging asks for one watch more while the API server doesn't answer.
func startWhileHanging(b *testing.B, r *benchRig, round int) (settle func()) {
	b.Helper()

	k := watchtest.NewKind(fmt.Sprintf("OneMore%d", round))
	r.api.Define(k)

	thaw := r.api.Freeze()
	asked := len(r.api.Requests(watchtest.DiscoveryOf(k)))
	end := time.AfterFunc(outage, thaw)
	started := background(func() error {
		return r.engine.StartWatches(context.Background(), benchController, watchOf(k, &recorder{}))
	})

	if err := r.api.AwaitRequests(context.Background(), watchtest.DiscoveryOf(k), asked+1); err != nil {
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
