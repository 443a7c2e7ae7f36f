package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// TestWith_Shares has managed resources of each kind wait for the tokens of one account, of which there are too few for
// the new ones. It counts which are observed.
func TestWith_Shares(t *testing.T) {
	retried := []kit.BucketModifier{
		kit.WithReconciledStatus, kit.WithDeletionTimestamp,
		kit.WithDeletingReason(deletion.ReasonExternalDeleteFailed),
	}
	polled := []kit.BucketModifier{kit.WithReconciledStatus}
	cases := map[string]struct {
		reason string
		bucket []kit.BucketModifier
		n      int
		within time.Duration // after the 2,000 new ones came
		least  int           // of n are observed within the time
		most   int
	}{
		"RetriedDeletion": {
			reason: "A deletion that is tried again should start soon, behind any number of new managed resources.",
			bucket: retried, n: 1, within: time.Second, least: 1, most: 1,
		},
		"RetriedDeletions": {
			reason: "Deletions that are tried again should get three of ten starts, if polls wait, too.",
			bucket: retried, n: 400, within: time.Minute, least: 175, most: 185,
		},
		"Polls": {
			reason: "Polls should get their seventh beside new managed resources, and no more.",
			bucket: polled, n: 400, within: time.Minute, least: 80, most: 90,
		},
		"FewPolls": {
			reason: "A few polls should not come before new managed resources.",
			bucket: polled, n: 10, within: 5 * time.Second, least: 6, most: 8,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objs []client.Object
				q := workqueue.NewTypedRateLimitingQueue(ratelimiter.NewController())
				for i := range 2000 {
					objs = append(objs, kit.NewBucket(kit.WithName(fmt.Sprint("new", i)), kit.WithExternalName("n")))
				}
				for i := range tc.n {
					name := kit.WithName(fmt.Sprint("other", i))
					objs = append(objs, kit.NewBucket(append(tc.bucket, name, kit.WithExternalName("n"))...))
				}
				for _, o := range objs {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
				}
				begin, seen := time.Now(), map[string]bool{}
				r := kit.NewBucketReconciler(
					testkit.NewAPI(objs...), With(New(10, 1)), managed.WithPollInterval(time.Nanosecond),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							if strings.HasPrefix(mg.GetName(), "other") && time.Since(begin) < tc.within {
								seen[mg.GetName()] = true
							}
							return managed.ExternalObservation{}, errors.New("not now")
						},
					}),
				)
				runQueue(t, r, q, tc.within)
				if n := len(seen); n < tc.least || n > tc.most {
					t.Errorf("\n%s\nobserved: want %d to %d, got %d", tc.reason, tc.least, tc.most, n)
				}
			})
		})
	}
}

// TestWith_RequestOfADeletionThatWaits proves that a request counts once. Upstream does not handle it while the
// deletion waits.
func TestWith_RequestOfADeletionThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(
			kit.WithReconciledStatus, kit.WithExternalName("n"),
			kit.WithDeletingReason(deletion.ReasonWaitingForFinalizers),
			kit.WithFinalizers("example.org/other", "example.org/another"), kit.WithDeletionTimestamp,
			kit.WithAnnotation(meta.AnnotationKeyReconcileRequestedAt, "now"),
		))
		ext := &kit.CountingClient{Absent: true}
		limits := New(1, 1)
		r := kit.NewBucketReconciler(api, ext.Connect(), With(limits))
		account := limits.accounts.Account(limit.Key{Kind: "ProviderConfig"}, "ProviderConfig", time.Now())
		reconcileBehind := func(others int, reason string, want int) {
			time.Sleep(time.Second)
			account.Charge(1, time.Now())
			for range others {
				account.Admit(nil, limit.Settling, time.Now())
			}
			time.Sleep(time.Second)
			_, _ = r.Reconcile(t.Context(), kit.RequestFor("b"))
			kit.ExpectEqual(t, reason, "observations", want, ext.Count("observe"))
		}
		reconcileBehind(1, "A request should make a deletion urgent.", 1)
		reconcileBehind(1, "A request should make a deletion urgent once.", 1)
		reconcileBehind(0, "A deletion that waited should start at its turn.", 2)
		kit.UpdateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.SetAnnotations(nil) })
		reconcileBehind(1, "A request that was removed should make nothing urgent.", 2)
	})
}

