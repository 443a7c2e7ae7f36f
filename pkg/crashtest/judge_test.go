//go:build judge

package crashtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestJudge proves that the default budget finds 95 of 100 planted faults in all lives.
func TestJudge(t *testing.T) {
	all := plantedFaults()
	var missed []string
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			at := f.search(t)
			if at == "" {
				missed = append(missed, f.name)
			}
			t.Logf("%s: found at %q", f.name, at)
		})
	}
	found := len(all) - len(missed)
	t.Logf("found %d of %d planted faults, missed %s", found, len(all), strings.Join(missed, ", "))
	if len(all) < 100 || found*100 < 95*len(all) {
		t.Errorf("found %d of %d planted faults, want 95 of 100", found, len(all))
	}
}

// TestJudgeRight proves that a provider that is right has no finding in 100,000 points.
func TestJudgeRight(t *testing.T) {
	const points, seeds = 100_000, 10
	starts := []func(p *Process, a vmAPI) (reconcile.Reconciler, error){graftNamed, graftFound}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			Run(t, vmProvider(t, starts[seed%2]), Points(points/seeds), Seed(seed+1))
		})
	}
	t.Run("Plain", func(t *testing.T) {
		p := plainProvider(t, func(*Process, *plain) {})
		p.Lives = slices.Clone(p.Lives)
		Run(t, p, Points(points/seeds))
	})
}
