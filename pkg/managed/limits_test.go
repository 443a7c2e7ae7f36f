package managed

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func reconcileOnce(t *testing.T, r reconcile.Reconciler, name string) reconcile.Result {
	t.Helper()
	res, err := r.Reconcile(context.Background(), requestFor(name))
	must(t, err)
	return res
}

// TestNoPolls proves that a reconcile that waits for the next poll does not run again at once if there are no polls.
func TestNoPolls(t *testing.T) {
	terminal := func(call string) map[string]error {
		return map[string]error{call: Terminal(errors.New("no"))}
	}
	pending := withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-01T00:00:00Z")
	cases := map[string]struct {
		client countingClient
		bucket bucketModifier
	}{
		"Connect":          {client: countingClient{errs: terminal("connect")}},
		"Observe":          {client: countingClient{errs: terminal("observe")}},
		"Create":           {client: countingClient{absent: true, errs: terminal("create")}},
		"Update":           {client: countingClient{outdated: true, errs: terminal("update")}},
		"Delete":           {client: countingClient{errs: terminal("delete")}, bucket: withDeletionTimestamp},
		"IncompleteCreate": {bucket: pending},
	}
	for name, tc := range cases {
		for _, poll := range []time.Duration{0, -time.Second} {
			t.Run(fmt.Sprint(name, poll), func(t *testing.T) {
				mods := []bucketModifier{withFinalizers(FinalizerName)}
				if tc.bucket != nil {
					mods = append(mods, tc.bucket)
				}
				api := testkit.NewAPI(newBucket(mods...))
				r := newBucketReconciler(api, tc.client.connect(), WithPollInterval(poll))
				for range 3 {
					if got := reconcileOnce(t, r, "b").RequeueAfter; got > 0 && got < time.Second {
						t.Errorf("It should wait for a while, got %s", got)
					}
				}
			})
		}
	}
}

func TestWithRateLimits(t *testing.T) {
	withReconcileRequest := withAnnotation(meta.AnnotationKeyReconcileRequestedAt, "now")
	withPausedCondition := func(b *v1alpha1.Bucket) { b.SetConditions(xpv2.ReconcilePaused()) }

	// Managed resources have no last handled request before runtime v2.3.
	_, handles := any(&v1alpha1.Bucket{}).(requestHandler)

	cases := map[string]struct {
		reason      string
		bucket      []bucketModifier
		policiesOff bool
		wantStart   bool
	}{
		"Poll": {
			reason: "A poll should leave the last tokens alone.",
			bucket: []bucketModifier{withReconciledStatus},
		},
		"New": {reason: "A new managed resource should come first.", wantStart: true},
		"Changed": {
			reason:    "A changed spec should come first.",
			bucket:    []bucketModifier{withReconciledStatus, withGeneration(2)},
			wantStart: true,
		},
		"Deleted": {
			reason:    "A deletion should come first.",
			bucket:    []bucketModifier{withReconciledStatus, withDeletionTimestamp},
			wantStart: true,
		},
		"Requested": {
			reason:    "A requested reconcile should come first.",
			bucket:    []bucketModifier{withReconciledStatus, withReconcileRequest},
			wantStart: handles,
		},
		"Unpaused": {
			reason:    "A managed resource that is no longer paused should come first.",
			bucket:    []bucketModifier{withReconciledStatus, withPausedCondition},
			wantStart: true,
		},
		"OtherAccount": {
			reason:    "Another provider config should have a bucket of its own.",
			bucket:    []bucketModifier{withReconciledStatus, withProviderConfig("other")},
			wantStart: true,
		},
		"Paused": {
			reason:    "A paused managed resource should need no token.",
			bucket:    []bucketModifier{withReconciledStatus, withPausedAnnotation},
			wantStart: true,
		},
		"PausedByPolicies": {
			reason:    "A managed resource that is paused by its management policies should need no token.",
			bucket:    []bucketModifier{withReconciledStatus, withPolicies()},
			wantStart: true,
		},
		"PoliciesAreOff": {
			reason:      "A managed resource without management policies should need a token if they are off.",
			bucket:      []bucketModifier{withReconciledStatus, withPolicies()},
			policiesOff: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(tc.bucket...))
				ext := &countingClient{}
				limits := NewRateLimits(1, 5)
				o := []ReconcilerOption{
					WithInitializers(), ext.connect(), WithRateLimits(limits), WithPollInterval(time.Nanosecond),
				}
				if !tc.policiesOff {
					o = append(o, WithManagementPolicies())
				}
				r := NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()), o...)

				// Four of five tokens are used, so that one of the reserved tokens is left.
				limits.accounts.Account(
					limit.Key{Kind: "ProviderConfig"}, "ProviderConfig", time.Now(),
				).Charge(4, time.Now())

				res := reconcileOnce(t, r, "b")
				if started := api.Writes() > 0 || len(ext.calls) > 0; started != tc.wantStart {
					t.Errorf("%s\nstarted: %v, calls %v, requests %v", tc.reason, started, ext.calls, api.Requests())
				}
				if tc.wantStart {
					return
				}
				expectEqual(t, "A reconcile without a token should only read.", "reads", 1, api.Count(testkit.Get))
				expectEqual(t, "A reconcile without a token should only read.", "writes", 0, api.Writes())
				expectEqual(t, tc.reason, "result", time.Second, res.RequeueAfter)
				if res.Priority == nil || *res.Priority >= 0 {
					t.Errorf("A poll that waits should have a low priority: got %v", res.Priority)
				}
				time.Sleep(res.RequeueAfter)
				reconcileOnce(t, r, "b")
				expectEqual(
					t, "A reconcile should start when its token is due.", "observations", 1, ext.count("observe"),
				)
			})
		})
	}
}

func TestWithRateLimits_OrphanedDeletion(t *testing.T) {
	bucket := func(p ...xpv2.ManagementAction) resource.Managed { return newBucket(withPolicies(p...)) }
	database := func(d xpv2.DeletionPolicy, p ...xpv2.ManagementAction) resource.Managed {
		o := v1alpha1.NewDatabase("b")
		o.Spec.DeletionPolicy, o.Spec.ManagementPolicies = d, p
		return o
	}
	const all, observe, remove = xpv2.ManagementActionAll, xpv2.ManagementActionObserve, xpv2.ManagementActionDelete

	cases := map[string]struct {
		reason   string
		managed  resource.Managed
		wantGone bool
	}{
		"Deleted": {reason: "A deletion that makes calls should wait for its account.", managed: bucket(all)},
		"ManagementPolicies": {
			reason:  "A deletion that the management policies let make no calls should not wait.",
			managed: bucket(observe), wantGone: true,
		},
		"DeletionPolicy": {
			reason:  "A deletion that the deletion policy lets make no calls should not wait.",
			managed: database(xpv2.DeletionOrphan, all), wantGone: true,
		},
		"LegacyDeleted": {
			reason:  "A legacy managed resource's deletion that makes calls should wait.",
			managed: database(xpv2.DeletionDelete, all),
		},
		"PoliciesDisagree": {
			reason:  "Management policies that name Delete should take precedence, as in upstream.",
			managed: database(xpv2.DeletionOrphan, observe, remove),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.managed.SetFinalizers([]string{FinalizerName})
				api, kind := testkit.NewAPI(tc.managed), testkit.BucketKind()
				if tc.managed.GetNamespace() == "" {
					kind = testkit.DatabaseKind()
				}
				must(t, api.Server().Delete(t.Context(), tc.managed))

				limits := NewRateLimits(1, 5, WithAccountKey(func(context.Context, resource.Managed) (string, error) {
					return "account", nil
				}))
				now := time.Now()
				account := limits.accounts.Account(limit.Key{Account: "account"}, limit.KindOther, now)
				account.Throttled(time.Hour, now, now)
				ext := &countingClient{}
				r := NewReconciler(
					api.Manager(), resource.ManagedKind(kind), WithManagementPolicies(), WithInitializers(),
					ext.connect(), WithRateLimits(limits),
				)
				key := client.ObjectKeyFromObject(tc.managed)
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
				must(t, err)
				err = api.Server().Get(t.Context(), key, tc.managed)
				expectEqual(t, tc.reason, "gone", tc.wantGone, kerrors.IsNotFound(err))
				expectEqual(t, tc.reason, "calls", 0, len(ext.calls))
			})
		})
	}
}

