package ratelimit

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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// TestNoPolls proves that a reconcile that waits for the next poll does not run again at once if there are no polls.
func TestNoPolls(t *testing.T) {
	terminal := func(call string) map[string]error {
		return map[string]error{call: Terminal(errors.New("no"))}
	}
	pending := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-01T00:00:00Z")
	cases := map[string]struct {
		client kit.CountingClient
		bucket kit.BucketModifier
	}{
		"Connect":          {client: kit.CountingClient{Errs: terminal("connect")}},
		"Observe":          {client: kit.CountingClient{Errs: terminal("observe")}},
		"Create":           {client: kit.CountingClient{Absent: true, Errs: terminal("create")}},
		"Update":           {client: kit.CountingClient{Outdated: true, Errs: terminal("update")}},
		"Delete":           {client: kit.CountingClient{Errs: terminal("delete")}, bucket: kit.WithDeletionTimestamp},
		"IncompleteCreate": {bucket: pending},
	}
	for name, tc := range cases {
		for _, poll := range []time.Duration{0, -time.Second} {
			t.Run(fmt.Sprint(name, poll), func(t *testing.T) {
				mods := []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)}
				if tc.bucket != nil {
					mods = append(mods, tc.bucket)
				}
				api := testkit.NewAPI(kit.NewBucket(mods...))
				r := kit.NewBucketReconciler(api, tc.client.Connect(), managed.WithPollInterval(poll))
				for range 3 {
					if got := kit.ReconcileOnce(t, r, "b").RequeueAfter; got > 0 && got < time.Second {
						t.Errorf("It should wait for a while, got %s", got)
					}
				}
			})
		}
	}
}

func TestWithRateLimits(t *testing.T) {
	withReconcileRequest := kit.WithAnnotation(meta.AnnotationKeyReconcileRequestedAt, "now")
	withPausedCondition := func(b *v1alpha1.Bucket) { b.SetConditions(xpv2.ReconcilePaused()) }

	// Managed resources have no last handled request before runtime v2.3.
	_, handles := any(&v1alpha1.Bucket{}).(requestHandler)

	cases := map[string]struct {
		reason      string
		bucket      []kit.BucketModifier
		policiesOff bool
		wantStart   bool
	}{
		"Poll": {
			reason: "A poll should leave the token to one that came before.",
			bucket: []kit.BucketModifier{kit.WithReconciledStatus},
		},
		"New": {reason: "A new managed resource should come first.", wantStart: true},
		"Changed": {
			reason:    "A changed spec should come first.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, kit.WithGeneration(2)},
			wantStart: true,
		},
		"Deleted": {
			reason:    "A deletion should come first.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, kit.WithDeletionTimestamp},
			wantStart: true,
		},
		"Requested": {
			reason:    "A requested reconcile should come first.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, withReconcileRequest},
			wantStart: handles,
		},
		"Unpaused": {
			reason:    "A managed resource that is no longer paused should come first.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, withPausedCondition},
			wantStart: true,
		},
		"OtherAccount": {
			reason:    "Another provider config should have a bucket of its own.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, kit.WithProviderConfig("other")},
			wantStart: true,
		},
		"Paused": {
			reason:    "A paused managed resource should need no token.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, kit.WithPausedAnnotation},
			wantStart: true,
		},
		"PausedByPolicies": {
			reason:    "A managed resource that is paused by its management policies should need no token.",
			bucket:    []kit.BucketModifier{kit.WithReconciledStatus, kit.WithPolicies()},
			wantStart: true,
		},
		"PoliciesAreOff": {
			reason:      "A managed resource without management policies should need a token if they are off.",
			bucket:      []kit.BucketModifier{kit.WithReconciledStatus, kit.WithPolicies()},
			policiesOff: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(tc.bucket...))
				ext := &kit.CountingClient{}
				limits := New(1, 1)
				o := []managed.ReconcilerOption{
					managed.WithInitializers(), ext.Connect(), With(limits), managed.WithPollInterval(time.Nanosecond),
				}
				if !tc.policiesOff {
					o = append(o, managed.WithManagementPolicies())
				}
				r := managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()), o...)

				// There is one token, and a poll waits for it.
				account := limits.accounts.Account(limit.Key{Kind: "ProviderConfig"}, "ProviderConfig", time.Now())
				account.Charge(1, time.Now())
				account.Admit(nil, limit.Poll, time.Now())
				time.Sleep(time.Second)

				res := kit.ReconcileOnce(t, r, "b")
				if started := api.Writes() > 0 || len(ext.Calls) > 0; started != tc.wantStart {
					t.Errorf("%s\nstarted: %v, calls %v, requests %v", tc.reason, started, ext.Calls, api.Requests())
				}
				if tc.wantStart {
					return
				}
				kit.ExpectEqual(t, "A reconcile without a token should only read.", "reads", 1, api.Count(testkit.Get))
				kit.ExpectEqual(t, "A reconcile without a token should only read.", "writes", 0, api.Writes())
				kit.ExpectEqual(t, tc.reason, "result", time.Second, res.RequeueAfter)
				if res.Priority == nil || *res.Priority >= 0 {
					t.Errorf("A poll that waits should have a low priority: got %v", res.Priority)
				}
				time.Sleep(res.RequeueAfter)
				kit.ReconcileOnce(t, r, "b")
				kit.ExpectEqual(
					t, "A reconcile should start when its token is due.", "observations", 1, ext.Count("observe"),
				)
			})
		})
	}
}

