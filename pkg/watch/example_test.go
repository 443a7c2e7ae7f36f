package watch_test

import (
	"context"
	"fmt"
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

// An engine in a fork of Crossplane. Its cache isn't the manager's, and is started when
// the manager is elected.
func Example_fork() {
	widgets := watchtest.NewKind("Widget")
	api := watchtest.NewAPI() // An API server in memory.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := runtime.NewScheme()
	try(corev1.AddToScheme(s))
	try(extv1.AddToScheme(s)) // GarbageCollectCustomResourceInformers watches CRDs.
	mgr := must(ctrl.NewManager(api.Config(), ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}}))
	ca := must(watch.NewCache(mgr.GetConfig(), cache.Options{Scheme: s, HTTPClient: mgr.GetHTTPClient()}))
	cached := must(client.New(mgr.GetConfig(), client.Options{
		Scheme: s, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: ca, Unstructured: true},
	}))
	uncached := must(client.New(mgr.GetConfig(), client.Options{Scheme: s, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()}))
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
	err := e.StartWatches(ctx, "composite/widgets", watch.WatchFor(widgets.New(), watch.WatchTypeDependency, &handler.EnqueueRequestForObject{}))
	fmt.Println("no such kind:", errors.Is(err, watch.ErrNoSuchKind))

	// The watch is there, and resumes when its kind is.
	api.Define(widgets)
	api.Put(widgets.Object("one"), widgets)
	fmt.Println("reconciled:", <-reconciled)
	try(e.Stop(ctx, "composite/widgets"))
	cancel()
	stopped()
	// Output:
	// no such kind: true
	// reconciled: one
}

// The cache alone in a provider, in place of the manager's: a read of a kind that
// doesn't exist fails at once, and affects no other.
func ExampleNewCache() {
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
		fmt.Println("no such kind:", errors.Is(err, watch.ErrNoSuchKind))
		api.Define(widgets)
		api.Put(widgets.Object("one"), widgets)
		err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return mgr.GetClient().Get(ctx, widgets.Key("one"), u) == nil, nil
		})
		fmt.Println("read:", u.GetName())
		return err
	})))
	run(ctx, mgr.Start)()
	// Output:
	// no such kind: true
	// read: one
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
