package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/managedtest"
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
	ext := &managedtest.ExternalResource{}
	r := newReservingReconciler(api, ext)
	expectRequests := func(reason string, want int) {
		t.Helper()
		got := api.CountIf(func(r testkit.Request) bool { return isLease(r.Object) || isHolderCheck(r.Object) })
		managedtest.ExpectEqual(t, reason, "requests for leases", want, got)
		api.Forget()
	}
	ext.BeforeCall = func(string, resource.Managed) error { return errors.New("boom") }
	managedtest.MustReconcile(t, r, "b")
	expectRequests("A reconcile whose Observe fails should only read the lease.", 1)
	expectHolder(t, "There should be no lease before the create.", api, "")

	ext.BeforeCall = nil
	managedtest.MustReconcile(t, r, "b")
	expectRequests("A create should read, create and confirm the lease.", 3)
	expectHolder(t, "The managed resource should hold the lease after its create.", api, "b")
	l := leasesByKey(t, api)[sharedKey]
	managedtest.ExpectEqual(t, "The key should decide the name of the lease.", "name", leaseName(sharedKey), l.GetName())
	managedtest.ExpectEqual(
		t, "There should be no condition about a reservation that succeeds.", "ExternalNameReserved",
		corev1.ConditionUnknown, managedtest.GetBucket(t, api).GetCondition(TypeReserved).Status,
	)

	managedtest.MustReconcile(t, r, "b", "b")
	expectRequests("A steady state should need no requests.", 0)

	var kept *store.Store
	r = newReservingReconciler(api, ext, managedtest.WithStore(&kept))
	managedtest.MustReconcile(t, r, "b")
	expectRequests("A new process should read the lease once.", 1)

	managedtest.DeleteBucket(t, api, "b")
	managedtest.MustReconcile(t, r, "b")
	expectRequests("Delete should confirm the lease.", 1)
	managedtest.MustReconcile(t, r, "b")
	expectRequests("The lease should be released with one request.", 1)
	managedtest.MustReconcile(t, r, "b")
	expectHolder(t, "There should be no lease after the deletion.", api, "")
	managedtest.ExpectEqual(t, "Nothing should be kept in memory after the deletion.", "objects in memory", 0, kept.Len())
}

func TestReservation_RequestsForLeasesWithoutCreate(t *testing.T) {
	requests := func(api *testkit.API) int {
		return api.CountIf(func(r testkit.Request) bool { return isLease(r.Object) || isHolderCheck(r.Object) })
	}

	api := testkit.NewAPI(bucketWithSharedName("b"))
	r := newReservingReconciler(api, &managedtest.ExternalResource{Exists: true})
	managedtest.MustReconcile(t, r, "b")
	expectHolder(t, "An external resource that was found should be reserved.", api, "b")
	api.Forget()
	managedtest.MustReconcile(t, r, "b", "b")
	managedtest.ExpectEqual(
		t, "A steady state should need no requests for an external resource that was found.", "requests for leases", 0,
		requests(api),
	)

	api = testkit.NewAPI(bucketWithSharedName(
		"b", managedtest.WithFinalizers(managed.FinalizerName), managedtest.WithPolicies(xpv2.ManagementActionObserve),
	))
	r = newReservingReconciler(api, &managedtest.ExternalResource{Exists: true})
	managedtest.MustReconcile(t, r, "b")
	api.Forget()
	managedtest.DeleteBucket(t, api, "b")
	managedtest.MustReconcile(t, r, "b", "b")
	managedtest.ExpectEqual(t, "The managed resource should be deleted.", "name", "", managedtest.GetBucket(t, api).GetName())
	managedtest.ExpectEqual(
		t,
		"A managed resource that only observes should be deleted without a request for its lease, which it has released.",
		"requests for leases", 0, requests(api),
	)
}

func TestReservation_HandOver(t *testing.T) {
	api := testkit.NewAPI(bucketWithSharedName("old"), bucketWithSharedName("new"))
	ext := &managedtest.ExternalResource{DeletesIgnored: 2}
	r := newReservingReconciler(api, ext)
	managedtest.MustReconcile(t, r, "old", "new", "old")
	managedtest.DeleteBucket(t, api, "old")
	managedtest.MustReconcile(t, r, "old", "new", "old", "new")

	reason := "The new managed resource should wait, and say for which one, while the external resource of the old one is being deleted."
	b := managedtest.GetBucketNamed(t, api, "new")
	synced, reserved := b.GetCondition(xpv2.TypeSynced), b.GetCondition(TypeReserved)
	managedtest.ExpectEqual(t, reason, "Synced", corev1.ConditionFalse, synced.Status)
	managedtest.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionFalse, reserved.Status)
	managedtest.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReservedByOther, reserved.Reason)
	for _, m := range []string{synced.Message, reserved.Message} {
		if !strings.Contains(m, "reserved by Bucket default/old (uid uid-1)") {
			t.Errorf("\n%s\ngot message %q", reason, m)
		}
	}
	managedtest.ExpectEqual(t, "A managed resource that waits should get no finalizer.", "finalizers", 0, len(b.GetFinalizers()))

	api.Forget()
	managedtest.MustReconcile(t, r, "new", "new")
	managedtest.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

	managedtest.UpdateBucket(
		t, api, "new", managedtest.WithoutAnnotation(meta.AnnotationKeyExternalName),
		managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate),
	)
	managedtest.MustReconcile(t, r, "new")
	reserved = managedtest.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
	reason = "A managed resource without an external name should not wait."
	managedtest.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionUnknown, reserved.Status)
	managedtest.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonNotNeeded, reserved.Reason)

	managedtest.UpdateBucket(t, api, "new", managedtest.WithExternalName("shared"), managedtest.WithPolicies(xpv2.ManagementActionAll))
	managedtest.MustReconcile(t, r, "old", "old", "new", "new")
	reason = "The new managed resource should take the lease when the old one no longer exists."
	managedtest.ExpectCalls(t, ext, "create old", "delete old", "delete old", "delete old", "create new")
	expectHolder(t, reason, api, "new")
	reserved = managedtest.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
	managedtest.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionTrue, reserved.Status)
	managedtest.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReserved, reserved.Reason)
}

func TestReservation_ConditionCannotBeStored(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%t", restarted), func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("old"), bucketWithSharedName("new"))
			ext := &managedtest.ExternalResource{Exists: true}
			r := newReservingReconciler(api, ext)
			managedtest.MustReconcile(t, r, "old", "new")
			managedtest.ExpectEqual(
				t, "The new managed resource should wait for the old one.", "ExternalNameReserved",
				corev1.ConditionFalse, managedtest.GetBucketNamed(t, api, "new").GetCondition(TypeReserved).Status,
			)

			managedtest.RemoveBucket(t, api, "old")
			api.Before = managedtest.OnNthRequest(1, managedtest.IsStatusWrite, managedtest.FailWithConflict)
			managedtest.MustReconcile(t, r, "new")
			expectHolder(t, "The new managed resource should take the lease.", api, "new")
			if restarted {
				r = newReservingReconciler(api, ext)
			}
			managedtest.MustReconcile(t, r, "new")
			reserved := managedtest.GetBucketNamed(t, api, "new").GetCondition(TypeReserved)
			reason := "A reservation should be reported although the first write of its condition failed."
			managedtest.ExpectEqual(t, reason, "ExternalNameReserved", corev1.ConditionTrue, reserved.Status)
			managedtest.ExpectEqual(t, reason, "reason of ExternalNameReserved", ReasonReserved, reserved.Reason)
		})
	}
}

