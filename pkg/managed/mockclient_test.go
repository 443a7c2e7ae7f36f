package managed_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// Unit tests of providers often use a mock client, whose objects have neither a name nor a UID.
func TestReconciler_MockClient(t *testing.T) {
	cases := map[string]struct {
		reason  string
		observe managed.ExternalObservation
		want    reconcile.Result
	}{
		"Exists": {
			reason:  "An external resource of a managed resource without a name should not count as refused.",
			observe: managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true},
			want:    reconcile.Result{RequeueAfter: time.Hour},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := managed.NewReconciler(
				&fake.Manager{
					Client: &test.MockClient{
						MockGet:          test.NewMockGetFn(nil),
						MockUpdate:       test.NewMockUpdateFn(nil),
						MockStatusUpdate: test.NewMockSubResourceUpdateFn(nil),
					},
					Scheme: fake.SchemeWith(&fake.ModernManaged{}),
				},
				resource.ManagedKind(fake.GVK(&fake.ModernManaged{})),
				managed.WithInitializers(), managed.WithPollInterval(time.Hour),
				kit.WithClient(managed.ExternalClientFns{ObserveFn: kit.Returns(tc.observe, nil)}),
			)
			got, err := r.Reconcile(context.Background(), reconcile.Request{})
			kit.Must(t, err)
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}
