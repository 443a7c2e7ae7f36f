//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// An asynchronous operation costs at most two writes more than a synchronous one: its
// record, and its result, where a synchronous one has none.
func TestAsyncWrites(t *testing.T) {
	const (
		objects = 20
		most    = 2
	)

	// measure the writes until a step is over and nothing more is written.
	measure := func(t *testing.T, f flavour) map[string]int {
		s := newServer(t)
		world := cloud.New(cloud.Options{Defaults: map[string]string{"region": "north"}, RequestLatency: 20 * time.Millisecond})
		tr := &traffic{}
		out := map[string]int{}
		all := fleet("written", objects/2)

		start(t, f, setup{connectors: syncConnectors(world), traffic: tr})

		step := func(name string, do func(), done func()) {
			before := tr.counted().writes()

			do()
			done()
			writesEnd(t, tr)

			out[name] = tr.counted().writes() - before
		}

		step("create", func() { s.create(t, all...) }, func() { s.until(t, "all show Available", all, isAvailable) })
		step("update", func() { s.merge(t, `{"spec":{"forProvider":{"size":7}}}`, all...) }, func() {
			s.until(t, "all are of the new size", all, func(mg sample.Instance) bool { return isAvailable(mg) && size(world, mg) == "7" })
		})
		step("delete", func() { s.remove(t, all...) }, func() { s.untilGone(t) })

		return out
	}

	var synchronous, asynchronous map[string]int

	t.Run("Synchronous", func(t *testing.T) { synchronous = measure(t, graft) })
	t.Run("Asynchronous", func(t *testing.T) { asynchronous = measure(t, graftAsync()) })

	steps := []string{"create", "update", "delete"}
	for _, step := range steps {
		was, is := synchronous[step], asynchronous[step]
		t.Logf("%s: %.2f writes an object if synchronous, %.2f if asynchronous", step, float64(was)/objects, float64(is)/objects)

		if is > was+most*objects {
			t.Errorf("%s: want at most %d writes an object more than %d of %d, got %d", step, most, was, objects, is)
		}
	}
}

// writesEnd waits until nothing was written for a while. The longest that the provider
// waits by itself is its backoff.
func writesEnd(t *testing.T, tr *traffic) {
	t.Helper()

	const looks = 10

	last, same := -1, 0

	err := wait.PollUntilContextTimeout(t.Context(), lookEvery, patience, true, func(context.Context) (bool, error) {
		now := tr.counted().writes()
		if same++; now != last {
			last, same = now, 0
		}

		return same >= looks, nil
	})
	must(t, fmt.Sprintf("waiting for the writes, %d so far, to end", last), err)
}