func TestReservation_TakeOver(t *testing.T) {
	holderCheckFails := func(err error) func(t *testing.T, api *testkit.API) {
		return func(_ *testing.T, api *testkit.API) {
			api.Before = managedtest.FailRequests(func(q testkit.Request) bool { return isHolderCheck(q.Object) }, err)
		}
	}
	updateLease := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, api *testkit.API) {
		return func(t *testing.T, api *testkit.API) {
			t.Helper()
			l := leasesByKey(t, api)[sharedKey]
			fn(&l)
			managedtest.Must(t, api.Server().Update(context.Background(), &l))
		}
	}
	cases := map[string]struct {
		reason        string
		change        func(t *testing.T, api *testkit.API)
		wantTakenOver bool
		wantSynced    string
	}{
		"Alive": {
			reason:     "The lease should be kept when its holder exists.",
			change:     func(*testing.T, *testkit.API) {},
			wantSynced: "reserved by Bucket default/first",
		},
		"Killed": {
			reason:        "The lease should be taken over when its holder no longer exists.",
			change:        func(t *testing.T, api *testkit.API) { managedtest.RemoveBucket(t, api, "first") },
			wantTakenOver: true,
		},
		"AnotherOfTheName": {
			reason: "The lease should be taken over when another object has the name of its holder.",
			change: func(t *testing.T, api *testkit.API) {
				managedtest.RemoveBucket(t, api, "first")
				managedtest.Must(t, api.Server().Create(context.Background(), bucketWithSharedName("first")))
			},
			wantTakenOver: true,
		},
		"KilledInAnotherVersion": {
			reason: "The holder should be looked up in the version that is reconciled, because its own may not be served any more.",
			change: func(t *testing.T, api *testkit.API) {
				t.Helper()
				managedtest.RemoveBucket(t, api, "first")
				updateLease(func(u *unstructured.Unstructured) {
					text := strings.ReplaceAll(
						u.GetAnnotations()[annotationKeyHolder], v1alpha1.GroupVersion().String(),
						v1alpha1.GroupVersion().Group+"/v9",
					)
					meta.AddAnnotations(u, map[string]string{annotationKeyHolder: text})
				})(t, api)
				api.Before = managedtest.FailRequests(func(q testkit.Request) bool {
					return isHolderCheck(q.Object) && q.Object.GetObjectKind().GroupVersionKind().Version == "v9"
				}, &apimeta.NoKindMatchError{})
			},
			wantTakenOver: true,
		},
		"Forbidden": {
			reason:     "The lease should be kept when we have no permission to read its holder.",
			change:     holderCheckFails(kerrors.NewForbidden(schema.GroupResource{}, "first", errors.New("no"))),
			wantSynced: "cannot check whether Bucket default/first",
		},
		"NotFoundOfAnother": {
			reason:     "The lease should be kept when the API server says that another object was not found.",
			change:     holderCheckFails(kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")),
			wantSynced: "if it doesn't, delete the lease",
		},
		"NoDetails": {
			reason: "The lease should be kept when the API server does not say which object was not found.",
			change: holderCheckFails(&kerrors.StatusError{
				ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404},
			}),
			wantSynced: "if it doesn't, delete the lease",
		},
		"Broken": {
			reason:     "The lease should be kept when the API server returns an error.",
			change:     holderCheckFails(managedtest.ServerError()),
			wantSynced: "etcd has no leader",
		},
		"Unread": {
			reason: "The lease should be kept when it can't be read.",
			change: func(_ *testing.T, api *testkit.API) {
				api.Before = managedtest.FailRequests(func(q testkit.Request) bool { return isLease(q.Object) }, managedtest.ServerError())
			},
			wantSynced: "cannot read lease",
		},
		"NoHolder": {
			reason: "A lease without a holder should be taken over.",
			change: updateLease(func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "holderIdentity")
			}),
			wantTakenOver: true,
		},
		"Unknown": {
			reason: "A lease that does not name its holder should be kept.",
			change: updateLease(func(u *unstructured.Unstructured) {
				meta.RemoveAnnotations(u, annotationKeyHolder)
			}),
			wantSynced: "delete the lease if no managed resource needs it",
		},
		"Mismatch": {
			reason: "A lease that names two different holders should be kept.",
			change: updateLease(func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "another", "spec", "holderIdentity")
			}),
			wantSynced: "delete the lease if no managed resource needs it",
		},
		"Deleted": {
			reason: "A lease that was deleted should be created again for the new holder.",
			change: func(t *testing.T, api *testkit.API) {
				l := leasesByKey(t, api)[sharedKey]
				managedtest.Must(t, api.Server().Delete(context.Background(), &l))
			},
			wantTakenOver: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("first"), bucketWithSharedName("second"))
			ext := &managedtest.ExternalResource{}
			r := newReservingReconciler(api, ext)
			managedtest.MustReconcile(t, r, "first")
			tc.change(t, api)
			managedtest.MustReconcile(t, r, "second")
			managedtest.ExpectEqual(t, tc.reason, "taken over", tc.wantTakenOver, holdersByKey(t, api)[sharedKey] == "second")
			if m := managedtest.GetBucketNamed(
				t, api, "second",
			).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, tc.wantSynced) ||
				(m == "") != (tc.wantSynced == "") {
				t.Errorf("\n%s\nSynced: want %q, got %q", tc.reason, tc.wantSynced, m)
			}

			calls := len(ext.Calls)
			if tc.wantTakenOver && managedtest.GetBucketNamed(t, api, "first").GetUID() == "uid-1" {
				managedtest.DeleteBucket(t, api, "first")
				managedtest.MustReconcile(t, r, "first")
				managedtest.ExpectEqual(
					t, "A managed resource that has lost its lease should make no more calls.", "calls", []string{},
					ext.Calls[calls:],
				)
			}
		})
	}
}

func TestReservation_AssignedName(t *testing.T) {
	api := testkit.NewAPI(
		bucketWithSharedName("b", managedtest.WithoutAnnotation(meta.AnnotationKeyExternalName)),
		bucketWithSharedName("other", managedtest.WithExternalName("id-1")),
	)
	ext := &managedtest.ExternalResource{}
	ext.OnCall("create", func(b *v1alpha1.Bucket) error { managedtest.WithExternalName("id-1")(b); return nil })
	r := newReservingReconciler(api, ext)
	managedtest.MustReconcile(t, r, "b")
	managedtest.ExpectEqual(
		t, "The name that the external system assigned should be reserved after the create.", "holders",
		map[string]string{
			strings.Replace(sharedKey, "shared", "id-1", 1): "b",
		}, holdersByKey(t, api),
	)
	managedtest.MustReconcile(t, r, "other", "b")
	managedtest.ExpectCalls(t, ext, "create b")
}

func TestReservation_NameFromObserve(t *testing.T) {
	created := managedtest.WithAnnotation(
		meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339),
	)
	cases := map[string]struct {
		reason      string
		bucket      []managedtest.BucketModifier
		wantDeleted bool
	}{
		"Alive": {
			reason: "The managed resource should wait while another one has reserved the name that Observe learned.",
		},
		"NeverCreatedWhileDeleted": {
			reason:      "The managed resource should be deleted without the external resource of another one.",
			bucket:      []managedtest.BucketModifier{managedtest.WithDeletionTimestamp, managedtest.WithFinalizers(managed.FinalizerName)},
			wantDeleted: true,
		},
		"CreatedWhileDeleted": {
			reason: "The managed resource should be kept because it may have created the external resource itself.",
			bucket: []managedtest.BucketModifier{managedtest.WithDeletionTimestamp, managedtest.WithFinalizers(managed.FinalizerName), created},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(
				bucketWithSharedName("late", append(tc.bucket, managedtest.WithoutAnnotation(meta.AnnotationKeyExternalName))...),
				bucketWithSharedName("first"),
			)
			ext := &managedtest.ExternalResource{}
			ext.BeforeCall = func(_ string, mg resource.Managed) error {
				meta.SetExternalName(mg, "shared")
				return nil
			}
			managedtest.MustReconcile(t, newReservingReconciler(api, ext), "first", "late")
			managedtest.ExpectCalls(t, ext, "create first")
			expectHolder(t, tc.reason, api, "first")
			late := managedtest.GetBucketNamed(t, api, "late")
			managedtest.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, late.GetName() == "")
			if !tc.wantDeleted {
				managedtest.ExpectEqual(t, tc.reason, "name", "shared", meta.GetExternalName(late))
				managedtest.ExpectEqual(
					t, tc.reason, "reason", ReasonReservedByOther, late.GetCondition(TypeReserved).Reason,
				)
				managedtest.ExpectEqual(t, tc.reason, "Synced", corev1.ConditionFalse, late.GetCondition(xpv2.TypeSynced).Status)
			}
		})
	}
}

// A reservationTest reconciles managed resources that refer to one external resource.
type reservationTest struct {
	kept *store.Store
	*testing.T

	api      *testkit.API
	external *managedtest.ExternalResource
	recorder *testkit.Said
	opts     []managed.ReconcilerOption
	r        *managed.Reconciler

	// repeatedCreateErr is the error of later creates, while the external system hides the
	// external resource.
	repeatedCreateErr error
}