func TestWithRateLimits_OrphanedDeletion(t *testing.T) {
	bucket := func(p ...xpv2.ManagementAction) resource.Managed {
		return kit.NewBucket(kit.WithPolicies(p...))
	}
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
				tc.managed.SetFinalizers([]string{managed.FinalizerName})
				api, kind := testkit.NewAPI(tc.managed), testkit.BucketKind()
				if tc.managed.GetNamespace() == "" {
					kind = testkit.DatabaseKind()
				}
				kit.Must(t, api.Server().Delete(t.Context(), tc.managed))

				limits := New(1, 5, WithAccountKey(func(context.Context, resource.Managed) (string, error) {
					return "account", nil
				}))
				now := time.Now()
				account := limits.accounts.Account(limit.Key{Account: "account"}, limit.KindOther, now)
				account.Throttled(time.Hour, now, now)
				ext := &kit.CountingClient{}
				r := managed.NewReconciler(
					api.Manager(), resource.ManagedKind(kind), managed.WithManagementPolicies(),
					managed.WithInitializers(),
					ext.Connect(), With(limits),
				)
				key := client.ObjectKeyFromObject(tc.managed)
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
				kit.Must(t, err)
				err = api.Server().Get(t.Context(), key, tc.managed)
				kit.ExpectEqual(t, tc.reason, "gone", tc.wantGone, kerrors.IsNotFound(err))
				kit.ExpectEqual(t, tc.reason, "calls", 0, len(ext.Calls))
			})
		})
	}
}

