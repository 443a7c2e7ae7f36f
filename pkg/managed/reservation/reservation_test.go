package reservation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestReservation_RequestsForLeases(t *testing.T) {
	api := testkit.NewAPI(bucketWithSharedName("b"))
	ext := &kit.ExternalResource{}
	r := newReservingReconciler(api, ext)
	expectRequests := func(reason string, want int) {
		t.Helper()
		got := api.CountIf(func(r testkit.Request) bool { return isLease(r.Object) || isHolderCheck(r.Object) })
		kit.ExpectEqual(t, reason, "requests for leases", want, got)
		api.Forget()
	}
	ext.BeforeCall = func(string, resource.Managed) error { return errors.New("boom") }
	kit.MustReconcile(t, r, "b")
	expectRequests("A reconcile whose Observe fails should only read the lease.", 1)
	expectHolder(t, "There should be no lease before the create.", api, "")

	ext.BeforeCall = nil
	kit.MustReconcile(t, r, "b")
	expectRequests("A create should check, read and create the lease.", 3)
	expectHolder(t, "The managed resource should hold the lease after its create.", api, "b")
	l := leasesByKey(t, api)[sharedKey]
	kit.ExpectEqual(t, "The key should decide the name of the lease.", "name", leaseName(sharedKey), l.GetName())
	kit.ExpectEqual(
		t, "There should be no condition about a reservation that succeeds.", "ExternalNameReserved",
		corev1.ConditionUnknown, kit.GetBucket(t, api).GetCondition(TypeReserved).Status,
	)

	kit.MustReconcile(t, r, "b", "b")
	expectRequests("A steady state should need no requests.", 0)

	var kept *store.Store
	r = newReservingReconciler(api, ext, kit.WithStore(&kept))
	kit.MustReconcile(t, r, "b")
	expectRequests("A new process should read the lease once.", 1)

	kit.DeleteBucket(t, api, "b")
	kit.MustReconcile(t, r, "b")
	expectRequests("Delete should confirm the lease.", 1)
	kit.MustReconcile(t, r, "b")
	expectRequests("The lease should be read and released.", 2)
	kit.MustReconcile(t, r, "b")
	expectHolder(t, "There should be no lease after the deletion.", api, "")
	kit.ExpectEqual(t, "Nothing should be kept in memory after the deletion.", "objects in memory", 0, kept.Len())
}

func TestReservation_RequestsForLeasesWithoutCreate(t *testing.T) {
	requests := func(api *testkit.API) int {
		return api.CountIf(func(r testkit.Request) bool { return isLease(r.Object) || isHolderCheck(r.Object) })
	}

	api := testkit.NewAPI(bucketWithSharedName("b"))
	r := newReservingReconciler(api, &kit.ExternalResource{Exists: true})
	kit.MustReconcile(t, r, "b")
	expectHolder(t, "An external resource that was found should be reserved.", api, "b")
	api.Forget()
	kit.MustReconcile(t, r, "b", "b")
	kit.ExpectEqual(
		t, "A steady state should need no requests for an external resource that was found.", "requests for leases", 0,
		requests(api),
	)
}

func TestReservation_HandOver(t *testing.T) {
	api := testkit.NewAPI(bucketWithSharedName("old"), bucketWithSharedName("new"))
	ext := &kit.ExternalResource{DeletesIgnored: 2}
	r := newReservingReconciler(api, ext)
	kit.MustReconcile(t, r, "old", "new", "old")
	kit.DeleteBucket(t, api, "old")
	kit.MustReconcile(t, r, "old", "new", "old", "new")

	reason := "The new managed resource should wait, and say for which one, while the external resource of the old one is being deleted."
	b := kit.GetBucketNamed(t, api, "new")
	synced, reserved := b.GetCondition(xpv2.TypeSynced), b.GetCondition(TypeReserved)
	kit.ExpectEqual(t, reason, "Synced", corev1.ConditionFalse, synced.Status)
	kit.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionFalse, reserved.Status)
	kit.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReservedByOther, reserved.Reason)
	for _, m := range []string{synced.Message, reserved.Message} {
		if !strings.Contains(m, "reserved by Bucket default/old (uid uid-1)") {
			t.Errorf("\n%s\ngot message %q", reason, m)
		}
	}
	kit.ExpectEqual(
		t, "A managed resource that waits should get no finalizer.", "finalizers", 0, len(b.GetFinalizers()),
	)

	api.Forget()
	kit.MustReconcile(t, r, "new", "new")
	kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

	kit.UpdateBucket(
		t, api, "new", kit.WithoutAnnotation(meta.AnnotationKeyExternalName),
		kit.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate),
	)
	kit.MustReconcile(t, r, "new")
	reserved = kit.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
	reason = "A managed resource without an external name should not wait."
	kit.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionUnknown, reserved.Status)
	kit.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonNotNeeded, reserved.Reason)

	kit.UpdateBucket(t, api, "new", kit.WithExternalName("shared"), kit.WithPolicies(xpv2.ManagementActionAll))
	kit.MustReconcile(t, r, "old", "old", "new", "new")
	reason = "The new managed resource should take the lease when the old one no longer exists."
	kit.ExpectCalls(t, ext, "create old", "delete old", "delete old", "delete old", "create new")
	expectHolder(t, reason, api, "new")
	reserved = kit.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
	kit.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionTrue, reserved.Status)
	kit.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReserved, reserved.Reason)
}