func TestWithRateLimits_Spreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		var objs []client.Object
		for i := range n {
			objs = append(objs, newBucket(withName(fmt.Sprint("b", i)), withReconciledStatus))
		}
		api := testkit.NewAPI(append(objs, newBucket(withName("new")))...)
		ext := &countingClient{}
		r := newBucketReconciler(
			api, ext.connect(), WithRateLimits(NewRateLimits(100, 100)), WithPollInterval(time.Hour),
		)
		early := 0
		for i := range n {
			res := reconcileOnce(t, r, fmt.Sprint("b", i))
			if res.RequeueAfter > time.Hour {
				t.Errorf("Polls should be spread over the poll interval: got %s", res.RequeueAfter)
			}
			if res.RequeueAfter < 30*time.Minute {
				early++
			}
		}
		if early < n/5 || early > n*4/5 || ext.count("observe") > 2 {
			t.Errorf(
				"Polls after a start should be spread: %d of %d in the first half, %d at once", early, n,
				ext.count("observe"),
			)
		}
		before := len(ext.calls)
		reconcileOnce(t, r, "new")
		if len(ext.calls) == before {
			t.Error("A new managed resource should not wait for its time.")
		}
	})
}

func TestWithRateLimits_SpreadsOverTheAnnotatedPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withReconciledStatus, withAnnotation(meta.AnnotationKeyPollInterval, "30s")))
		ext := &countingClient{}
		r := newBucketReconciler(
			api, ext.connect(), WithRateLimits(NewRateLimits(100, 100)), WithPollInterval(10*time.Hour),
		)
		if res := reconcileOnce(t, r, "b"); res.RequeueAfter > 30*time.Second {
			t.Errorf("A poll should not wait longer than its annotation says: got %s", res.RequeueAfter)
		}
	})
}

// TestWithRateLimits_PlacesThatAreGivenUp proves that no reconcile waits for managed resources that wait no longer.
func TestWithRateLimits_PlacesThatAreGivenUp(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(t *testing.T, api *testkit.API, name string)
	}{
		"Removed": {
			reason: "A managed resource that no longer exists should give up its place.",
			change: removeBucket,
		},
		"Replaced": {
			reason: "A managed resource that was replaced by another of its name should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				removeBucket(t, api, name)
				must(t, api.Server().Create(t.Context(), newBucket(withName(name), withPausedAnnotation)))
			},
		},
		"Paused": {
			reason: "A managed resource that is paused should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				updateBucket(t, api, name, withPausedAnnotation)
			},
		},
		"Orphaned": {
			reason: "A managed resource whose deletion makes no calls should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				updateBucket(t, api, name, withFinalizers(FinalizerName))
				updateBucket(t, api, name, withPolicies(xpv2.ManagementActionObserve))
				deleteBucket(t, api, name)
			},
		},
		"OtherAccount": {
			reason: "A managed resource that has another provider config now should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				updateBucket(t, api, name, withProviderConfig("other"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 100
				objs := []client.Object{newBucket(withName("new"))}
				for i := range n {
					objs = append(objs, newBucket(withName(fmt.Sprint("b", i))))
				}
				api := testkit.NewAPI(objs...)
				ext := &countingClient{}
				limits := NewRateLimits(1, 5)
				r := newBucketReconciler(api, ext.connect(), WithManagementPolicies(), WithRateLimits(limits))
				for i := range n {
					reconcileOnce(t, r, fmt.Sprint("b", i))
				}
				for i := range n {
					tc.change(t, api, fmt.Sprint("b", i))
					reconcileOnce(t, r, fmt.Sprint("b", i))
				}
				time.Sleep(10 * time.Second)
				before := len(ext.calls)
				res := reconcileOnce(t, r, "new")
				if len(ext.calls) == before {
					t.Errorf("\n%s\nThe next one waits %s", tc.reason, res.RequeueAfter)
				}
			})
		})
	}
}

// runQueue reconciles the objects of a work queue, as the controller of controller-runtime does.
func runQueue(
	t *testing.T, r reconcile.Reconciler, q workqueue.TypedRateLimitingInterface[reconcile.Request], d time.Duration,
) {
	t.Helper()
	time.AfterFunc(d, q.ShutDown)
	for req, down := q.Get(); !down; req, down = q.Get() {
		switch res, err := r.Reconcile(t.Context(), req); {
		case err != nil:
			t.Fatal(err)
		case res.RequeueAfter > 0:
			q.Forget(req)
			q.AddAfter(req, res.RequeueAfter)
		case res.Requeue: //nolint:staticcheck // Upstream asks for a requeue this way.
			q.AddRateLimited(req)
		default:
			q.Forget(req)
		}
		q.Done(req)
	}
}

