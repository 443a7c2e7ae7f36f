package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// What a hundred kinds cost that aren't there, while each of them is asked for
// once a minute, as reconciles do. It is a test, not a benchmark: a minute of a
// bubble costs nothing, and has the same requests in it wherever it runs.
func TestRequestsForKindsThatArentThere(t *testing.T) {
	const (
		kinds = 100

		// Each kind is looked up about once a minute at most, however often it is
		// asked for.
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
			// looked for once an hour, so that less would miss it.
			minutes := 15
			if tc.were && tc.crds {
				minutes = 75
			}
			bubble(t, func(t *testing.T) {
				baselines = requestsForMissing(t, baseline(t, watchtest.NewAPI()), kinds, 15, tc.were, tc.crds)
			})
			bubble(t, func(t *testing.T) {
				ours = requestsForMissing(t, graft(t, watchtest.NewAPI()), kinds, minutes, tc.were, tc.crds)
			})
			t.Logf("requests a second for %d kinds that aren't there: baseline %.2f, Graft %.3f", kinds, baselines, ours)
			if ours > mostASecond {
				t.Errorf("\n%s\n%.3f requests a second, want at most %.3f", tc.reason, ours, mostASecond)
			}
			if tc.fewer && ours >= baselines {
				t.Errorf("\n%s\n%.3f requests a second, want fewer than the baseline's %.3f", tc.reason, ours, baselines)
			}
		})
	}
}

// requestsForMissing returns how many requests there are a second for n kinds that
// aren't there, or aren't any more.
func requestsForMissing(t *testing.T, r *rig, n, minutes int, were, crds bool) float64 {
	t.Helper()
	r.mgr.Elect()
	r.start("c", idle())
	if crds {
		if err := r.GarbageCollectCustomResourceInformers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kinds := make([]watchtest.Kind, n)
	for i := range kinds {
		kinds[i] = watchtest.NewKind(fmt.Sprintf("Missing%d", i))
	}

	// Each is asked for on its own: the baseline gives up at the first error.
	ask := func() {
		for _, k := range kinds {
			_ = r.watchFor(200*time.Millisecond, "c", watchOf(k, &recorder{}))
		}
	}
	if were {
		for _, k := range kinds {
			r.api.Define(k)
		}
		ask()
		for _, k := range kinds {
			r.api.Undefine(k)
		}
	}
	asking := func(minutes int) {
		for range minutes {
			ask()
			pass(time.Minute)
		}
	}

	// Until all are tried as seldom as they ever are.
	asking(5)
	r.api.Forget()
	began := time.Now()
	asking(minutes)
	return float64(len(r.api.Requests(watchtest.Everything()))) / time.Since(began).Seconds()
}