func (s *reservationTest) newReconciler(o ...managed.ReconcilerOption) *managed.Reconciler {
	return newReservingReconciler(
		s.api, s.external, append(append(o, managedtest.WithStore(&s.kept), managed.WithRecorder(s.recorder)), s.opts...)...,
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
	managedtest.MustReconcile(s.T, s.r, names...)
	synctest.Wait()
}

func (s *reservationTest) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// reconcileAndDelete reconciles a managed resource, deletes it and reconciles it again.
func (s *reservationTest) reconcileAndDelete(name string) {
	s.Helper()
	s.reconcile(name)
	managedtest.DeleteBucket(s.T, s.api, name)
	s.reconcile(name)
}

// createExternally creates the external resource of b without a call of Create.
func (s *reservationTest) createExternally(b *v1alpha1.Bucket) {
	s.external.Exists, s.external.Owner = true, b.GetUID()
}

// TestReservation_LeaseHolder reconciles managed resources that refer to one external resource.
// The lease should be kept as long as the external resource may exist, and no longer.
func TestReservation_LeaseHolder(t *testing.T) {
	errQuota := errors.New("quota exceeded")
	errExists := errors.New("already exists")
	errTag := errors.New("cannot tag")
	withCreatePending := managedtest.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	deterministic := []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)}
	bucketsOfTenants := []client.Object{
		bucketWithSharedName("mine", managedtest.WithNamespace("attacker")),
		bucketWithSharedName("theirs", managedtest.WithNamespace("victim")),
	}
	bucketsAfterInterruption := []client.Object{
		bucketWithSharedName("b", managedtest.WithFinalizers(managed.FinalizerName), withCreatePending), bucketWithSharedName("other"),
	}
	bothRivals := []string{"other", "b"}
	createFailsWithQuota := func(*reservationTest, *v1alpha1.Bucket) error { return errQuota }
	firstCreateHasNoAnswer := func(s *reservationTest, _ *v1alpha1.Bucket) error {
		if s.external.Count("create b") == 1 {
			return context.DeadlineExceeded
		}
		return errQuota
	}
	isLeaseDelete := func(q testkit.Request) bool { return isLease(q.Object) && q.Verb == testkit.Delete }

	// renameWithoutRelease changes the external name of b while its lease can't be released.
	renameWithoutRelease := func(s *reservationTest) {
		s.reconcile("b")
		managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithExternalName("renamed"))
		s.api.Before = managedtest.FailRequests(isLeaseDelete, managedtest.ForbiddenError())
		s.reconcile("b")
		s.api.Before = nil
	}

	// takeBackRename changes the external name of b back, and reconciles b.
	takeBackRename := func(s *reservationTest) {
		managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithExternalName("shared"))
		s.api.Before = func(_ context.Context, q testkit.Request) error {
			if isLeaseDelete(q) && q.Object.GetName() == leaseName(sharedKey) {
				s.Error("the lease of b was released")
			}
			return nil
		}
		s.reconcile("b")
		s.api.Before = nil
	}

	// reconcileTenants reconciles managed resources of two namespaces. One of them should be
	// blocked, and the conditions of neither should name the other.
	reconcileTenants := func(s *reservationTest) {
		s.reconcile("attacker/mine", "attacker/mine", "victim/theirs", "attacker/mine")
		said := func(name string) string {
			return fmt.Sprint(managedtest.GetBucketNamed(s.T, s.api, name).Status.Conditions)
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
		"ReleaseFails": {
			reason: "The managed resource should be deleted, and an event emitted, when its lease can't be released.",
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("b")
				s.api.Before = managedtest.FailRequests(isLeaseDelete, managedtest.ServerError())
				s.reconcile("b")
				managedtest.ExpectEqual(s.T, "The managed resource should be deleted.", "name", "", managedtest.GetBucket(s.T, s.api).GetName())
				managedtest.ExpectEqual(
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
				s.api.Before = managedtest.FailRequests(
					func(q testkit.Request) bool { return q.Verb == testkit.Update && !isLease(q.Object) },
					managedtest.ForbiddenError(),
				)
				s.reconcile("b")
			},
			wantHolder: "b",
		},
		"CacheLags": {
			reason: "A managed resource that the cache still shows after its deletion should not be observed or created again.",
			steps: func(s *reservationTest) {
				s.reconcileAndDelete("b")
				managedtest.Must(s.T, s.api.Freeze(s.Context(), managedtest.GetBucketNamed(s.T, s.api, "b")))
				s.reconcile("b")
				observed := s.external.Observes
				s.reconcile("b", "b", "b")
				managedtest.ExpectEqual(
					s.T, "The managed resource should be deleted.", "name", "",
					managedtest.GetBucketNamed(s.T, s.api, "b").GetName(),
				)
				managedtest.ExpectEqual(
					s.T, "A deleted managed resource should not be observed again.", "observations", observed,
					s.external.Observes,
				)
				expectHolder(s.T, "The lease should be released.", s.api, "")
				s.reconcile("other", "b")
				s.api.Thaw()
				s.reconcile("b")
				managedtest.ExpectEqual(
					s.T, "Only the managed resource that exists should be kept in memory.", "objects in memory", 1,
					s.kept.Len(),
				)
			},
			wantHolder: "other",
			wantCalls:  []string{"create b", "delete b", "create other"},
		},
		"CacheLagsAfterHandOver": {
			reason: "A process with stale policies in its cache should not release the lease that the next process has taken.",
			objects: []client.Object{
				bucketWithSharedName("b", managedtest.WithPolicies(xpv2.ManagementActionObserve)), bucketWithSharedName("other"),
			},
			steps: func(s *reservationTest) {
				before, next := managedtest.GetBucket(s.T, s.api), s.newReconciler()
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionAll))
				managedtest.MustReconcile(s.T, next, "b")
				s.api.FreezeAs(before)
				s.reconcile("b")
				s.api.Thaw()
			},
			wantHolder:     "b",
			reconcileAfter: []string{"other"},
		},
		"CacheLagsAfterRename": {
			reason: "A process with a stale external name in its cache should not release the lease that the next process has taken.",
			steps: func(s *reservationTest) {
				renameWithoutRelease(s)
				before, next := managedtest.GetBucket(s.T, s.api), s.newReconciler()
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithExternalName("shared"))
				managedtest.MustReconcile(s.T, next, "b")
				s.api.FreezeAs(before)
				managedtest.TryReconcile(s.r, 1)
				s.api.Thaw()
				left := leasesByKey(s.T, s.api)[strings.ReplaceAll(sharedKey, "shared", "renamed")]
				managedtest.Must(s.T, s.api.Server().Delete(s.Context(), &left)) // the next process has not read this lease
			},
			wantHolder:     "b",
			reconcileAfter: []string{"other"},
		},
		"RenameTakenBack": {
			reason: "The lease should not be released in between if a rename is taken back.",
			steps: func(s *reservationTest) {
				renameWithoutRelease(s)
				takeBackRename(s)
			},
			wantHolder:     "b",
			reconcileAfter: []string{"other"},
		},
		"RenameOfImportTakenBack": {
			reason: "The other external name should be released if a rename is taken back without a create.",
			steps: func(s *reservationTest) {
				s.createExternally(managedtest.GetBucket(s.T, s.api))
				renameWithoutRelease(s)
				takeBackRename(s)
				s.reconcile("b")
			},
			wantHolder:     "b",
			reconcileAfter: []string{"other"},
		},
		"RenamedThenObserveOnly": {
			reason: "The lease of the former external name should be released when the managed resource only observes.",
			steps: func(s *reservationTest) {
				renameWithoutRelease(s)
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.reconcile("b")
			},
		},
		"RenamedThenObserveOnlyReleaseFails": {
			reason: "The lease of the former external name should be released when the managed resource only observes, although that failed once.",
			steps: func(s *reservationTest) {
				renameWithoutRelease(s)
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.api.Before = managedtest.FailRequests(func(q testkit.Request) bool {
					return isLeaseDelete(q) && q.Object.GetName() == leaseName(sharedKey)
				}, managedtest.ForbiddenError())
				s.reconcile("b")
				s.api.Before = nil
				s.reconcile("b")
			},
		},
		"RenamedAfterAnOutage": {
			reason: "The lease of the former external name should be released although it could not be read before the change.",
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.external.Outdated, s.api.Before = true,
					managedtest.FailRequests(func(q testkit.Request) bool { return isLease(q.Object) }, managedtest.ServerError())
				s.reconcile("b")
				s.external.Outdated, s.api.Before = false, nil
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithExternalName("renamed"))
				s.reconcile("b")
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.reconcile("b")
			},
		},
		"RenamedInAnOutage": {
			reason: "The lease of the former external name should be released after an outage of the API server.",
			steps: func(s *reservationTest) {
				releases := managedtest.FailRequests(isLeaseDelete, managedtest.ForbiddenError())
				s.reconcile("b")
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithExternalName("renamed"))
				s.api.Before = releases
				s.reconcile("b")
				s.external.Outdated, s.api.Before = true,
					managedtest.FailRequests(func(q testkit.Request) bool { return isLease(q.Object) }, managedtest.ServerError())
				s.reconcile("b")
				s.external.Outdated, s.api.Before = false, releases
				s.reconcile("b")
				s.api.Before = nil
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.reconcile("b")
			},
		},
		"CacheLagsAfterCreate": {
			reason: "The lease should be kept after a create that succeeded, although the cache still shows that an earlier one failed.",
			objects: []client.Object{
				bucketWithSharedName(
					"b", managedtest.WithFinalizers(managed.FinalizerName), withCreatePending,
					managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, "2026-01-02T03:04:06Z"),
				),
				bucketWithSharedName("other"),
			},
			steps: func(s *reservationTest) {
				c := s.external.Client()
				c.ObserveFn = managedtest.ObserveAbsent
				s.r = s.newReconciler(managedtest.WithClient(c))
				managedtest.Must(s.T, s.api.Freeze(s.Context(), managedtest.GetBucketNamed(s.T, s.api, "b")))
				s.reconcile("b", "b", "other")
			},
			wantHolder: "b",
			wantCalls:  []string{"create b"},
		},
		"ReleaseStalls": {
			reason: "The lease of a failed create should be kept when another process has created meanwhile.",
			createFn: func(s *reservationTest, _ *v1alpha1.Bucket) error {
				if s.external.Count("create") > 1 {
					return nil
				}
				return errQuota
			},
			steps: func(s *reservationTest) {
				next := s.newReconciler(deterministic...)
				s.api.Before = managedtest.OnNthRequest(1, isLeaseDelete, func(testkit.Request) error {
					time.Sleep(5 * time.Second)
					managedtest.MustReconcile(s.T, next, "b")
					return nil
				})
				s.reconcile("b")
			},
			wantHolder: "b",
			wantCalls:  []string{"create b", "create b"},
		},
		"ReleaseStallsForLess": {
			reason: "The lease of a failed create should be kept while the create of another process is in progress.",
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error {
				if s.external.Count("create") == 1 {
					return errQuota
				}
				time.Sleep(time.Minute)
				s.createExternally(b)
				return nil
			},
			steps: func(s *reservationTest) {
				next := s.newReconciler(deterministic...)
				s.api.Before = managedtest.OnNthRequest(1, isLeaseDelete, func(testkit.Request) error {
					time.Sleep(5 * time.Second)
					go managedtest.TryReconcile(next, 1)
					synctest.Wait()
					return nil
				})
				s.reconcile("b")
			},
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b"},
			reconcileAfter: []string{"other"},
		},
		"ReleaseIsInterrupted": {
			reason:   "The next process should release the lease of a create that failed.",
			createFn: createFailsWithQuota,
			steps: func(s *reservationTest) {
				s.api.Before = managedtest.FailRequests(isLeaseDelete, errors.New("the process died"))
				s.reconcile("b")
				expectHolder(s.T, "The lease should be kept when it can't be deleted.", s.api, "b")
				s.api.Before, s.r = nil, s.newReconciler()
				s.reconcile("b")
				expectHolder(s.T, "The lease should be released by the next process.", s.api, "")
			},
		},
		"ReleaseAfterDeadline": {
			reason: "The lease of a create that failed at its deadline should be released, although the context has ended.",
			opts: []managed.ReconcilerOption{managed.WithTimeout(time.Second), managedtest.WithClient(managed.ExternalClientFns{
				ObserveFn: managedtest.ObserveAbsent,
				CreateFn: func(ctx context.Context, _ resource.Managed) (managed.ExternalCreation, error) {
					<-ctx.Done()
					return managed.ExternalCreation{}, errQuota
				},
			})},
			steps: func(s *reservationTest) {
				s.reconcile("b")
				managedtest.ExpectEqual(
					s.T, "The context of a release should have no deadline that has passed.", "events", 0,
					len(s.recorder.Events("CannotReleaseReservation")),
				)
			},
		},
		"Replaced": {
			reason: "The lease should be kept when the managed resource was replaced by another one of the same name during the create.",
			createFn: func(s *reservationTest, _ *v1alpha1.Bucket) error {
				managedtest.RemoveBucket(s.T, s.api, "b")
				managedtest.Must(s.T, s.api.Server().Create(s.Context(), bucketWithSharedName("b", withCreatePending)))
				return errQuota
			},
			wantHolder: "b",
		},
		"Refused": {
			reason: "The lease should be released when the create was refused.",
			opts:   []managed.ReconcilerOption{precreate.Refuse()},
			steps: func(s *reservationTest) {
				s.external.OnCall(
					"observe",
					func(*v1alpha1.Bucket) error { s.external.Exists = s.external.Observes > 1; return nil },
				)
				s.reconcile("b")
				managedtest.ExpectEqual(
					s.T, "The create should be refused.", "annotation", "shared",
					managedtest.GetBucket(s.T, s.api).GetAnnotations()[precreate.AnnotationKeyRefused],
				)
			},
		},
		"Settled": {
			reason:  "ExternalNameReserved should be Unknown after the lease was released.",
			objects: bucketsOfTenants,
			createFn: func(_ *reservationTest, b *v1alpha1.Bucket) error {
				if b.Namespace == "attacker" {
					return errors.Wrap(asyncstate.ErrOutcomeUnknown, "timeout")
				}
				return errQuota
			},
			steps: func(s *reservationTest) {
				s.reconcile("attacker/mine", "victim/theirs")
				managedtest.RemoveBucket(s.T, s.api, "attacker/mine")
				s.reconcile("victim/theirs")
				managedtest.ExpectEqual(
					s.T, "There should be no condition about a reservation that was released.", "ExternalNameReserved",
					corev1.ConditionUnknown,
					managedtest.GetBucketNamed(s.T, s.api, "victim/theirs").GetCondition(TypeReserved).Status,
				)
			},
		},
		"FreeToWhatCannotCreate": {
			reason: "A managed resource that may only update should not wait for an external resource that does not exist.",
			objects: []client.Object{
				bucketWithSharedName("b", managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)),
				bucketWithSharedName("other"),
			},
			steps: func(s *reservationTest) {
				reserved := func() corev1.ConditionStatus {
					return managedtest.GetBucket(s.T, s.api).GetCondition(TypeReserved).Status
				}
				s.reconcile("other", "b")
				blocked := reserved()
				managedtest.RemoveBucket(s.T, s.api, "other")
				s.external.Exists = false
				s.reconcile("b")
				managedtest.ExpectEqual(
					s.T, "The managed resource should wait while another one holds the lease.", "ExternalNameReserved",
					corev1.ConditionFalse, blocked,
				)
				managedtest.ExpectEqual(
					s.T, "The managed resource should not wait when there is nothing to update.",
					"ExternalNameReserved", corev1.ConditionUnknown, reserved(),
				)
			},
			wantHolder: "other",
		},
		"FreeToWhatFailedAgain": {
			reason: "The lease should be free when a create succeeded once, and a later create failed.",
			objects: []client.Object{
				bucketWithSharedName("b", managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate),
					withCreatePending,
					managedtest.WithAnnotation(
						meta.AnnotationKeyExternalCreateSucceeded, "2025-01-02T03:04:05Z",
					), managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, "2026-01-02T03:04:06Z")),
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
				managedtest.ExpectEqual(
					s.T, "The refusal should count as a confirmation of the create that succeeded.",
					"failed after it succeeded", false,
					meta.GetExternalCreateFailed(managedtest.GetBucketNamed(s.T, s.api,
						"b")).After(meta.GetExternalCreateSucceeded(managedtest.GetBucketNamed(s.T, s.api, "b"))),
				)
				s.external.Exists = true
			},
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b", "create b"},
			reconcileAfter: bothRivals,
		},
		"ExistsThoughHiddenAfterRestart": {
			reason:   "Another process should keep the lease, too.",
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error { return s.repeatedCreateErr },
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.external.Exists, s.repeatedCreateErr, s.r = false, errExists, s.newReconciler()
				s.reconcile("b", "b", "other")
				s.external.Exists = true
			},
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b", "create b"},
			reconcileAfter: bothRivals,
		},
		"QuotaThoughHidden": {
			reason:   "The lease should be kept when a create succeeded and the repeated create fails for any reason.",
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error { return s.repeatedCreateErr },
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.external.Exists, s.repeatedCreateErr = false, errQuota
				s.reconcile("b", "b", "other")
				s.external.Exists = true
			},
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b", "create b"},
			reconcileAfter: bothRivals,
		},
		"ExistsThoughRenamed": {
			reason: "The lease should be released when the create under a new external name returns that it already exists.",
			objects: []client.Object{
				bucketWithSharedName("mine", managedtest.WithNamespace("attacker"), managedtest.WithExternalName("own")),
				bucketWithSharedName("theirs", managedtest.WithNamespace("victim")),
			},
			createFn: func(_ *reservationTest, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "shared" && b.Namespace == "attacker" {
					return errExists
				}
				return nil
			},
			steps: func(s *reservationTest) {
				s.reconcile("attacker/mine")
				managedtest.UpdateBucket(s.T, s.api, "attacker/mine", managedtest.WithExternalName("shared"))
				s.external.Exists, s.external.Owner = false, ""
				s.reconcile("attacker/mine", "attacker/mine", "victim/theirs")
			},
			wantHolder: "theirs",
		},
		"RenamedAfterCreate": {
			reason: "The lease should be released when the create under a new external name fails, because no create under that name succeeded.",
			objects: []client.Object{
				bucketWithSharedName("mine", managedtest.WithNamespace("attacker"), managedtest.WithExternalName("own")),
				bucketWithSharedName("theirs", managedtest.WithNamespace("victim")),
			},
			createFn: func(_ *reservationTest, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "shared" && b.Namespace == "attacker" {
					return errors.New("invalid: region does not exist")
				}
				return nil
			},
			steps: func(s *reservationTest) {
				s.reconcile("attacker/mine")
				managedtest.UpdateBucket(s.T, s.api, "attacker/mine", managedtest.WithExternalName("shared"))
				s.external.Exists, s.external.Owner = false, "" // the new name is that of another external resource
				s.reconcile("attacker/mine", "attacker/mine", "victim/theirs")
			},
			wantHolder: "theirs",
			wantCalls:  []string{"create mine", "create mine", "create mine", "create theirs"},
		},
		"OldProcess": {
			reason: "The lease should be kept when the create of an old process fails because the new process has created the external resource.",
			opts:   deterministic,
			steps: func(s *reservationTest) {
				next := s.newReconciler()
				s.external.OnCall("create", func(*v1alpha1.Bucket) error {
					if s.external.Count("create") > 1 {
						return nil
					}
					managedtest.MustReconcile(s.T, next, "b")
					return errExists
				})
				s.reconcile("b")
				expectHolder(
					s.T, "The lease should be kept while the create of the new process may have succeeded.", s.api,
					"b",
				)
				managedtest.MustReconcile(s.T, next, "b", "other")
			},
			wantHolder: "b",
		},
		"OldLeader": {
			reason: "A process that has lost its leadership should keep the lease while the create of the new leader is in progress.",
			steps: func(s *reservationTest) {
				first, second := s.r, s.newReconciler()
				s.external.OnCall("create", func(*v1alpha1.Bucket) error {
					if s.external.Count("create") == 1 {
						return errors.Wrap(context.DeadlineExceeded, "no answer")
					}
					managedtest.MustReconcile(s.T, first, "b")
					managedtest.MustReconcile(s.T, second, "other")
					return nil
				})
				s.reconcile("b")
				managedtest.Must(s.T, s.api.Freeze(s.Context(), managedtest.GetBucket(s.T, s.api)))
				time.Sleep(time.Minute)
				managedtest.MustReconcile(s.T, second, "b")
			},
			wantHolder: "b",
			wantCalls:  []string{"create b", "create b"},
		},
		"AsyncRepeat": {
			reason:   "An asynchronous create should not be repeated after another managed resource has taken the lease.",
			objects:  []client.Object{bucketWithSharedName("b"), bucketWithSharedName("thief")},
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { return asyncstate.ErrOutcomeUnknown },
			steps: func(s *reservationTest) {
				s.r = s.newReconciler(managed.WithAsync(managedtest.NewTracker(s.api, asyncstate.WithDeterministicNames())))
				s.reconcile("b")
				time.Sleep(time.Minute)
				takeOverLease(s.T, s.api)
				s.reconcile("b")
			},
			wantHolder: "thief",
			wantCalls:  []string{"create b"},
		},
		"TenantFails": {
			reason:  "The lease should be released after each failed create, so that another namespace can take it.",
			objects: bucketsOfTenants, createFn: createOfAttackerReturns(errQuota), steps: reconcileTenants,
			wantHolder: "theirs", wantCalls: []string{"create mine", "create mine", "create theirs"},
		},
		"TenantForges": {
			reason:   "The lease should be released after a failed create although a user has set the annotation of a create that succeeded.",
			createFn: createOfAttackerReturns(errQuota), steps: reconcileTenants,
			objects: []client.Object{
				bucketWithSharedName(
					"mine", managedtest.WithNamespace("attacker"),
					managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z"),
				),
				bucketWithSharedName("theirs", managedtest.WithNamespace("victim")),
			},
			wantHolder: "theirs", wantCalls: []string{"create mine", "create mine", "create theirs"},
		},
		"TenantUnknown": {
			reason:   "The lease should be kept while the outcome of a create is unknown.",
			objects:  bucketsOfTenants,
			createFn: createOfAttackerReturns(asyncstate.ErrOutcomeUnknown), steps: reconcileTenants,
			wantHolder: "mine", wantCalls: []string{"create mine"},
		},
		"Flaky": {
			reason:     "The lease of an external resource that was observed should be kept when one Observe does not find it.",
			steps:      observeInTurn,
			createFn:   func(*reservationTest, *v1alpha1.Bucket) error { return errExists },
			wantHolder: "b", wantCalls: []string{"update b", "create b", "update b"}, reconcileAfter: bothRivals,
		},
		"FlakyUpdate": {
			reason: "The lease of an external resource that may only be updated should be kept when one Observe does not find it.",
			steps:  observeInTurn,
			objects: []client.Object{
				bucketWithSharedName("b", managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)),
				bucketWithSharedName("other"),
			},
			wantHolder: "b", wantCalls: []string{"update b", "update b"}, reconcileAfter: bothRivals,
		},
		"AsyncFails": {
			reason:  "The lease should be released while a failed asynchronous create waits for its retry.",
			objects: bucketsOfTenants,
			async:   true,
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error {
				time.Sleep(time.Second)
				return createOfAttackerReturns(errQuota)(s, b)
			},
			steps: func(s *reservationTest) {
				s.reconcileNow("attacker/mine", "attacker/mine") // the create is in progress in the second reconcile
				s.sleep(time.Second)
				s.reconcileNow("attacker/mine")
				expectHolder(s.T, "The lease should be released after the create has failed.", s.api, "")
				s.reconcileNow("victim/theirs")
				s.sleep(time.Second)
			},
			wantHolder: "theirs",
			wantCalls:  []string{"create mine", "create theirs"},
		},
		"AsyncFailsAfterHandOver": {
			reason:   "A process that did not start the asynchronous create should release its lease, too, when it has failed.",
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { time.Sleep(time.Second); return errQuota },
			steps: func(s *reservationTest) {
				for range 2 {
					s.r = s.newReconciler(managed.WithAsync(managedtest.NewTracker(s.api)))
					s.reconcileNow("b")
				}
				expectHolder(s.T, "The lease should be kept while the create is in progress.", s.api, "b")
				s.sleep(time.Second)
				s.reconcileNow("b")
			},
			wantCalls: []string{"create b"},
		},
		"AsyncLaterStep": {
			reason:   "The lease should be kept when an asynchronous create failed at a later step and the external resource exists.",
			async:    true,
			createFn: func(s *reservationTest, b *v1alpha1.Bucket) error { s.createExternally(b); return errTag },
			steps: func(s *reservationTest) {
				s.external.Outdated = true
				s.reconcile("b")
				s.reconcile("b", "other", "b")
			},
			wantHolder: "b",
		},
		"AsyncUpdateOnly": {
			reason:   "The lease should be kept for an asynchronous update after a create that failed.",
			async:    true,
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { return errQuota },
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.sleep(time.Second)
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate))
				s.external.Outdated = true
				s.external.OnCall("update", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
				s.reconcile("b", "b", "other")
			},
			wantHolder: "b",
			wantCalls:  []string{"create b", "update b"},
		},
		"AsyncObserveOnly": {
			reason:   "The lease should be kept when the policies forbid creates while an asynchronous create is in progress.",
			async:    true,
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil },
			steps: func(s *reservationTest) {
				s.reconcile("b")
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.reconcile("b", "other")
			},
			wantHolder: "b",
			wantCalls:  []string{"create b"},
		},
		"Interrupted": {
			reason:  "The lease should be kept when an bucketsAfterInterruption create creates the external resource after it was observed.",
			objects: bucketsAfterInterruption, opts: deterministic,
			createFn:   func(s *reservationTest, b *v1alpha1.Bucket) error { s.createExternally(b); return errExists },
			wantHolder: "b", reconcileAfter: bothRivals,
		},
		"InterruptedIsRepeated": {
			reason:  "A repeated create that succeeds should have a result although the bucketsAfterInterruption one may still be in progress.",
			objects: bucketsAfterInterruption, opts: deterministic,
			steps: func(s *reservationTest) {
				s.reconcile("b")
				managedtest.ExpectEqual(
					s.T, "A create that succeeds should have a result.", "incomplete", false,
					meta.ExternalCreateIncomplete(managedtest.GetBucket(s.T, s.api)),
				)
			},
			wantHolder: "b", reconcileAfter: bothRivals,
		},
		"InterruptedIsSlow": {
			reason:  "The lease should be kept because the bucketsAfterInterruption create may still create the external resource after the next one has failed.",
			objects: bucketsAfterInterruption, opts: deterministic, createFn: createFailsWithQuota,
			steps:      func(s *reservationTest) { s.reconcile("b"); s.createExternally(managedtest.GetBucket(s.T, s.api)) },
			wantHolder: "b", reconcileAfter: bothRivals,
		},
		"InterruptedIsOver": {
			reason:  "The lease should be released when the bucketsAfterInterruption create can't be in progress any more.",
			objects: bucketsAfterInterruption, opts: deterministic, createFn: createFailsWithQuota,
			steps:          func(s *reservationTest) { s.reconcile("b"); s.sleep(2 * time.Minute); s.reconcile("b") },
			reconcileAfter: bothRivals,
		},
		"InterruptedTwice": {
			reason:  "The lease should be kept when the create of a third process was bucketsAfterInterruption.",
			objects: bucketsAfterInterruption, opts: deterministic, createFn: createFailsWithQuota,
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.sleep(2 * time.Minute)
				s.reconcile("b", "b")
				managedtest.UpdateBucket(
					s.T, s.api, "b",
					func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now().Add(time.Second)) },
				)
				s.reconcile("b")
			},
			wantHolder: "b", reconcileAfter: bothRivals,
		},
		"InterruptedAgain": {
			reason:  "The lease should be kept when the create of a third process was bucketsAfterInterruption before the next one ended.",
			objects: bucketsAfterInterruption, opts: deterministic, createFn: createFailsWithQuota,
			steps: func(s *reservationTest) {
				s.reconcile("b")
				s.sleep(2 * time.Minute)
				managedtest.UpdateBucket(s.T, s.api, "b", func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) })
				s.reconcile("b")
			},
			wantHolder: "b", reconcileAfter: bothRivals,
		},
		"NoAnswerThenObserveOnly": {
			reason:   "The lease should be kept after a create without an answer, although no other create may follow.",
			opts:     deterministic,
			createFn: func(*reservationTest, *v1alpha1.Bucket) error { return context.DeadlineExceeded },
			steps: func(s *reservationTest) {
				s.reconcile("b")
				managedtest.UpdateBucket(s.T, s.api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				s.reconcile("b")
			},
			wantHolder:     "b",
			reconcileAfter: bothRivals,
		},
		"NoAnswer": {
			reason:         "The lease should be kept after a create without an answer, although later creates fail. Without a resolver the create is repeated as often as it fails.",
			createFn:       firstCreateHasNoAnswer,
			steps:          func(s *reservationTest) { s.reconcile("b", "b", "b") },
			wantHolder:     "b",
			wantCalls:      []string{"create b", "create b", "create b"},
			reconcileAfter: bothRivals,
		},
		"NoAnswerThenRestart": {
			reason: "Another process should keep the lease after a create without an answer, too.", opts: deterministic,
			createFn: firstCreateHasNoAnswer,
			steps: func(s *reservationTest) {
				s.reconcile("b", "b")
				s.r = s.newReconciler()
				s.reconcile("b")
			},
			wantHolder:     "b",
			reconcileAfter: bothRivals,
		},
		"LaterStep": {
			reason:     "The lease should be kept when a create failed at a later step and the external resource exists.",
			opts:       deterministic,
			createFn:   func(s *reservationTest, b *v1alpha1.Bucket) error { s.createExternally(b); return errTag },
			wantHolder: "b", reconcileAfter: bothRivals,
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
					external: &managedtest.ExternalResource{},
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
					s.opts = append(s.opts, managed.WithAsync(managedtest.NewTracker(s.api)))
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
					managedtest.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, s.external.Calls)
				}
				s.reconcile(tc.reconcileAfter...)
				managedtest.ExpectEqual(t, tc.reason, "calls for another managed resource", 0, len(s.external.ForeignCalls))

				// Let running operations end.
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestReservation_ProviderWritesStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(bucketWithSharedName("b"))
		ext := &managedtest.ExternalResource{}
		ext.BeforeCall = func(call string, mg resource.Managed) error {
			switch b := managedtest.AsBucket(mg); call {
			case "observe":
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.Observes)}
				return api.Server().Status().Update(t.Context(), b)
			default:
				return errors.New("quota exceeded")
			}
		}
		r := newReservingReconciler(api, ext)
		for range 3 {
			managedtest.TryReconcile(r, 1)
			time.Sleep(time.Second)
		}
		reason := "Synced should have the error of a create although the provider updates the status in each Observe."
		if m := managedtest.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, "quota exceeded") {
			t.Errorf("\n%s\nSynced: got %q", reason, m)
		}
		expectHolder(t, "The lease should be released when the create has failed.", api, "")
	})
}