// TestWithRateLimits_StuckDeletions proves that deletions that cannot end back off although they wait for tokens,
// and hold up no other managed resource, also if there are more of them than their account has tokens for.
func TestWithRateLimits_StuckDeletions(t *testing.T) {
	cases := map[string]struct {
		reason     string
		limits     *RateLimits
		options    []ReconcilerOption
		finalizers []string
	}{
		"Failing": {
			reason: "Deletions that fail should back off up to a minute.",
			limits: NewRateLimits(40, 40),
		},
		"FailingWithFewTokens": {
			reason: "Deletions that fail should not use all tokens.",
			limits: NewRateLimits(1, 5),
		},
		"WithoutDeletionStatus": {
			reason:  "Deletions that fail should not use all tokens, also without a Deleting condition.",
			limits:  NewRateLimits(1, 5),
			options: []ReconcilerOption{WithoutDeletionStatus()},
		},
		"WaitingForFinalizers": {
			reason:     "Deletions that wait for the finalizers of others should not use all tokens.",
			limits:     NewRateLimits(1, 5),
			finalizers: []string{"example.org/other"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const duration = 40 * time.Minute
				q := workqueue.NewTypedRateLimitingQueue(ratelimiter.NewController())
				objs := []client.Object{newBucket(withName("ready"), withExternalName("n"), withReconciledStatus)}
				for i := range 100 {
					objs = append(objs, newBucket(
						withName(fmt.Sprint("b", i)), withExternalName("n"),
						withFinalizers(append(tc.finalizers, FinalizerName)...), withDeletionTimestamp,
					))
				}
				for _, o := range objs {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
				}
				api := testkit.NewAPI(objs...)
				time.AfterFunc(duration/2, func() {
					must(t, api.Server().Create(t.Context(), newBucket(withName("new"))))
					q.Add(requestFor("new"))
				})
				created, observations, deletes := false, 0, 0
				r := newBucketReconciler(api, append(
					tc.options, WithRateLimits(tc.limits), WithPollInterval(time.Minute),
					withClient(ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
							switch {
							case mg.GetName() == "ready":
								observations++
							case mg.GetName() == "new" && !created:
								return ExternalObservation{}, nil
							}
							return observeExists(ctx, mg)
						},
						CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
							created = true
							return ExternalCreation{}, nil
						},
						DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
							deletes++
							return ExternalDelete{}, errors.New("still in use")
						},
					}),
				)...)
				runQueue(t, r, q, duration)
				if deletes >= 8000 {
					t.Errorf("\n%s\nGot %d deletes", tc.reason, deletes)
				}
				if observations <= 5 {
					t.Errorf("\n%s\nOne that is ready was observed %d times", tc.reason, observations)
				}
				ready := isTrue(getBucketNamed(t, api, "new"), xpv2.TypeReady)
				expectEqual(t, tc.reason, "new one is ready", true, ready)
			})
		})
	}
}

// TestWithRateLimits_FailingManagedResources proves that polls continue while more managed resources fail
// than their account has tokens for.
func TestWithRateLimits_FailingManagedResources(t *testing.T) {
	cases := map[string]struct {
		reason  string
		down    time.Duration // how long all calls fail
		failing int           // of 300
		want    int           // observations of the others in 20 minutes
	}{
		"NeverDown": {
			reason:  "An account in which some managed resources fail should not count as repaired.",
			failing: 100,
			want:    400,
		},
		"Repaired": {
			reason:  "A managed resource that still fails after a repair should come before polls only once.",
			down:    2 * time.Minute,
			failing: 100,
			want:    400,
		},
		"MostFail": {
			reason:  "The retries after a repair should not look like an account that is broken again.",
			down:    2 * time.Minute,
			failing: 285,
			want:    25,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const all = 300
				q := workqueue.NewTypedRateLimitingQueue(ratelimiter.NewController())
				var objs []client.Object
				for i := range all {
					name := fmt.Sprint("healthy", i)
					if i*7%all < tc.failing {
						name = fmt.Sprint("failing", i)
					}
					objs = append(objs, newBucket(withName(name), withExternalName("n"), withReconciledStatus))
					q.Add(requestFor(name))
				}
				begin, observations := time.Now(), 0
				r := newBucketReconciler(
					testkit.NewAPI(objs...), WithRateLimits(NewRateLimits(1, 5)), WithPollInterval(4*time.Minute),
					withClient(ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
							since := time.Since(begin)
							if strings.HasPrefix(mg.GetName(), "failing") || since < tc.down {
								return ExternalObservation{}, errors.Errorf("forbidden, request %s", since)
							}
							if since > 20*time.Minute {
								observations++
							}
							return observeExists(ctx, mg)
						},
					}),
				)
				runQueue(t, r, q, 40*time.Minute)
				if observations < tc.want {
					t.Errorf("\n%s\nGot %d observations, want at least %d", tc.reason, observations, tc.want)
				}
			})
		})
	}
}

func TestClassOf(t *testing.T) {
	throttled := (&reportedErrors{throttled: time.Now()}).condition().WithObservedGeneration(1)
	cases := map[string]struct {
		reason   string
		bucket   []bucketModifier
		repaired bool // the account
		want     limit.Class
	}{
		"FailingInRepairedAccount": {
			reason: "A managed resource that failed should come before polls, but after new and changed ones, " +
				"when its account works again.",
			bucket:   []bucketModifier{withReconciledStatus, withConditions(xpv2.ReconcileError(errProvider))},
			repaired: true,
			want:     limit.Settling,
		},
		"New": {reason: "A new managed resource should come first.", want: limit.Urgent},
		"Deleted": {
			reason: "A deletion should come first.",
			bucket: []bucketModifier{withReconciledStatus, withDeletionTimestamp},
			want:   limit.Urgent,
		},
		"DeletedAfterDeadline": {
			reason: "The first attempt of a deletion should come first although other finalizers held it past its deadline.",
			bucket: []bucketModifier{
				withReconciledStatus, withDeletionTimestamp, withDeletingReason(reconciler.ReasonDeadlineExceeded),
			},
			want: limit.Urgent,
		},
		"DeletionAnnounced": {
			reason: "A deletion that was only reported should come first.",
			bucket: []bucketModifier{
				withReconciledStatus, withDeletionTimestamp, withDeletingReason(reconciler.ReasonDeletionRequested),
			},
			want: limit.Urgent,
		},
		"DeletionFailed": {
			reason: "A deletion that was tried should not come before new managed resources.",
			bucket: []bucketModifier{
				withReconciledStatus, withConditions(xpv2.ReconcileError(errProvider)), withDeletionTimestamp,
				withDeletingReason(reconciler.ReasonExternalDeleteFailed),
			},
			want: limit.Settling,
		},
		"DeletionFailedWithoutReport": {
			reason: "A deletion that was tried should not come before new ones, also without a Deleting condition.",
			bucket: []bucketModifier{
				withReconciledStatus, withConditions(xpv2.ReconcileError(errProvider).WithObservedGeneration(1)),
				withDeletionTimestamp,
			},
			want: limit.Settling,
		},
		"FailedBeforeDeletion": {
			reason: "A deletion should come first although the managed resource has failed before.",
			bucket: []bucketModifier{
				withReconciledStatus, withConditions(xpv2.ReconcileError(errProvider).WithObservedGeneration(1)),
				withDeletionTimestamp, withGeneration(2),
			},
			want: limit.Urgent,
		},
		"DeletionFailedForOtherSpec": {
			reason: "A deletion that failed should come first when the spec has changed.",
			bucket: []bucketModifier{
				withReconciledStatus, withDeletionTimestamp,
				withDeletingReason(reconciler.ReasonExternalDeleteFailed), withGeneration(2),
			},
			want: limit.Urgent,
		},
		"DeletionWaitsForFinalizers": {
			reason: "A deletion that waits for another finalizer should not come before new managed resources.",
			bucket: []bucketModifier{
				withReconciledStatus, withFinalizers(FinalizerName, "example.org/other"), withDeletionTimestamp,
				withDeletingReason(reconciler.ReasonWaitingForFinalizers),
			},
			want: limit.Settling,
		},
		"DeletionWaitedForFinalizers": {
			reason: "A deletion should come first when the other finalizers are removed.",
			bucket: []bucketModifier{
				withReconciledStatus, withDeletionTimestamp,
				withDeletingReason(reconciler.ReasonWaitingForFinalizers),
			},
			want: limit.Urgent,
		},
		"Ready": {
			reason: "A managed resource that is ready should be polled.",
			bucket: []bucketModifier{withReconciledStatus},
			want:   limit.Poll,
		},
		"Settling": {
			reason: "A managed resource that becomes ready should come before polls.",
			bucket: []bucketModifier{withReconciledStatus, withConditions(xpv2.Creating())},
			want:   limit.Settling,
		},
		"Throttled": {
			reason: "A managed resource that is not ready because calls are throttled should come before polls.",
			bucket: []bucketModifier{withReconciledStatus, withConditions(xpv2.Creating(), throttled)},
			want:   limit.Settling,
		},
		"ThrottledPoll": {
			reason: "A managed resource whose poll is throttled should not come before others.",
			bucket: []bucketModifier{withReconciledStatus, withConditions(throttled)},
			want:   limit.Poll,
		},
		"Failing": {
			reason: "A managed resource whose reconcile fails should not come before polls, although it is not ready.",
			bucket: []bucketModifier{
				withReconciledStatus, withConditions(xpv2.Creating(), xpv2.ReconcileError(errProvider)),
			},
			want: limit.Poll,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expectEqual(t, tc.reason, "class", tc.want, classOf(newBucket(tc.bucket...), tc.repaired))
		})
	}
}

