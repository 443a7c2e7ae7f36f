package managed

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Unit tests of providers often use a mock client, whose objects have neither a name nor a UID.
func TestReconciler_MockClient(t *testing.T) {
	cases := map[string]struct {
		reason  string
		read    func(o client.Object)
		observe ExternalObservation
		want    reconcile.Result
	}{
		"Exists": {
			reason:  "An external resource of a managed resource without a name should not count as refused.",
			read:    func(client.Object) {},
			observe: ExternalObservation{ResourceExists: true, ResourceUpToDate: true},
			want:    reconcile.Result{RequeueAfter: time.Hour},
		},
		"CreationGracePeriod": {
			reason: "The work queue should decide when to reconcile again during the creation grace period.",
			read:   func(o client.Object) { meta.SetExternalCreateSucceeded(o, time.Now()) },
			want:   reconcile.Result{Requeue: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := NewReconciler(
				&fake.Manager{
					Client: &test.MockClient{
						MockGet: test.NewMockGetFn(nil, func(o client.Object) error {
							tc.read(o)
							return nil
						}),
						MockUpdate:       test.NewMockUpdateFn(nil),
						MockStatusUpdate: test.NewMockSubResourceUpdateFn(nil),
					},
					Scheme: fake.SchemeWith(&fake.ModernManaged{}),
				},
				resource.ManagedKind(fake.GVK(&fake.ModernManaged{})),
				WithInitializers(), WithPollInterval(time.Hour), WithCreationGracePeriod(time.Minute),
				withClient(ExternalClientFns{ObserveFn: returns(tc.observe, nil)}),
			)
			got, err := r.Reconcile(context.Background(), reconcile.Request{})
			must(t, err)
			expectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}