func TestReservation_FinderFindsFailedCreate(t *testing.T) {
	find := &managedtest.FakeFinder{Finding: asyncstate.Found("id-1")}
	c := managedtest.NewExternalClient(managed.ExternalClientFns{
		ObserveFn: managedtest.ObserveExistsIfNamed,
		CreateFn:  managedtest.Returns(managed.ExternalCreation{}, errors.New("cannot tag")),
	})
	cases := map[string]func(api *testkit.API) []managed.ReconcilerOption{
		"Resolver": func(*testkit.API) []managed.ReconcilerOption {
			return []managed.ReconcilerOption{managedtest.WithClient(c), resolve.With(find)}
		},
		"Async": func(api *testkit.API) []managed.ReconcilerOption {
			connector := managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
				return struct {
					managed.ExternalClient
					asyncstate.Finder
				}{&c, find}, nil
			})
			return []managed.ReconcilerOption{managed.WithExternalConnector(connector), managed.WithAsync(managedtest.NewTracker(api))}
		},
	}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(managedtest.NewBucket())
				key := WithKey(func(context.Context, resource.Managed) (string, error) { return "key", nil })
				r := managedtest.NewBucketReconciler(api, append(opts(api), With(leaseNamespace), key)...)
				for range 3 {
					managedtest.MustReconcile(t, r, "b")
					synctest.Wait()
					managedtest.ExpectEqual(
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
			ext := &managedtest.ExternalResource{Exists: call != "create"}
			r := newReservingReconciler(api, ext)
			if ext.Exists {
				managedtest.MustReconcile(t, r, "b") // takes the lease
			}
			if call == "delete" {
				managedtest.DeleteBucket(t, api, "b")
			}
			ext.Outdated = true
			ext.BeforeCall = func(string, resource.Managed) error {
				takeOverLease(t, api)
				return nil
			}
			managedtest.MustReconcile(t, r, "b")
			managedtest.ExpectEqual(
				t, "Nothing should be called after another managed resource has taken the lease.", "calls", 0,
				len(ext.Calls),
			)
			if m := managedtest.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(
				m, "reserved by Bucket default/thief",
			) {
				t.Errorf("Synced: got %q", m)
			}
			observed := ext.Observes
			managedtest.MustReconcile(t, r, "b")
			managedtest.ExpectEqual(
				t, "Observe should not be called while another managed resource holds the lease.", "observations",
				observed, ext.Observes,
			)
		})
	}
}