func TestWithRateLimits_Spreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		var objs []client.Object
		for i := range n {
			objs = append(objs, kit.NewBucket(kit.WithName(fmt.Sprint("b", i)), kit.WithReconciledStatus))
		}
		api := testkit.NewAPI(append(objs, kit.NewBucket(kit.WithName("new")))...)
		ext := &kit.CountingClient{}
		r := kit.NewBucketReconciler(
			api, ext.Connect(), With(New(100, 100)), managed.WithPollInterval(time.Hour),
		)
		early := 0
		for i := range n {
			res := kit.ReconcileOnce(t, r, fmt.Sprint("b", i))
			if res.RequeueAfter > time.Hour {
				t.Errorf("Polls should be spread over the poll interval: got %s", res.RequeueAfter)
			}
			if res.RequeueAfter < 30*time.Minute {
				early++
			}
		}
		if early < n/5 || early > n*4/5 || ext.Count("observe") > 2 {
			t.Errorf(
				"Polls after a start should be spread: %d of %d in the first half, %d at once", early, n,
				ext.Count("observe"),
			)
		}
		before := len(ext.Calls)
		kit.ReconcileOnce(t, r, "new")
		if len(ext.Calls) == before {
			t.Error("A new managed resource should not wait for its time.")
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
			change: kit.RemoveBucket,
		},
		"Replaced": {
			reason: "A managed resource that was replaced by another of its name should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				kit.RemoveBucket(t, api, name)
				kit.Must(
					t, api.Server().Create(t.Context(), kit.NewBucket(kit.WithName(name), kit.WithPausedAnnotation)),
				)
			},
		},
		"Paused": {
			reason: "A managed resource that is paused should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				kit.UpdateBucket(t, api, name, kit.WithPausedAnnotation)
			},
		},
		"Orphaned": {
			reason: "A managed resource whose deletion makes no calls should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				kit.UpdateBucket(t, api, name, kit.WithFinalizers(managed.FinalizerName))
				kit.UpdateBucket(t, api, name, kit.WithPolicies(xpv2.ManagementActionObserve))
				kit.DeleteBucket(t, api, name)
			},
		},
		"OtherAccount": {
			reason: "A managed resource that has another provider config now should give up its place.",
			change: func(t *testing.T, api *testkit.API, name string) {
				t.Helper()
				kit.UpdateBucket(t, api, name, kit.WithProviderConfig("other"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 100
				objs := []client.Object{kit.NewBucket(kit.WithName("new"))}
				for i := range n {
					objs = append(objs, kit.NewBucket(kit.WithName(fmt.Sprint("b", i))))
				}
				api := testkit.NewAPI(objs...)
				ext := &kit.CountingClient{}
				limits := New(1, 5)
				r := kit.NewBucketReconciler(api, ext.Connect(), managed.WithManagementPolicies(), With(limits))
				for i := range n {
					kit.ReconcileOnce(t, r, fmt.Sprint("b", i))
				}
				for i := range n {
					tc.change(t, api, fmt.Sprint("b", i))
					kit.ReconcileOnce(t, r, fmt.Sprint("b", i))
				}
				if wait := kit.ReconcileOnce(t, r, "new").RequeueAfter; wait > 10*time.Second {
					t.Errorf("\n%s\nThe next one waits %s", tc.reason, wait)
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
		limits     *Limits
		options    []managed.ReconcilerOption
		finalizers []string
	}{
		"Failing": {
			reason: "Deletions that fail should back off up to a minute.",
			limits: New(40, 40),
		},
		"FailingWithFewTokens": {
			reason: "Deletions that fail should not use all tokens.",
			limits: New(1, 5),
		},
		"WithoutDeletionStatus": {
			reason:  "Deletions that fail should not use all tokens, also without a Deleting condition.",
			limits:  New(1, 5),
			options: []managed.ReconcilerOption{managed.WithoutDeletionStatus()},
		},
		"WaitingForFinalizers": {
			reason:     "Deletions that wait for the finalizers of others should not use all tokens.",
			limits:     New(1, 5),
			finalizers: []string{"example.org/other"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const duration = 40 * time.Minute
				q := workqueue.NewTypedRateLimitingQueue(ratelimiter.NewController())
				objs := []client.Object{
					kit.NewBucket(kit.WithName("ready"), kit.WithExternalName("n"), kit.WithReconciledStatus),
				}
				for i := range 100 {
					objs = append(objs, kit.NewBucket(
						kit.WithName(fmt.Sprint("b", i)), kit.WithExternalName("n"),
						kit.WithFinalizers(append(tc.finalizers, managed.FinalizerName)...), kit.WithDeletionTimestamp,
					))
				}
				for _, o := range objs {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
				}
				api := testkit.NewAPI(objs...)
				time.AfterFunc(duration/2, func() {
					kit.Must(t, api.Server().Create(t.Context(), kit.NewBucket(kit.WithName("new"))))
					q.Add(kit.RequestFor("new"))
				})
				created, observations, deletes := false, 0, 0
				r := kit.NewBucketReconciler(api, append(
					tc.options, With(tc.limits), managed.WithPollInterval(time.Minute),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							switch {
							case mg.GetName() == "ready":
								observations++
							case mg.GetName() == "new" && !created:
								return managed.ExternalObservation{}, nil
							}
							return kit.ObserveExists(ctx, mg)
						},
						CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
							created = true
							return managed.ExternalCreation{}, nil
						},
						DeleteFn: func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
							deletes++
							return managed.ExternalDelete{}, errors.New("still in use")
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
				ready := isTrue(kit.GetBucketNamed(t, api, "new"), xpv2.TypeReady)
				kit.ExpectEqual(t, tc.reason, "new one is ready", true, ready)
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
			reason:  "Polls should go on while some managed resources fail.",
			failing: 100,
			want:    400,
		},
		"DownBefore": {
			reason:  "Polls should go on while some managed resources still fail after all have failed.",
			down:    2 * time.Minute,
			failing: 100,
			want:    400,
		},
		"MostFail": {
			reason:  "Polls should go on while most managed resources fail.",
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
					objs = append(
						objs, kit.NewBucket(kit.WithName(name), kit.WithExternalName("n"), kit.WithReconciledStatus),
					)
					q.Add(kit.RequestFor(name))
				}
				begin, observations := time.Now(), 0
				r := kit.NewBucketReconciler(
					testkit.NewAPI(objs...), With(New(1, 5)), managed.WithPollInterval(4*time.Minute),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							since := time.Since(begin)
							if strings.HasPrefix(mg.GetName(), "failing") || since < tc.down {
								return managed.ExternalObservation{}, errors.Errorf("forbidden, request %s", since)
							}
							if since > 20*time.Minute {
								observations++
							}
							return kit.ObserveExists(ctx, mg)
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
		reason string
		bucket []kit.BucketModifier
		want   limit.Class
	}{
		"DeletedAfterDeadline": {
			reason: "The first attempt of a deletion should come first although other finalizers held it past its deadline.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithDeletionTimestamp, kit.WithDeletingReason(
					reconciler.ReasonDeadlineExceeded,
				),
			},
			want: limit.Urgent,
		},
		"DeletionAnnounced": {
			reason: "A deletion that was only reported should come first.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithDeletionTimestamp, kit.WithDeletingReason(
					reconciler.ReasonDeletionRequested,
				),
			},
			want: limit.Urgent,
		},
		"DeletionFailed": {
			reason: "A deletion that was tried should not come before new managed resources.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithConditions(
					xpv2.ReconcileError(kit.ErrProvider),
				), kit.WithDeletionTimestamp,
				kit.WithDeletingReason(reconciler.ReasonExternalDeleteFailed),
			},
			want: limit.Settling,
		},
		"DeletionFailedWithoutReport": {
			reason: "A deletion that was tried should not come before new ones, also without a Deleting condition.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithConditions(
					xpv2.ReconcileError(kit.ErrProvider).WithObservedGeneration(1),
				),
				kit.WithDeletionTimestamp,
			},
			want: limit.Settling,
		},
		"FailedBeforeDeletion": {
			reason: "A deletion should come first although the managed resource has failed before.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithConditions(
					xpv2.ReconcileError(kit.ErrProvider).WithObservedGeneration(1),
				),
				kit.WithDeletionTimestamp, kit.WithGeneration(2),
			},
			want: limit.Urgent,
		},
		"DeletionFailedForOtherSpec": {
			reason: "A deletion that failed should come first when the spec has changed.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithDeletionTimestamp,
				kit.WithDeletingReason(reconciler.ReasonExternalDeleteFailed), kit.WithGeneration(2),
			},
			want: limit.Urgent,
		},
		"DeletionWaitsForFinalizers": {
			reason: "A deletion that waits for another finalizer should not come before new managed resources.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithFinalizers(
					managed.FinalizerName, "example.org/other",
				), kit.WithDeletionTimestamp,
				kit.WithDeletingReason(reconciler.ReasonWaitingForFinalizers),
			},
			want: limit.Settling,
		},
		"DeletionWaitedForFinalizers": {
			reason: "A deletion should come first when the other finalizers are removed.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithDeletionTimestamp,
				kit.WithDeletingReason(reconciler.ReasonWaitingForFinalizers),
			},
			want: limit.Urgent,
		},
		"Settling": {
			reason: "A managed resource that becomes ready should come before polls.",
			bucket: []kit.BucketModifier{kit.WithReconciledStatus, kit.WithConditions(xpv2.Creating())},
			want:   limit.Settling,
		},
		"Throttled": {
			reason: "A managed resource that is not ready because calls are throttled should come before polls.",
			bucket: []kit.BucketModifier{kit.WithReconciledStatus, kit.WithConditions(xpv2.Creating(), throttled)},
			want:   limit.Settling,
		},
		"ThrottledPoll": {
			reason: "A managed resource whose poll is throttled should not come before others.",
			bucket: []kit.BucketModifier{kit.WithReconciledStatus, kit.WithConditions(throttled)},
			want:   limit.Poll,
		},
		"Failing": {
			reason: "A managed resource whose reconcile fails should not come before polls, although it is not ready.",
			bucket: []kit.BucketModifier{
				kit.WithReconciledStatus, kit.WithConditions(xpv2.Creating(), xpv2.ReconcileError(kit.ErrProvider)),
			},
			want: limit.Poll,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kit.ExpectEqual(t, tc.reason, "class", tc.want, classOf(kit.NewBucket(tc.bucket...), false))
		})
	}
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
			wantMessage: "ratelimit.WithAccountKey panicked",
		},
		"Missing": {reason: "The provider config should be the account by default."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithName("one"), kit.WithProviderConfig("one")),
					kit.NewBucket(kit.WithName("two"), kit.WithProviderConfig("two")),
				)
				ext := &kit.CountingClient{}
				var o []Option
				if tc.key != nil {
					o = append(o, WithAccountKey(tc.key))
				}
				r := kit.NewBucketReconciler(api, ext.Connect(), With(New(1, 1, o...)))
				kit.ReconcileOnce(t, r, "one")
				before := len(ext.Calls)
				kit.ReconcileOnce(t, r, "two")
				message := kit.GetBucketNamed(t, api, "two").GetCondition(xpv2.TypeSynced).Message
				if tc.wantMessage != "" {
					if !strings.Contains(message, tc.wantMessage) || strings.Contains(message, "secret") {
						t.Errorf("%s\ngot %q", tc.reason, message)
					}
					kit.ExpectEqual(t, tc.reason, "calls", 0, len(ext.Calls))
					return
				}
				kit.ExpectEqual(t, tc.reason, "waits", tc.wantWait, len(ext.Calls) == before)
			})
		})
	}
}

