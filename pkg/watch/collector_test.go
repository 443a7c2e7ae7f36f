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
		"NotNeeded":        {"A kind that isn't needed goes; the composite's own never opted in.", []look{{needed: "A", want: "A XR"}}, 0},
		"OnlyOthersNeeded": {"All that opted in may go.", []look{{needed: "XR", want: "XR"}}, 0},
		"Failing":          {"One that fails says nothing, whatever else it returns.", slices.Repeat([]look{{needed: "A", err: boom, want: "A B XR"}}, 5), 1},
		"Requested":        {"While the collector asks what is needed, B is needed again.", slices.Repeat([]look{{needed: "A", requests: true, want: "A B XR"}}, 5), 0},
		"Nothing": {"A tracker that names nothing must do so twice in a row, and what was asked for in between stays.", []look{
			{want: "A B XR"},
			{needed: "A B", want: "A B XR"},
			{want: "A B XR"},
			{err: boom, want: "A B XR"},
			{want: "A B XR", requests: true},
			{want: "B XR"},
			{want: "XR"},
		}, 1},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			xr, a, b := watchtest.NewKind("XR"), watchtest.NewKind("A"), watchtest.NewKind("B")
			r := graft(t, watchtest.NewAPI(xr, a, b))
			r.mgr.Elect()
			var n atomic.Int32
			o := idle()
			o.Collector = watch.NewGarbageCollector("c", r.ours, watch.DependenciesFn(func(context.Context) ([]schema.GroupVersionKind, error) {
				l := tc.looks[n.Add(1)-1]
				if l.requests {
					_ = r.StartWatches(t.Context(), "c", watchOf(b, &recorder{}))
				}
				var gvks []schema.GroupVersionKind
				for _, kind := range strings.Fields(l.needed) {
					gvks = append(gvks, watchtest.NewKind(kind).GVK)
				}
				return gvks, l.err
			}), []watch.WatchType{watch.WatchTypeDependency})
			r.start("c", o)
			composite := watchOf(xr, &recorder{})
			composite.Type = watch.WatchTypeCompositeResource
			r.watch("c", composite, watchOf(a, &recorder{}), watchOf(b, &recorder{}))
			pass(time.Second)
			for i, l := range tc.looks {
				pass(time.Minute)
				ids, err := r.GetWatches("c")
				ok(t, err)
				var got []string
				for _, id := range ids {
					got = append(got, id.GVK.Kind)
				}
				slices.Sort(got)
				wants(t, tc.reason, fmt.Sprintf("watches after look %d, the tracker's", i+1), []any{l.want, i + 1}, []any{strings.Join(got, " "), int(n.Load())})
			}
			if said := r.lines.all(); len(said) != tc.logs {
				t.Errorf("\n%s\n%d log lines: %q", tc.reason, len(said), said)
			}
		})
	}
}