func TestReservation_DeleteAfterOrphan(t *testing.T) {
	const foreign = "example.org/foreign"
	withOrphanPolicies := managedtest.WithPolicies(
		xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
	)
	withAllPolicies := managedtest.WithPolicies(xpv2.ManagementActionAll)
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
			b := bucketWithSharedName("b", managedtest.WithFinalizers(tc.finalizers...), managedtest.WithDeletionTimestamp, withOrphanPolicies)
			if tc.created {
				managedtest.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:04Z")(b)
				managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z")(b)
			}
			api := testkit.NewAPI(b, bucketWithSharedName("thief", func(b *v1alpha1.Bucket) { b.UID = "uid-2" }))
			ext := &managedtest.ExternalResource{Exists: true, Owner: b.UID}
			r := newReservingReconciler(api, ext, tc.options...)
			for range 2 {
				_, _ = r.Reconcile(t.Context(), managedtest.Request())
			}
			managedtest.ExpectEqual(t, tc.reason, "calls while it is orphaned", 0, len(ext.Calls))
			if tc.leaseTaken {
				takeOverLease(t, api)
			}

			b = managedtest.GetBucket(t, api)
			withAllPolicies(b)
			managedtest.Must(t, api.Server().Update(t.Context(), b))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), managedtest.Request())
			}
			managedtest.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, ext.Calls)
			if tc.wantSynced == "" {
				expectHolder(t, tc.reason, api, "")
				return
			}
			managedtest.ExpectEqual(
				t, tc.reason, "Synced", true,
				strings.Contains(managedtest.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message, tc.wantSynced),
			)
		})
	}
}