func TestWithRateLimits_RepairedAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withReconcileError := func(b *v1alpha1.Bucket) {
			c := xpv2.ReconcileError(errors.New("invalid credentials"))
			c.ObservedGeneration = 1
			b.SetConditions(c)
		}
		api := testkit.NewAPI(
			newBucket(withReconciledStatus, withReconcileError), newBucket(withName("neighbour")),
			newBucket(withName("ready"), withReconciledStatus),
		)
		ext := &countingClient{errs: map[string]error{"observe": errors.New("invalid credentials")}}
		limits := NewRateLimits(1, 100)
		r := newBucketReconciler(api, ext.connect(), WithRateLimits(limits), WithPollInterval(time.Nanosecond))
		for range 10 {
			time.Sleep(time.Second)
			_, _ = r.Reconcile(t.Context(), requestFor("neighbour"))
		}
		time.Sleep(time.Second)
		ext.errs = nil
		reconcileOnce(t, r, "neighbour")

		// A poll waits because only reserved tokens are left.
		account := limits.accounts.Account(limit.Key{Kind: "ProviderConfig"}, "ProviderConfig", time.Now())
		account.Charge(80, time.Now())
		before := ext.count("observe")
		reconcileOnce(t, r, "ready")
		expectEqual(
			t, "A reconcile that did not fail should wait as a poll.", "observations", before, ext.count("observe"),
		)
		reconcileOnce(t, r, "b")
		expectEqual(
			t, "A reconcile that failed should come first when calls of its account succeed again.", "observations",
			before+1, ext.count("observe"),
		)
	})
}

func TestWithAccountKey(t *testing.T) {
	cases := map[string]struct {
		reason      string
		key         func(ctx context.Context, mg resource.Managed) (string, error)
		wantWait    bool
		wantMessage string
	}{
		"Shared": {
			reason:   "Provider configs of one account should share a limit.",
			key:      func(context.Context, resource.Managed) (string, error) { return "account", nil },
			wantWait: true,
		},
		"Fails": {
			reason: "The provider config should be the account if the function fails.",
			key:    func(context.Context, resource.Managed) (string, error) { return "account", errors.New("boom") },
		},
		"Empty": {
			reason: "The provider config should be the account if the function says none.",
			key:    func(context.Context, resource.Managed) (string, error) { return "", nil },
		},
		"Panics": {
			reason:      "A function that panics should be named in Synced.",
			key:         func(context.Context, resource.Managed) (string, error) { panic("secret") },
			wantMessage: "managed.WithAccountKey panicked",
		},
		"Missing": {reason: "The provider config should be the account by default."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					newBucket(withName("one"), withProviderConfig("one")),
					newBucket(withName("two"), withProviderConfig("two")),
				)
				ext := &countingClient{}
				var o []RateLimitOption
				if tc.key != nil {
					o = append(o, WithAccountKey(tc.key))
				}
				r := newBucketReconciler(api, ext.connect(), WithRateLimits(NewRateLimits(1, 1, o...)))
				reconcileOnce(t, r, "one")
				before := len(ext.calls)
				reconcileOnce(t, r, "two")
				message := getBucketNamed(t, api, "two").GetCondition(xpv2.TypeSynced).Message
				if tc.wantMessage != "" {
					if !strings.Contains(message, tc.wantMessage) || strings.Contains(message, "secret") {
						t.Errorf("%s\ngot %q", tc.reason, message)
					}
					expectEqual(t, tc.reason, "calls", 0, len(ext.calls))
					return
				}
				expectEqual(t, tc.reason, "waits", tc.wantWait, len(ext.calls) == before)
			})
		})
	}
}

func TestThrottled(t *testing.T) {
	answer := &tooManyRequests{
		response: &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"120"}}},
	}
	marked := errors.Wrap(Throttled(errors.New("request 4711 was refused"), 2*time.Minute), "wrapped")

	cases := map[string]struct {
		reason string
		call   string
		err    error
		client countingClient
		bucket []bucketModifier
	}{
		"Connect": {reason: "Connect should be able to return Throttled.", call: "connect", err: marked},
		"Observe": {reason: "Observe should be able to return Throttled.", call: "observe", err: marked},
		"Create": {
			reason: "Create should be able to return Throttled.",
			call:   "create",
			err:    marked,
			client: countingClient{absent: true},
		},
		"Update": {
			reason: "Update should be able to return Throttled.",
			call:   "update",
			err:    marked,
			client: countingClient{outdated: true},
		},
		"Delete": {
			reason: "Delete should be able to return Throttled.",
			call:   "delete",
			err:    marked,
			bucket: []bucketModifier{withDeletionTimestamp, withFinalizers(FinalizerName)},
		},
		"AnswerOfObserve": {
			reason: "The external system's answer to Observe should count as throttled.",
			call:   "observe",
			err:    errors.Wrap(answer, "cannot observe"),
		},
		"AnswerOfCreate": {
			reason: "The external system's answer to Create should count as throttled.",
			call:   "create",
			err:    answer,
			client: countingClient{absent: true},
		},
		"AnswerToDeletion": {
			reason: "The external system's answer to Delete should count as throttled.",
			call:   "delete",
			err:    answer,
			bucket: []bucketModifier{withDeletionTimestamp, withFinalizers(FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := WithRateLimits(NewRateLimits(100, 100))
				api, r, ext := throttledBuckets(tc.call, tc.err, tc.client, tc.bucket, limits)
				_, _ = r.Reconcile(t.Context(), request())
				c := getBucket(t, api).GetCondition(xpv2.TypeSynced)
				until := time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)
				expectEqual(t, tc.reason, "Synced", []string{
					"False", "Throttled",
					"The external system throttles the calls of this account. No call is made until " + until + ".",
				}, []string{string(c.Status), string(c.Reason), c.Message})
				expectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(getBucket(t, api)),
				)

				before := len(ext.calls)
				api.Forget()
				reconcileOnce(t, r, "b")
				reconcileOnce(t, r, "neighbour")
				expectEqual(
					t, "No reconcile of the account should start while it is closed.", "calls", before, len(ext.calls),
				)
				expectEqual(
					t, "No reconcile of the account should start while it is closed.", "writes", 0, api.Writes(),
				)
				ext.errs = nil
				reconcileOnce(t, r, "stranger")
				if len(ext.calls) == before {
					t.Error("Other accounts should go on.")
				}

				// The neighbour starts first because it is new.
				time.Sleep(125 * time.Second)
				mustReconcileTimes(t, r, 1)
				time.Sleep(5 * time.Second)
				mustReconcileTimes(t, r, 1)
				if len(tc.bucket) == 0 {
					expectEqual(
						t, "The reconcile should succeed when the account is open again.", "Synced",
						xpv2.ReasonReconcileSuccess, reasonOf(getBucket(t, api), xpv2.TypeSynced),
					)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				_, r, ext := throttledBuckets(tc.call, tc.err, tc.client, tc.bucket)
				_, _ = r.Reconcile(t.Context(), request())
				ext.errs = nil
				before := len(ext.calls)
				_, _ = r.Reconcile(t.Context(), request())
				if len(ext.calls) == before {
					t.Error("No account should be closed without limits.")
				}
			})
		})
	}
}