func TestThrottled(t *testing.T) {
	answer := &kit.TooManyRequests{
		Response: &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"120"}}},
	}
	marked := errors.Wrap(Throttled(errors.New("request 4711 was refused"), 2*time.Minute), "wrapped")

	cases := map[string]struct {
		reason string
		call   string
		err    error
		client kit.CountingClient
		bucket []kit.BucketModifier
	}{
		"Connect": {reason: "Connect should be able to return Throttled.", call: "connect", err: marked},
		"Observe": {reason: "Observe should be able to return Throttled.", call: "observe", err: marked},
		"Create": {
			reason: "Create should be able to return Throttled.",
			call:   "create",
			err:    marked,
			client: kit.CountingClient{Absent: true},
		},
		"Update": {
			reason: "Update should be able to return Throttled.",
			call:   "update",
			err:    marked,
			client: kit.CountingClient{Outdated: true},
		},
		"Delete": {
			reason: "Delete should be able to return Throttled.",
			call:   "delete",
			err:    marked,
			bucket: []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)},
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
			client: kit.CountingClient{Absent: true},
		},
		"AnswerToDeletion": {
			reason: "The external system's answer to Delete should count as throttled.",
			call:   "delete",
			err:    answer,
			bucket: []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := With(New(100, 100))
				api, r, ext := throttledBuckets(tc.call, tc.err, tc.client, tc.bucket, limits)
				_, _ = r.Reconcile(t.Context(), kit.Request())
				c := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
				until := time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)
				kit.ExpectEqual(t, tc.reason, "Synced", []string{
					"False", "Throttled",
					"The external system throttles the calls of this account. No call is made until " + until + ".",
				}, []string{string(c.Status), string(c.Reason), c.Message})
				kit.ExpectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(kit.GetBucket(t, api)),
				)

				before := len(ext.Calls)
				api.Forget()
				kit.ReconcileOnce(t, r, "b")
				kit.ReconcileOnce(t, r, "neighbour")
				kit.ExpectEqual(
					t, "No reconcile of the account should start while it is closed.", "calls", before, len(ext.Calls),
				)
				kit.ExpectEqual(
					t, "No reconcile of the account should start while it is closed.", "writes", 0, api.Writes(),
				)
				ext.Errs = nil
				kit.ReconcileOnce(t, r, "stranger")
				if len(ext.Calls) == before {
					t.Error("Other accounts should go on.")
				}

				// The neighbour starts first because it is new.
				time.Sleep(125 * time.Second)
				kit.MustReconcileTimes(t, r, 1)
				time.Sleep(5 * time.Second)
				kit.MustReconcileTimes(t, r, 1)
				if len(tc.bucket) == 0 {
					kit.ExpectEqual(
						t, "The reconcile should succeed when the account is open again.", "Synced",
						xpv2.ReasonReconcileSuccess, kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
					)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				_, r, ext := throttledBuckets(tc.call, tc.err, tc.client, tc.bucket)
				_, _ = r.Reconcile(t.Context(), kit.Request())
				ext.Errs = nil
				before := len(ext.Calls)
				_, _ = r.Reconcile(t.Context(), kit.Request())
				if len(ext.Calls) == before {
					t.Error("No account should be closed without limits.")
				}
			})
		})
	}
}