func TestReservation_RenamedDuringCreate(t *testing.T) {
	another := strings.Replace(sharedKey, "shared", "another", 1)
	cases := map[string]struct {
		reason         string
		createSetsName bool // Create sets the new name, not another writer
		orphaned       bool // the managed resource is deleted during the create, and orphans its external resource
		wantHolders    map[string]string
	}{
		"Created": {
			reason:      "The lease of the name that was created should be kept.",
			wantHolders: map[string]string{sharedKey: "b"},
		},
		"Named": {
			reason:         "The lease of the name that the create has set should be kept.",
			createSetsName: true,
			wantHolders:    map[string]string{another: "b"},
		},
		"Orphaned": {
			reason:      "Both leases should be released when the external resource is orphaned, and its create has ended.",
			orphaned:    true,
			wantHolders: map[string]string{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("b"))
				ext := &managedtest.ExternalResource{}
				ext.OnCall("create", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
				c := ext.Client()
				create := c.CreateFn
				c.CreateFn = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					if tc.createSetsName {
						managedtest.Must(t, asyncstate.SetExternalName(ctx, "another"))
					}
					return create(ctx, mg)
				}
				r := newReservingReconciler(api, ext, managed.WithAsync(managedtest.NewTracker(api)), managedtest.WithClient(c))
				managedtest.MustReconcile(t, r, "b")
				synctest.Wait()
				if !tc.createSetsName {
					managedtest.UpdateBucket(t, api, "b", managedtest.WithExternalName("another"))
				}
				managedtest.MustReconcile(t, r, "b")
				managedtest.ExpectEqual(
					t, "Both names should be reserved while the create is in progress.", "holders",
					map[string]string{
						sharedKey: "b",
						another:   "b",
					},
					holdersByKey(t, api),
				)
				if tc.orphaned {
					managedtest.UpdateBucket(t, api, "b", managedtest.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate))
					managedtest.DeleteBucket(t, api, "b")
					managedtest.MustReconcile(t, r, "b")
					managedtest.ExpectEqual(
						t, "Both leases should be held while the create runs.", "leases", 2, len(holdersByKey(t, api)),
					)
				}
				time.Sleep(2 * time.Minute)
				managedtest.MustReconcile(t, r, "b", "b")
				managedtest.ExpectEqual(t, tc.reason, "holders", tc.wantHolders, holdersByKey(t, api))
			})
		})
	}
}

