//go:build integration

package integration

import (
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// withoutStatusKind are Buckets, too, but their CRD lacks the status subresource.
func withoutStatusKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "nostatus.graft.crossplane.io", Version: v1alpha1.Version, Kind: v1alpha1.BucketKind}
}

func withoutStatus() *extv1.CustomResourceDefinition {
	for _, crd := range v1alpha1.CRDs() {
		if crd.Spec.Names.Kind == v1alpha1.BucketKind {
			crd.Spec.Group = withoutStatusKind().Group
			crd.Name = crd.Spec.Names.Plural + "." + crd.Spec.Group
			crd.Spec.Versions[0].Subresources = nil

			return crd
		}
	}

	panic("the sample has no Buckets")
}

// A CRD without the status subresource is a mistake that must not cost more than
// the status: the name is stored, and deletion isn't held up.
func TestWithoutStatusSubresource(t *testing.T) {
	of := withoutStatusKind()
	scheme := runtime.NewScheme()
	must(t, "AddToScheme()", corev1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(of, &v1alpha1.Bucket{})
	scheme.AddKnownTypeWithName(of.GroupVersion().WithKind(of.Kind+"List"), &v1alpha1.BucketList{})
	metav1.AddToGroupVersion(scheme, of.GroupVersion())

	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	must(t, "client.New()", err)

	s := server{c}
	world := cloud.New(cloud.Options{RequestLatency: time.Millisecond})

	b := v1alpha1.NewBucket(namespace, "one")
	s.createFor(t, b)

	// The seams rely on this.
	for what, err := range map[string]error{
		"update": s.Status().Update(t.Context(), b.DeepCopy()),
		"patch":  s.Status().Patch(t.Context(), b.DeepCopy(), mergePatch(`{"status":{}}`)),
	} {
		if got := code(err); got != http.StatusNotFound {
			t.Errorf("%s of status: want 404, got %d", what, got)
		}
	}

	start(t, graft, setup{
		connectors: asyncConnectors(world),
		poll:       50 * time.Millisecond,
		scheme:     scheme,
		kinds:      []resource.ManagedKind{resource.ManagedKind(of)},
	})

	eventually(t, "the external name is stored", func() (bool, string) {
		return externalName(read(t, s, b)) != "", ""
	})

	if got := world.Inventory(); len(got) != 1 || got[0].ID != externalName(read(t, s, b)) {
		t.Errorf("want one external resource %q, got %v", externalName(read(t, s, b)), got)
	}

	s.remove(t, b)
	eventually(t, "the object is gone", func() (bool, string) {
		return kerrors.IsNotFound(s.Get(t.Context(), client.ObjectKeyFromObject(b), b)), ""
	})

	if got := world.Inventory(); len(got) != 0 {
		t.Errorf("want no external resource, got %v", got)
	}
}
