// Package process builds managers and controllers, also several in one process.
package process

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// NewManager returns one of many of this process.
func NewManager(cfg *rest.Config, o ctrl.Options) (ctrl.Manager, error) {
	o.Metrics = metricsserver.Options{BindAddress: "0"}
	o.HealthProbeBindAddress = "0"
	o.Controller = config.Controller{
		// Names are unique in a process.
		SkipNameValidation: ptr.To(true),
		// The priority queue of controller-runtime v0.23 can hold a lock for
		// ever when it is shut down with work left, and lets objects that
		// nothing happened to since the start starve when others keep the
		// workers busy.
		UsePriorityQueue: ptr.To(false),
	}
	return ctrl.NewManager(cfg, o)
}

// Control adds a controller of a kind to a manager. It watches the Source of the
// reconciler, if that has one.
func Control(
	m ctrl.Manager, of resource.ManagedKind, r reconcile.Reconciler,
	limiter workqueue.TypedRateLimiter[reconcile.Request], workers int,
) error {
	o, ok := resource.MustCreateObject(schema.GroupVersionKind(of), m.GetScheme()).(client.Object)
	if !ok {
		return fmt.Errorf("%v is no object", of)
	}
	b := ctrl.NewControllerManagedBy(m).
		For(o).
		WithEventFilter(resource.DesiredStateChanged()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: limiter})
	if w, ok := r.(interface{ Source() source.Source }); ok {
		b.WatchesRawSource(w.Source())
	}
	return b.Complete(r)
}