func TestReservation_RenamedTwiceDuringCreate(t *testing.T) {
	key := func(name string) string { return strings.Replace(sharedKey, "shared", name, 1) }
	cases := map[string]struct {
		reason string
		names  []string // that the create sets, one a minute
		want   string
	}{
		"New": {
			reason: "The leases of all earlier names should be released when the create has succeeded.",
			names:  []string{"operation", "final"},
			want:   key("final"),
		},
		"Former": {
			reason: "The lease of an earlier name should be kept if it is the name again.",
			names:  []string{"operation", "shared"},
			want:   sharedKey,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("b"))
				ext := &managedtest.ExternalResource{}
				c := ext.Client()
				create := c.CreateFn
				c.CreateFn = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					for _, n := range tc.names {
						managedtest.Must(t, asyncstate.SetExternalName(ctx, n))
						time.Sleep(time.Minute)
					}
					return create(ctx, mg)
				}
				r := newReservingReconciler(api, ext, managed.WithAsync(managedtest.NewTracker(api)), managedtest.WithClient(c))
				for range len(tc.names) + 1 {
					managedtest.MustReconcile(t, r, "b")
					synctest.Wait()
					managedtest.MustReconcile(t, r, "b")
					time.Sleep(time.Minute)
				}
				managedtest.MustReconcile(t, r, "b", "b")
				managedtest.ExpectEqual(t, tc.reason, "holders", map[string]string{tc.want: "b"}, holdersByKey(t, api))
			})
		})
	}
}

func TestReservation_PoliciesWithoutActions(t *testing.T) {
	cases := map[string]struct {
		reason     string
		policies   []xpv2.ManagementAction
		wantHolder string
	}{
		"Observe": {
			reason:     "A managed resource that only observes should release its lease.",
			policies:   []xpv2.ManagementAction{xpv2.ManagementActionObserve},
			wantHolder: "next",
		},
		"Import": {
			reason:     "A managed resource that only late-initializes should release its lease.",
			policies:   []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
			wantHolder: "next",
		},
		"Delete": {
			reason:     "A managed resource that may delete should keep its lease.",
			policies:   []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete},
			wantHolder: "owner",
		},
		"Update": {
			reason:     "A managed resource that may update should keep its lease.",
			policies:   []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate},
			wantHolder: "owner",
		},
		"Unspecified": {
			reason:     "A managed resource that may do everything should keep its lease.",
			policies:   []xpv2.ManagementAction{xpv2.ManagementActionAll},
			wantHolder: "owner",
		},
	}
	for name, tc := range cases {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarted=%t", name, restarted), func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("owner"), bucketWithSharedName("next"))
				ext := &managedtest.ExternalResource{}
				r := newReservingReconciler(api, ext)
				managedtest.MustReconcile(t, r, "owner", "owner", "next")
				managedtest.ExpectEqual(
					t, tc.reason, "condition of the second", corev1.ConditionFalse,
					managedtest.GetBucketNamed(t, api, "next").GetCondition(TypeReserved).Status,
				)

				managedtest.UpdateBucket(t, api, "owner", managedtest.WithPolicies(tc.policies...))
				if restarted {
					r = newReservingReconciler(api, ext)
				}
				api.Forget()
				managedtest.MustReconcile(t, r, "owner")
				if tc.wantHolder == "next" && !restarted {
					about := slices.DeleteFunc(
						api.Requests(), func(r testkit.Request) bool { return !isLease(r.Object) },
					)
					managedtest.ExpectEqual(
						t, "A lease that is in memory should be released without a read.", "requests for leases", 1,
						len(about),
					)
				}
				managedtest.MustReconcile(t, r, "next")
				expectHolder(t, tc.reason, api, tc.wantHolder)
				api.Forget()
				managedtest.MustReconcile(t, r, "owner")
				managedtest.ExpectEqual(
					t, "A steady state should need no request beside cached reads.", "requests", 0,
					len(api.Requests()),
				)
				managedtest.UpdateBucket(t, api, "next", managedtest.WithPolicies(xpv2.ManagementActionObserve))
				managedtest.MustReconcile(t, r, "next")
				got := managedtest.GetBucketNamed(t, api, "next").GetCondition(TypeReserved)
				managedtest.ExpectEqual(
					t, "A managed resource that only observes should not need a reservation.", "ExternalNameReserved",
					corev1.ConditionUnknown, got.Status,
				)
				managedtest.ExpectEqual(
					t, "A managed resource that only observes should not need a reservation.",
					"reason of ExternalNameReserved", ReasonNotNeeded, got.Reason,
				)
			})
		}
	}
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
			opts:        []managed.ReconcilerOption{resolve.With(&managedtest.FakeFinder{Finding: asyncstate.Absent()})},
		},
		"NeverCreatedResolvable": {
			reason:      "The managed resource should be deleted because the resolver has nothing to find.",
			opts:        []managed.ReconcilerOption{resolve.With(&managedtest.FakeFinder{Finding: asyncstate.Absent()})},
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
			blocked := bucketWithSharedName("blocked", managedtest.WithDeletionTimestamp, managedtest.WithFinalizers(managed.FinalizerName))
			for key, d := range tc.annotations {
				managedtest.WithAnnotation(key, at.Add(d).Format(time.RFC3339))(blocked)
			}
			api := testkit.NewAPI(bucketWithSharedName("owner"), blocked)
			ext := &managedtest.ExternalResource{}
			managedtest.MustReconcile(
				t,
				newReservingReconciler(api, ext, append(
					tc.opts, managed.WithDeterministicExternalName(len(tc.opts) == 0), confirm.With(5, managedtest.Interval),
				)...),
				"owner", "blocked",
			)
			managedtest.ExpectCalls(t, ext, "create owner")
			expectHolder(t, tc.reason, api, "owner")
			b := managedtest.GetBucketNamed(t, api, "blocked")
			managedtest.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, b.GetName() == "")
			if !tc.wantDeleted {
				managedtest.ExpectEqual(
					t, tc.reason, "reason", reconciler.ReasonObserveFailed,
					b.GetCondition(reconciler.TypeDeleting).Reason,
				)
			}
		})
	}
}

func TestReservation_LeaseWithoutOwner(t *testing.T) {
	for name, namespace := range map[string]string{"ClusterScoped": "", "NamespaceOfLease": leaseNamespace} {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI()
			l := &leases{client: api.Client(), live: api.Live(), namespace: leaseNamespace}
			h := holder{APIVersion: "v1", Kind: "Bucket", Namespace: namespace, Name: "mine", UID: "uid-mine"}
			_, err := l.hold(t.Context(), "key", h, lease{}, false, time.Now())
			managedtest.Must(t, err)
			u := leasesByKey(t, api)["key"]
			managedtest.ExpectEqual(
				t, "The garbage collector should not delete the lease before its holder in a foreground deletion.",
				"owners", 0, len(u.GetOwnerReferences()),
			)
		})
	}
}

