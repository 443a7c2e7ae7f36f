package watch_test

import (
	"context"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// TestFork wires an engine as a fork of Crossplane does: its cache is not the manager's, and
// starts when the manager is elected.
func TestFork(t *testing.T) {
	widgets := watchtest.NewKind("Widget")
	api := watchtest.NewAPI() // An API server in memory.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := runtime.NewScheme()
	try(corev1.AddToScheme(s))
	try(extv1.AddToScheme(s)) // GarbageCollectCustomResourceInformers watches CRDs.
	mgr := must(ctrl.NewManager(api.Config(), ctrl.Options{
		Scheme:  s,
		Metrics: metricsserver.Options{BindAddress: "0"},
	}))
	ca := must(watch.NewCache(mgr.GetConfig(), cache.Options{Scheme: s, HTTPClient: mgr.GetHTTPClient()}))
	cached := must(client.New(mgr.GetConfig(), client.Options{
		Scheme: s, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: ca, Unstructured: true},
	}))
	uncached := must(client.New(mgr.GetConfig(), client.Options{
		Scheme:     s,
		HTTPClient: mgr.GetHTTPClient(),
		Mapper:     mgr.GetRESTMapper(),
	}))
	e := watch.New(mgr, watch.TrackInformers(ca, s), cached, uncached)
	try(e.GarbageCollectCustomResourceInformers(ctx))
	stopped := run(ctx, ca.Start, mgr.Start)
	<-mgr.Elected()
	ca.WaitForCacheSync(ctx)
	reconciled := make(chan string, 1)
	r := reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		reconciled <- req.Name
		return reconcile.Result{}, nil
	})
	try(e.Start("composite/widgets", watch.WithRuntimeOptions(controller.Options{Reconciler: r})))
	err := e.StartWatches(
		ctx, "composite/widgets",
		watch.WatchFor(widgets.New(), watch.WatchTypeDependency, &handler.EnqueueRequestForObject{}),
	)
	if !errors.Is(err, watch.ErrNoSuchKind) {
		t.Errorf("StartWatches(...): want %v, got %v", watch.ErrNoSuchKind, err)
	}

	// The watch exists, and resumes when its kind does.
	api.Define(widgets)
	api.Put(widgets.Object("one"), widgets)
	if got := <-reconciled; got != "one" {
		t.Errorf("Reconcile(...): want one, got %s", got)
	}
	try(e.Stop(ctx, "composite/widgets"))
	cancel()
	stopped()
}

// TestManagerWithCache uses the cache in place of the manager's: a read of a kind that does
// not exist fails at once, and affects no other.
func TestManagerWithCache(t *testing.T) {
	widgets := watchtest.NewKind("Widget")
	api := watchtest.NewAPI() // An API server in memory.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := runtime.NewScheme()
	try(corev1.AddToScheme(s))
	mgr := must(ctrl.NewManager(api.Config(), ctrl.Options{
		Scheme:  s,
		Metrics: metricsserver.Options{BindAddress: "0"},
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			return watch.NewCache(cfg, o)
		},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	}))

	// Reads wait for the cache, which the manager starts before runnables.
	try(mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer cancel()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(widgets.GVK)
		err := mgr.GetClient().Get(ctx, widgets.Key("one"), u)
		if !errors.Is(err, watch.ErrNoSuchKind) {
			t.Errorf("Get(...): want %v, got %v", watch.ErrNoSuchKind, err)
		}
		api.Define(widgets)
		api.Put(widgets.Object("one"), widgets)
		err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return mgr.GetClient().Get(ctx, widgets.Key("one"), u) == nil, nil
		})
		if u.GetName() != "one" {
			t.Errorf("Get(...): want one, got %q", u.GetName())
		}
		return err
	})))
	run(ctx, mgr.Start)()
}

// run calls functions in goroutines. The returned function waits for all of them.
func run(ctx context.Context, start ...func(context.Context) error) (wait func()) {
	done := make(chan error)
	for _, fn := range start {
		go func() { done <- fn(ctx) }()
	}
	return func() {
		for range start {
			try(<-done)
		}
	}
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	try(err)
	return v
}
