package confirm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// observeInOrder returns an ObserveFn that returns these results, one word each: found, absent or
// fails. Later calls return absent.
func observeInOrder(words string) func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
	answers := strings.Fields(words)
	return func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
		answer := "absent"
		if len(answers) > 0 {
			answer, answers = answers[0], answers[1:]
		}
		if answer == "fails" {
			return managed.ExternalObservation{}, errors.New("boom")
		}
		return managed.ExternalObservation{ResourceExists: answer == "found", ResourceUpToDate: true}, nil
	}
}

func TestDeletionConfirmation(t *testing.T) {
	cases := map[string]struct {
		reason        string
		bucket        []kit.BucketModifier
		n             int
		observations  string
		failedDeletes string        // the number of the Delete that fails
		every         time.Duration // between reconciles

		// change is called after changeAfter reconciles. By default the process is replaced.
		changeAfter    int
		change         func(t *testing.T, api *testkit.API)
		wantReconciles int // until the managed resource no longer exists
		wantDeletes    int
		wantFoundAgain int
	}{
		"Confirmed": {
			reason:         "The finalizer should be removed when the external resource was not found three times.",
			n:              3,
			every:          kit.Interval,
			wantReconciles: 3,
		},
		"Once": {
			reason:         "With n=1 the finalizer should be removed when the external resource was not found once, as upstream does.",
			n:              1,
			every:          kit.Interval,
			wantReconciles: 1,
		},
		"OneWrongNotFound": {
			reason:         "The external resource should be deleted when it is found again after it was not found.",
			n:              3,
			observations:   "absent found absent",
			every:          kit.Interval,
			wantReconciles: 3,
			wantDeletes:    1,
			wantFoundAgain: 1,
		},
		"FailedBetween": {
			reason:         "An Observe that fails should restart the confirmation.",
			n:              3,
			observations:   "absent absent fails absent absent absent",
			every:          kit.Interval,
			wantReconciles: 6,
		},
		"SawDelete": {
			reason:         "After a Delete that succeeded the external resource should have to be absent only once.",
			n:              3,
			observations:   "found absent",
			every:          kit.Interval,
			wantReconciles: 2,
			wantDeletes:    1,
		},
		"StillThere": {
			reason:         "An external resource that still exists after Delete should not restart the confirmation.",
			n:              3,
			observations:   "found found absent",
			every:          kit.Interval,
			wantReconciles: 3,
			wantDeletes:    2,
		},
		"Refused": {
			reason:         "After a Delete that failed the absence should have to be confirmed.",
			n:              3,
			observations:   "found found",
			failedDeletes:  "2",
			every:          kit.Interval,
			wantReconciles: 5,
			wantDeletes:    2,
		},
		"RefusedFirst": {
			reason:         "The last Delete should decide whether the absence has to be confirmed.",
			n:              3,
			observations:   "found found",
			failedDeletes:  "1",
			every:          kit.Interval,
			wantReconciles: 3,
			wantDeletes:    2,
		},
		"FailedAfter": {
			reason:         "An Observe that fails after a Delete that succeeded should not require a confirmation.",
			n:              3,
			observations:   "found fails",
			every:          kit.Interval,
			wantReconciles: 3,
			wantDeletes:    1,
		},
		"Renamed": {
			reason:       "A Delete under another external name should not count.",
			n:            3,
			observations: "found",
			changeAfter:  1,
			change: func(t *testing.T, api *testkit.API) {
				kit.UpdateBucket(t, api, "b", kit.WithExternalName("another"))
			},
			every:          kit.Interval,
			wantReconciles: 4,
			wantDeletes:    1,
		},
		"RenamedAbsent": {
			reason:      "Observations under another external name should not count.",
			n:           3,
			changeAfter: 2,
			change: func(t *testing.T, api *testkit.API) {
				kit.UpdateBucket(t, api, "b", kit.WithExternalName("another"))
			},
			every:          kit.Interval,
			wantReconciles: 5,
		},
		"Restart": {
			reason:         "Another process should restart the confirmation.",
			n:              3,
			changeAfter:    2,
			every:          kit.Interval,
			wantReconciles: 5,
		},
		"GoneOtherwise": {
			reason:         "Nothing should be kept in memory for a managed resource that no longer exists.",
			n:              3,
			changeAfter:    2,
			change:         func(t *testing.T, api *testkit.API) { kit.RemoveBucket(t, api, "b") },
			every:          kit.Interval,
			wantReconciles: 2,
		},
		"AnotherOfTheName": {
			reason:      "Another managed resource of the same name should have its own confirmation.",
			changeAfter: 2, change: func(t *testing.T, api *testkit.API) {
				kit.RemoveBucket(t, api, "b")
				kit.Must(t, api.Server().Create(t.Context(), kit.NewBucket(kit.WithFinalizers(managed.FinalizerName))))
				kit.DeleteBucket(t, api, "b")
			},
			n: 3, every: kit.Interval, wantReconciles: 5,
		},
		"TooSoon": {
			reason:         "Observations within the interval should count once.",
			n:              2,
			every:          kit.Interval / 4,
			wantReconciles: 5,
		},
		"Orphan": {
			reason: "A managed resource that orphans its external resource should not be observed.",
			bucket: []kit.BucketModifier{kit.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate)},
			n:      3, every: kit.Interval, wantReconciles: 1,
		},
	}
	for name, tc := range cases {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/WithoutDeletionStatus=%t", name, without), func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(append(
					tc.bucket, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
				)...))
				c := kit.NewClock()
				recorder := &testkit.Said{}
				deletes := 0
				var kept *store.Store
				opts := []managed.ReconcilerOption{
					kit.WithStore(&kept), c.Option(), managed.WithRecorder(recorder), With(tc.n, kit.Interval),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: observeInOrder(tc.observations),
						DeleteFn: func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
							if deletes++; tc.failedDeletes == fmt.Sprint(deletes) {
								return managed.ExternalDelete{}, errors.New("protection is on")
							}
							return managed.ExternalDelete{}, nil
						},
					}),
				}
				if without {
					opts = append(opts, managed.WithoutDeletionStatus())
				}
				r, n := kit.NewBucketReconciler(api, opts...), 0
				for kit.GetBucket(t, api).GetName() != "" && n < 20 {
					kit.MustReconcile(t, r, "b")
					c.Now = c.Now.Add(tc.every)
					switch n++; {
					case n == tc.changeAfter && tc.change == nil:
						r = kit.NewBucketReconciler(api, opts...)
					case n == tc.changeAfter:
						tc.change(t, api)
					}
				}
				kit.MustReconcile(t, r, "b")
				kit.ExpectEqual(t, tc.reason, "reconciles", tc.wantReconciles, n)
				kit.ExpectEqual(t, tc.reason, "deletes", tc.wantDeletes, deletes)
				kit.ExpectEqual(
					t, tc.reason, "found after all", tc.wantFoundAgain, len(recorder.Events("FoundAfterAll")),
				)
				kit.ExpectEqual(t, tc.reason, "objects in memory", 0, kept.Len())
			})
		}
	}
}

