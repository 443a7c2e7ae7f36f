package usage_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/managed/usage"
)

// A managed resource is deleted together with its namespace, in which the API server creates nothing.
func ExampleNewProviderConfigUsageTracker() {
	now := metav1.Now()
	mg := &fake.ModernManaged{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "n", UID: "u", DeletionTimestamp: &now},
	}
	mg.SetProviderConfigReference(&xpv2.ProviderConfigReference{Kind: "ProviderConfig", Name: "c"})
	terminating := kerrors.NewForbidden(schema.GroupResource{Resource: "providerconfigusages"}, "u", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	api := &test.MockClient{
		MockGet: func(_ context.Context, key client.ObjectKey, o client.Object) error {
			if key.Name != mg.Name {
				return kerrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			o.SetUID(mg.UID)
			o.SetDeletionTimestamp(&now)
			return nil
		},
		MockCreate: test.NewMockCreateFn(terminating),
		MockScheme: func() *runtime.Scheme { return fake.SchemeWith(mg) },
	}
	tracker := usage.NewProviderConfigUsageTracker(api, &fake.ProviderConfigUsage{})
	fmt.Println("error:", tracker.Track(context.Background(), mg))
	// Output: error: <nil>
}
