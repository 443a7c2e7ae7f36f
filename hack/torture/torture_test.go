//go:build torture

package torture

import (
	"flag"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// TestTorture makes all runs, and prints the table. A pattern of -run selects rows, sides and runs by their names. One
// run is shown with its timeline.
func TestTorture(t *testing.T) {
	// Runs are short, and each leaves a whole API server behind.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	all := rows(*lag)
	// At the most this many runs are made for each row and side.
	share := func(n int) int { return (n + 2*len(all) - 1) / (2 * len(all)) }
	runs := math.MaxInt
	if *sampled > 0 {
		runs = share(*sampled) + share(*pairs)
	}
	r := &report{counts: map[string]count{}}
	for _, row := range all {
		for _, side := range []string{upstreamSide, graftSide} {
			t.Run(row.name()+"/"+side, func(t *testing.T) {
				for _, v := range makeRuns(t, row, side, *seed, crashtest.Runs(runs), crashtest.Pairs(share(*pairs))) {
					r.add(v)
				}
			})
		}
	}
	r.print(os.Stdout)
	r.explain(os.Stdout)
	if !r.asExpected(len(r.rows) == len(all) && *sampled == 0) {
		t.Fail()
	}
}

var (
	seed    = flag.Uint64("seed", 1, "decides what is random")
	lag     = flag.Duration("lag", defaultLag, "how long the cloud hides new resources, in rows whose names end in late")
	sampled = flag.Int("sample", 0, "disturb runs at this `number` of requests only, which the seed picks")
	pairs   = flag.Int("pairs", 4000, "strike up to this `number` of runs with a second fault, which the seed picks")
)
