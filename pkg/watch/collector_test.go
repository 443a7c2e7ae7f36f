package watch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// Only types that opted in are collected, and only if a tracker names kinds. A watch that was
// requested since the collector looked stays.
func TestCollectsOnlyWhatItMay(t *testing.T) {
	boom := errors.New("boom")
	type look struct {
		needed   string
		err      error
		requests bool   // B is asked for while the tracker answers.
		want     string // What is watched afterwards.
	}
	cases := map[string]struct {
		reason string
		looks  []look
		logs   int
	}{
		"NotNeeded": {
			reason: "The watch of a kind that isn't needed should be stopped, but not a watch of another type.",
			looks:  []look{{needed: "A", want: "A XR"}},
			logs:   0,
		},
		"OnlyOthersNeeded": {
			reason: "All watches of the collector's types may be stopped.",
			looks:  []look{{needed: "XR", want: "XR"}},
			logs:   0,
		},
		"Failing": {
			reason: "A tracker that fails should stop no watch, although it returns kinds.",
			looks:  slices.Repeat([]look{{needed: "A", err: boom, want: "A B XR"}}, 5),
			logs:   1,
		},
		"Requested": {
			reason: "A watch that is requested while the tracker answers should stay.",
			looks:  slices.Repeat([]look{{needed: "A", requests: true, want: "A B XR"}}, 5),
			logs:   0,
		},
		"Nothing": {
			reason: "A tracker must return no kinds twice in a row, and a watch that is requested in between should stay.",
			looks: []look{
				{want: "A B XR"},
				{needed: "A B", want: "A B XR"},
				{want: "A B XR"},
				{err: boom, want: "A B XR"},
				{want: "A B XR", requests: true},
				{want: "B XR"},
				{want: "XR"},
			},
			logs: 1,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			xr, a, b := watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
			r := newGraftEnv(t, watchtest.NewAPI(xr, a, b))
			r.mgr.Elect()
			var n atomic.Int32
			o := idleOptions()
			o.Collector = watch.NewGarbageCollector(
				"c", r.ours,
				watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) {
					l := tc.looks[n.Add(1)-1]
					if l.requests {
						_ = r.StartWatches(t.Context(), "c", newWatch(b, &recorder{}))
					}
					var gvks []schema.GroupVersionKind
					for _, kind := range strings.Fields(l.needed) {
						gvks = append(gvks, watchtest.NewKind(kind).GVK)
					}
					return gvks, l.err
				}),
				[]watch.WatchType{watch.WatchTypeDependency},
			)
			r.start("c", o)
			composite := newWatch(xr, &recorder{})
			composite.Type = watch.WatchTypeCompositeResource
			r.watch("c", composite, newWatch(a, &recorder{}), newWatch(b, &recorder{}))
			advance(time.Second)
			for i, l := range tc.looks {
				advance(time.Minute)
				ids, err := r.GetWatches("c")
				mustSucceed(t, err)
				var got []string
				for _, id := range ids {
					got = append(got, id.GVK.Kind)
				}
				slices.Sort(got)
				expectEqual(t, tc.reason, fmt.Sprintf("watches after look %d, the tracker's", i+1),
					[]any{l.want, i + 1}, []any{
						strings.Join(got, " "), int(n.Load()),
					})
			}
			if said := r.lines.all(); len(said) != tc.logs {
				t.Errorf("\n%s\n%d log lines: %q", tc.reason, len(said), said)
			}
		})
	}
}