func TestReservation_ConditionCannotBeStored(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%t", restarted), func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("old"), bucketWithSharedName("new"))
			ext := &kit.ExternalResource{Exists: true}
			r := newReservingReconciler(api, ext)
			kit.MustReconcile(t, r, "old", "new")
			kit.ExpectEqual(
				t, "The new managed resource should wait for the old one.", "ExternalNameReserved",
				corev1.ConditionFalse, kit.GetBucketNamed(t, api, "new").GetCondition(TypeReserved).Status,
			)

			kit.RemoveBucket(t, api, "old")
			api.Before = kit.OnNthRequest(1, kit.IsStatusWrite, kit.FailWithConflict)
			kit.MustReconcile(t, r, "new")
			expectHolder(t, "The new managed resource should take the lease.", api, "new")
			if restarted {
				r = newReservingReconciler(api, ext)
			}
			kit.MustReconcile(t, r, "new")
			reserved := kit.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
			reason := "A reservation should be reported although the first write of its condition failed."
			kit.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionTrue, reserved.Status)
			kit.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReserved, reserved.Reason)
		})
	}
}

func TestReservation_AssignedName(t *testing.T) {
	api := testkit.NewAPI(
		bucketWithSharedName("b", kit.WithoutAnnotation(meta.AnnotationKeyExternalName)),
		bucketWithSharedName("other", kit.WithExternalName("id-1")),
	)
	ext := &kit.ExternalResource{}
	ext.OnCall("create", func(b *v1alpha1.Bucket) error { kit.WithExternalName("id-1")(b); return nil })
	r := newReservingReconciler(api, ext)
	kit.MustReconcile(t, r, "b")
	kit.ExpectEqual(
		t, "The name that the external system assigned should be reserved after the create.", "holders",
		map[string]string{
			strings.Replace(sharedKey, "shared", "id-1", 1): "b",
		}, holdersByKey(t, api),
	)
	kit.MustReconcile(t, r, "other", "b")
	kit.ExpectCalls(t, ext, "create b")
}

func TestReservation_NameFromObserve(t *testing.T) {
	created := kit.WithAnnotation(
		meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339),
	)
	cases := map[string]struct {
		reason      string
		bucket      []kit.BucketModifier
		wantDeleted bool
	}{
		"Alive": {
			reason: "The managed resource should wait while another one has reserved the name that Observe learned.",
		},
		"NeverCreatedWhileDeleted": {
			reason:      "The managed resource should be deleted without the external resource of another one.",
			bucket:      []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)},
			wantDeleted: true,
		},
		"CreatedWhileDeleted": {
			reason: "The managed resource should be kept because it may have created the external resource itself.",
			bucket: []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName), created},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(
				bucketWithSharedName(
					"late", append(tc.bucket, kit.WithoutAnnotation(meta.AnnotationKeyExternalName))...,
				),
				bucketWithSharedName("first"),
			)
			ext := &kit.ExternalResource{}
			ext.BeforeCall = func(_ string, mg resource.Managed) error {
				meta.SetExternalName(mg, "shared")
				return nil
			}
			kit.MustReconcile(t, newReservingReconciler(api, ext), "first", "late")
			kit.ExpectCalls(t, ext, "create first")
			expectHolder(t, tc.reason, api, "first")
			late := kit.GetBucketNamed(t, api, "late")
			kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, late.GetName() == "")
			if !tc.wantDeleted {
				kit.ExpectEqual(t, tc.reason, "name", "shared", meta.GetExternalName(late))
				kit.ExpectEqual(
					t, tc.reason, "reason", ReasonReservedByOther, late.GetCondition(TypeReserved).Reason,
				)
				kit.ExpectEqual(
					t, tc.reason, "Synced", corev1.ConditionFalse, late.GetCondition(xpv2.TypeSynced).Status,
				)
			}
		})
	}
}

// A reservationTest reconciles managed resources that refer to one external resource.
type reservationTest struct {
	kept *store.Store
	*testing.T

	api      *testkit.API
	external *kit.ExternalResource
	recorder *testkit.Said
	opts     []managed.ReconcilerOption
	r        *managed.Reconciler

	keyPanics bool // makes the key function panic
}

func (s *reservationTest) newReconciler(o ...managed.ReconcilerOption) *managed.Reconciler {
	return newReservingReconciler(
		s.api, s.external, append(append(o, kit.WithStore(&s.kept), managed.WithRecorder(s.recorder)), s.opts...)...,
	)
}

