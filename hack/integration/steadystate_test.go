//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// 50 managed resources of which nothing changes are reconciled 100 times each.
func TestSteadyState(t *testing.T) {
	const (
		objects    = 50
		reconciles = 100
	)

	for _, f := range []flavour{upstream, graft} {
		t.Run(f.name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{})
			seen := &observations{}
			tr := &traffic{}

			all := fleet("steady", objects/2)
			s.create(t, all...)

			start(t, f, setup{connectors: syncConnectors(world), poll: 10 * time.Millisecond, traffic: tr})
			s.until(t, "all show Available", all, isAvailable)

			// What made them so is behind them once each was reconciled twice
			// more.
			world.SetHooks(cloud.Hooks{Before: seen.hook})
			seen.wait(t, objects, 2)

			before := tr.counted()
			versions := resourceVersions(t, s)

			seen.forget()
			// An observation is followed by the write of what was observed, if
			// there is one: of the last it may be on its way.
			seen.wait(t, objects, reconciles+1)

			after := tr.counted()

			made := counts{}
			for k, n := range after {
				if n -= before[k]; n > 0 {
					made[k] = n
				}
			}

			t.Logf("requests in %d reconciles: %v", seen.total(), made)

			if now := resourceVersions(t, s); !maps.Equal(now, versions) {
				t.Errorf("nothing was to change, but resourceVersions did: %v became %v", versions, now)
			}

			if f.graft {
				if len(made) > 0 {
					t.Errorf("Graft should make no request at all, got %v", made)
				}

				return
			}

			if n := made.statusPuts(); n < objects*reconciles || n != made.writes() {
				t.Errorf("upstream writes status in every reconcile, at least %d times, and nothing else: got %d of %d writes", objects*reconciles, n, made.writes())
			}
		})
	}
}

func resourceVersions(t *testing.T, s server) map[string]string {
	t.Helper()

	out := map[string]string{}
	for uid, mg := range s.list(t.Context(), t) {
		out[string(uid)] = mg.GetResourceVersion()
	}

	return out
}

// observations count how often each external resource was observed.
type observations struct {
	mu sync.Mutex
	of map[string]int
}

func (o *observations) hook(_ context.Context, c cloud.Call) error {
	if c.Op != cloud.OpGet {
		return nil
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.of == nil {
		o.of = map[string]int{}
	}

	o.of[c.ID]++

	return nil
}

func (o *observations) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.of = nil
}

func (o *observations) total() int {
	o.mu.Lock()
	defer o.mu.Unlock()

	n := 0
	for _, count := range o.of {
		n += count
	}

	return n
}

// wait until each of so many external resources was observed n times.
func (o *observations) wait(t *testing.T, resources, n int) {
	t.Helper()

	eventually(t, fmt.Sprintf("each of %d external resources is observed %d times", resources, n), func() (bool, string) {
		o.mu.Lock()
		defer o.mu.Unlock()

		least, total := n, 0
		for _, count := range o.of {
			least = min(least, count)
			total += count
		}

		return len(o.of) == resources && least >= n, fmt.Sprintf("%d were, %d times together, at least %d times each", len(o.of), total, least)
	})
}
