//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/answers"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The seams, reservations and Release rely on how an API server answers.
func TestAPIServer(t *testing.T) {
	answers.Run(t, func(t *testing.T) client.Client {
		t.Helper()
		return newServer(t)
	})
}

// It must be possible to tell an object that no longer exists from one whose kind is
// not served in this version.
func TestAPIServerNotServed(t *testing.T) {
	c, err := dynamic.NewForConfig(plane.Config())
	must(t, "dynamic.NewForConfig()", err)
	buckets := c.Resource(schema.GroupVersionResource{
		Group: v1alpha1.Group, Version: "v99", Resource: "buckets",
	}).Namespace(namespace)
	_, err = buckets.Patch(t.Context(), "gone", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	if diff := cmp.Diff(
		answers.Answer{Code: http.StatusNotFound, Cause: metav1.CauseTypeUnexpectedServerResponse}, answers.Of(err),
	); diff != "" {
		t.Errorf("%v: -want, +got:\n%s", err, diff)
	}
}

// A second deletion must keep the garbage collector from the object's dependents.
func TestAPIServerSecondDeletion(t *testing.T) {
	s := newServer(t)
	b := v1alpha1.NewBucket(namespace, "one")
	b.SetFinalizers([]string{"example.org/one", "example.org/two"})
	s.create(t, b)
	must(t, "Delete()", errors.Join(
		s.Delete(t.Context(), b, client.PropagationPolicy(metav1.DeletePropagationForeground)),
		s.Delete(t.Context(), b, client.PropagationPolicy(metav1.DeletePropagationOrphan))))

	// The garbage collector has nothing to do, and removes its own finalizer.
	eventually(t, "it has its own finalizers", func() (bool, string) {
		got := read(t, s, b).GetFinalizers()
		return slices.Equal(got, []string{"example.org/one", "example.org/two"}), fmt.Sprint(got)
	})
}
