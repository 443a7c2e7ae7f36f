package managed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Creates that follow each other within a second are told apart, however each of
// them ends.
func TestAnnouncements(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      func(a *testkit.API) ReconcilerOption
	}{
		"Default": {reason: "Annotations are stored by Graft.", o: func(*testkit.API) ReconcilerOption { return WithInitializers() }},
		"CustomUpdater": {
			reason: "Annotations are stored by an updater of the provider's.",
			o: func(a *testkit.API) ReconcilerOption {
				return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
			},
		},
		"WithoutPersistence": {reason: "Annotations are stored by upstream.", o: func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, x := testkit.NewAPI(bucket()), &outside{}
				x.on("create", func(*v1alpha1.Bucket) error {
					if x.did("create") == 3 {
						panic("the process died")
					}

					return errors.New("boom")
				})
				r := newBucketReconciler(a, tc.o(a), connects(x.client()))

				for range 5 {
					try(r, 1)
					time.Sleep(time.Millisecond)
				}

				wants(t, tc.reason, "the third create was cut off: creates, incomplete", []any{3, true}, []any{x.did("create"), meta.ExternalCreateIncomplete(get(t, a))})
			})
		})
	}
}

// A create that ends in the second in which it was announced has ended.
func TestAnnouncementOfShortCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, x := testkit.NewAPI(bucket()), &outside{}
		x.on("create", func(*v1alpha1.Bucket) error {
			if x.did("create") < 3 {
				return errors.New("boom")
			}

			return nil
		})

		r := newBucketReconciler(a, connects(x.client()))

		for range 4 {
			run(t, r, "b")
			wants(t, "", "incomplete", false, meta.ExternalCreateIncomplete(get(t, a)))
		}

		wants(t, "", "creates, Synced", []any{3, xpv2.ReasonReconcileSuccess}, []any{x.did("create"), reasonOf(get(t, a), xpv2.TypeSynced)})
	})
}

// A reconcile that announces no create leaves alone what is said of the last one.
func TestNoAnnouncementWithoutCreate(t *testing.T) {
	for reason, actions := range map[string][]xpv2.ManagementAction{
		"The policies allow an update, and no create.": {xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize},
		"The policies allow neither.":                  {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	} {
		t.Run(reason, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), policies(actions...),
				annotated(meta.AnnotationKeyExternalCreatePending, created), annotated(meta.AnnotationKeyExternalCreateSucceeded, created)))

			x := (&outside{late: true}).on("observe", func(b *v1alpha1.Bucket) error { b.Spec.ForProvider.Region = "eu"; return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")

			b := get(t, a)
			wants(t, reason, "external-create-succeeded, incomplete", []any{created, false},
				[]any{b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded], meta.ExternalCreateIncomplete(b)})
		})
	}
}