// throttledBuckets returns a reconciler of three buckets, the third with an account of its own, and the client
// whose call returns an error.
func throttledBuckets(
	call string, err error, ext kit.CountingClient, bucket []kit.BucketModifier, o ...managed.ReconcilerOption,
) (*testkit.API, *managed.Reconciler, *kit.CountingClient) {
	api := testkit.NewAPI(
		kit.NewBucket(append([]kit.BucketModifier{kit.WithExternalName("n")}, bucket...)...), kit.NewBucket(
			kit.WithName("neighbour"),
		),
		kit.NewBucket(kit.WithName("stranger"), kit.WithProviderConfig("other")),
	)
	ext.Errs = map[string]error{call: err}
	return api, kit.NewBucketReconciler(api, append(o, ext.Connect())...), &ext
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
		client kit.CountingClient
		bucket []kit.BucketModifier
		limits *Limits
	}{
		"Observe": {reason: "The backoff should grow as with upstream.", call: "observe"},
		"ObserveLimited": {
			reason: "The backoff should grow as with upstream.", call: "observe", limits: New(40, 40),
		},
		"CreateLimited": {
			reason: "The backoff should grow as with upstream.", call: "create",
			client: kit.CountingClient{Absent: true},
			limits: New(40, 40),
		},
		"UpdateLimited": {
			reason: "The backoff should grow as with upstream.", call: "update",
			client: kit.CountingClient{Outdated: true},
			limits: New(40, 40),
		},
		"DeleteLimited": {
			reason: "The backoff should grow as with upstream.", call: "delete", limits: New(40, 40),
			bucket: []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o []managed.ReconcilerOption
				if tc.limits != nil {
					o = append(o, With(tc.limits))
				}
				answer := &kit.TooManyRequests{Response: &http.Response{StatusCode: http.StatusTooManyRequests}}
				api, r, ext := throttledBuckets(tc.call, answer, tc.client, tc.bucket, o...)
				end, failures := time.Now().Add(30*time.Minute), 0
				for time.Now().Before(end) {
					res, err := r.Reconcile(t.Context(), kit.Request())
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
				for _, call := range ext.Calls {
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

func TestTerminal(t *testing.T) {
	label := func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) }
	spec := func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" }

	cases := map[string]struct {
		reason string
		client kit.CountingClient
		call   string
	}{
		"Create": {
			reason: "A create that fails with a terminal error should not be repeated.",
			call:   "create",
			client: kit.CountingClient{Absent: true},
		},
		"Update": {
			reason: "An update that fails with a terminal error should not be repeated.",
			call:   "update",
			client: kit.CountingClient{Outdated: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pc := &v1alpha1.ClusterProviderConfig{}
				pc.SetName("pc")
				api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n"), kit.WithProviderConfig("pc")), pc)
				ext := tc.client
				ext.Errs = map[string]error{
					tc.call: errors.Wrap(Terminal(errors.New("the region does not exist")), "cannot do it"),
				}
				recorder := &testkit.Said{}
				limits := New(1000, 1000)
				o := []managed.ReconcilerOption{
					ext.Connect(), managed.WithRecorder(recorder), With(limits), managed.WithPollInterval(time.Minute),
				}
				r := kit.NewBucketReconciler(api, o...)

				kit.ReconcileOnce(t, r, "b")
				c := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
				if c.Reason != ReasonTerminal || c.Status != "False" ||
					!strings.HasPrefix(c.Message, "cannot do it: the region does not exist: not tried again until") {
					t.Errorf("%s\nSynced: %v", tc.reason, c)
				}
				kit.ExpectEqual(t, tc.reason, "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"))
				kit.ExpectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(kit.GetBucket(t, api)),
				)

				time.Sleep(time.Second) // creates start at least a second apart
				kit.ReconcileOnce(t, r, "b")
				api.Forget()
				observed := ext.Count("observe")
				for range 60 {
					res := kit.ReconcileOnce(t, r, "b")
					if res.RequeueAfter < 50*time.Second || res.RequeueAfter > 70*time.Second {
						t.Fatalf("The external resource should be observed at each poll: got %+v", res)
					}
					time.Sleep(res.RequeueAfter)
				}
				kit.ExpectEqual(t, tc.reason, "calls in an hour", 1, ext.Count(tc.call))
				kit.ExpectEqual(
					t, "The external resource should be observed at each poll.", "observations", observed+60,
					ext.Count("observe"),
				)
				kit.ExpectEqual(t, "The same situation should be written once.", "writes", 0, api.Writes())
				kit.ExpectEqual(
					t, "We should emit one event.", "events", 1,
					len(recorder.Events(
						"CannotCreateExternalResource", "CannotUpdateExternalResource",
						"CannotObserveExternalResource",
					)),
				)
				kit.ExpectEqual(
					t, "Synced should keep the terminal error.", "reason", ReasonTerminal,
					kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
				)

				for i, change := range []kit.BucketModifier{spec, label, kit.WithAnnotation(
					"example.org/retry", "1",
				), kit.WithAnnotation(meta.AnnotationKeyReconcileRequestedAt, "1")} {
					kit.UpdateBucket(t, api, "b", change)
					time.Sleep(time.Second)
					kit.ReconcileOnce(t, r, "b")
					time.Sleep(time.Second)
					kit.MustReconcileTimes(t, r, 3)
					kit.ExpectEqual(t, "A change should be tried once.", "calls", i+2, ext.Count(tc.call))
				}
				kit.ExpectEqual(
					t, "Each call that fails should emit an event.", "events", 5,
					len(recorder.Events("CannotCreateExternalResource", "CannotUpdateExternalResource")),
				)

				kit.Must(t, api.Server().Get(context.Background(), client.ObjectKey{Name: "pc"}, pc))
				pc.Status.Users++
				kit.Must(t, api.Server().Status().Update(context.Background(), pc))
				time.Sleep(time.Second)
				kit.MustReconcileTimes(t, r, 2)
				kit.ExpectEqual(
					t, "A provider config whose status has changed should cause no call.", "calls", 5,
					ext.Count(tc.call),
				)
				pc.Spec.Token = "repaired"
				kit.Must(t, api.Server().Update(context.Background(), pc))
				kit.MustReconcileTimes(t, r, 1)
				time.Sleep(time.Second)
				kit.MustReconcileTimes(t, r, 2)
				kit.ExpectEqual(
					t, "A provider config that has changed should be tried once.", "calls", 6, ext.Count(tc.call),
				)

				time.Sleep(time.Second)
				r = kit.NewBucketReconciler(api, o...)
				kit.MustReconcileTimes(t, r, 1)
				time.Sleep(time.Minute)
				kit.MustReconcileTimes(t, r, 3)
				kit.ExpectEqual(t, "A new process should try once.", "calls", 7, ext.Count(tc.call))

				ext.Errs = nil
				ext.Outdated = false
				kit.UpdateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "somewhere" })
				time.Sleep(time.Second)
				kit.MustReconcileTimes(t, r, 3)
				kit.ExpectEqual(
					t, "The repaired spec should be reconciled.", "Synced", xpv2.ReasonReconcileSuccess,
					kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
				)
				kit.ExpectEqual(
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
		api := testkit.NewAPI(kit.NewBucket(
			kit.WithExternalName("n"), kit.WithAnnotation(
				meta.AnnotationKeyExternalCreatePending, "1999-12-31T00:00:00Z",
			),
		))
		ext := kit.CountingClient{
			Outdated: true, Errs: map[string]error{"update": Terminal(errors.New("no such region"))},
		}
		r := kit.NewBucketReconciler(
			api, With(New(1000, 1000)), ext.Connect(),
			managed.WithDeterministicExternalName(true), managed.WithPollInterval(time.Minute),
		)
		for range 60 {
			kit.MustReconcileTimes(t, r, 1)
			time.Sleep(time.Minute)
		}
		kit.ExpectEqual(t, reason, "updates", 1, ext.Count("update"))
		kit.ExpectEqual(t, reason, "Synced", ReasonTerminal, kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Reason)
	})
}