func TestLeases(t *testing.T) {
	gr := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	theirs := holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}
	now := managedtest.NewClock().Now
	withoutHolder := func(t *testing.T, api *testkit.API) {
		t.Helper()
		u := emptyLease(leaseNamespace, leaseName("key"))
		fill(u, "key", holder{}, now)
		managedtest.Must(t, api.Server().Create(t.Context(), u))
	}
	deleteLease := func(t *testing.T, api *testkit.API) {
		t.Helper()
		managedtest.Must(t, api.Server().Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
	}
	updateLease := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, api *testkit.API) {
		return func(t *testing.T, api *testkit.API) {
			t.Helper()
			u := leasesByKey(t, api)["key"]
			fn(&u)
			managedtest.Must(t, api.Server().Update(t.Context(), &u))
		}
	}
	labelLease := updateLease(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
	type want struct {
		Holders map[string]string
		Writes  int
		Err     string
	}
	heldByMine, noLeases := map[string]string{"key": "mine"}, map[string]string{}
	cases := map[string]struct {
		reason           string
		existing         func(t *testing.T, api *testkit.API)
		release          bool // hold the lease, then release it
		renew            bool // hold the lease, then hold it again
		afterHold        func(t *testing.T, api *testkit.API)
		readsFail        bool
		forgetLease      bool // clear the lease in memory
		beforeFirstWrite func(t *testing.T, api *testkit.API)
		writeErr         error // returned by the first failedWrites writes
		failedWrites     int
		want             want
	}{
		"New": {
			reason: "A lease that does not exist should be created.",
			want:   want{Holders: heldByMine, Writes: 1},
		},
		"Released": {
			reason:   "A lease that has no holder should be updated.",
			existing: withoutHolder,
			want:     want{Holders: heldByMine, Writes: 1},
		},
		"CreatedMeanwhile": {
			reason:           "A lease that was created meanwhile should be read again.",
			beforeFirstWrite: withoutHolder,
			want:             want{Holders: heldByMine, Writes: 2},
		},
		"DeletedMeanwhile": {
			reason:           "A lease that was deleted meanwhile should be created again.",
			existing:         withoutHolder,
			beforeFirstWrite: deleteLease,
			want:             want{Holders: heldByMine, Writes: 2},
		},
		"Conflict": {
			reason:       "After a conflict the lease should be read again.",
			existing:     withoutHolder,
			writeErr:     kerrors.NewConflict(gr, "x", nil),
			failedWrites: 1,
			want:         want{Holders: heldByMine, Writes: 2},
		},
		"Conflicts": {
			reason:       "We should return an error after five conflicts.",
			existing:     withoutHolder,
			writeErr:     kerrors.NewConflict(gr, "x", nil),
			failedWrites: 9,
			want: want{
				Holders: map[string]string{"key": ""},
				Writes:  5,
				Err:     "too many conflicting writes (5 attempts)",
			},
		},
		"NoNamespace": {
			reason:       "The error should say that the namespace of the leases may not exist.",
			writeErr:     kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, leaseNamespace),
			failedWrites: 9,
			want:         want{Holders: noLeases, Writes: 1, Err: "does the namespace exist?"},
		},
		"Forbidden": {
			reason:       "We should return another error at once.",
			writeErr:     kerrors.NewForbidden(gr, "x", nil),
			failedWrites: 9,
			want:         want{Holders: noLeases, Writes: 1, Err: "cannot write lease"},
		},
		"ReleaseForbidden": {
			reason:       "We should return an error if the lease can't be deleted.",
			release:      true,
			writeErr:     kerrors.NewForbidden(gr, "x", nil),
			failedWrites: 9,
			want:         want{Holders: heldByMine, Writes: 1, Err: "cannot delete lease"},
		},
		"Unread": {
			reason:    "We should return an error if the lease can't be read.",
			readsFail: true,
			want:      want{Holders: noLeases, Err: "cannot read lease"},
		},
		"ReleaseUnread": {
			reason:      "We should return an error if the lease can't be read before it is released.",
			release:     true,
			forgetLease: true,
			readsFail:   true,
			want:        want{Holders: heldByMine, Err: "cannot read lease"},
		},
		"Release": {
			reason:  "The holder should release its lease.",
			release: true,
			want:    want{Holders: noLeases, Writes: 1},
		},
		"ReleaseUnknown": {
			reason:      "The holder should release its lease although nothing about it is in memory.",
			release:     true,
			forgetLease: true,
			want:        want{Holders: noLeases, Writes: 1},
		},
		"Rewritten": {
			reason:           "The holder should release its lease although another writer has changed it.",
			release:          true,
			beforeFirstWrite: labelLease,
			want:             want{Holders: noLeases, Writes: 2},
		},
		"TakenOver": {
			reason:  "A lease that another holder has taken over should be kept.",
			release: true,
			beforeFirstWrite: updateLease(func(u *unstructured.Unstructured) {
				fill(u, "key", theirs, now)
			}),
			want: want{Holders: map[string]string{"key": "theirs"}, Writes: 1},
		},
		"Kept": {
			reason: "A lease that this process wrote last should not be written again.",
			renew:  true,
			want:   want{Holders: heldByMine},
		},
		"Renewed": {
			reason:    "A lease that another process has written since should be written again.",
			renew:     true,
			afterHold: labelLease,
			want:      want{Holders: heldByMine, Writes: 1},
		},
		"Gone": {
			reason:           "A lease that no longer exists should need no release.",
			release:          true,
			beforeFirstWrite: deleteLease,
			want:             want{Holders: noLeases, Writes: 1},
		},
		"GoneToo": {
			reason:      "A lease that is known not to exist should need no write.",
			release:     true,
			forgetLease: true,
			afterHold:   deleteLease,
			want:        want{Holders: noLeases},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI()
			if tc.existing != nil {
				tc.existing(t, api)
			}
			l := &leases{client: api.Client(), live: api.Live(), namespace: leaseNamespace}
			known := lease{}
			var err error
			if tc.release || tc.renew {
				known, err = l.hold(t.Context(), "key", mine, lease{}, false, now)
				managedtest.Must(t, err)
			}
			if tc.afterHold != nil {
				tc.afterHold(t, api)
			}
			var got want
			api.Before = func(_ context.Context, r testkit.Request) error {
				switch {
				case !managedtest.IsWrite(r) && tc.readsFail:
					return managedtest.ServerError()
				case !managedtest.IsWrite(r):
					return nil
				}
				if got.Writes++; got.Writes == 1 && tc.beforeFirstWrite != nil {
					tc.beforeFirstWrite(t, api)
				}
				if got.Writes <= tc.failedWrites {
					return tc.writeErr
				}
				return nil
			}
			if tc.forgetLease {
				known = lease{name: leaseName("key")}
			}
			if tc.readsFail {
				if _, _, err := l.check(t.Context(), "key", theirs); err == nil ||
					!strings.Contains(err.Error(), tc.want.Err) {
					t.Errorf("\n%s\ncheck(...): %v", tc.reason, err)
				}
			}
			if tc.release {
				_, err = l.release(t.Context(), known, mine, neverNeeded)
			} else {
				_, err = l.hold(t.Context(), "key", mine, known, tc.renew, now)
			}
			if err != nil {
				got.Err = tc.want.Err
				if tc.want.Err == "" || !strings.Contains(err.Error(), tc.want.Err) {
					got.Err = err.Error()
				}
			}
			got.Holders = holdersByKey(t, api)
			managedtest.ExpectEqual(t, tc.reason, "holders, writes, error", tc.want, got)
		})
	}
}

func TestPreCreateObserve_SecondObserveDoesNotReturn(t *testing.T) {
	cases := map[string]struct {
		reason          string
		onSecondObserve func(*managedtest.ExternalResource, resource.Managed) error
		finding         asyncstate.Finding
		wantHolder      string
	}{
		"TimesOut": {
			reason:          "The create should not be pending, or reserved, after the second Observe has timed out.",
			onSecondObserve: func(*managedtest.ExternalResource, resource.Managed) error { return context.DeadlineExceeded },
		},
		"Panics": {
			reason:          "The create should not be pending after a panic in the second Observe.",
			onSecondObserve: func(*managedtest.ExternalResource, resource.Managed) error { panic("oh") },
			finding:         asyncstate.Absent(),
			wantHolder:      "b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("b"))
				ext := managedtest.ChangedBeforeSecondObserve(tc.onSecondObserve)
				r := newReservingReconciler(
					api, ext, precreate.Refuse(), resolve.With(&managedtest.FakeFinder{Finding: tc.finding}),
				)
				managedtest.TryReconcile(r, 1)
				b := managedtest.GetBucket(t, api)
				managedtest.ExpectEqual(t, tc.reason, "creates", 0, ext.Count("create"))
				managedtest.ExpectEqual(t, tc.reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
				expectHolder(t, tc.reason, api, tc.wantHolder)
				time.Sleep(time.Second)
				managedtest.MustReconcile(t, r, "b")
				managedtest.ExpectEqual(t, "The next reconcile should create.", "creates", 1, ext.Count("create"))
			})
		})
	}
}

func TestCriticalAnnotations_CreateNotTried(t *testing.T) {
	const earlier, reason = "2026-01-02T03:04:05Z", "The announcement of a create that was not tried should be withdrawn."
	b := bucketWithSharedName(
		"b", managedtest.WithFinalizers(managed.FinalizerName), managedtest.WithAnnotation(meta.AnnotationKeyExternalCreatePending, earlier),
		managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, earlier),
	)
	api := testkit.NewAPI(b, bucketWithSharedName("thief"))
	ext := (&managedtest.ExternalResource{}).OnCall("observe", func(*v1alpha1.Bucket) error {
		takeOverLease(t, api)
		return nil
	})
	managedtest.MustReconcile(t, newReservingReconciler(api, ext, resolve.With(&managedtest.FakeFinder{
		Finding: asyncstate.Absent(),
	})), "b")
	b = managedtest.GetBucket(t, api)
	managedtest.ExpectEqual(t, reason, "calls", 0, len(ext.Calls))
	managedtest.ExpectEqual(t, reason, "announcement", earlier, b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending])
	managedtest.ExpectEqual(t, reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
}
