//go:build judge

package crashtest

import (
	"fmt"
	"slices"
	"testing"
)

// TestJudge proves that the default budget finds each planted fault in all scenarios.
func TestJudge(t *testing.T) {
	for _, f := range slices.Concat(plantedFaults(), plantedOutside()) {
		t.Run(f.name, func(t *testing.T) {
			name, found := f.search(t, defaultPatience)
			if !found {
				t.Fatalf("want one of %v, got none", f.want)
			}
			t.Logf("%s: found in %s", f.name, name)
		})
	}
}

// TestJudgeRight proves that providers that are right have no finding in 100,000 runs.
func TestJudgeRight(t *testing.T) {
	const runs = 100_000
	all := rightProviders()
	for i, r := range all {
		t.Run(r.name, func(t *testing.T) {
			Run(t, r.provider(t), Runs(runs/len(all)), Seed(uint64(i+1)))
		})
	}
	t.Run("ConnectionSecret", func(t *testing.T) { Run(t, withSecret(t, true, true), Runs(1000)) })
	t.Run("LazyFake", func(t *testing.T) { Run(t, lazyProvider(t), Runs(1000)) })
	t.Log(fmt.Sprint(len(all)+2, " providers"))
}
