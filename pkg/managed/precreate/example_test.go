package precreate_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
)

// Another control plane creates the external resource after it was observed.
func ExampleRefuse() {
	observations := 0
	connector := managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return managed.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
				observations++
				fmt.Println("exists:", observations > 1)
				return managed.ExternalObservation{ResourceExists: observations > 1}, nil
			},
			CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
				fmt.Println("created")
				return managed.ExternalCreation{}, nil
			},
			DisconnectFn: func(context.Context) error { return nil },
		}, nil
	})
	api := &test.MockClient{
		MockGet:          test.NewMockGetFn(nil),
		MockUpdate:       test.NewMockUpdateFn(nil),
		MockPatch:        test.NewMockPatchFn(nil),
		MockStatusUpdate: test.NewMockSubResourceUpdateFn(nil),
	}
	r := managed.NewReconciler(
		&fake.Manager{Client: api, Scheme: fake.SchemeWith(&fake.ModernManaged{})},
		resource.ManagedKind(fake.GVK(&fake.ModernManaged{})),
		managed.WithInitializers(),
		managed.WithExternalConnector(connector),
		precreate.Refuse(),
	)
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// exists: false
	// exists: true
}
