package watch_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/fake/baseline"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// onBaseline makes a rig with an engine of the shape that ours replaces, on
// controller-runtime's own cache.
func onBaseline(t *testing.T, api *watchtest.API) *rig {
	t.Helper()
	return newBaseline(t, api, func() baseline.Lock { return &baseline.WaitLock{} })
}

// newBaseline makes one with locks of package sync for tests outside of a bubble.
func newBaseline(t *testing.T, api *watchtest.API, newLock func() baseline.Lock) *rig {
	t.Helper()
	ca := plainCache(t, api.Config())
	startCache(t, ca)
	infs := baseline.NewCache(ca, scheme(), newLock())
	r := &rig{
		t: t, api: api, infs: infs, reader: infs,
		mgr:     &hooked{Manager: watchtest.NewManager(api.Config(), scheme())},
		metrics: &counts{},
	}
	r.engine = baseline.NewEngine(r.mgr, infs, r.metrics, newLock)

	// Controllers that wait for an election would wait for ever.
	t.Cleanup(r.mgr.Elect)
	return r
}

// plainCache is controller-runtime's cache with its own mapper.
func plainCache(t testing.TB, cfg *rest.Config) cache.Cache {
	t.Helper()
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	m, err := apiutil.NewDynamicRESTMapper(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := cache.New(cfg, cache.Options{HTTPClient: h, Scheme: scheme(), Mapper: m})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// start a controller, and stop it when the test ends.
func (r *rig) start(name string, o baseline.Options) {
	r.t.Helper()
	if err := r.Start(name, o); err != nil {
		r.t.Fatalf("Start(%q): %v", name, err)
	}
	r.t.Cleanup(func() {
		// The baseline may fail to, or have nothing to stop. Its controllers end when
		// their queues do.
		_ = r.Stop(context.Background(), name)
	})
}

// read a kind, so that it has a synced informer.
func (r *rig) read(ctx context.Context, k watchtest.Kind, name string) error {
	return r.reader.Get(ctx, k.Key(name), k.New())
}

// ready defines a kind, and starts controller c.
func (r *rig) ready() watchtest.Kind {
	r.t.Helper()
	k := watchtest.NewKind("Widget")
	r.api.Define(k)
	r.mgr.Elect()
	r.start("c", idle())
	return k
}

// watchFor starts watches, and waits for at most so long.
func (r *rig) watchFor(d time.Duration, name string, ws ...baseline.Watch) error {
	r.t.Helper()
	return limited(r.t, d, func(ctx context.Context) error { return r.StartWatches(ctx, name, ws...) })
}

// readFor reads for at most so long.
func (r *rig) readFor(d time.Duration, k watchtest.Kind, name string) error {
	r.t.Helper()
	return limited(r.t, d, func(ctx context.Context) error { return r.read(ctx, k, name) })
}

// stopFor stops controller c, and waits for at most so long.
func (r *rig) stopFor(d time.Duration) error {
	r.t.Helper()
	return limited(r.t, d, func(ctx context.Context) error { return r.Stop(ctx, "c") })
}

// list a kind.
func (r *rig) list(ctx context.Context, k watchtest.Kind) error {
	return r.reader.List(ctx, k.NewList())
}

// informers returns the cache that keeps the informers: controller-runtime's, or
// ours.
func (r *rig) informers() cache.Informers {
	if c, ok := r.infs.(*baseline.Cache); ok {
		return c.Cache
	}
	return r.infs
}

// watch starts watches.
func (r *rig) watch(name string, ws ...baseline.Watch) {
	r.t.Helper()
	if err := r.StartWatches(r.t.Context(), name, ws...); err != nil {
		r.t.Fatal(err)
	}
}

// unwatch stops watches.
func (r *rig) unwatch(name string, ids ...watch.WatchID) {
	r.t.Helper()
	if _, err := r.StopWatches(r.t.Context(), name, ids...); err != nil {
		r.t.Fatal(err)
	}
}

// stop a controller.
func (r *rig) stop(name string) {
	r.t.Helper()
	if err := r.Stop(r.t.Context(), name); err != nil {
		r.t.Fatal(err)
	}
}

// watchCRDs until the test ends.
func (r *rig) watchCRDs() {
	r.t.Helper()
	if err := r.GarbageCollectCustomResourceInformers(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// reads object one of a kind that is healthy.
func (r *rig) reads(k watchtest.Kind) {
	r.t.Helper()
	if err := r.read(r.t.Context(), k, "one"); err != nil {
		r.t.Fatal(err)
	}
}

// remove a kind's informer.
func (r *rig) remove(k watchtest.Kind) {
	r.t.Helper()
	if err := r.infs.RemoveInformer(r.t.Context(), k.New()); err != nil {
		r.t.Fatal(err)
	}
}

// define a kind, with object one.
func (r *rig) define(k watchtest.Kind) {
	r.api.Define(k)
	r.api.Put(k.Object("one"), k)
}

// await a request that isn't answered.
func (r *rig) await(m watchtest.Match) {
	r.t.Helper()
	if err := r.api.AwaitOpen(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
}