// reconcile reconciles the managed resources one after the other, a second apart, because no
// create starts in the second in which the last one ended.
func (s *reservationTest) reconcile(names ...string) {
	s.Helper()
	for _, n := range names {
		time.Sleep(time.Second)
		s.reconcileNow(n)
	}
}

// reconcileNow reconciles without a pause. It returns when all goroutines wait for time to pass.
func (s *reservationTest) reconcileNow(names ...string) {
	s.Helper()
	kit.MustReconcile(s.T, s.r, names...)
	synctest.Wait()
}

// reconcileAndDelete reconciles a managed resource, deletes it and reconciles it again.
func (s *reservationTest) reconcileAndDelete(name string) {
	s.Helper()
	s.reconcile(name)
	kit.DeleteBucket(s.T, s.api, name)
	s.reconcile(name)
}

// createExternally creates the external resource of b without a call of Create.
func (s *reservationTest) createExternally(b *v1alpha1.Bucket) {
	s.external.Exists, s.external.Owner = true, b.GetUID()
}

// TestReservation_LeaseHolder reconciles managed resources that refer to one external resource.
// The lease should be kept as long as its holder exists.
func TestReservation_LeaseHolder(t *testing.T) {
	errQuota, errExists, errTag := errors.New("quota exceeded"), errors.New("already exists"), errors.New("cannot tag")
	withCreatePending := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	bucketsOfTenants := []client.Object{
		bucketWithSharedName("mine", kit.WithNamespace("attacker")),
		bucketWithSharedName("theirs", kit.WithNamespace("victim")),
	}
	bothRivals := []string{"other", "b"}
	isLeaseDelete := func(q testkit.Request) bool { return isLease(q.Object) && q.Verb == testkit.Delete }

	// reconcileTenants reconciles managed resources of two namespaces. One of them should be
	// blocked, and the conditions of neither should name the other.
	reconcileTenants := func(s *reservationTest) {
		s.reconcile("attacker/mine", "attacker/mine", "victim/theirs", "attacker/mine")
		said := func(name string) string {
			return fmt.Sprint(kit.GetBucketNamed(s.T, s.api, name).Status.Conditions)
		}
		mine, theirs := said("attacker/mine"), said("victim/theirs")
		blocked := strings.Count(mine+theirs, "it is reserved by a managed resource in another namespace")
		if blocked != 2 || strings.Contains(mine, "victim") || strings.Contains(mine, "theirs") ||
			strings.Contains(theirs, "attacker") || strings.Contains(theirs, "mine") {
			s.Errorf("conditions: %s; %s", mine, theirs)
		}
	}
	createOfAttackerReturns := func(err error) func(*reservationTest, *v1alpha1.Bucket) error {
		return func(_ *reservationTest, b *v1alpha1.Bucket) error {
			if b.Namespace == "attacker" {
				return err
			}
			return nil
		}
	}

	// observeInTurn observes that the external resource exists, then that it doesn't, then that
	// it does.
	observeInTurn := func(s *reservationTest) {
		for _, found := range []bool{true, false, true} {
			s.external.Exists, s.external.Outdated = found, found
			s.reconcile("b")
			expectHolder(s.T, "The lease should be kept after each Observe.", s.api, "b")
		}
	}
	cases := map[string]struct {
		reason         string
		objects        []client.Object // the Buckets b and other by default
		opts           []managed.ReconcilerOption
		async          bool
		createFn       func(s *reservationTest, b *v1alpha1.Bucket) error // called by Create of all Buckets but other
		steps          func(s *reservationTest)
		wantHolder     string
		wantCalls      []string // not checked by default
		reconcileAfter []string // reconciled last; no call may be made for a Bucket that is not the owner
	}{
		"CreateFails": {
			reason:     "The lease should be kept after a create that failed, so that another namespace has to wait.",
			objects:    bucketsOfTenants,
			createFn:   createOfAttackerReturns(errQuota),
			steps:      reconcileTenants,
			wantHolder: "mine",
			wantCalls:  []string{"create mine", "create mine", "create mine"},
		},
		"CreateFailsAndIsDeleted": {
			reason:   "The lease of a create that failed should be released with its holder.",
			objects:  bucketsOfTenants,
			createFn: createOfAttackerReturns(errQuota),
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("attacker/mine")
				s.reconcile("victim/theirs")
			},
			wantHolder: "theirs",
			wantCalls:  []string{"create mine", "create theirs"},
		},
		"NoAnswer": {
			reason:         "The lease should be kept after a create without an answer, also by another process.",
			opts:           []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			createFn:       func(*reservationTest, *v1alpha1.Bucket) error { return context.DeadlineExceeded },
			steps:          func(s *reservationTest) { s.reconcile("b"); s.r = s.newReconciler(); s.reconcile("b") },
			wantHolder:     "b",
			reconcileAfter: bothRivals,
		},
		"AsyncCreateFails": {
			reason:     "The lease should be kept after an asynchronous create that failed.",
			async:      true,
			createFn:   func(s *reservationTest, b *v1alpha1.Bucket) error { s.createExternally(b); return errTag },
			steps:      func(s *reservationTest) { s.external.Outdated = true; s.reconcile("b", "b", "other", "b") },
			wantHolder: "b",
		},
		"Renamed": {
			reason: "The leases of both external names should be released with their holder, although the provider was restarted.",
			steps: func(s *reservationTest) {
				s.reconcile("b")
				kit.UpdateBucket(s.T, s.api, "b", kit.WithExternalName("renamed"))
				s.reconcile("b")
				kit.ExpectEqual(s.T, "Both names should be reserved.", "holders", map[string]string{
					sharedKey: "b", strings.ReplaceAll(sharedKey, "shared", "renamed"): "b",
				}, holdersByKey(s.T, s.api))
				s.r = s.newReconciler()
				kit.DeleteBucket(s.T, s.api, "b")
				s.reconcile("b", "b", "b")
			},
		},
		"RenamedBack": {
			reason: "The lease should be kept while a managed resource has another name for a while.",
			steps: func(s *reservationTest) {
				s.reconcile("b")
				kit.UpdateBucket(s.T, s.api, "b", kit.WithExternalName("renamed"))
				s.reconcile("b", "other")
				kit.UpdateBucket(s.T, s.api, "b", kit.WithExternalName("shared"))
				s.reconcile("b", "other")
				kit.RemoveBucket(s.T, s.api, "b")
				left := leasesByKey(s.T, s.api)[strings.ReplaceAll(sharedKey, "shared", "renamed")]
				kit.ExpectEqual(s.T, "The other name should be reserved, too.", "exists", true, left.GetName() != "")
				kit.Must(s.T, s.api.Server().Delete(s.Context(), &left))
			},
			wantHolder: "b",
			wantCalls:  []string{"create b"},
		},
		"KeyPanics": {
			reason: "The result of a create should be stored although the key function panics after it.",
			createFn: func(s *reservationTest, _ *v1alpha1.Bucket) error {
				s.keyPanics = true
				return nil
			},
			steps: func(s *reservationTest) {
				s.opts = append(s.opts, WithKey(func(context.Context, resource.Managed) (string, error) {
					if s.keyPanics {
						panic("oh")
					}
					return sharedKey, nil
				}))
				s.r = s.newReconciler()
				s.reconcile("b")
				b := kit.GetBucket(s.T, s.api)
				kit.ExpectEqual(s.T, "The create should have succeeded.", "succeeded", true,
					!meta.GetExternalCreateSucceeded(b).IsZero() && !meta.ExternalCreateIncomplete(b))
			},
			wantHolder: "b",
			wantCalls:  []string{"create b"},
		},
		"ObservePanicsAfterCreateFailed": {
			reason:   "A create that failed should be stored as failed although the next Observe panics.",
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { return errQuota },
			steps: func(s *reservationTest) {
				s.external.BeforeCall = func(call string, _ resource.Managed) error {
					switch {
					case call == "create":
						return errQuota
					case s.external.Count("create") > 0:
						panic("oh")
					}
					return nil
				}
				kit.TryReconcile(s.r, 2)
				b := kit.GetBucket(s.T, s.api)
				kit.ExpectEqual(s.T, "The create should have failed.", "failed", true,
					!meta.GetExternalCreateFailed(b).IsZero() && !meta.ExternalCreateIncomplete(b))
			},
			wantHolder: "b",
			wantCalls:  []string{"create b"},
		},
		"ReleaseFails": {
			reason: "The managed resource should be deleted, and an event emitted, when its lease can't be released.",
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("b")
				s.api.Before = kit.FailRequests(isLeaseDelete, kit.ServerError())
				s.reconcile("b")
				kit.ExpectEqual(
					s.T, "The managed resource should be deleted.", "name", "", kit.GetBucket(s.T, s.api).GetName(),
				)
				kit.ExpectEqual(
					s.T, "An event should say that the lease can't be released.", "events", 1,
					len(s.recorder.Events("CannotReleaseReservation")),
				)
			},
			wantHolder: "b",
		},
		"FinalizerStays": {
			reason: "The lease should be kept while the finalizer can't be removed.",
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("b")
				s.api.Before = kit.FailRequests(
					func(q testkit.Request) bool { return q.Verb == testkit.Update && !isLease(q.Object) },
					kit.ForbiddenError(),
				)
				s.reconcile("b")
			},
			wantHolder: "b",
		},
		"CacheLags": {
			reason: "A managed resource that the cache still shows after its deletion should not be observed or created again.",
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("b")
				kit.Must(s.T, s.api.Freeze(s.Context(), kit.GetBucketNamed(s.T, s.api, "b")))
				s.reconcile("b")
				observed := s.external.Observes
				s.reconcile("b", "b", "b")
				kit.ExpectEqual(
					s.T, "The managed resource should be deleted.", "name", "",
					kit.GetBucketNamed(s.T, s.api, "b").GetName(),
				)
				kit.ExpectEqual(
					s.T, "A deleted managed resource should not be observed again.", "observations", observed,
					s.external.Observes,
				)
				expectHolder(s.T, "The lease should be released.", s.api, "")
				s.reconcile("other", "b")
				s.api.Thaw()
				s.reconcile("b")
				kit.ExpectEqual(
					s.T, "Only the managed resource that exists should be kept in memory.", "objects in memory", 1,
					s.kept.Len(),
				)
			},
			wantHolder: "other",
			wantCalls:  []string{"create b", "delete b", "create other"},
		},
		"Replaced": {
			reason: "The lease should be kept when the managed resource was replaced by another one of the same name during the create.",
			createFn: func(s *reservationTest, _ *v1alpha1.Bucket) error {
				kit.RemoveBucket(s.T, s.api, "b")
				kit.Must(s.T, s.api.Server().Create(s.Context(), bucketWithSharedName("b", withCreatePending)))
				return errQuota
			},
			wantHolder: "b",
		},
		"FreeToWhatCannotCreate": {
			reason: "A managed resource that may only update should not wait for an external resource that does not exist.",
			objects: []client.Object{
				bucketWithSharedName("b", kit.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)),
				bucketWithSharedName("other"),
			},
			steps: func(s *reservationTest) {
				reserved := func() corev1.ConditionStatus {
					return kit.GetBucket(s.T, s.api).GetCondition(TypeReserved).Status
				}
				s.reconcile("other", "b")
				blocked := reserved()
				kit.RemoveBucket(s.T, s.api, "other")
				s.external.Exists = false
				s.reconcile("b")
				kit.ExpectEqual(
					s.T, "The managed resource should wait while another one holds the lease.", "ExternalNameReserved",
					corev1.ConditionFalse, blocked,
				)
				kit.ExpectEqual(
					s.T, "The managed resource should not wait when there is nothing to update.",
					"ExternalNameReserved", corev1.ConditionUnknown, reserved(),
				)
			},
			wantHolder: "other",
		},
		"FreeToWhatFailedAgain": {
			reason: "The lease should be free when a create succeeded once, and a later create failed.",
			objects: []client.Object{
				bucketWithSharedName("b", kit.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate),
					withCreatePending,
					kit.WithAnnotation(
						meta.AnnotationKeyExternalCreateSucceeded, "2025-01-02T03:04:05Z",
					), kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, "2026-01-02T03:04:06Z")),
				bucketWithSharedName("other"),
			},
			steps:      func(s *reservationTest) { s.reconcile("b", "other") },
			wantHolder: "other",
		},
		"ExistsThoughHidden": {
			reason: "The lease should be kept when a create succeeded, the external system hides the external resource, and the repeated create returns that it already exists.",
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error {
				if s.external.Count("create") > 1 {
					return errExists
				}
				return nil
			},
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.external.Exists = false
				s.reconcile("b", "b", "other")
				kit.ExpectEqual(
					s.T, "The refusal should count as a confirmation of the create that succeeded.",
					"failed after it succeeded", false,
					meta.GetExternalCreateFailed(kit.GetBucketNamed(s.T, s.api,
						"b")).After(meta.GetExternalCreateSucceeded(kit.GetBucketNamed(s.T, s.api, "b"))),
				)
				s.external.Exists = true
			},
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b", "create b"},
			reconcileAfter: bothRivals,
		},
		"AsyncRepeat": {
			reason:   "An asynchronous create should not be repeated after another managed resource has taken the lease.",
			objects:  []client.Object{bucketWithSharedName("b"), bucketWithSharedName("thief")},
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { return asyncstate.ErrOutcomeUnknown },
			steps: func(s *reservationTest) {
				s.r = s.newReconciler(asyncstate.With(asyncstate.NewTracker(asyncstate.WithDeterministicNames())))
				s.reconcile("b")
				time.Sleep(time.Minute)
				takeOverLease(s.T, s.api)
				s.reconcile("b")
			},
			wantHolder: "thief",
			wantCalls:  []string{"create b"},
		},
		"Flaky": {
			reason:     "The lease of an external resource that was observed should be kept when one Observe does not find it.",
			steps:      observeInTurn,
			createFn:   func(*reservationTest, *v1alpha1.Bucket) error { return errExists },
			wantHolder: "b", wantCalls: []string{"update b", "create b", "update b"}, reconcileAfter: bothRivals,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.objects == nil {
					tc.objects = []client.Object{bucketWithSharedName("b"), bucketWithSharedName("other")}
				}
				s := &reservationTest{
					T:        t,
					api:      testkit.NewAPI(tc.objects...),
					external: &kit.ExternalResource{},
					recorder: &testkit.Said{},
					opts:     tc.opts,
				}
				s.external.OnCall("create", func(b *v1alpha1.Bucket) error {
					if tc.createFn == nil || b.Name == "other" {
						return nil
					}
					return tc.createFn(s, b)
				})
				if tc.async {
					s.opts = append(s.opts, asyncstate.With(asyncstate.NewTracker()))
				}
				s.r = s.newReconciler()
				if tc.steps == nil {
					s.reconcile("b")
				} else {
					tc.steps(s)
				}
				synctest.Wait()
				expectHolder(t, tc.reason, s.api, tc.wantHolder)
				if tc.wantCalls != nil {
					kit.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, s.external.Calls)
				}
				s.reconcile(tc.reconcileAfter...)
				kit.ExpectEqual(t, tc.reason, "calls for another managed resource", 0, len(s.external.ForeignCalls))

				// Let running operations end.
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestReservation_FinderFindsFailedCreate(t *testing.T) {
	find := &kit.FakeFinder{Finding: asyncstate.Found("id-1")}
	c := kit.NewExternalClient(managed.ExternalClientFns{
		ObserveFn: kit.ObserveExistsIfNamed,
		CreateFn:  kit.Returns(managed.ExternalCreation{}, errors.New("cannot tag")),
	})
	cases := map[string]func(api *testkit.API) []managed.ReconcilerOption{
		"Resolver": func(*testkit.API) []managed.ReconcilerOption {
			return []managed.ReconcilerOption{kit.WithClient(c), resolve.With(find)}
		},
		"Async": func(*testkit.API) []managed.ReconcilerOption {
			connector := managed.ExternalConnectorFn(func(
				context.Context, resource.Managed,
			) (managed.ExternalClient, error) {
				return struct {
					managed.ExternalClient
					asyncstate.Finder
				}{&c, find}, nil
			})
			return []managed.ReconcilerOption{
				managed.WithExternalConnector(connector), asyncstate.With(asyncstate.NewTracker()),
			}
		},
	}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket())
				key := WithKey(func(context.Context, resource.Managed) (string, error) { return "key", nil })
				r := kit.NewBucketReconciler(api, append(opts(api), With(leaseNamespace), key)...)
				for range 3 {
					kit.MustReconcile(t, r, "b")
					synctest.Wait()
					kit.ExpectEqual(
						t,
						"The lease should be kept when the finder finds an external resource for a create that failed.",
						"holders", map[string]string{"key": "b"}, holdersByKey(t, api),
					)
				}
			})
		})
	}
}

