//go:build integration

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	xpunstructured "github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

type crossplaneSetup struct {
	requests *traffic
	user     string              // Of Crossplane. If it is empty, Crossplane may do everything.
	options  []reconciler.Option // Further ones of Graft's reconcilers.
}

// A crossplaneProcess has a controller of claims, and one for each kind of composite
// resources.
type crossplaneProcess struct {
	stop func()

	mu     sync.Mutex
	rounds map[string]int
}

// startCrossplane starts one, as Crossplane starts its controllers: from a cached
// client of unstructured objects. It is stopped at the test's end.
func startCrossplane(t *testing.T, s crossplaneSetup) *crossplaneProcess {
	t.Helper()
	cfg := plane.Config()
	cfg.Impersonate.UserName = s.user
	if s.requests != nil {
		cfg.Wrap(s.requests.wrap)
	}
	m, err := process.NewManager(
		cfg, ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}},
	)
	must(t, "ctrl.NewManager()", err)
	x := &crossplaneProcess{rounds: map[string]int{}}
	x.add(t, m, s, appKind(), func(c client.Client) reconcile.Reconciler {
		return crossplane.NewClaimReconciler(c, appKind(), xappKind())
	}, reconciler.CompositeOfClaim(xappKind()), crossplane.FinalizerClaim)
	for k, layout := range map[schema.GroupVersionKind]composite.Schema{
		xappKind(): composite.SchemaLegacy, stackKind(): composite.SchemaModern,
	} {
		x.add(t, m, s, k, func(c client.Client) reconcile.Reconciler {
			return crossplane.NewCompositeReconciler(c, k, layout)
		}, reconciler.ComposedResources(), crossplane.FinalizerComposite)
	}
	x.stop = background(t, m.Start)
	return x
}

func (x *crossplaneProcess) add(
	t *testing.T,
	m ctrl.Manager,
	s crossplaneSetup,
	k schema.GroupVersionKind,
	build func(c client.Client) reconcile.Reconciler,
	dependents reconciler.DependentLister,
	finalizer string,
) {
	t.Helper()
	c := xpunstructured.NewClient(m.GetClient())
	o := append([]reconciler.Option{
		reconciler.WithDependents(dependents),
		reconciler.WithOwnFinalizers(finalizer),
		reconciler.WithLiveReader(xpunstructured.NewClient(uncached(t, m))),
		// Realtime compositions watch the composed resources.
		reconciler.WithWatchedKinds(func(schema.GroupVersionKind) bool { return true }),
	}, s.options...)
	inner := reconciler.New(c, k, build, o...)
	b := ctrl.NewControllerManagedBy(m).
		Named(k.Kind).
		For(object(k, "", "")).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10, RateLimiter: quickly()})
	if k == appKind() {
		b = b.Watches(object(xappKind(), "", ""), handler.EnqueueRequestsFromMapFunc(claimOf))
	}
	must(t, "cannot add a controller", b.Complete(reconcile.Func(func(
		ctx context.Context, req reconcile.Request,
	) (reconcile.Result, error) {
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.rounds[k.Kind+req.String()]++
		}()
		return inner.Reconcile(ctx, req)
	})))
}

// uncached returns Crossplane's client without a cache.
func uncached(t *testing.T, m ctrl.Manager) client.Client {
	t.Helper()
	c, err := client.New(
		m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()},
	)
	must(t, "client.New()", err)
	return c
}

func claimOf(_ context.Context, o client.Object) []reconcile.Request {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	ref := (&composite.Unstructured{Unstructured: *u, Schema: composite.SchemaLegacy}).GetClaimReference()
	if ref == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}}}
}

func (x *crossplaneProcess) count(o client.Object) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rounds[o.GetObjectKind().GroupVersionKind().Kind+client.ObjectKeyFromObject(o).String()]
}

func (x *crossplaneProcess) wait(t *testing.T, n int, os ...client.Object) {
	t.Helper()
	before := map[client.Object]int{}
	for _, o := range os {
		before[o] = x.count(o)
	}
	eventually(t, fmt.Sprintf("%d more reconciles", n), func() (bool, string) {
		for o, had := range before {
			if got := x.count(o) - had; got < n {
				return false, fmt.Sprintf("%d of %s", got, o.GetName())
			}
		}
		return true, ""
	})
}