// throttledBuckets returns a reconciler of three buckets, the third with an account of its own, and the client
// whose call returns an error.
func throttledBuckets(
	call string, err error, ext countingClient, bucket []bucketModifier, o ...ReconcilerOption,
) (*testkit.API, *Reconciler, *countingClient) {
	api := testkit.NewAPI(
		newBucket(append([]bucketModifier{withExternalName("n")}, bucket...)...), newBucket(withName("neighbour")),
		newBucket(withName("stranger"), withProviderConfig("other")),
	)
	ext.errs = map[string]error{call: err}
	return api, newBucketReconciler(api, append(o, ext.connect())...), &ext
}

// upstreamBackoff is the work queue's of a provider on crossplane-runtime: a second, and twice as long each time,
// up to a minute.
func upstreamBackoff(failures int) time.Duration {
	return min(time.Second<<min(failures, 10), time.Minute)
}

// TestThrottled_Backoff leads one managed resource whose calls are all throttled without a time for half an hour.
func TestThrottled_Backoff(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   string
		client countingClient
		bucket []bucketModifier
		limits *RateLimits
	}{
		"Observe": {reason: "The backoff should grow as with upstream.", call: "observe"},
		"ObserveLimited": {
			reason: "The backoff should grow as with upstream.", call: "observe", limits: NewRateLimits(40, 40),
		},
		"CreateLimited": {
			reason: "The backoff should grow as with upstream.", call: "create", client: countingClient{absent: true},
			limits: NewRateLimits(40, 40),
		},
		"UpdateLimited": {
			reason: "The backoff should grow as with upstream.", call: "update", client: countingClient{outdated: true},
			limits: NewRateLimits(40, 40),
		},
		"DeleteLimited": {
			reason: "The backoff should grow as with upstream.", call: "delete", limits: NewRateLimits(40, 40),
			bucket: []bucketModifier{withDeletionTimestamp, withFinalizers(FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o []ReconcilerOption
				if tc.limits != nil {
					o = append(o, WithRateLimits(tc.limits))
				}
				answer := &tooManyRequests{response: &http.Response{StatusCode: http.StatusTooManyRequests}}
				api, r, ext := throttledBuckets(tc.call, answer, tc.client, tc.bucket, o...)
				end, failures := time.Now().Add(30*time.Minute), 0
				for time.Now().Before(end) {
					res, err := r.Reconcile(t.Context(), request())
					wait := res.RequeueAfter
					if err != nil || res.Requeue { //nolint:staticcheck // Upstream returns it.
						wait = upstreamBackoff(failures)
						failures++
					} else {
						failures = 0 // As controller-runtime does.
					}
					time.Sleep(max(wait, time.Millisecond))
				}
				calls := 0
				for _, call := range ext.calls {
					if call == tc.call {
						calls++
					}
				}
				if calls > 40 || calls < 25 {
					t.Errorf("\n%s\nUpstream makes 35 calls in half an hour: got %d", tc.reason, calls)
				}
				if got := api.Writes(); got > 3*40 {
					t.Errorf("\n%s\nwant no more writes than upstream: got %d", tc.reason, got)
				}
			})
		})
	}
}

// TestWithRateLimits_FailedCreateOfReservedName has the calls after which a reservation may be released.
func TestWithRateLimits_FailedCreateOfReservedName(t *testing.T) {
	type want struct {
		Calls  []string
		Tokens float64 // of 100
	}
	cases := map[string]struct {
		reason string
		bucket []bucketModifier
		err    error
		want   want
	}{
		"Throttled": {
			reason: "No call should be made after a create that was throttled.",
			bucket: []bucketModifier{withExternalName("n")},
			err:    Throttled(errors.New("slow down"), time.Minute),
			want:   want{Calls: []string{"observe", "create"}},
		},
		"Failed": {
			reason: "The Observe after a create that failed should take a token.",
			bucket: []bucketModifier{withExternalName("n")},
			err:    errors.New("quota exceeded"),
			want:   want{Calls: []string{"observe", "create", "observe"}, Tokens: 97},
		},
		"NothingReserved": {
			reason: "No call should be made after a create that failed without a reservation.",
			err:    errors.New("quota exceeded"),
			want:   want{Calls: []string{"observe", "create"}, Tokens: 98},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(tc.bucket...))
				ext := &countingClient{absent: true, errs: map[string]error{"create": tc.err}}
				limits := NewRateLimits(0.001, 100)
				r := newBucketReconciler(
					api, ext.connect(), WithExternalNameReservation(leaseNamespace), WithRateLimits(limits),
				)
				mustReconcileTimes(t, r, 1)
				got := want{Calls: ext.calls, Tokens: gauge(t, limits, "graft_limit_tokens")}
				expectEqual(t, tc.reason, "calls, tokens", tc.want, got)
			})
		})
	}
}