func TestReservation_LeaseTakenDuringReconcile(t *testing.T) {
	for _, call := range []string{"create", "update", "delete"} {
		t.Run(call, func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("b"), bucketWithSharedName("thief"))
			ext := &kit.ExternalResource{Exists: call != "create"}
			r := newReservingReconciler(api, ext)
			if ext.Exists {
				kit.MustReconcile(t, r, "b") // takes the lease
			}
			if call == "delete" {
				kit.DeleteBucket(t, api, "b")
			}
			ext.Outdated = true
			ext.BeforeCall = func(string, resource.Managed) error {
				takeOverLease(t, api)
				return nil
			}
			kit.MustReconcile(t, r, "b")
			kit.ExpectEqual(
				t, "Nothing should be called after another managed resource has taken the lease.", "calls", 0,
				len(ext.Calls),
			)
			if m := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(
				m, "reserved by Bucket default/thief",
			) {
				t.Errorf("Synced: got %q", m)
			}
			observed := ext.Observes
			kit.MustReconcile(t, r, "b")
			kit.ExpectEqual(
				t, "Observe should not be called while another managed resource holds the lease.", "observations",
				observed, ext.Observes,
			)
		})
	}
}

func TestReservation_DeleteAfterOrphan(t *testing.T) {
	const foreign = "example.org/foreign"
	withOrphanPolicies := kit.WithPolicies(
		xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
	)
	withAllPolicies := kit.WithPolicies(xpv2.ManagementActionAll)
	cases := map[string]struct {
		reason     string
		finalizers []string
		created    bool
		options    []managed.ReconcilerOption
		leaseTaken bool // another managed resource takes the lease after the first reconciles
		wantCalls  []string
		wantSynced string
	}{
		"ForeignFinalizer": {
			reason:     "The external resource should be deleted once the policies allow it.",
			finalizers: []string{managed.FinalizerName, foreign},
			created:    true,
			wantCalls:  []string{"delete b"},
		},
		"NeverCreated": {
			reason:     "An external resource that was found should be deleted, too.",
			finalizers: []string{managed.FinalizerName, foreign},
			wantCalls:  []string{"delete b"},
		},
		"CustomFinalizer": {
			reason:     "The external resource should be deleted with a custom finalizer, too.",
			finalizers: []string{foreign}, created: true, wantCalls: []string{"delete b"},
			options: []managed.ReconcilerOption{managed.WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
			})},
		},
		"Taken": {
			reason:     "Synced should say that another managed resource has reserved the external name.",
			finalizers: []string{managed.FinalizerName, foreign},
			created:    true,
			leaseTaken: true,
			wantSynced: "cannot reserve external name",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucketWithSharedName(
				"b", kit.WithFinalizers(tc.finalizers...), kit.WithDeletionTimestamp, withOrphanPolicies,
			)
			if tc.created {
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:04Z")(b)
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z")(b)
			}
			api := testkit.NewAPI(b, bucketWithSharedName("thief", func(b *v1alpha1.Bucket) { b.UID = "uid-2" }))
			ext := &kit.ExternalResource{Exists: true, Owner: b.UID}
			r := newReservingReconciler(api, ext, tc.options...)
			for range 2 {
				_, _ = r.Reconcile(t.Context(), kit.Request())
			}
			kit.ExpectEqual(t, tc.reason, "calls while it is orphaned", 0, len(ext.Calls))
			if tc.leaseTaken {
				takeOverLease(t, api)
			}

			b = kit.GetBucket(t, api)
			withAllPolicies(b)
			kit.Must(t, api.Server().Update(t.Context(), b))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), kit.Request())
			}
			kit.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, ext.Calls)
			if tc.wantSynced == "" {
				expectHolder(t, tc.reason, api, "")
				return
			}
			kit.ExpectEqual(
				t, tc.reason, "Synced", true,
				strings.Contains(kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message, tc.wantSynced),
			)
		})
	}
}