func TestWith_SpreadsByThePollInterval(t *testing.T) {
	annotated := kit.WithAnnotation(meta.AnnotationKeyPollInterval, "30s")
	cases := map[string]struct {
		reason  string
		bucket  kit.BucketModifier
		options []managed.ReconcilerOption
		least   time.Duration
		most    time.Duration
	}{
		"Annotation": {
			reason: "A poll should not wait longer than its annotation says.",
			bucket: annotated, most: 30 * time.Second,
		},
		"LongerAnnotation": {
			reason:  "The annotation may be longer than the reconciler's interval.",
			bucket:  kit.WithAnnotation(meta.AnnotationKeyPollInterval, "1000h"),
			options: []managed.ReconcilerOption{managed.WithPollInterval(time.Second)},
			least:   time.Minute, most: 1000 * time.Hour,
		},
		"Minimum": {
			reason: "The minimum should count.", bucket: annotated,
			options: []managed.ReconcilerOption{managed.WithMinPollInterval(1000 * time.Hour)},
			least:   time.Minute, most: 1000 * time.Hour,
		},
		"Hook": {
			reason: "The hook should count.",
			bucket: annotated,
			options: []managed.ReconcilerOption{
				managed.WithPollIntervalHook(
					func(resource.Managed, time.Duration) time.Duration { return time.Second },
				),
			},
			most: time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(kit.WithReconciledStatus, tc.bucket))
				r := kit.NewBucketReconciler(api, append([]managed.ReconcilerOption{
					(&kit.CountingClient{}).Connect(), With(New(100, 100)), managed.WithPollInterval(10 * time.Hour),
				}, tc.options...)...)
				if wait := kit.ReconcileOnce(t, r, "b").RequeueAfter; wait < tc.least || wait > tc.most {
					t.Errorf("\n%s\nIt waits %s: want %s to %s", tc.reason, wait, tc.least, tc.most)
				}
			})
		})
	}
}

// TestWith_WaitsForTheAnnotatedPoll proves that a terminal error waits as long as upstream's polls do.
func TestWith_WaitsForTheAnnotatedPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, at := range []string{"connect", "observe", "create", "update", "delete"} {
			mods := []kit.BucketModifier{
				kit.WithExternalName("n"), kit.WithFinalizers(managed.FinalizerName),
				kit.WithAnnotation(meta.AnnotationKeyPollInterval, "7h"),
			}
			if at == "delete" {
				mods = append(mods, kit.WithDeletionTimestamp)
			}
			ext := &kit.CountingClient{
				Absent: at == "create", Outdated: at == "update",
				Errs: map[string]error{at: Terminal(errors.New("no such region"))},
			}
			r := kit.NewBucketReconciler(testkit.NewAPI(kit.NewBucket(mods...)), ext.Connect(), With(New(100, 100)))
			var wait time.Duration
			for range 3 {
				wait = kit.ReconcileOnce(t, r, "b").RequeueAfter
				time.Sleep(time.Minute) // upstream's creation grace period
			}
			kit.ExpectEqual(t, "A terminal error should wait for the next poll.", at, 7*time.Hour, wait)
		}
	})
}

func TestWith_FailedOperationIsNotSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n"), kit.WithReconciledStatus, kit.WithGeneration(2)))
		ext := &kit.CountingClient{
			Outdated: true, Errs: map[string]error{"update": Terminal(errors.New("no such region"))},
		}
		r := kit.NewBucketReconciler(
			api, ext.Connect(), asyncstate.With(asyncstate.NewTracker()), managed.WithPollInterval(time.Hour),
			With(New(100, 100)),
		)
		kit.MustReconcileTimes(t, r, 1)
		synctest.Wait()
		kit.MustReconcileTimes(t, r, 1)
		kit.ExpectEqual(
			t, "An operation that failed after the start should be reported at once.", "Synced", ReasonTerminal,
			kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Reason,
		)
	})
}
