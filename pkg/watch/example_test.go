package watch_test

import (
	"context"

	"github.com/pkg/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/crossplane-graft/graft/pkg/watch"
)

// The cache alone in a provider, in place of the manager's: a read of a kind that does not
// exist fails at once, and affects no other.
func ExampleNewCache() {
	_ = func(cfg *rest.Config) (ctrl.Manager, error) {
		return ctrl.NewManager(cfg, ctrl.Options{
			NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
				return watch.NewCache(cfg, o)
			},
			Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		})
	}
}

// An engine in a fork of Crossplane, whose cache is not the manager's.
func ExampleNew() {
	_ = func(
		mgr ctrl.Manager, ca *watch.InformerTrackingCache, cached, uncached client.Client,
	) *watch.ControllerEngine {
		return watch.New(mgr, watch.TrackInformers(ca, mgr.GetScheme()), cached, uncached)
	}
}

// A watch of a kind that does not exist yet starts when it does.
func ExampleControllerEngine_StartWatches() {
	_ = func(ctx context.Context, e *watch.ControllerEngine, kind client.Object) error {
		err := e.StartWatches(
			ctx, "composite/widgets",
			watch.WatchFor(kind, watch.WatchTypeDependency, &handler.EnqueueRequestForObject{}),
		)
		if errors.Is(err, watch.ErrNoSuchKind) {
			return nil
		}
		return err
	}
}