func TestReservation_OnlyObserves(t *testing.T) {
	for name, policies := range map[string][]xpv2.ManagementAction{
		"Observe": {xpv2.ManagementActionObserve},
		"Import":  {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	} {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("owner"), bucketWithSharedName("next"))
			r := newReservingReconciler(api, &kit.ExternalResource{})
			kit.MustReconcile(t, r, "owner", "owner", "next")
			kit.UpdateBucket(t, api, "owner", kit.WithPolicies(policies...))
			kit.MustReconcile(t, r, "owner", "next")
			expectHolder(t, "A managed resource should keep its lease when it only observes.", api, "owner")

			kit.UpdateBucket(t, api, "next", kit.WithPolicies(policies...))
			kit.MustReconcile(t, r, "next")
			got := kit.GetBucketNamed(t, api, "next").GetCondition(TypeReserved)
			reason := "A managed resource that only observes should not wait for the lease."
			kit.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionUnknown, got.Status)
			kit.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonNotNeeded, got.Reason)
			kit.UpdateBucket(t, api, "next", kit.WithPolicies(xpv2.ManagementActionAll))

			kit.DeleteBucket(t, api, "owner")
			kit.MustReconcile(t, r, "owner", "next")
			expectHolder(t, "The lease should be free once its holder no longer exists.", api, "next")
		})
	}
}