func TestDeletionConfirmation_Requeues(t *testing.T) {
	api := testkit.NewAPI(kit.NewBucket(kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName, "other")))
	c := kit.NewClock()
	recorder := &testkit.Said{}
	r := kit.NewBucketReconciler(api, c.Option(), managed.WithRecorder(recorder), With(3, kit.Interval),
		kit.WithClient(managed.ExternalClientFns{
			ObserveFn: kit.ObserveAbsent,
		}))
	var after []time.Duration
	for _, step := range []time.Duration{0, time.Second, time.Second, kit.Interval - 2*time.Second, 3 * time.Second} {
		c.Now = c.Now.Add(step)
		result, err := r.Reconcile(context.Background(), kit.Request())
		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err != nil || result.Requeue {
			t.Fatalf("Reconcile: want no error and no backoff, got %v, %v", result, err)
		}
		after = append(after, result.RequeueAfter)
	}
	want := []time.Duration{
		kit.Interval, kit.Interval - time.Second, kit.Interval - 2*time.Second, kit.Interval,
		kit.Interval - 3*time.Second,
	}
	kit.ExpectEqual(t, "The reconcile should run again when the interval has passed.", "RequeueAfter", want, after)
	const reason = "The absence should be confirmed before the finalizer is removed."
	b := kit.GetBucket(t, api)
	kit.ExpectEqual(
		t, reason, "Deleting", reconciler.ReasonConfirmingAbsence, b.GetCondition(reconciler.TypeDeleting).Reason,
	)
	kit.ExpectEqual(t, reason, "Ready", xpv2.ReasonDeleting, b.GetCondition(xpv2.TypeReady).Reason)
	kit.ExpectEqual(t, reason, "message of Ready", messageAbsent, b.GetCondition(xpv2.TypeReady).Message)
	kit.ExpectEqual(t, reason, "finalizers", []string{managed.FinalizerName, "other"}, b.GetFinalizers())
	kit.ExpectEqual(
		t, "DeletionRequested and ConfirmingAbsence should be written once each.", "writes", 2, api.Writes(),
	)
	kit.ExpectEqual(
		t, "One event should say that the absence is being confirmed.", "events", 1,
		len(recorder.Events("ConfirmingAbsence")),
	)
	c.Now = c.Now.Add(kit.Interval)
	kit.MustReconcile(t, r, "b")
	kit.ExpectEqual(
		t, "Our finalizer should be removed when the absence is confirmed.", "Deleting",
		reconciler.ReasonWaitingForFinalizers, kit.GetBucket(t, api).GetCondition(reconciler.TypeDeleting).Reason,
	)
}
