//go:build integration

package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// withoutStatusGroup has Buckets too, but their CRD lacks the status subresource.
const withoutStatusGroup = "nostatus.graft.crossplane.io"

func withoutStatusKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: withoutStatusGroup, Version: sample.Version, Kind: sample.BucketKind}
}

func withoutStatus() *extv1.CustomResourceDefinition {
	for _, crd := range sample.CRDs() {
		if crd.Spec.Names.Kind != sample.BucketKind {
			continue
		}

		crd.Name = crd.Spec.Names.Plural + "." + withoutStatusGroup
		crd.Spec.Group = withoutStatusGroup
		crd.Spec.Versions[0].Subresources = nil

		return crd
	}

	panic("the sample has no Buckets")
}

func withoutStatusScheme(t *testing.T) *runtime.Scheme {
	t.Helper()

	s := runtime.NewScheme()
	must(t, "AddToScheme()", corev1.AddToScheme(s))

	of := withoutStatusKind()
	s.AddKnownTypeWithName(of, &sample.Bucket{})
	s.AddKnownTypeWithName(of.GroupVersion().WithKind(of.Kind+"List"), &sample.BucketList{})
	metav1.AddToGroupVersion(s, of.GroupVersion())

	return s
}

func withoutStatusServer(t *testing.T) server {
	t.Helper()

	c, err := client.New(plane.Config(), client.Options{Scheme: withoutStatusScheme(t)})
	must(t, "client.New()", err)

	return server{c}
}

func TestAPIServerWithoutStatusSubresource(t *testing.T) {
	s := withoutStatusServer(t)

	b := sample.NewBucket(namespace, "one")
	s.create(t, b)
	t.Cleanup(func() { must(t, "Delete()", s.Delete(context.WithoutCancel(t.Context()), b)) })

	if got := code(s.Status().Update(t.Context(), b.DeepCopy())); got != http.StatusNotFound {
		t.Errorf("an update of status: want 404, got %d", got)
	}

	if got := code(s.Status().Patch(t.Context(), b.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`)))); got != http.StatusNotFound {
		t.Errorf("a patch of status: want 404, got %d", got)
	}
}

// A CRD without the status subresource is a mistake that must not cost more than
// the status: the name is stored, and deletion isn't held up.
func TestGraftWithoutStatusSubresource(t *testing.T) {
	s := withoutStatusServer(t)
	world := cloud.New(cloud.Options{RequestLatency: time.Millisecond})

	b := sample.NewBucket(namespace, "one")
	s.create(t, b)

	start(t, graft, setup{
		connectors: asyncConnectors(world),
		poll:       50 * time.Millisecond,
		scheme:     withoutStatusScheme(t),
		kinds:      []resource.ManagedKind{resource.ManagedKind(withoutStatusKind())},
	})

	eventually(t, "the external name is stored", func() (bool, string) {
		return externalName(read(t, s, b)) != "", ""
	})

	if got := world.Inventory(); len(got) != 1 || got[0].ID != externalName(read(t, s, b)) {
		t.Errorf("want one external resource %q, got %v", externalName(read(t, s, b)), got)
	}

	s.remove(t, b)
	eventually(t, "the object is gone", func() (bool, string) {
		err := s.Get(t.Context(), client.ObjectKeyFromObject(b), b)
		return kerrors.IsNotFound(err), ""
	})

	if got := world.Inventory(); len(got) != 0 {
		t.Errorf("want no external resource, got %v", got)
	}
}