func TestReservation_NameChangesInEachObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(bucketWithSharedName("b"))
		ext := &kit.ExternalResource{Exists: true}
		ext.OnCall("observe", func(b *v1alpha1.Bucket) error {
			meta.SetExternalName(b, fmt.Sprintf("name-%d", ext.Observes))
			return nil
		})
		r := newReservingReconciler(api, ext)
		for range 60 {
			kit.MustReconcile(t, r, "b")
			time.Sleep(time.Second)
		}
		reason := "A provider that sets another external name each time should be stopped, and Synced should say why."
		kit.ExpectEqual(t, reason, "leases", maxNames+1, len(holdersByKey(t, api)))
		got := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced)
		kit.ExpectEqual(t, reason, "Synced", true, got.Status == corev1.ConditionFalse &&
			strings.Contains(got.Message, "the provider must set the name of an external resource once"))
		kit.ExpectEqual(
			t, "Requests for leases should be bounded.", "requests", 2*(maxNames+1)+1,
			api.CountIf(func(r testkit.Request) bool { return isLease(r.Object) }),
		)

		time.Sleep(namesInterval)
		kit.DeleteBucket(t, api, "b")
		kit.MustReconcile(t, r, "b", "b")
		kit.ExpectEqual(t, "The external resource should be deleted.", "deletes", 1, ext.Count("delete"))
	})
}

