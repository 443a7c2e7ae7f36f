package watch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// A composites is a controller of composite resources, as Crossplane has them: it
// watches its kind, and at each reconcile reads what is composed and starts to
// watch that, too.
type composites struct {
	r        *rig
	xr       watchtest.Kind
	composed watchtest.Kind
	handler  *recorder

	mu         sync.Mutex
	reconciled map[string]int
}

func (c *composites) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.mu.Lock()
	c.reconciled[req.Name]++
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	// What can't be read or watched yet is met again at the next poll.
	err := c.r.StartWatches(ctx, "composite/"+c.xr.GVK.Kind, watchOf(c.composed, c.handler))
	read := c.r.read(ctx, c.composed, req.Name)

	return reconcile.Result{RequeueAfter: 5 * time.Second}, ignoreAll(err, read)
}

func ignoreAll(...error) error { return nil }

func (c *composites) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.reconciled[name]
}

// start the controller.
func (c *composites) start(t *testing.T, o startOptions) {
	t.Helper()

	o.runtime = reconciling(c.Reconcile).runtime
	name := "composite/" + c.xr.GVK.Kind

	c.r.start(name, o)

	w := watchOf(c.xr, &recorder{})
	w.typ = watch.WatchTypeCompositeResource

	if err := c.r.StartWatches(t.Context(), name, w); err != nil {
		t.Fatal(err)
	}
}

func newComposites(r *rig) *composites {
	c := &composites{
		r:  r,
		xr: watchtest.NewKind("XDatabase").ClusterScoped(), composed: watchtest.NewKind("Instance"),
		handler:    &recorder{},
		reconciled: make(map[string]int),
	}
	r.api.Define(c.xr)
	r.api.Define(c.composed)

	return c
}

// The story undead-informer: the provider goes, and with it the kind that is
// composed; then the composite's definition goes, and its controller is stopped.
func TestStoryUndeadInformer(t *testing.T) {
	prove(t, map[string]fact{"ProviderUninstalled": {
		reason: "Reads by reconciles bring back the informer of a kind that is gone; it never syncs, holds the cache's lock meanwhile, and outlives the controller.",
		scenario: func(t *testing.T, r *rig) string {
			c := newComposites(r)
			r.mgr.Elect()

			if err := r.GarbageCollectCustomResourceInformers(t.Context()); err != nil {
				t.Fatal(err)
			}

			c.start(t, startOptions{})
			r.api.Put(c.xr.Object("one"), c.xr)
			r.api.Put(c.composed.Object("one"), c.composed)
			eventually(t, "the composite is reconciled", func() bool { return c.count("one") > 2 })

			// The provider is uninstalled, its definitions go.
			r.api.Undefine(c.composed)
			pass(7 * time.Second)

			// So does the composite's, with all composites.
			r.api.Undefine(c.xr)
			pass(time.Second)

			took, err := timed(func() error {
				return limited(t, time.Minute, func(ctx context.Context) error { return r.Stop(ctx, "composite/"+c.xr.GVK.Kind) })
			})

			var finding string

			if err != nil || took > time.Second {
				finding = fmt.Sprintf("Stop: %v after %s; ", err, took)
			}

			// Nothing is left, and nobody asks any more.
			pass(time.Hour)

			before := len(r.api.Requests(watchtest.Of(c.composed).Or(watchtest.Of(c.xr))))

			pass(time.Hour)

			if n := len(r.api.Requests(watchtest.Of(c.composed).Or(watchtest.Of(c.xr)))) - before; n > 0 {
				finding += fmt.Sprintf("%d requests in an hour for kinds that are gone; ", n)
			}

			if c, w := r.metrics.running(); c != 0 || w != 0 {
				finding += fmt.Sprintf("%d controllers and %d watches are counted", c, w)
			}

			return finding
		},
	}})
}

// A keenCollector is a collector of the shape that the story is about: it stops
// all watches whose kind no composite refers to, and the composite's own kind is
// referred to by none.
type keenCollector struct {
	r    *rig
	name string
	used func() []schema.GroupVersionKind
}

func (c keenCollector) GarbageCollectWatches(ctx context.Context, interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}

		used := make(map[schema.GroupVersionKind]bool)
		for _, gvk := range c.used() {
			used[gvk] = true
		}

		ids, _ := c.r.GetWatches(c.name)
		for _, id := range ids {
			if !used[id.GVK] {
				_, _ = c.r.StopWatches(ctx, c.name, id)
			}
		}
	}
}

// The story collected-alive: a composite is created later than the collector of
// its controller ran first, and nobody reconciles it.
func TestStoryCollectedAlive(t *testing.T) {
	run := func(t *testing.T, r *rig, gc func(c *composites) watch.WatchGarbageCollector) string {
		t.Helper()

		c := newComposites(r)
		r.mgr.Elect()
		c.start(t, startOptions{gc: gc(c)})

		// The collector runs once a minute.
		pass(3 * time.Minute)
		r.api.Put(c.xr.Object("one"), c.xr)
		pass(10 * time.Second)

		if c.count("one") == 0 {
			return "a composite that came after the collector ran isn't reconciled"
		}

		// While it is there, what it composes is watched, whenever the collector
		// runs.
		pass(10 * time.Minute)
		c.handler.forget()
		r.api.Put(c.composed.Object("one"), c.composed)
		pass(time.Second)

		if c.handler.count("create", "one") == 0 {
			return "what a composite composes isn't watched any more"
		}

		// And so it is for the next.
		r.api.Put(c.xr.Object("two"), c.xr)
		pass(10 * time.Second)

		if c.count("two") == 0 {
			return "a second composite isn't reconciled"
		}

		return ""
	}

	t.Run("Baseline", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := baseline(t, watchtest.NewAPI())

			finding := run(t, r, func(c *composites) watch.WatchGarbageCollector {
				return keenCollector{r: r, name: "composite/" + c.xr.GVK.Kind, used: func() []schema.GroupVersionKind {
					if len(r.api.Objects(c.xr)) == 0 {
						return nil
					}

					return []schema.GroupVersionKind{c.composed.GVK}
				}}
			})
			if finding == "" {
				t.Error("The baseline doesn't show it: the scenario proves nothing.")
			}
		})
	})

	t.Run("Graft", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := graft(t, watchtest.NewAPI())

			finding := run(t, r, func(c *composites) watch.WatchGarbageCollector {
				tracker := watch.TrackerFunc(func(context.Context) ([]schema.GroupVersionKind, error) {
					if len(r.api.Objects(c.xr)) == 0 {
						return nil, nil
					}

					return []schema.GroupVersionKind{c.composed.GVK}, nil
				})

				return watch.NewGarbageCollector("composite/"+c.xr.GVK.Kind, r.ours, tracker, []watch.WatchType{watch.WatchTypeDependency})
			})
			if finding != "" {
				t.Error(finding)
			}
		})
	})
}