func TestTerminal(t *testing.T) {
	label := func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) }
	spec := func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" }

	cases := map[string]struct {
		reason string
		client countingClient
		call   string
	}{
		"Create": {
			reason: "A create that fails with a terminal error should not be repeated.",
			call:   "create",
			client: countingClient{absent: true},
		},
		"Update": {
			reason: "An update that fails with a terminal error should not be repeated.",
			call:   "update",
			client: countingClient{outdated: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pc := &v1alpha1.ClusterProviderConfig{}
				pc.SetName("pc")
				api := testkit.NewAPI(newBucket(withExternalName("n"), withProviderConfig("pc")), pc)
				ext := tc.client
				ext.errs = map[string]error{
					tc.call: errors.Wrap(Terminal(errors.New("the region does not exist")), "cannot do it"),
				}
				recorder := &testkit.Said{}
				limits := NewRateLimits(1000, 1000)
				o := []ReconcilerOption{
					ext.connect(), WithRecorder(recorder), WithRateLimits(limits), WithPollInterval(time.Minute),
				}
				r := newBucketReconciler(api, o...)

				reconcileOnce(t, r, "b")
				c := getBucket(t, api).GetCondition(xpv2.TypeSynced)
				if c.Reason != ReasonTerminal || c.Status != "False" ||
					!strings.HasPrefix(c.Message, "cannot do it: the region does not exist: not tried again until") {
					t.Errorf("%s\nSynced: %v", tc.reason, c)
				}
				expectEqual(t, tc.reason, "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"))
				expectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(getBucket(t, api)),
				)

				time.Sleep(time.Second) // creates start at least a second apart
				reconcileOnce(t, r, "b")
				api.Forget()
				observed := ext.count("observe")
				for range 60 {
					res := reconcileOnce(t, r, "b")
					if res.RequeueAfter < 50*time.Second || res.RequeueAfter > 70*time.Second {
						t.Fatalf("The external resource should be observed at each poll: got %+v", res)
					}
					time.Sleep(res.RequeueAfter)
				}
				expectEqual(t, tc.reason, "calls in an hour", 1, ext.count(tc.call))
				expectEqual(
					t, "The external resource should be observed at each poll.", "observations", observed+60,
					ext.count("observe"),
				)
				expectEqual(t, "The same situation should be written once.", "writes", 0, api.Writes())
				expectEqual(
					t, "We should emit one event.", "events", 1,
					len(recorder.Events(
						"CannotCreateExternalResource", "CannotUpdateExternalResource",
						"CannotObserveExternalResource",
					)),
				)
				expectEqual(
					t, "Synced should keep the terminal error.", "reason", ReasonTerminal,
					reasonOf(getBucket(t, api), xpv2.TypeSynced),
				)

				for i, change := range []bucketModifier{spec, label, withAnnotation(
					"example.org/retry", "1",
				), withAnnotation(meta.AnnotationKeyReconcileRequestedAt, "1")} {
					updateBucket(t, api, "b", change)
					time.Sleep(time.Second)
					reconcileOnce(t, r, "b")
					time.Sleep(time.Second)
					mustReconcileTimes(t, r, 3)
					expectEqual(t, "A change should be tried once.", "calls", i+2, ext.count(tc.call))
				}
				expectEqual(
					t, "Each call that fails should emit an event.", "events", 5,
					len(recorder.Events("CannotCreateExternalResource", "CannotUpdateExternalResource")),
				)

				must(t, api.Server().Get(context.Background(), client.ObjectKey{Name: "pc"}, pc))
				pc.Status.Users++
				must(t, api.Server().Status().Update(context.Background(), pc))
				time.Sleep(time.Second)
				mustReconcileTimes(t, r, 2)
				expectEqual(
					t, "A provider config whose status has changed should cause no call.", "calls", 5,
					ext.count(tc.call),
				)
				pc.Spec.Token = "repaired"
				must(t, api.Server().Update(context.Background(), pc))
				mustReconcileTimes(t, r, 1)
				time.Sleep(time.Second)
				mustReconcileTimes(t, r, 2)
				expectEqual(
					t, "A provider config that has changed should be tried once.", "calls", 6, ext.count(tc.call),
				)

				time.Sleep(time.Second)
				r = newBucketReconciler(api, o...)
				mustReconcileTimes(t, r, 1)
				time.Sleep(time.Minute)
				mustReconcileTimes(t, r, 3)
				expectEqual(t, "A new process should try once.", "calls", 7, ext.count(tc.call))

				ext.errs = nil
				ext.outdated = false
				updateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "somewhere" })
				time.Sleep(time.Second)
				mustReconcileTimes(t, r, 3)
				expectEqual(
					t, "The repaired spec should be reconciled.", "Synced", xpv2.ReasonReconcileSuccess,
					reasonOf(getBucket(t, api), xpv2.TypeSynced),
				)
				expectEqual(
					t, "The repaired spec should be reconciled.", "gauge", 0.0,
					gauge(t, limits, "graft_terminal_errors"),
				)
			})
		})
	}
}

func TestTerminal_UpdateAfterInterruptedCreate(t *testing.T) {
	reason := "An update should not be repeated because the create before it was interrupted."
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(
			withExternalName("n"), withAnnotation(meta.AnnotationKeyExternalCreatePending, "1999-12-31T00:00:00Z"),
		))
		ext := countingClient{outdated: true, errs: map[string]error{"update": Terminal(errors.New("no such region"))}}
		r := newBucketReconciler(
			api, WithRateLimits(NewRateLimits(1000, 1000)), ext.connect(),
			WithDeterministicExternalName(true), WithPollInterval(time.Minute),
		)
		for range 60 {
			mustReconcileTimes(t, r, 1)
			time.Sleep(time.Minute)
		}
		expectEqual(t, reason, "updates", 1, ext.count("update"))
		expectEqual(t, reason, "Synced", ReasonTerminal, getBucket(t, api).GetCondition(xpv2.TypeSynced).Reason)
	})
}

// pollEachMinute polls a managed resource n times, and lets asynchronous operations end.
func pollEachMinute(t *testing.T, r reconcile.Reconciler, n int) {
	t.Helper()
	for range n {
		mustReconcileTimes(t, r, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

func TestTerminal_ExternalResourceIsRepaired(t *testing.T) {
	cases := map[string]struct {
		reason string
		client countingClient
		call   string
		async  bool
	}{
		"Create": {
			reason: "An external resource that was created by hand, and deleted again, should be created.",
			client: countingClient{absent: true},
			call:   "create",
		},
		"Update": {
			reason: "An external resource that was repaired by hand, and changed again, should be updated.",
			client: countingClient{outdated: true},
			call:   "update",
		},
		"AsyncCreate": {
			reason: "An external resource that was created by hand, and deleted again, should be created asynchronously.",
			client: countingClient{absent: true},
			call:   "create",
			async:  true,
		},
		"AsyncUpdate": {
			reason: "An external resource that was repaired by hand, and changed again, should be updated asynchronously.",
			client: countingClient{outdated: true},
			call:   "update",
			async:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("n"), withFinalizers(FinalizerName)))
				ext, limits := tc.client, NewRateLimits(1000, 1000)
				ext.errs = map[string]error{tc.call: Terminal(errors.New("no"))}
				opts := []ReconcilerOption{ext.connect(), WithRateLimits(limits), WithPollInterval(time.Minute)}
				if tc.async {
					opts = append(opts, WithAsync(newTracker(api)))
				}
				r := newBucketReconciler(api, opts...)
				pollEachMinute(t, r, 5)
				expectEqual(t, "A terminal error should not be repeated.", "calls", 1, ext.count(tc.call))

				ext.errs, ext.absent, ext.outdated = nil, false, false
				pollEachMinute(t, r, 2)
				expectEqual(
					t, "A terminal error should not be counted after the repair.", "gauge", 0.0,
					gauge(t, limits, "graft_terminal_errors"),
				)

				ext.absent, ext.outdated = tc.client.absent, tc.client.outdated
				pollEachMinute(t, r, 1)
				expectEqual(t, tc.reason, "calls", 2, ext.count(tc.call))
			})
		})
	}
}

