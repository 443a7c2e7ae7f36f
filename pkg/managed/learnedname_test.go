package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A name that Observe learns, and that another managed resource has reserved, fails the
// reconcile: the external resource that was observed is the other's.
func TestObserveLearnsReservedName_FailsReconcile(t *testing.T) {
	unnamed := of("late")
	unnamed.SetAnnotations(nil)

	a, c := testkit.NewAPI(unnamed, of("first")), &shared{}
	fns := c.client()
	observe := fns.ObserveFn
	fns.ObserveFn = func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		meta.SetExternalName(mg, "shared")
		return observe(ctx, mg)
	}

	run(t, reserving(a, c, connects(fns)), "first", "late")

	got := map[string]corev1.ConditionStatus{}
	for _, name := range []string{"first", "late"} {
		got[name] = bucketNamed(t, a, name).GetCondition(xpv2.TypeSynced).Status
	}

	want := map[string]corev1.ConditionStatus{"first": corev1.ConditionTrue, "late": corev1.ConditionFalse}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Synced: -want, +got:\n%s", diff)
	}
}