// pollEachMinute polls a managed resource n times, and lets asynchronous operations end.
func pollEachMinute(t *testing.T, r reconcile.Reconciler, n int) {
	t.Helper()
	for range n {
		kit.MustReconcileTimes(t, r, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

func TestTerminal_ExternalResourceIsRepaired(t *testing.T) {
	cases := map[string]struct {
		reason string
		client kit.CountingClient
		call   string
		async  bool
	}{
		"Create": {
			reason: "An external resource that was created by hand, and deleted again, should be created.",
			client: kit.CountingClient{Absent: true},
			call:   "create",
		},
		"Update": {
			reason: "An external resource that was repaired by hand, and changed again, should be updated.",
			client: kit.CountingClient{Outdated: true},
			call:   "update",
		},
		"AsyncCreate": {
			reason: "An external resource that was created by hand, and deleted again, should be created asynchronously.",
			client: kit.CountingClient{Absent: true},
			call:   "create",
			async:  true,
		},
		"AsyncUpdate": {
			reason: "An external resource that was repaired by hand, and changed again, should be updated asynchronously.",
			client: kit.CountingClient{Outdated: true},
			call:   "update",
			async:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithExternalName("n"), kit.WithFinalizers(managed.FinalizerName)),
				)
				ext, limits := tc.client, New(1000, 1000)
				ext.Errs = map[string]error{tc.call: Terminal(errors.New("no"))}
				opts := []managed.ReconcilerOption{ext.Connect(), With(limits), managed.WithPollInterval(time.Minute)}
				if tc.async {
					opts = append(opts, asyncstate.With(asyncstate.NewTracker()))
				}
				r := kit.NewBucketReconciler(api, opts...)
				pollEachMinute(t, r, 5)
				kit.ExpectEqual(t, "A terminal error should not be repeated.", "calls", 1, ext.Count(tc.call))

				ext.Errs, ext.Absent, ext.Outdated = nil, false, false
				pollEachMinute(t, r, 2)
				kit.ExpectEqual(
					t, "A terminal error should not be counted after the repair.", "gauge", 0.0,
					gauge(t, limits, "graft_terminal_errors"),
				)

				ext.Absent, ext.Outdated = tc.client.Absent, tc.client.Outdated
				pollEachMinute(t, r, 1)
				kit.ExpectEqual(t, tc.reason, "calls", 2, ext.Count(tc.call))
			})
		})
	}
}

func TestTerminal_ExternalResourceIsDeleted(t *testing.T) {
	for name, async := range map[string]bool{"Synchronous": false, "Asynchronous": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithExternalName("n"), kit.WithFinalizers(managed.FinalizerName)),
				)
				ext := kit.CountingClient{Outdated: true}
				ext.Errs = map[string]error{"update": Terminal(errors.New("immutable"))}
				opts := []managed.ReconcilerOption{ext.Connect(), managed.WithPollInterval(time.Minute)}
				if async {
					opts = append(opts, asyncstate.With(asyncstate.NewTracker()))
				}
				r := kit.NewBucketReconciler(api, append(opts, With(New(1000, 1000)))...)
				pollEachMinute(t, r, 5)
				kit.ExpectEqual(t, "A terminal error should not be repeated.", "updates", 1, ext.Count("update"))

				ext.Absent = true
				pollEachMinute(t, r, 2)
				if ext.Count("create") == 0 {
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
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithExternalName("n"), kit.WithFinalizers(managed.FinalizerName)),
				)
				changes := 0
				called := func(call string, mg resource.Managed) {
					if call == "observe" {
						mg.SetLabels(map[string]string{"not": "stored"})
					}
					if call == tc.sets {
						kit.WithAnnotation("example.org/last", time.Now().String())(kit.AsBucket(mg))
					}
				}
				change := func(mg resource.Managed) error {
					changes++
					called("change", mg)
					return Terminal(errors.New("no"))
				}
				poll := stdcmp.Or(tc.poll, time.Minute)
				limits := With(New(1000, 1000))
				r := kit.NewBucketReconciler(api, limits, managed.WithPollInterval(poll),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							called("observe", mg)
							return managed.ExternalObservation{ResourceExists: tc.exists}, nil
						},
						CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
							return managed.ExternalCreation{}, change(mg)
						},
						UpdateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
							return managed.ExternalUpdate{}, change(mg)
						},
					}))
				for range 30 {
					_, err := r.Reconcile(t.Context(), kit.Request())
					kit.Must(t, err)
					time.Sleep(poll)
				}
				kit.ExpectEqual(t, tc.reason, "few calls", true, changes <= 2)
				before := changes
				kit.UpdateBucket(t, api, "b", kit.WithAnnotation("example.org/retry", "1"))
				for range 3 {
					_, err := r.Reconcile(t.Context(), kit.Request())
					kit.Must(t, err)
					time.Sleep(poll)
				}
				kit.ExpectEqual(t, "A user's annotation should repeat the call.", "calls", true, changes > before)
			})
		})
	}
}