func TestTerminal_ExternalResourceIsDeleted(t *testing.T) {
	for name, async := range map[string]bool{"Synchronous": false, "Asynchronous": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("n"), withFinalizers(FinalizerName)))
				ext := countingClient{outdated: true}
				ext.errs = map[string]error{"update": Terminal(errors.New("immutable"))}
				opts := []ReconcilerOption{ext.connect(), WithPollInterval(time.Minute)}
				if async {
					opts = append(opts, WithAsync(newTracker(api)))
				}
				r := newBucketReconciler(api, append(opts, WithRateLimits(NewRateLimits(1000, 1000)))...)
				pollEachMinute(t, r, 5)
				expectEqual(t, "A terminal error should not be repeated.", "updates", 1, ext.count("update"))

				ext.absent = true
				pollEachMinute(t, r, 2)
				if ext.count("create") == 0 {
					t.Error("An external resource that was deleted to replace it should be created.")
				}
			})
		})
	}
}

func TestTerminal_ProviderSetsAnnotation(t *testing.T) {
	cases := map[string]struct {
		reason string
		sets   string // the call that sets another value of an annotation each time
		exists bool
		poll   time.Duration // a minute if it is zero
	}{
		"ObservePolledOften": {
			reason: "An annotation of Observe that is not stored each time should not repeat an update.",
			sets:   "observe",
			exists: true,
			poll:   20 * time.Second,
		},
		"Observe": {
			reason: "An annotation that Observe changes should not repeat an update.",
			sets:   "observe",
			exists: true,
		},
		"ObserveAbsent": {reason: "An annotation that Observe changes should not repeat a create.", sets: "observe"},
		"Create":        {reason: "An annotation that Create sets should not repeat it.", sets: "change"},
		"Update":        {reason: "An annotation that Update sets should not repeat it.", sets: "change", exists: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("n"), withFinalizers(FinalizerName)))
				changes := 0
				called := func(call string, mg resource.Managed) {
					if call == "observe" {
						mg.SetLabels(map[string]string{"not": "stored"})
					}
					if call == tc.sets {
						withAnnotation("example.org/last", time.Now().String())(asBucket(mg))
					}
				}
				change := func(mg resource.Managed) error {
					changes++
					called("change", mg)
					return Terminal(errors.New("no"))
				}
				poll := stdcmp.Or(tc.poll, time.Minute)
				limits := WithRateLimits(NewRateLimits(1000, 1000))
				r := newBucketReconciler(api, limits, WithPollInterval(poll), withClient(ExternalClientFns{
					ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
						called("observe", mg)
						return ExternalObservation{ResourceExists: tc.exists}, nil
					},
					CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
						return ExternalCreation{}, change(mg)
					},
					UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
						return ExternalUpdate{}, change(mg)
					},
				}))
				for range 30 {
					_, err := r.Reconcile(t.Context(), request())
					must(t, err)
					time.Sleep(poll)
				}
				expectEqual(t, tc.reason, "few calls", true, changes <= 2)
				before := changes
				updateBucket(t, api, "b", withAnnotation("example.org/retry", "1"))
				for range 3 {
					_, err := r.Reconcile(t.Context(), request())
					must(t, err)
					time.Sleep(poll)
				}
				expectEqual(t, "A user's annotation should repeat the call.", "calls", true, changes > before)
			})
		})
	}
}

func TestTerminal_OfOtherCalls(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   string
		bucket []bucketModifier
	}{
		"Connect": {reason: "A provider that can't be connected to should be tried at each poll.", call: "connect"},
		"Observe": {reason: "Observe should be called at each poll.", call: "observe"},
		"Delete": {
			reason: "Delete should be called at each poll.",
			call:   "delete",
			bucket: []bucketModifier{withDeletionTimestamp, withFinalizers(FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(append([]bucketModifier{withExternalName("n")}, tc.bucket...)...))
				ext := &countingClient{errs: map[string]error{tc.call: Terminal(errors.New("no"))}}
				r := newBucketReconciler(
					api, ext.connect(), WithPollInterval(time.Minute), WithRateLimits(NewRateLimits(1000, 1000)),
				)
				for range 3 {
					res := reconcileOnce(t, r, "b")
					expectEqual(t, tc.reason, "requeue", time.Minute, res.RequeueAfter)
					c := getBucket(t, api).GetCondition(xpv2.TypeSynced)
					expectEqual(t, tc.reason, "Synced", ReasonTerminal, c.Reason)
					if !strings.Contains(c.Message, "no: tried again only at each poll") {
						t.Errorf("The message should say when the call is repeated: got %q", c.Message)
					}
				}
				ext.errs = nil
				mustReconcileTimes(t, r, 2)
				if len(tc.bucket) == 0 {
					expectEqual(
						t, "The reconcile should succeed when the call does.", "Synced", xpv2.ReasonReconcileSuccess,
						reasonOf(getBucket(t, api), xpv2.TypeSynced),
					)
				}
			})
		})
	}
}

func TestTerminal_DoesNotHoldUpADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("n")))
		ext := &countingClient{absent: true, errs: map[string]error{"create": Terminal(errors.New("no"))}}
		r := newBucketReconciler(api, ext.connect(), WithRateLimits(NewRateLimits(1000, 1000)))
		mustReconcileTimes(t, r, 2)
		deleteBucket(t, api, "b")
		mustReconcileTimes(t, r, 1)
		expectEqual(
			t, "A managed resource with a terminal error should be deleted.", "name", "", getBucket(t, api).GetName(),
		)
	})
}

func TestTerminal_ManagedResourceIsRemoved(t *testing.T) {
	cases := map[string]struct {
		reason string
		after  []client.Object
	}{
		"Removed": {reason: "A managed resource that no longer exists should not be counted."},
		"Replaced": {
			reason: "A managed resource should not be counted because of an earlier one of its name.",
			after:  []client.Object{newBucket(withExternalName("other"))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newBucket(withExternalName("n")))
			ext := &countingClient{absent: true, errs: map[string]error{"create": Terminal(errors.New("no"))}}
			limits := NewRateLimits(1000, 1000)
			r := newBucketReconciler(api, ext.connect(), WithRateLimits(limits))
			mustReconcileTimes(t, r, 1)
			expectEqual(
				t, "A terminal error should be counted.", "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"),
			)

			removeBucket(t, api, "b")
			for _, o := range tc.after {
				must(t, api.Server().Create(t.Context(), o))
			}
			ext.absent, ext.errs = false, nil
			mustReconcileTimes(t, r, 1)
			expectEqual(t, tc.reason, "gauge", 0.0, gauge(t, limits, "graft_terminal_errors"))
		})
	}
}

func TestThrottled_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("n")), newBucket(withName("neighbour")))
				ext := &countingClient{
					absent:   at == "create",
					outdated: at == "update",
					errs:     map[string]error{at: Throttled(errors.New("slow down"), time.Minute)},
				}
				r := newBucketReconciler(
					api, ext.connect(), WithAsync(newTracker(api)), WithRateLimits(NewRateLimits(100, 100)),
				)
				mustReconcileTimes(t, r, 1)
				synctest.Wait()
				before := len(ext.calls)
				reconcileOnce(t, r, "b")
				reconcileOnce(t, r, "neighbour")
				expectEqual(
					t, "An operation that is throttled should close the account.", "calls", before, len(ext.calls),
				)
				expectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(getBucket(t, api)),
				)

				ext.errs, ext.outdated = nil, false
				time.Sleep(65 * time.Second)
				mustReconcileTimes(t, r, 1)
				time.Sleep(5 * time.Second)
				mustReconcileTimes(t, r, 3)
				synctest.Wait()
				mustReconcileTimes(t, r, 1)
				if at == "create" {
					expectEqual(
						t, "A create that was refused should be made again, once.", "creates", 2, ext.count("create"),
					)
				}
				expectEqual(
					t, "The reconcile should succeed when the account is open again.", "Synced",
					xpv2.ReasonReconcileSuccess, reasonOf(getBucket(t, api), xpv2.TypeSynced),
				)
			})
		})
	}
}

