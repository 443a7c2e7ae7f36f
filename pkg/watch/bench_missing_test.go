package watch_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// What a hundred kinds cost that aren't there, while each of them is asked for
// once a minute, as reconciles do. It is a test, not a benchmark: a minute of a
// bubble costs nothing, and has the same requests in it wherever it runs.
func TestRequestsForKindsThatArentThere(t *testing.T) {
	const (
		kinds = 100

		// Each kind is looked up about once a minute at most, however often it is
		// asked for, and half as often while CRDs are watched.
		mostASecond = kinds / 50.
	)
	cases := map[string]struct {
		reason string

		// were says that the kinds are there first, and watched.
		were bool

		// crds says that CRDs are watched.
		crds bool

		// fewer requests than the baseline's are wanted. It sends one whenever it is
		// asked, and otherwise none if it has no informer.
		fewer bool
	}{
		"NeverWere":                {reason: "Nothing says when they come."},
		"NeverWere/CRDsAreWatched": {reason: "We are told when their CRDs come.", crds: true, fewer: true},
		"Went":                     {reason: "Nothing says that they went.", were: true, fewer: true},
		"Went/CRDsAreWatched":      {reason: "We are told that their CRDs went.", were: true, crds: true, fewer: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var baselines, ours float64

			// A quarter of an hour is like any other. But what went with its CRD is
			// looked for every ten minutes, so that less would miss it.
			minutes := 15
			if tc.were && tc.crds {
				minutes = 75
			}
			bubble(t, func(t *testing.T) {
				m := &missing{rig: onBaseline(t, watchtest.NewAPI())}
				m.begin(kinds, tc.were, tc.crds)
				baselines = m.requests(15)
			})
			bubble(t, func(t *testing.T) {
				m := &missing{rig: graft(t, watchtest.NewAPI())}
				luck := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It must be the same each time.
				var mu sync.Mutex
				watch.SetRandom(m.cache, func() float64 {
					mu.Lock()
					defer mu.Unlock()
					return luck.Float64()
				})
				m.begin(kinds, tc.were, tc.crds)
				said := len(m.lines.all())
				ours = m.requests(minutes)
				if n := len(m.lines.all()) - said; n > 0 {
					t.Errorf("\n%s\n%d lines were logged while nothing happened", tc.reason, n)
				}
				if m.slowest > quick {
					t.Errorf("\n%s\na call for a kind that doesn't exist took %s", tc.reason, m.slowest)
				}

				// Kinds that failed together don't all try again together.
				if m.most > kinds/5 {
					t.Errorf("\n%s\n%d requests in one second, want at most %d", tc.reason, m.most, kinds/5)
				}
			})
			t.Logf("requests a second for %d kinds that aren't there: baseline %.2f, Graft %.3f", kinds, baselines, ours)
			most := mostASecond
			if tc.crds {
				most /= 2
			}
			if ours > most {
				t.Errorf("\n%s\n%.3f requests a second, want at most %.3f", tc.reason, ours, most)
			}
			if tc.fewer && ours >= baselines {
				t.Errorf("\n%s\n%.3f requests a second, want fewer than the baseline's %.3f", tc.reason, ours, baselines)
			}
		})
	}
}

// A missing rig is asked for kinds that aren't there, or aren't any more.
type missing struct {
	*rig

	kinds []watchtest.Kind

	// The longest call, and the most requests in a second.
	slowest time.Duration
	most    int
}

// begin to ask, until all kinds are tried as seldom as they ever are.
func (m *missing) begin(n int, were, crds bool) {
	m.t.Helper()
	m.mgr.Elect()
	m.start("c", idle())
	if crds {
		m.watchCRDs()
	}
	for i := range n {
		m.kinds = append(m.kinds, watchtest.NewKind(fmt.Sprintf("Missing%d", i)))
	}
	if were {
		for _, k := range m.kinds {
			m.api.Define(k)
		}
		m.ask()
		for _, k := range m.kinds {
			m.api.Undefine(k)
		}
	}
	m.requests(5)
	m.slowest, m.most = 0, 0
}

// ask for each on its own: the baseline gives up at the first error.
func (m *missing) ask() {
	m.t.Helper()
	for _, k := range m.kinds {
		took, _ := timed(func() error { return m.watchFor(200*time.Millisecond, "c", watchOf(k, &recorder{})) })
		m.slowest = max(m.slowest, took)
	}
}

// requests returns how many there are a second while time passes.
func (m *missing) requests(minutes int) float64 {
	m.t.Helper()
	m.api.Forget()
	began := time.Now()
	for range minutes {
		m.ask()
		pass(time.Minute)
	}
	sent := m.api.Requests(watchtest.Everything())
	seconds := make(map[int64]int)
	for _, req := range sent {
		seconds[req.At.Unix()]++
		m.most = max(m.most, seconds[req.At.Unix()])
	}
	return float64(len(sent)) / time.Since(began).Seconds()
}