func TestTerminal_OfOtherCalls(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   string
		bucket []kit.BucketModifier
	}{
		"Connect": {reason: "A provider that can't be connected to should be tried at each poll.", call: "connect"},
		"Observe": {reason: "Observe should be called at each poll.", call: "observe"},
		"Delete": {
			reason: "Delete should be called at each poll.",
			call:   "delete",
			bucket: []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(append([]kit.BucketModifier{kit.WithExternalName("n")}, tc.bucket...)...),
				)
				ext := &kit.CountingClient{Errs: map[string]error{tc.call: Terminal(errors.New("no"))}}
				r := kit.NewBucketReconciler(
					api, ext.Connect(), managed.WithPollInterval(time.Minute), With(New(1000, 1000)),
				)
				for range 3 {
					res := kit.ReconcileOnce(t, r, "b")
					kit.ExpectEqual(t, tc.reason, "requeue", time.Minute, res.RequeueAfter)
					c := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
					kit.ExpectEqual(t, tc.reason, "Synced", ReasonTerminal, c.Reason)
					if !strings.Contains(c.Message, "no: tried again only at each poll") {
						t.Errorf("The message should say when the call is repeated: got %q", c.Message)
					}
				}
				ext.Errs = nil
				kit.MustReconcileTimes(t, r, 2)
				if len(tc.bucket) == 0 {
					kit.ExpectEqual(
						t, "The reconcile should succeed when the call does.", "Synced", xpv2.ReasonReconcileSuccess,
						kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
					)
				}
			})
		})
	}
}

func TestTerminal_DoesNotHoldUpADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
		ext := &kit.CountingClient{Absent: true, Errs: map[string]error{"create": Terminal(errors.New("no"))}}
		r := kit.NewBucketReconciler(api, ext.Connect(), With(New(1000, 1000)))
		kit.MustReconcileTimes(t, r, 2)
		kit.DeleteBucket(t, api, "b")
		kit.MustReconcileTimes(t, r, 1)
		kit.ExpectEqual(
			t, "A managed resource with a terminal error should be deleted.", "name", "",
			kit.GetBucket(t, api).GetName(),
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
			after:  []client.Object{kit.NewBucket(kit.WithExternalName("other"))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
			ext := &kit.CountingClient{Absent: true, Errs: map[string]error{"create": Terminal(errors.New("no"))}}
			limits := New(1000, 1000)
			r := kit.NewBucketReconciler(api, ext.Connect(), With(limits))
			kit.MustReconcileTimes(t, r, 1)
			kit.ExpectEqual(
				t, "A terminal error should be counted.", "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"),
			)

			kit.RemoveBucket(t, api, "b")
			for _, o := range tc.after {
				kit.Must(t, api.Server().Create(t.Context(), o))
			}
			ext.Absent, ext.Errs = false, nil
			kit.MustReconcileTimes(t, r, 1)
			kit.ExpectEqual(t, tc.reason, "gauge", 0.0, gauge(t, limits, "graft_terminal_errors"))
		})
	}
}

func TestThrottled_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithExternalName("n")), kit.NewBucket(kit.WithName("neighbour")),
				)
				ext := &kit.CountingClient{
					Absent:   at == "create",
					Outdated: at == "update",
					Errs:     map[string]error{at: Throttled(errors.New("slow down"), time.Minute)},
				}
				r := kit.NewBucketReconciler(
					api, ext.Connect(), asyncstate.With(asyncstate.NewTracker()), With(New(100, 100)),
				)
				kit.MustReconcileTimes(t, r, 1)
				synctest.Wait()
				before := len(ext.Calls)
				kit.ReconcileOnce(t, r, "b")
				kit.ReconcileOnce(t, r, "neighbour")
				kit.ExpectEqual(
					t, "An operation that is throttled should close the account.", "calls", before, len(ext.Calls),
				)
				kit.ExpectEqual(
					t, "A create that was refused should not be pending.", "incomplete", false,
					meta.ExternalCreateIncomplete(kit.GetBucket(t, api)),
				)

				ext.Errs, ext.Outdated = nil, false
				time.Sleep(65 * time.Second)
				kit.MustReconcileTimes(t, r, 1)
				time.Sleep(5 * time.Second)
				kit.MustReconcileTimes(t, r, 3)
				synctest.Wait()
				kit.MustReconcileTimes(t, r, 1)
				if at == "create" {
					kit.ExpectEqual(
						t, "A create that was refused should be made again, once.", "creates", 2, ext.Count("create"),
					)
				}
				kit.ExpectEqual(
					t, "The reconcile should succeed when the account is open again.", "Synced",
					xpv2.ReasonReconcileSuccess, kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
				)
			})
		})
	}
}