func TestReservation_DeletedWhileBlocked(t *testing.T) {
	const (
		pending   = meta.AnnotationKeyExternalCreatePending
		succeeded = meta.AnnotationKeyExternalCreateSucceeded
		failed    = meta.AnnotationKeyExternalCreateFailed
	)
	at := time.Now().Add(-time.Hour).UTC()
	cases := map[string]struct {
		reason      string
		annotations map[string]time.Duration
		opts        []managed.ReconcilerOption
		wantDeleted bool
	}{
		"Resolvable": {
			reason:      "The managed resource should be kept because the resolver may find that its failed create did succeed.",
			annotations: map[string]time.Duration{pending: 0, failed: time.Second},
			opts:        []managed.ReconcilerOption{resolve.With(&kit.FakeFinder{Finding: asyncstate.Absent()})},
		},
		"NeverCreatedResolvable": {
			reason:      "The managed resource should be deleted because the resolver has nothing to find.",
			opts:        []managed.ReconcilerOption{resolve.With(&kit.FakeFinder{Finding: asyncstate.Absent()})},
			wantDeleted: true,
		},
		"NeverCreated": {
			reason:      "The managed resource should be deleted because it has created nothing.",
			wantDeleted: true,
		},
		"AllFailed": {
			reason:      "The managed resource should be deleted because its create failed.",
			annotations: map[string]time.Duration{pending: 0, failed: time.Second},
			wantDeleted: true,
		},
		"FailedAtOnce": {
			reason:      "The managed resource should be deleted because its create failed in the second in which it was announced.",
			annotations: map[string]time.Duration{pending: 0, failed: 0},
			wantDeleted: true,
		},
		"Succeeded": {
			reason:      "The managed resource should be kept because its create succeeded.",
			annotations: map[string]time.Duration{pending: 0, succeeded: time.Second},
		},
		"SucceededOnce": {
			reason:      "The managed resource should be kept because a create succeeded, although a later one failed.",
			annotations: map[string]time.Duration{succeeded: 0, pending: time.Minute, failed: 2 * time.Minute},
		},
		"Unknown": {
			reason:      "The managed resource should be kept because the outcome of its create is unknown.",
			annotations: map[string]time.Duration{failed: 0, pending: time.Minute},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			blocked := bucketWithSharedName(
				"blocked", kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
			)
			for key, d := range tc.annotations {
				kit.WithAnnotation(key, at.Add(d).Format(time.RFC3339))(blocked)
			}
			api := testkit.NewAPI(bucketWithSharedName("owner"), blocked)
			ext := &kit.ExternalResource{}
			kit.MustReconcile(
				t,
				newReservingReconciler(api, ext, append(
					tc.opts, managed.WithDeterministicExternalName(len(tc.opts) == 0), confirm.With(5, kit.Interval),
				)...),
				"owner", "blocked",
			)
			kit.ExpectCalls(t, ext, "create owner")
			expectHolder(t, tc.reason, api, "owner")
			b := kit.GetBucketNamed(t, api, "blocked")
			kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, b.GetName() == "")
			if !tc.wantDeleted {
				kit.ExpectEqual(
					t, tc.reason, "reason", reconciler.ReasonObserveFailed,
					b.GetCondition(reconciler.TypeDeleting).Reason,
				)
			}
		})
	}
}

