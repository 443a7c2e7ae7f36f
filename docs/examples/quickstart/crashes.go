package quickstart

import (
	"context"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/managed"
)

type newReconciler func(mgr manager.Manager, c managed.TypedExternalConnector[*Database]) reconcile.Reconciler

// provider returns the input of a crash test: the managed resource, the cloud, a process and a change of the spec.
func provider(newReconciler newReconciler) crashtest.Provider[*Cloud] {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(kind().GroupVersion(), &Database{})
	metav1.AddToGroupVersion(scheme, kind().GroupVersion())
	_ = coordinationv1.AddToScheme(scheme)
	orders := &Database{ObjectMeta: metav1.ObjectMeta{Name: "orders"}}
	orders.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll}

	return crashtest.Provider[*Cloud]{
		Scheme: scheme,
		Object: orders,
		Cloud:  func() *Cloud { return &Cloud{} },
		Start: func(p *crashtest.Process, cloud *Cloud) (reconcile.Reconciler, error) {
			connector := managed.TypedExternalConnectorFn[*Database](
				func(context.Context, *Database) (managed.TypedExternalClient[*Database], error) {
					return &client{cloud}, nil
				})
			return newReconciler(p.Manager(), crashtest.Connector(p, connector)), nil
		},
		Change: func(o kube.Object) {
			if db, ok := o.(*Database); ok {
				db.Spec.Size = 5
			}
		},
	}
}
