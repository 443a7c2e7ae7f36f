package reservation_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
)

// Two managed resources have one external name.
func Example() {
	leases := clientfake.NewClientBuilder().Build()
	api := &test.MockClient{
		MockGet: func(ctx context.Context, key client.ObjectKey, o client.Object) error {
			if _, ok := o.(*unstructured.Unstructured); ok {
				return leases.Get(ctx, key, o)
			}
			o.SetName(key.Name)
			o.SetUID(types.UID("uid-" + key.Name))
			meta.SetExternalName(o, "shared")
			return nil
		},
		MockCreate:       leases.Create,
		MockUpdate:       test.NewMockUpdateFn(nil),
		MockPatch:        test.NewMockPatchFn(nil),
		MockStatusUpdate: test.NewMockSubResourceUpdateFn(nil),
	}
	connector := managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return managed.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
				return managed.ExternalObservation{}, nil
			},
			CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				fmt.Println("created for", mg.GetName())
				return managed.ExternalCreation{}, nil
			},
			DisconnectFn: func(context.Context) error { return nil },
		}, nil
	})
	r := managed.NewReconciler(
		&fake.Manager{Client: api, Scheme: fake.SchemeWith(&fake.ModernManaged{})},
		resource.ManagedKind(fake.GVK(&fake.ModernManaged{})),
		managed.WithInitializers(),
		managed.WithExternalConnector(connector),
		reservation.With("provider-system"),
	)
	for _, name := range []string{"first", "second"} {
		req := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
		if _, err := r.Reconcile(context.Background(), req); err != nil {
			fmt.Println(err)
		}
	}
	// Output: created for first
}
