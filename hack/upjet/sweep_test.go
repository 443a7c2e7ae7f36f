//go:build upjet

package upjet_test

import (
	"fmt"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A process of the provider is killed before and after each request to the API server
// and each call of the cloud, from the creation of a managed resource to its deletion.
// The next process never makes a second external resource, and leaves none.
func TestKilledAtEachPoint(t *testing.T) {
	const atLeast = 200
	var mu sync.Mutex
	points, stops := 0, 0
	t.Run("points", func(t *testing.T) {
		for _, k := range kinds() {
			for _, p := range providers()[1:] {
				t.Run(k.name+"/"+p.name, func(t *testing.T) {
					t.Parallel()
					for n, over := 1, false; !over; n++ {
						for _, after := range []bool{false, true} {
							w := newWorld(t, k, p)
							killed := w.start(t, killedAt(n, after))
							w.live(t, killed)
							if !killed.isDead() {
								over = true
								break
							}
							last := w.start(t)
							stopped := w.live(t, last)
							name := fmt.Sprintf("step %d, %s", n, killed.at)
							if created := w.creates(); created > 1 {
								t.Errorf("%s: %d external resources were created", name, created)
							}
							switch mg := w.get(t); {
							case stopped && (p.finders || !k.assigned()):
								t.Errorf("%s: stops: %s", name, mg.GetCondition(asyncstate.TypeOperation).Message)
							case !stopped && mg != nil:
								t.Errorf("%s: the managed resource is still there", name)
							case !stopped && len(w.external()) > 0:
								t.Errorf("%s: the external resource is still there", name)
							}
							mu.Lock()
							points++
							if stopped {
								stops++
							}
							mu.Unlock()
						}
					}
				})
			}
		}
	})
	t.Logf("killed at %d points; %d times it stops for a person", points, stops)
	if points < atLeast {
		t.Errorf("want at least %d points, got %d", atLeast, points)
	}
}

// live the life of a managed resource, as far as the process goes: it is created, it is
// deleted once it is ready, and it is gone. It reports whether it stops for a person.
func (w *world) live(t *testing.T, p *process) (stops bool) {
	t.Helper()
	await(t, "the managed resource is gone", func() bool {
		p.reconcile(t)
		mg := w.get(t)
		if mg == nil || p.isDead() {
			return true
		}
		if mg.GetDeletionTimestamp() == nil && ready(mg) && w.named(mg) {
			must(t, "Delete()", client.IgnoreNotFound(w.admin.Delete(t.Context(), mg)))
		}
		stops = stopped(mg) != ""
		w.waits(t, mg)
		return stops
	})
	return stops
}
