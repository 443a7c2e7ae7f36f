//go:build integration

package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A composite resource composes three objects: Crossplane may not read the first,
// the second is of an undefined kind, and the third has another controller's
// finalizer. Each is reported, and the deletion proceeds without extra delay.
func TestDeletionOfWhatMayNotBeRead(t *testing.T) {
	const user = "crossplane"
	s := newPlatform(t)
	everything := []string{"*"}
	s.allow(t, user,
		rbacv1.PolicyRule{APIGroups: []string{platformGroup}, Resources: everything, Verbs: everything},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"databases"}, Verbs: []string{"get", "list", "watch"}})
	x := startCrossplane(t, crossplaneSetup{interval: 100 * time.Millisecond, user: user})
	w := watchKind(t, platformResource("xapps"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-secret"}}
	held := database("held", withFinalizers(otherFinalizer))
	xr := object(xappKind(), "", "dark")
	must(t, "cannot compose", s.compose(t.Context(), xr, secret, held))

	// The first is the one that can't be read.
	changed := read(t, s, xr)
	setField(t, changed, []any{
		map[string]any{"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": secret.Name},
		map[string]any{"apiVersion": "nowhere.example.org/v1", "kind": "Nothing", "name": "nothing"},
		map[string]any{"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.DatabaseKind, "name": held.GetName()},
	}, "spec", "resourceRefs")
	must(t, "Update()", s.Update(t.Context(), changed))
	w.until(t, "dark", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), xr, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	const want = "0 of 3 dependents deleted, 0%. Nothing/nothing: unknown: no such kind. Secret/a-secret in default: unknown: forbidden. " +
		"Database/held since T: held by example.org/other."
	said := w.until(t, "dark", want, func(s sight) bool { return saysOf(s.Unstructured, reconciler.TypeDeleting).Message == want })
	if meta.FinalizerExists(said, crossplane.FinalizerComposite) {
		t.Error("What can't be read should not keep the reconciler from its work.")
	}
	first := len(x.times(xappKind()))
	x.wait(t, 5, xr)
	took := latencies(x.times(xappKind())[first:])
	t.Logf("later reconciles take %s", took)

	// A cache that may not watch a kind doesn't come back of its own accord. Each
	// report that waited for it would take a second, the quickest too.
	if got := slices.Min(took); got > time.Second {
		t.Errorf("want reports that don't wait for what can't be read, got %s", took)
	}
	must(t, "Patch()", s.Patch(t.Context(), held, mergePatch(`{"metadata":{"finalizers":null}}`)))
	w.until(t, "dark", "it is gone", isGone)
}
