package watch_test

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// A scenario is a schedule of calls and faults. It returns what went wrong, or
// nothing.
type scenario func(t *testing.T, r *rig) (finding string)

// A fact is something that is wrong with the baseline, and must not be with our
// engine. Each reason says what.
type fact struct {
	reason   string
	scenario scenario

	// cache says that the fact is controller-runtime's cache's: it stays when our
	// engine and tracking go around that, instead of a cache of ours.
	cache bool
}

// prove runs the same scenario on both engines: ours with its own cache, and with
// one that it wraps.
func prove(t *testing.T, facts map[string]fact) {
	t.Helper()

	for name, f := range facts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "Baseline", func(t *testing.T) {
				finding := f.scenario(t, baseline(t, watchtest.NewAPI()))
				if finding == "" {
					t.Errorf("\n%s\nThe baseline doesn't show it: the scenario proves nothing.", f.reason)
				}

				t.Logf("as expected: %s", finding)
			})

			inBubble(t, "Graft", func(t *testing.T) {
				if finding := f.scenario(t, graft(t, watchtest.NewAPI())); finding != "" {
					t.Errorf("\n%s\nFound: %s", f.reason, finding)
				}
			})

			if f.cache {
				return
			}

			inBubble(t, "GraftAroundAnotherCache", func(t *testing.T) {
				if finding := f.scenario(t, around(t, watchtest.NewAPI())); finding != "" {
					t.Errorf("\n%s\nFound: %s", f.reason, finding)
				}
			})
		})
	}
}
