package confirm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
)

// An external system answers "not found" for a resource that is being deleted.
func Example() {
	now, observations := metav1.Now(), 0
	api := &test.MockClient{
		MockGet: func(_ context.Context, _ client.ObjectKey, o client.Object) error {
			o.SetDeletionTimestamp(&now)
			return nil
		},
		MockUpdate:       test.NewMockUpdateFn(nil),
		MockStatusUpdate: test.NewMockSubResourceUpdateFn(nil),
	}
	connector := managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return managed.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
				observations++
				return managed.ExternalObservation{}, nil
			},
			DisconnectFn: func(context.Context) error { return nil },
		}, nil
	})
	r := managed.NewReconciler(
		&fake.Manager{Client: api, Scheme: fake.SchemeWith(&fake.ModernManaged{})},
		resource.ManagedKind(fake.GVK(&fake.ModernManaged{})),
		managed.WithInitializers(),
		managed.WithoutDeletionStatus(),
		managed.WithExternalConnector(connector),
		managed.WithFinalizer(resource.FinalizerFns{
			RemoveFinalizerFn: func(context.Context, resource.Object) error {
				fmt.Println("finalizer removed after observations:", observations)
				return nil
			},
		}),
		confirm.With(3, time.Nanosecond),
	)
	for range 3 {
		if _, err := r.Reconcile(context.Background(), reconcile.Request{}); err != nil {
			fmt.Println(err)
		}
	}
	// Output: finalizer removed after observations: 3
}
