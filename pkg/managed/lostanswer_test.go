package managed_test

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// The answers to the patches that store the result of a create are lost: the API server has
// stored them, and refuses the next attempt with a conflict.
func TestCreate_LostAnswer(t *testing.T) {
	other := func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{"other": "writer"}) }
	cases := map[string]struct {
		reason string

		// lost are the patches, counted from 1, whose answer is lost. lostUpdate is the update after them.
		lost       map[int]bool
		lostUpdate bool

		// between is what another writer changes right after the answer was lost.
		between kit.BucketModifier
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
		"Third": {
			reason:     "Labels and spec that Create set should be stored if the answer to the update with them is lost.",
			lostUpdate: true,
			labels:     map[string]string{"created": "yes"}, region: "created",
		},
		"AnotherWriter": {
			reason:  "Labels and spec that Create set should be dropped, as upstream drops them, if another writer was first.",
			lost:    map[int]bool{1: true},
			between: other,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			patches, lostUpdate, said := 0, false, &testkit.Said{}
			sent := ""
			api.Before = func(_ context.Context, r testkit.Request) error {
				sent = r.Object.GetResourceVersion()
				return nil
			}
			api.After = func(_ context.Context, r testkit.Request) error {
				switch r.Verb {
				case testkit.Patch:
					if patches++; !tc.lost[patches] {
						return nil
					}
				case testkit.Update:
					if !tc.lostUpdate || r.Object.GetLabels() == nil || lostUpdate {
						return nil
					}
					lostUpdate = true
					r.Object.SetResourceVersion(sent) // An answer that is lost changes nothing in memory.
				default:
					return nil
				}
				if tc.between != nil {
					kit.UpdateBucket(t, api, "b", tc.between)
				}
				return kerrors.NewTimeoutError("the answer was lost", 0)
			}
			client := kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.ObserveAbsent,
				CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					meta.SetExternalName(mg, "id-1")
					meta.AddLabels(mg, map[string]string{"created": "yes"})
					kit.AsBucket(mg).Spec.ForProvider.Region = "created"
					return managed.ExternalCreation{}, nil
				},
			})
			kit.TryReconcile(kit.NewBucketReconciler(api, managed.WithRecorder(said), client), 1)

			got := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "external name", "id-1", meta.GetExternalName(got))
			kit.ExpectEqual(t, tc.reason, "labels", tc.labels, got.GetLabels())
			kit.ExpectEqual(t, tc.reason, "region", tc.region, got.Spec.ForProvider.Region)
			kit.ExpectEqual(t, tc.reason, "create succeeded", false, meta.GetExternalCreateSucceeded(got).IsZero())
			kit.ExpectEqual(
				t, "No change should be reported as dropped.", "events", []string(nil),
				said.Events("CannotUpdateManagedResource"),
			)
		})
	}
}
