package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// The answers to the patches that store the result of a create are lost: the API server has
// stored them, and refuses the next attempt with a conflict.
func TestCreate_LostAnswer(t *testing.T) {
	other := func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{"other": "writer"}) }
	cases := map[string]struct {
		reason string

		// lost are the patches, counted from 1, whose answer is lost.
		lost map[int]bool

		// between is what another writer changes right after the answer was lost.
		between bucketModifier
		labels  map[string]string
		region  string
	}{
		"First": {
			reason: "Labels and spec that Create set should be stored if the answer to the first patch is lost.",
			lost:   map[int]bool{1: true},
			labels: map[string]string{"created": "yes"}, region: "created",
		},
		"Second": {
			reason: "Labels and spec that Create set should be stored if the answer to the second patch is lost.",
			lost:   map[int]bool{2: true},
			labels: map[string]string{"created": "yes"}, region: "created",
		},
		"Both": {
			reason: "Labels and spec that Create set should be stored if the answers to both patches are lost.",
			lost:   map[int]bool{1: true, 2: true},
			labels: map[string]string{"created": "yes"}, region: "created",
		},
		"AnotherWriter": {
			reason:  "Labels and spec that Create set should be dropped, as upstream drops them, if another writer was first.",
			lost:    map[int]bool{1: true},
			between: other,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newBucket())
			patches := 0
			api.After = func(_ context.Context, r testkit.Request) error {
				if r.Verb != testkit.Patch {
					return nil
				}
				if patches++; !tc.lost[patches] {
					return nil
				}
				if tc.between != nil {
					updateBucket(t, api, "b", tc.between)
				}
				return kerrors.NewTimeoutError("the answer was lost", 0)
			}
			r := newBucketReconciler(api, withClient(ExternalClientFns{
				ObserveFn: observeAbsent,
				CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					meta.SetExternalName(mg, "id-1")
					meta.AddLabels(mg, map[string]string{"created": "yes"})
					asBucket(mg).Spec.ForProvider.Region = "created"
					return ExternalCreation{}, nil
				},
			}))
			tryReconcile(r, 1)

			got := getBucket(t, api)
			expectEqual(t, tc.reason, "external name", "id-1", meta.GetExternalName(got))
			expectEqual(t, tc.reason, "labels", tc.labels, got.GetLabels())
			expectEqual(t, tc.reason, "region", tc.region, got.Spec.ForProvider.Region)
			expectEqual(t, tc.reason, "create succeeded", false, meta.GetExternalCreateSucceeded(got).IsZero())
		})
	}
}