func TestPreCreateObserve_SecondObserveDoesNotReturn(t *testing.T) {
	cases := map[string]struct {
		reason          string
		onSecondObserve func(*kit.ExternalResource, resource.Managed) error
		finding         asyncstate.Finding
		wantHolder      string
	}{
		"TimesOut": {
			reason:          "The create should not be pending after the second Observe has timed out.",
			onSecondObserve: func(*kit.ExternalResource, resource.Managed) error { return context.DeadlineExceeded },
			wantHolder:      "b",
		},
		"Panics": {
			reason:          "The create should not be pending after a panic in the second Observe.",
			onSecondObserve: func(*kit.ExternalResource, resource.Managed) error { panic("oh") },
			finding:         asyncstate.Absent(),
			wantHolder:      "b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("b"))
				ext := kit.ChangedBeforeSecondObserve(tc.onSecondObserve)
				r := newReservingReconciler(
					api, ext, precreate.Refuse(), resolve.With(&kit.FakeFinder{Finding: tc.finding}),
				)
				kit.TryReconcile(r, 1)
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "creates", 0, ext.Count("create"))
				kit.ExpectEqual(t, tc.reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
				expectHolder(t, tc.reason, api, tc.wantHolder)
				time.Sleep(time.Second)
				kit.MustReconcile(t, r, "b")
				kit.ExpectEqual(t, "The next reconcile should create.", "creates", 1, ext.Count("create"))
			})
		})
	}
}

func TestCriticalAnnotations_CreateNotTried(t *testing.T) {
	const earlier, reason = "2026-01-02T03:04:05Z", "The announcement of a create that was not tried should be withdrawn."
	b := bucketWithSharedName(
		"b", kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(
			meta.AnnotationKeyExternalCreatePending, earlier,
		),
		kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, earlier),
	)
	api := testkit.NewAPI(b, bucketWithSharedName("thief"))
	ext := (&kit.ExternalResource{}).OnCall("observe", func(*v1alpha1.Bucket) error {
		takeOverLease(t, api)
		return nil
	})
	kit.MustReconcile(t, newReservingReconciler(api, ext, resolve.With(&kit.FakeFinder{
		Finding: asyncstate.Absent(),
	})), "b")
	b = kit.GetBucket(t, api)
	kit.ExpectEqual(t, reason, "calls", 0, len(ext.Calls))
	kit.ExpectEqual(t, reason, "announcement", earlier, b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending])
	kit.ExpectEqual(t, reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
}