// A resumingClient sets a handle in Create, and its operation fails when it is resumed.
type resumingClient struct {
	ExternalClient

	err error
}

func (c resumingClient) Resume(context.Context, resource.Managed, asyncstate.Attempt) error {
	return c.err
}

func TestTerminal_Resumed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		changed bool // while the operation runs
		want    int
	}{
		"Unchanged": {
			reason: "A create whose operation is resumed, and fails with a terminal error, should not be made again.",
			want:   1,
		},
		"Changed": {
			reason:  "A spec that changed since the operation began should be tried.",
			changed: true,
			want:    2,
		},
	} {
		t.Run(name, func(t *testing.T) { testTerminalResumed(t, tc.reason, tc.changed, tc.want) })
	}
}

func testTerminalResumed(t *testing.T, reason string, changed bool, want int) {
	synctest.Test(t, func(t *testing.T) {
		api, limits, creates := testkit.NewAPI(newBucket()), NewRateLimits(1000, 1000), 0
		connector := ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
			ec := newExternalClient(ExternalClientFns{
				ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
					return ExternalObservation{}, nil
				},
				CreateFn: func(ctx context.Context, _ resource.Managed) (ExternalCreation, error) {
					creates++
					if err := asyncstate.SetHandle(ctx, "op"); err != nil {
						t.Error(err)
					}
					return ExternalCreation{}, asyncstate.ErrOutcomeUnknown
				},
			})
			return resumingClient{&ec, Terminal(errors.New("no such region"))}, nil
		})
		r := newBucketReconciler(
			api, WithExternalConnector(connector), WithAsync(newTracker(api)), WithRateLimits(limits),
			WithPollInterval(time.Minute),
		)
		for i := range 60 {
			mustReconcileTimes(t, r, 1)
			synctest.Wait()
			if i == 0 && changed {
				b := getBucket(t, api)
				updateBucket(t, api, b.GetName(), func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		expectEqual(t, reason, "creates", want, creates)
		expectEqual(t, reason, "Synced", ReasonTerminal, getBucket(t, api).GetCondition(xpv2.TypeSynced).Reason)
		expectEqual(t, reason, "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"))
	})
}

func TestTerminal_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("n")))
				ext := &countingClient{
					absent:   at == "create",
					outdated: at == "update",
					errs:     map[string]error{at: Terminal(errors.New("no such region"))},
				}
				r := newBucketReconciler(
					api, ext.connect(), WithAsync(newTracker(api)), WithPollInterval(time.Minute),
					WithRateLimits(NewRateLimits(1000, 1000)),
				)
				for range 60 {
					mustReconcileTimes(t, r, 1)
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				c := getBucket(t, api).GetCondition(xpv2.TypeSynced)
				expectEqual(
					t, "An operation that fails with a terminal error should not be repeated.", "calls", 1,
					ext.count(at),
				)
				expectEqual(
					t, "An operation that fails with a terminal error should not be repeated.", "Synced",
					ReasonTerminal, c.Reason,
				)
				if !strings.HasPrefix(c.Message, "no such region: not tried again until") {
					t.Errorf("Synced should have the error: got %q", c.Message)
				}
				if running := getBucket(t, api).GetCondition(
					asyncstate.TypeOperation,
				); running.Reason != asyncstate.ReasonFailed || strings.Contains(
					running.Message, "next attempt",
				) {
					t.Errorf("OperationRunning should announce no next attempt: got %q", running.Message)
				}
				if ext.count("observe") < 55 {
					t.Errorf("The external resource should be observed at each poll: got %d", ext.count("observe"))
				}
				api.Forget()
				mustReconcileTimes(t, r, 3)
				expectEqual(t, "The same situation should be written once.", "writes", 0, api.Writes())

				ext.errs[at] = Terminal(errors.New("the quota is zero"))
				updateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "nowhere" })
				mustReconcileTimes(t, r, 1)
				synctest.Wait()
				mustReconcileTimes(t, r, 2)
				c = getBucket(t, api).GetCondition(xpv2.TypeSynced)
				if !strings.HasPrefix(c.Message, "the quota is zero: not tried again until") {
					t.Errorf("Synced should have the new error: got %q", c.Message)
				}

				ext.errs, ext.outdated = nil, false
				updateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				time.Sleep(time.Second) // creates start at least a second apart
				mustReconcileTimes(t, r, 1)
				synctest.Wait()
				mustReconcileTimes(t, r, 2)
				expectEqual(
					t, "A changed spec should be tried at once.", "creates", at == "create", ext.count("create") == 3,
				)
				expectEqual(
					t, "A changed spec should be tried at once.", "Synced", xpv2.ReasonReconcileSuccess,
					reasonOf(getBucket(t, api), xpv2.TypeSynced),
				)
			})
		})
	}
}

func TestCharge_Async(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("n")))
		ext := &countingClient{absent: true}
		limits := NewRateLimits(0.001, 10)
		r := newBucketReconciler(api, ext.connect(), WithAsync(newTracker(api)), WithRateLimits(limits))
		mustReconcileTimes(t, r, 1)
		synctest.Wait()
		expectEqual(
			t, "An observation and an asynchronous create should take a token each.", "tokens", 8.0,
			gauge(t, limits, "graft_limit_tokens"),
		)
	})
}

func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("n")), newBucket(withName("other"), withExternalName("n")))
		ext := &countingClient{}
		o := WithExternalConnector(newConnector(ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				Charge(ctx, 20)
				Charge(ctx, -5)
				ext.calls = append(ext.calls, "observe")
				return observeExists(ctx, mg)
			},
		}))
		limits := NewRateLimits(10, 10)
		r := newBucketReconciler(api, o, WithRateLimits(limits))
		reconcileOnce(t, r, "b")
		res := reconcileOnce(t, r, "other")
		expectEqual(
			t, "Later reconciles should pay for what a client charges.", "requeue", 1200*time.Millisecond,
			res.RequeueAfter.Round(time.Millisecond),
		)
		expectEqual(
			t, "A reconcile that waits should be counted.", "graft_limited_reconciles_total", 1.0,
			gauge(t, limits, "graft_limited_reconciles_total"),
		)
		expectEqual(
			t, "The tokens of the account should be in a metric.", "graft_limit_tokens", -11.0,
			gauge(t, limits, "graft_limit_tokens"),
		)
		Charge(context.Background(), 5)
	})
}

// gauge returns the sum of a metric.
func gauge(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	must(t, reg.Register(c))
	families, err := reg.Gather()
	must(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}
