package managed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Creates that follow each other within a second are told apart, however each of
// them ends.
func TestAnnouncements(t *testing.T) {
	boom := errors.New("boom")

	cases := map[string]struct {
		reason string
		o      func(a *testkit.API) ReconcilerOption
	}{
		"Default": {
			reason: "Annotations are stored by Graft.",
			o:      func(*testkit.API) ReconcilerOption { return WithInitializers() },
		},
		"CustomUpdater": {
			reason: "Annotations are stored by an updater of the provider's.",
			o: func(a *testkit.API) ReconcilerOption {
				return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
			},
		},
		"WithoutPersistence": {
			reason: "Annotations are stored by upstream.",
			o:      func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() },
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket())

				creates, died := 0, errors.New("the process died")
				r := newBucketReconciler(a, tc.o(a), connects(upstream.ExternalClientFns{
					ObserveFn: absent,
					CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
						if creates++; creates == 3 {
							panic(died)
						}

						return ExternalCreation{}, boom
					},
				}))

				reconcile := func() {
					defer func() { _ = recover() }()

					if _, err := r.Reconcile(t.Context(), request()); err != nil {
						t.Fatalf("%s: %v", tc.reason, err)
					}
				}

				for range 5 {
					reconcile()
					time.Sleep(time.Millisecond)
				}

				if creates != 3 {
					t.Errorf("%s: the third create was cut off, and there were %d", tc.reason, creates)
				}

				if b := get(t, a); !meta.ExternalCreateIncomplete(b) {
					t.Errorf("%s: the third create looks as if it had ended: %v", tc.reason, b.GetAnnotations())
				}
			})
		})
	}
}

// A create that ends in the second in which it was announced has ended.
func TestAnnouncementOfShortCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket())

		fail, exist := errors.New("boom"), false
		r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				if exist {
					return exists(ctx, mg)
				}

				return ExternalObservation{}, nil
			},
			CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
				exist = fail == nil
				return ExternalCreation{}, fail
			},
		}))

		for i := range 4 {
			if i == 2 {
				fail = nil
			}

			run(t, r, "b")

			if b := get(t, a); meta.ExternalCreateIncomplete(b) {
				t.Errorf("create %d looks as if it had not ended: %v", i+1, b.GetAnnotations())
			}
		}

		if got := reasonOf(get(t, a), "Ready"); got != "Available" {
			t.Errorf("Ready for the reason %s", got)
		}
	})
}

// A reconcile that announces no create leaves alone what is said of the last one.
func TestNoAnnouncementWithoutCreate(t *testing.T) {
	lateInit := func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		bucketOf(mg).Spec.ForProvider.Region = "eu"
		return ExternalObservation{ResourceLateInitialized: true, ResourceUpToDate: true}, nil
	}

	cases := map[string]struct {
		reason   string
		policies []xpv2.ManagementAction
	}{
		"Update": {
			reason:   "The policies allow an update, and no create.",
			policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize},
		},
		"Import": {
			reason:   "The policies allow neither.",
			policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			b := bucket(named("id-1"), finalizers(FinalizerName), policies(tc.policies...),
				annotated(meta.AnnotationKeyExternalCreatePending, created), annotated(meta.AnnotationKeyExternalCreateSucceeded, created))
			a := testkit.NewAPI(b)

			if _, err := newBucketReconciler(a, connects(upstream.ExternalClientFns{ObserveFn: lateInit})).Reconcile(t.Context(), request()); err != nil {
				t.Fatal(err)
			}

			got := get(t, a)
			if s := got.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded]; s != created || meta.ExternalCreateIncomplete(got) {
				t.Errorf("\n%s\nexternal-create-succeeded: want %s, got %s", tc.reason, created, s)
			}
		})
	}
}
