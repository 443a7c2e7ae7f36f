package reservation

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/managedtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// newReservingReconciler returns a reconciler with With.
func newReservingReconciler(api *testkit.API, ext *managedtest.ExternalResource, o ...managed.ReconcilerOption) *managed.Reconciler {
	return managedtest.NewBucketReconciler(api, append([]managed.ReconcilerOption{
		With(leaseNamespace), managedtest.WithClient(ext.Client()),
	}, o...)...)
}

// takeOverLease gives the lease to another holder, as a restored backup does.
func takeOverLease(t *testing.T, api *testkit.API) {
	t.Helper()
	u := emptyLease(leaseNamespace, leaseName(sharedKey))
	_ = api.Server().Delete(context.Background(), u)
	fill(u, sharedKey, holder{
		APIVersion: testkit.BucketKind().GroupVersion().String(),
		Kind:       "Bucket",
		Namespace:  "default",
		Name:       "thief",
		UID:        "uid-2",
	}, time.Now())
	managedtest.Must(t, api.Server().Create(context.Background(), u))
}

// leasesByKey returns the leases by the reservation key in their annotation.
func leasesByKey(t *testing.T, api *testkit.API) map[string]unstructured.Unstructured {
	t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(emptyLease("", "").GroupVersionKind())
	if err := api.Server().List(context.Background(), l, client.InNamespace(leaseNamespace)); err != nil &&
		!apimeta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	out := map[string]unstructured.Unstructured{}
	for _, i := range l.Items {
		out[i.GetAnnotations()[annotationKeyReserves]] = i
	}
	return out
}

// holdersByKey returns the names of the managed resources that hold leases.
func holdersByKey(t *testing.T, api *testkit.API) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, l := range leasesByKey(t, api) {
		h := holder{}
		if err := json.Unmarshal([]byte(l.GetAnnotations()[annotationKeyHolder]), &h); err != nil {
			h.Name = "unknown"
		}
		out[k] = h.Name
	}
	return out
}

// expectHolder fails the test unless the managed resource of that name holds the only lease. An
// empty name means that there is no lease.
func expectHolder(t *testing.T, reason string, api *testkit.API, name string) {
	t.Helper()
	want := map[string]string{}
	if name != "" {
		want[sharedKey] = name
	}
	managedtest.ExpectEqual(t, reason, "holders", want, holdersByKey(t, api))
}

func isLease(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "Lease" }

// isHolderCheck reports whether a request reads the holder of a lease.
func isHolderCheck(o client.Object) bool {
	_, ok := o.(*metav1.PartialObjectMetadata)
	return ok
}

// bucketWithSharedName returns a Bucket whose external name is "shared", so that all of them
// refer to one external resource.
func bucketWithSharedName(name string, mod ...managedtest.BucketModifier) *v1alpha1.Bucket {
	return managedtest.NewBucket(append([]managedtest.BucketModifier{
		managedtest.WithName(name), managedtest.WithExternalName("shared"), managedtest.WithProviderConfig("config"),
	}, mod...)...)
}

// sharedKey is the reservation key of the Buckets of bucketWithSharedName.
const sharedKey = `Bucket.sample.graft.crossplane.io ClusterProviderConfig/config "shared"`

const leaseNamespace = "provider"