// A resumingClient sets a handle in Create, and its operation fails when it is resumed.
type resumingClient struct {
	managed.ExternalClient

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
		api, limits, creates := testkit.NewAPI(kit.NewBucket()), New(1000, 1000), 0
		connector := managed.ExternalConnectorFn(func(
			context.Context, resource.Managed,
		) (managed.ExternalClient, error) {
			ec := kit.NewExternalClient(managed.ExternalClientFns{
				ObserveFn: func(context.Context, resource.Managed) (managed.ExternalObservation, error) {
					return managed.ExternalObservation{}, nil
				},
				CreateFn: func(ctx context.Context, _ resource.Managed) (managed.ExternalCreation, error) {
					creates++
					if err := asyncstate.SetHandle(ctx, "op"); err != nil {
						t.Error(err)
					}
					return managed.ExternalCreation{}, asyncstate.ErrOutcomeUnknown
				},
			})
			return resumingClient{&ec, Terminal(errors.New("no such region"))}, nil
		})
		r := kit.NewBucketReconciler(
			api, managed.WithExternalConnector(connector), asyncstate.With(asyncstate.NewTracker()), With(limits),
			managed.WithPollInterval(time.Minute),
		)
		for i := range 60 {
			kit.MustReconcileTimes(t, r, 1)
			synctest.Wait()
			if i == 0 && changed {
				b := kit.GetBucket(t, api)
				kit.UpdateBucket(
					t, api, b.GetName(), func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" },
				)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		kit.ExpectEqual(t, reason, "creates", want, creates)
		kit.ExpectEqual(t, reason, "Synced", ReasonTerminal, kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Reason)
		kit.ExpectEqual(t, reason, "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"))
	})
}

func TestTerminal_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
				ext := &kit.CountingClient{
					Absent:   at == "create",
					Outdated: at == "update",
					Errs:     map[string]error{at: Terminal(errors.New("no such region"))},
				}
				r := kit.NewBucketReconciler(
					api, ext.Connect(), asyncstate.With(asyncstate.NewTracker()), managed.WithPollInterval(time.Minute),
					With(New(1000, 1000)),
				)
				for range 60 {
					kit.MustReconcileTimes(t, r, 1)
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				c := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
				kit.ExpectEqual(
					t, "An operation that fails with a terminal error should not be repeated.", "calls", 1,
					ext.Count(at),
				)
				kit.ExpectEqual(
					t, "An operation that fails with a terminal error should not be repeated.", "Synced",
					ReasonTerminal, c.Reason,
				)
				if !strings.HasPrefix(c.Message, "no such region: not tried again until") {
					t.Errorf("Synced should have the error: got %q", c.Message)
				}
				if running := kit.GetBucket(t, api).GetCondition(
					asyncstate.TypeOperation,
				); running.Reason != asyncstate.ReasonFailed || strings.Contains(
					running.Message, "next attempt",
				) {
					t.Errorf("OperationRunning should announce no next attempt: got %q", running.Message)
				}
				if ext.Count("observe") < 55 {
					t.Errorf("The external resource should be observed at each poll: got %d", ext.Count("observe"))
				}
				api.Forget()
				kit.MustReconcileTimes(t, r, 3)
				kit.ExpectEqual(t, "The same situation should be written once.", "writes", 0, api.Writes())

				ext.Errs[at] = Terminal(errors.New("the quota is zero"))
				kit.UpdateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "nowhere" })
				kit.MustReconcileTimes(t, r, 1)
				synctest.Wait()
				kit.MustReconcileTimes(t, r, 2)
				c = kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
				if !strings.HasPrefix(c.Message, "the quota is zero: not tried again until") {
					t.Errorf("Synced should have the new error: got %q", c.Message)
				}

				ext.Errs, ext.Outdated = nil, false
				kit.UpdateBucket(t, api, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				time.Sleep(time.Second) // creates start at least a second apart
				kit.MustReconcileTimes(t, r, 1)
				synctest.Wait()
				kit.MustReconcileTimes(t, r, 2)
				kit.ExpectEqual(
					t, "A changed spec should be tried at once.", "creates", at == "create", ext.Count("create") == 3,
				)
				kit.ExpectEqual(
					t, "A changed spec should be tried at once.", "Synced", xpv2.ReasonReconcileSuccess,
					kit.ReasonOf(kit.GetBucket(t, api), xpv2.TypeSynced),
				)
			})
		})
	}
}

func TestCharge_Async(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
		ext := &kit.CountingClient{Absent: true}
		limits := New(0.001, 10)
		r := kit.NewBucketReconciler(api, ext.Connect(), asyncstate.With(asyncstate.NewTracker()), With(limits))
		kit.MustReconcileTimes(t, r, 1)
		synctest.Wait()
		kit.ExpectEqual(
			t, "An observation and an asynchronous create should take a token each.", "tokens", 8.0,
			gauge(t, limits, "graft_limit_tokens"),
		)
	})
}

func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(
			kit.NewBucket(kit.WithExternalName("n")), kit.NewBucket(kit.WithName("other"), kit.WithExternalName("n")),
		)
		ext := &kit.CountingClient{}
		o := managed.WithExternalConnector(kit.NewConnector(managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				Charge(ctx, 20)
				Charge(ctx, -5)
				ext.Calls = append(ext.Calls, "observe")
				return kit.ObserveExists(ctx, mg)
			},
		}))
		limits := New(10, 10)
		r := kit.NewBucketReconciler(api, o, With(limits))
		kit.ReconcileOnce(t, r, "b")
		res := kit.ReconcileOnce(t, r, "other")
		kit.ExpectEqual(
			t, "Later reconciles should pay for what a client charges.", "requeue", 1200*time.Millisecond,
			res.RequeueAfter.Round(time.Millisecond),
		)
		kit.ExpectEqual(
			t, "A reconcile that waits should be counted.", "graft_limited_reconciles_total", 1.0,
			gauge(t, limits, "graft_limited_reconciles_total"),
		)
		kit.ExpectEqual(
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
	kit.Must(t, reg.Register(c))
	families, err := reg.Gather()
	kit.Must(t, err)
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
