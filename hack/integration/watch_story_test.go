//go:build integration

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

// A compositor is a controller of composites, as Crossplane has them: at each
// reconcile it reads what is composed, and starts to watch that.
type compositor struct {
	r        *engineRig
	name     string
	xr       served
	composed served

	mu         sync.Mutex
	reconciled map[string]int
}

func newCompositor(t *testing.T, r *engineRig, name string) *compositor {
	t.Helper()

	c := &compositor{
		r: r, name: "composite/" + name, reconciled: map[string]int{},
		xr:       served{kind: "X" + name, plural: "x" + strings.ToLower(name)},
		composed: served{kind: name, plural: strings.ToLower(name), namespaced: true},
	}

	for _, s := range []served{c.xr, c.composed} {
		must(t, "define", r.operator.define(t.Context(), s))
		t.Cleanup(func() { must(t, "undefine", r.operator.undefine(context.WithoutCancel(t.Context()), s)) })
	}

	return c
}

func (c *compositor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.mu.Lock()
	c.reconciled[req.Name]++
	c.mu.Unlock()

	// What can't be read or watched yet is met again at the next poll.
	_ = c.r.StartWatches(ctx, c.name, watch.WatchFor(c.composed.empty(), watch.WatchTypeDependency, &handler.EnqueueRequestForObject{}))
	_ = c.r.GetCached().Get(ctx, client.ObjectKey{Namespace: namespace, Name: req.Name}, c.composed.empty())

	return reconcile.Result{RequeueAfter: lookEvery}, nil
}

func (c *compositor) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.reconciled[name]
}

func (c *compositor) start(t *testing.T, o ...watch.ControllerOption) {
	t.Helper()

	must(t, "Start()", c.r.Start(c.name, append(o, watch.WithRuntimeOptions(controller.Options{Reconciler: c}))...))
	must(t, "StartWatches()", c.r.StartWatches(t.Context(), c.name, watch.WatchFor(c.xr.empty(), watch.WatchTypeCompositeResource, &handler.EnqueueRequestForObject{})))
}

func (c *compositor) create(t *testing.T, s served, name string) {
	t.Helper()

	must(t, "Create()", c.r.GetUncached().Create(t.Context(), s.object(name)))
}

// untilReconciled waits until there are more reconciles of the name.
func (c *compositor) untilReconciled(t *testing.T, name string) {
	t.Helper()

	before := c.count(name)
	eventually(t, name+" is reconciled", func() (bool, string) {
		n := c.count(name)
		return n > before, fmt.Sprintf("%d reconciles, %d before", n, before)
	})
}

// state of a watch.
func (c *compositor) state(of served) watch.State {
	for _, s := range c.r.Snapshot().Controllers {
		for _, w := range s.Watches {
			if s.Name == c.name && w.GVK == of.gvk() {
				return w.State
			}
		}
	}

	return watch.StateStopped
}

func (c *compositor) untilState(t *testing.T, of served, want watch.State) {
	t.Helper()

	eventually(t, of.kind+" is "+string(want), func() (bool, string) {
		got := c.state(of)
		return got == want, string(got)
	})
}

// The kind that is composed goes with its provider, the composite's own goes with
// its definition, and its controller is stopped: at once, without an error, and
// without a trace.
func TestWatchUndeadInformer(t *testing.T) {
	existing := goleak.IgnoreCurrent()

	r := newEngineRig(t)
	c := newCompositor(t, r, "Undead")
	c.start(t)
	c.create(t, c.xr, "one")
	c.untilState(t, c.composed, watch.StateActive)
	c.create(t, c.composed, "one")
	c.untilReconciled(t, "one")

	must(t, "undefine", r.operator.undefine(t.Context(), c.composed))
	c.untilState(t, c.composed, watch.StateDormant)

	// Reconciles go on, and go on to ask for it.
	c.untilReconciled(t, "one")

	must(t, "undefine", r.operator.undefine(t.Context(), c.xr))
	c.untilState(t, c.xr, watch.StateDormant)

	// That it takes less than a second is shown where nothing else takes time: see
	// TestStoryUndeadInformer of pkg/watch. Here it shares a machine with an API
	// server, and with whatever else runs there.
	began := time.Now()
	err := r.Stop(t.Context(), c.name)
	took := time.Since(began)

	if err != nil || took > busy {
		t.Errorf("Stop() = %v after %s, want no error within %s", err, took, busy)
	}

	t.Logf("stopped in %s", took)

	if r.IsRunning(c.name) {
		t.Error("The controller is still running.")
	}

	eventually(t, "nothing is left of either kind", func() (bool, string) {
		for _, k := range r.Snapshot().Kinds {
			if k.GVK.Group == watchGroup {
				return false, fmt.Sprintf("%s is %s, with %d owners", k.GVK.Kind, k.State, k.Owners)
			}
		}

		return true, ""
	})

	must(t, "cannot stop the engine", r.stop())

	if err := leftOver(existing); err != nil {
		t.Errorf("Something still runs: %v", err)
	}

	if nc, nw := r.tally.controllers.Load(), r.tally.watches.Load(); nc != 0 || nw != 0 {
		t.Errorf("%d controllers and %d watches are counted as running", nc, nw)
	}
}

// A prompt collector doesn't wait a minute.
type prompt struct{ *watch.GarbageCollector }

func (p prompt) GarbageCollectWatches(ctx context.Context, _ time.Duration) {
	p.GarbageCollector.GarbageCollectWatches(ctx, lookEvery)
}

// A composite that is created when the collector has run, more than once, is
// reconciled, and what it composes is watched as long as it is there.
func TestWatchCollectedAlive(t *testing.T) {
	r := newEngineRig(t)
	c := newCompositor(t, r, "Collected")

	asked := make(chan struct{})

	tracker := watch.DependenciesFn(func(ctx context.Context) ([]schema.GroupVersionKind, error) {
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		xrs, err := r.operator.objects(ctx, c.xr)
		if err != nil || len(xrs) == 0 {
			return nil, err
		}

		return []schema.GroupVersionKind{c.composed.gvk()}, nil
	})

	// Twice, so that the first collection has ended.
	collect := func() {
		t.Helper()

		for range 2 {
			select {
			case <-asked:
			case <-time.After(patience):
				t.Fatal("the collector doesn't collect")
			}
		}
	}

	gc := watch.NewGarbageCollector(c.name, r.ControllerEngine, tracker, []watch.WatchType{watch.WatchTypeDependency})
	c.start(t, watch.WithWatchGarbageCollector(prompt{gc}))

	collect()
	c.create(t, c.xr, "one")
	c.untilReconciled(t, "one")
	c.untilState(t, c.composed, watch.StateActive)

	collect()
	c.create(t, c.composed, "composed")
	c.untilReconciled(t, "composed")

	c.create(t, c.xr, "two")
	c.untilReconciled(t, "two")

	if got := c.state(c.xr); got != watch.StateActive {
		t.Errorf("The composites' own watch is %s, want %s.", got, watch.StateActive)
	}
}
