package managed_test

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func withRecentCreate(mg *v1alpha1.Bucket) { meta.SetExternalCreateSucceeded(mg, time.Now()) }

func deletionStatusOf(mg resource.Managed) kit.Status {
	s := kit.Status{
		Ready:    kit.Condition(mg.GetCondition(xpv2.TypeReady)),
		Deleting: kit.Condition(mg.GetCondition(reconciler.TypeDeleting)),
	}
	s.Ready.LastTransitionTime.Reset()
	s.Deleting.LastTransitionTime.Reset()
	return s
}

func TestDeletionStatus(t *testing.T) {
	requested := kit.DeletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	always := func(r xpv2.ConditionReason, message string) []kit.Status {
		return []kit.Status{kit.DeletionStatus(r, message)}
	}
	absentProvider := kit.FakeProvider{Client: managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent}}
	failingProvider := kit.FakeProvider{Client: managed.ExternalClientFns{ObserveFn: kit.ObserveFails}}
	waitingForFinalizers := func(fs string) kit.Status {
		return kit.DeletionStatus(reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+fs)
	}
	cases := map[string]struct {
		reason        string
		bucket        []kit.BucketModifier
		provider      kit.FakeProvider
		opts          []managed.ReconcilerOption
		beforeRequest func(ctx context.Context, r testkit.Request) error

		// wantWhileConnecting is the status on the API server at the first Connect. By default it
		// is DeletionRequested.
		wantWhileConnecting kit.Status
		neverConnects       bool
		wantAfterReconcile  []kit.Status // after each reconcile; the last one is also wanted later
		wantWrites          int          // of status; by default 2
		wantSyncedError     bool
	}{
		"InitializeFails": {
			reason: "An initializer that fails should be reported.",
			opts: []managed.ReconcilerOption{
				managed.WithInitializers(
					managed.InitializerFn(func(context.Context, resource.Managed) error { return kit.ErrProvider }),
				),
			},
			wantAfterReconcile: always(reconciler.ReasonInitializeFailed, deletion.MessageInitializeFailed),
			neverConnects:      true,
			wantSyncedError:    true,
		},
		"ConnectFails": {
			reason:             "A connector that fails should be reported.",
			provider:           kit.FakeProvider{ConnectErr: kit.ErrProvider},
			wantAfterReconcile: always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
			wantSyncedError:    true,
		},
		"NamespaceTerminates": {
			reason:             "A namespace that is terminating should not be reported as a failure to connect.",
			provider:           kit.FakeProvider{ConnectErr: kit.NamespaceTerminating()},
			wantAfterReconcile: always(reconciler.ReasonNamespaceTerminating, deletion.MessageTerminating),
		},
		"NilClient": {
			reason:             "A connector that returns neither a client nor an error should be reported.",
			provider:           kit.FakeProvider{NilClient: true},
			wantAfterReconcile: always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
		},
		"ObserveFails": {
			reason:             "An Observe that fails should be reported.",
			provider:           failingProvider,
			wantAfterReconcile: always(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantSyncedError:    true,
		},
		"ObserveFailsWhileOthersHoldFinalizers": {
			reason:              "An Observe that fails should be reported before foreign finalizers.",
			bucket:              []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, "example.org/a")},
			provider:            failingProvider,
			wantWhileConnecting: waitingForFinalizers("example.org/a"),
			wantAfterReconcile:  always(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantSyncedError:     true,
		},
		"CreateIncomplete": {
			reason: "A create with an unknown outcome should be reported, with instructions.",
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			wantAfterReconcile: always(reconciler.ReasonCreateResultUnknown, deletion.MessageCreateUnknown),
			neverConnects:      true,
		},
		"ManyOtherFinalizers": {
			reason: "Foreign finalizers should be sorted and named, the first five of them. The rest should be counted.",
			bucket: []kit.BucketModifier{
				kit.WithFinalizers("f/7", "f/6", "f/5", managed.FinalizerName, "f/4", "f/3", "f/2", "f/1"),
			},
			wantWhileConnecting: waitingForFinalizers("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			wantAfterReconcile:  []kit.Status{waitingForFinalizers("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			wantWrites:          1,
		},
		"FinalizersLeft": {
			reason:             "A deletion should wait for a foreign finalizer when our own is not there.",
			bucket:             []kit.BucketModifier{kit.WithFinalizers("example.org/a")},
			provider:           absentProvider,
			wantAfterReconcile: []kit.Status{waitingForFinalizers("example.org/a")},
		},
		"PausedByAnnotation": {
			reason: "A pause by annotation should be reported.",
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
			},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			neverConnects:      true,
		},
		"PausedBefore": {
			reason: "A pause that began before the deletion should be reported in one write.",
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
				kit.WithConditions(xpv2.ReconcilePaused().WithObservedGeneration(3)),
			},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			wantWrites:         1,
			neverConnects:      true,
		},
		"PausedByPolicy": {
			reason:             "A pause by management policies should be reported.",
			bucket:             []kit.BucketModifier{kit.WithPolicies()},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			neverConnects:      true,
		},
		"PauseEnded": {
			reason: "A pause that has ended should not be reported any more.",
			bucket: []kit.BucketModifier{
				kit.WithConditions(
					reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused)...,
				),
				kit.WithConditions(xpv2.ReconcilePaused()),
			},
			provider:           failingProvider,
			wantAfterReconcile: always(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantSyncedError:    true,
		},
		"InvalidPolicies": {
			reason:             "Unsupported management policies should be reported.",
			bucket:             []kit.BucketModifier{kit.WithPolicies(xpv2.ManagementActionDelete)},
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
			neverConnects:      true,
		},
		"CreationGracePeriod": {
			reason:             "The creation grace period should be reported.",
			bucket:             []kit.BucketModifier{withRecentCreate},
			provider:           absentProvider,
			opts:               []managed.ReconcilerOption{managed.WithCreationGracePeriod(time.Hour)},
			wantAfterReconcile: always(reconciler.ReasonConfirmingAbsence, deletion.MessageGracePeriod),
		},
		"InterruptedCreate": {
			reason: "A create without a result should be reported, with the time when it has certainly ended.",
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-02-03T04:00:00Z"),
			},
			provider: absentProvider,
			opts: []managed.ReconcilerOption{
				managed.WithDeterministicExternalName(true), managed.WithTimeout(24 * time.Hour),
				managed.WithCreationGracePeriod(24 * time.Hour),
			},
			wantAfterReconcile: always(
				reconciler.ReasonConfirmingAbsence, fmt.Sprintf(deletion.MessageMayBeCreated, "2026-02-05T04:01:00Z"),
			),
		},
		"RepeatedCreate": {
			reason: "A create that was repeated should be reported, with the time when its other request has certainly ended.",
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-02-03T04:00:00Z"),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-02-03T04:00:00Z"),
				kit.WithAnnotation(creation.AnnotationKeyOpenUntil, "2026-02-03T04:01:00Z"),
			},
			provider: absentProvider,
			opts: []managed.ReconcilerOption{
				managed.WithDeterministicExternalName(true), managed.WithCreationGracePeriod(24 * time.Hour),
			},
			wantAfterReconcile: always(
				reconciler.ReasonConfirmingAbsence, fmt.Sprintf(deletion.MessageMayBeCreated, "2026-02-04T04:01:00Z"),
			),
		},
		"DeleteFails": {
			reason:             "A Delete that fails should be reported.",
			provider:           kit.FakeProvider{Client: managed.ExternalClientFns{DeleteFn: kit.DeleteFails}},
			wantAfterReconcile: always(reconciler.ReasonExternalDeleteFailed, deletion.MessageDeleteFailed),
			wantWrites:         3,
			wantSyncedError:    true,
		},
		"DeleteAccepted": {
			reason: "A Delete that succeeds should be reported, and then that the external resource still exists.",
			wantAfterReconcile: []kit.Status{
				kit.DeletionStatus(reconciler.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested),
				kit.DeletionStatus(reconciler.ReasonWaitingForExternalResource, deletion.MessageStillExists),
			},
			wantWrites: 3,
		},
		"RemoveFinalizerFails": {
			reason:   "A finalizer that can't be removed should be reported.",
			provider: absentProvider,
			beforeRequest: kit.FailRequests(
				func(r testkit.Request) bool { return r.Verb == testkit.Update }, kit.ForbiddenError(),
			),
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageCleanupFailed),
			wantSyncedError:    true,
		},
		"InvalidPoliciesAndCreateIncomplete": {
			reason: "Unsupported management policies should be reported before a create with an unknown outcome.",
			bucket: []kit.BucketModifier{
				kit.WithPolicies(xpv2.ManagementActionDelete),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
			neverConnects:      true,
		},
		"ReportedBefore": {
			reason:             "A condition that is on the API server should not be written again before Connect.",
			bucket:             []kit.BucketModifier{kit.WithDeletionStatus(requested)},
			provider:           kit.FakeProvider{ConnectErr: kit.ErrProvider},
			wantAfterReconcile: always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
			wantWrites:         1,
			wantSyncedError:    true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := &testkit.Said{}
			api := testkit.NewAPI(kit.NewDeletedBucket(append([]kit.BucketModifier{
				kit.WithConditions(xpv2.Available(), xpv2.ReconcileSuccess()),
			}, tc.bucket...)...))
			api.Before = tc.beforeRequest
			var connecting []kit.Status
			r := kit.NewReconcilerWithProvider(
				api, tc.provider, func() { connecting = append(connecting, deletionStatusOf(kit.GetBucket(t, api))) },
				append(tc.opts, managed.WithRecorder(recorder))...,
			)
			writes := func() int { return api.Count(testkit.StatusUpdate, testkit.StatusPatch) }
			before := kit.GetBucket(t, api)
			for i := range 2 + len(tc.wantAfterReconcile) {
				kit.MustReconcile(t, r, "b")
				now := kit.GetBucket(t, api)
				kit.ExpectEqual(
					t, tc.reason, fmt.Sprintf("after reconcile %d", i+1),
					tc.wantAfterReconcile[min(i, len(tc.wantAfterReconcile)-1)], deletionStatusOf(now),
				)
				for _, c := range []xpv2.ConditionType{xpv2.TypeReady, reconciler.TypeDeleting} {
					was, is := before.GetCondition(c), now.GetCondition(c)
					kit.ExpectEqual(
						t, "The transition time should change with the condition.", "same time of "+string(c),
						was.Equal(is), was.LastTransitionTime.Equal(&is.LastTransitionTime),
					)
				}
				before = now
			}
			var want []kit.Status
			if !tc.neverConnects {
				want = []kit.Status{stdcmp.Or(tc.wantWhileConnecting, requested)}
				want[0].Ready.LastTransitionTime.Reset()
			}
			kit.ExpectEqual(t, tc.reason, "while connecting", want, connecting[:min(1, len(connecting))])
			kit.ExpectEqual(t, tc.reason, "status writes", stdcmp.Or(tc.wantWrites, 2), writes())
			api.Forget()
			kit.MustReconcileTimes(t, r, 10)
			kit.ExpectEqual(t, "An unchanged situation should be written once.", "status writes", 0, writes())
			kit.ExpectEqual(
				t, "An unchanged situation should be written once.", "Bucket after 10 reconciles", before,
				kit.GetBucket(t, api),
			)
			kit.ExpectEqual(
				t, "Synced should have upstream's error.", "has the error", tc.wantSyncedError,
				strings.Contains(before.GetCondition(xpv2.TypeSynced).Message, kit.Secret),
			)
			for _, reason := range []event.Reason{
				"CannotReportDeletion", "CannotStoreAnnotations", "OverwroteAnnotation",
			} {
				kit.ExpectEqual(t, tc.reason, string(reason)+" events", 0, len(recorder.Events(reason)))
			}
		})
	}
}

func TestDeletionStatus_Faults(t *testing.T) {
	type faultTest struct {
		*testing.T
		api             *testkit.API
		r               *managed.Reconciler
		deletes         int
		whileConnecting []kit.Status
	}

	// expectErrors reconciles n times. fail of the reconciles should return an error.
	expectErrors := func(x *faultTest, n, fail int) {
		x.Helper()
		failed := 0
		for range n {
			if _, err := x.r.Reconcile(x.Context(), kit.Request()); err != nil {
				failed++
			}
		}
		kit.ExpectEqual(
			x.T, "The reconcile should return an error only if status can't be written.", "reconciles that failed",
			fail, failed,
		)
	}

	// writeBeforePatch calls write for another writer before the n-th patch of status.
	writeBeforePatch := func(x *faultTest, n int, write func(mg resource.Managed) error) {
		x.api.Before = kit.OnNthRequest(
			n, kit.IsVerb(testkit.StatusPatch), func(testkit.Request) error { return write(kit.GetBucket(x.T, x.api)) },
		)
	}
	removeFinalizers := func(x *faultTest) func(mg resource.Managed) error {
		return func(mg resource.Managed) error {
			mg.SetFinalizers(nil)
			return x.api.Server().Update(x.Context(), mg)
		}
	}
	noStatus := kit.Status{
		Ready:    kit.Condition{Type: "Ready", Status: "Unknown"},
		Deleting: kit.Condition{Type: "Deleting", Status: "Unknown"},
	}
	requested := kit.DeletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	deleteRequested := kit.DeletionStatus(reconciler.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested)
	stillExists := kit.DeletionStatus(reconciler.ReasonWaitingForExternalResource, deletion.MessageStillExists)
	waiting := kit.DeletionStatus(
		reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+"example.org/a",
	)
	withForeignFinalizer := []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, "example.org/a")}
	cases := map[string]struct {
		reason              string
		bucket              []kit.BucketModifier
		statusWriteErr      error
		onlyPatches         bool               // statusWriteErr is returned to patches only
		steps               func(x *faultTest) // by default one reconcile
		wantDeletes         int
		wantWhileConnecting []kit.Status
		wantWarnings        int        // CannotReportDeletion events
		wantStatus          kit.Status // not checked by default
	}{
		"Conflict": {
			reason: "After a conflict right before Delete we should read the managed resource again. The condition of another writer should be kept.",
			steps: func(x *faultTest) {
				writeBeforePatch(x, 2, func(mg resource.Managed) error {
					mg.SetConditions(kit.ForeignCondition())
					return x.api.Server().Status().Update(x.Context(), mg)
				})
				expectErrors(x, 2, 0)
				kit.ExpectEqual(
					x.T, "The condition of another writer should be kept.", "condition", kit.ForeignCondition(),
					kit.GetBucket(x.T, x.api).GetCondition("Foreign"),
				)
			},
			wantDeletes:         1,
			wantWhileConnecting: []kit.Status{requested, deleteRequested},
			wantStatus:          stillExists,
		},
		"StaleCache": {
			reason: "A stale cache should not cause an error, or undo a report.",
			steps: func(x *faultTest) {
				kit.Must(x.T, x.api.Freeze(x.Context(), kit.NewDeletedBucket()))
				expectErrors(x, 1, 0)
				x.api.After = func(_ context.Context, r testkit.Request) error {
					if kit.IsStatusWrite(r) {
						kit.ExpectEqual(
							x.T, "A stale read should not undo a report.", "reason",
							reconciler.ReasonWaitingForExternalResource,
							deletionStatusOf(kit.GetBucket(x.T, x.api)).Deleting.Reason,
						)
					}
					return nil
				}
				expectErrors(x, 1, 0)
				version := kit.GetBucket(x.T, x.api).GetResourceVersion()
				expectErrors(x, 3, 0)
				kit.ExpectEqual(
					x.T, "An unchanged situation should be written once.", "resource version", version,
					kit.GetBucket(x.T, x.api).GetResourceVersion(),
				)
			},
			wantDeletes:         5,
			wantWhileConnecting: []kit.Status{requested, deleteRequested, stillExists, stillExists, stillExists},
		},
		"CacheStaleByOneReport": {
			reason: "We should not delete when the cache is known to be older than our last report.",
			steps: func(x *faultTest) {
				x.api.After = kit.OnNthRequest(
					1, kit.IsVerb(testkit.StatusPatch),
					func(testkit.Request) error { return x.api.Freeze(x.Context(), kit.NewDeletedBucket()) },
				)
				expectErrors(x, 3, 0)
			},
			wantDeletes:         1,
			wantWhileConnecting: []kit.Status{requested, deleteRequested, deleteRequested},
			wantStatus:          deleteRequested,
		},
		"GoneBeforeTheFirstReport": {
			reason: "A managed resource that no longer exists should cause no error.",
			steps:  func(x *faultTest) { writeBeforePatch(x, 1, removeFinalizers(x)); expectErrors(x, 1, 0) },
		},
		"GoneBeforeDelete": {
			reason: "The external resource should be kept when another writer has removed the finalizer, for example to orphan it.",
			steps: func(x *faultTest) {
				writeBeforePatch(x, 2, removeFinalizers(x))
				// Upstream's update of status fails because the managed resource does not exist.
				expectErrors(x, 2, 1)
			},
			wantWhileConnecting: []kit.Status{requested},
		},
		"ServerErrors": {
			reason:         "A report that fails should not block a deletion for ever.",
			statusWriteErr: kit.ServerError(),
			steps: func(x *faultTest) {
				expectErrors(x, 5, 5)
				kit.ExpectEqual(x.T, "Delete should wait for the report.", "calls of Delete", 0, x.deletes)
				// Upstream's update of status fails.
				expectErrors(x, 1, 1)
			},
			wantDeletes:         1,
			wantWhileConnecting: []kit.Status{noStatus},
			wantWarnings:        2,
		},
		"ServerErrorAtTheEnd": {
			reason:              "A report that fails after upstream's reconcile should be retried.",
			bucket:              append(withForeignFinalizer, kit.WithDeletionStatus(requested)),
			statusWriteErr:      kit.ServerError(),
			steps:               func(x *faultTest) { expectErrors(x, 1, 1) },
			wantWhileConnecting: []kit.Status{requested},
		},
		"Invalid": {
			reason:         "We should emit a warning when the API server refuses all status, and go on with the deletion.",
			statusWriteErr: kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
			steps:          func(x *faultTest) { expectErrors(x, 1, 1) },
			wantDeletes:    1, wantWhileConnecting: []kit.Status{noStatus}, wantWarnings: 2,
		},
		"UpstreamsStatusIsInvalid": {
			reason: "A deletion should be reported although the API server refuses the status that the provider has set.",
			steps: func(x *faultTest) {
				x.api.Before = kit.FailRequests(
					kit.IsVerb(testkit.StatusUpdate), kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
				)
				expectErrors(x, 3, 3)
				x.r = kit.NewReconcilerWithProvider(x.api, kit.FakeProvider{ConnectErr: kit.ErrProvider}, func() {})
				expectErrors(x, 1, 1)
			},
			wantDeletes:         3,
			wantWhileConnecting: []kit.Status{requested, deleteRequested, stillExists},
			wantStatus:          kit.DeletionStatus(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
		},
		"Forbidden": {
			reason:         "A report that is forbidden should not block a deletion.",
			statusWriteErr: kit.ForbiddenError(),
			steps:          func(x *faultTest) { expectErrors(x, 1, 1) },
			wantDeletes:    1, wantWhileConnecting: []kit.Status{noStatus}, wantWarnings: 2,
		},
		"CannotPatch": {
			reason:              "A deletion should be reported without permission to patch status, which upstream doesn't need.",
			statusWriteErr:      kit.ForbiddenError(),
			onlyPatches:         true,
			wantDeletes:         1,
			wantWhileConnecting: []kit.Status{requested},
			wantStatus:          deleteRequested,
		},
		"CannotPatchConflict": {
			reason:         "A report without permission to patch status should be retried after a conflict.",
			bucket:         withForeignFinalizer,
			statusWriteErr: kit.ForbiddenError(),
			onlyPatches:    true,
			steps: func(x *faultTest) {
				forbid, patches := x.api.Before, 0
				x.api.Before = func(ctx context.Context, r testkit.Request) error {
					if r.Verb == testkit.StatusPatch {
						if patches++; patches == 1 {
							kit.UpdateBucket(x.T, x.api, "b", kit.WithAnnotation("a", "theirs"))
						}
					}
					return forbid(ctx, r)
				}
				expectErrors(x, 1, 0)
			},
			wantWhileConnecting: []kit.Status{waiting},
			wantStatus:          waiting,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := &testkit.Said{}
			x := &faultTest{T: t, api: testkit.NewAPI(kit.NewDeletedBucket(tc.bucket...))}
			x.api.Before = kit.FailRequests(func(r testkit.Request) bool {
				return kit.IsStatusWrite(r) && (!tc.onlyPatches || r.Verb == testkit.StatusPatch)
			}, tc.statusWriteErr)
			x.r = kit.NewReconcilerWithProvider(x.api, kit.FakeProvider{
				Client: managed.ExternalClientFns{DeleteFn: kit.CountCalls[managed.ExternalDelete](&x.deletes)},
			},
				func() {
					x.whileConnecting = append(x.whileConnecting, deletionStatusOf(kit.GetBucket(t, x.api)))
				}, managed.WithRecorder(recorder))
			if tc.steps == nil {
				expectErrors(x, 1, 0)
			} else {
				tc.steps(x)
			}
			if tc.wantStatus != (kit.Status{}) {
				kit.ExpectEqual(t, tc.reason, "status", tc.wantStatus, deletionStatusOf(kit.GetBucket(t, x.api)))
			}
			kit.ExpectEqual(t, tc.reason, "external deletes", tc.wantDeletes, x.deletes)
			kit.ExpectEqual(t, tc.reason, "warnings", tc.wantWarnings, len(recorder.Events("CannotReportDeletion")))
			kit.ExpectEqual(t, tc.reason, "while connecting", tc.wantWhileConnecting, x.whileConnecting)
		})
	}
}

func TestDeletionStatus_Restored(t *testing.T) {
	for name, deleted := range map[string]bool{"Live": false, "DeletedMeanwhile": true} {
		t.Run(name, func(t *testing.T) {
			restored := kit.DeletionStatus(reconciler.ReasonDeadlineExceeded, "old")
			api := testkit.NewAPI(kit.NewBucket(
				kit.WithFinalizers(managed.FinalizerName),
				func(b *v1alpha1.Bucket) {
					kit.WithDeletionStatus(restored)(b)
					kit.WithConditions(xpv2.Available())(b)
				},
			))
			ext := &kit.ExternalResource{Exists: true}
			want := kit.Status{
				Ready: kit.Condition(xpv2.Available()), Deleting: kit.Condition(reconciler.NotDeleting(time.Time{})),
			}
			if deleted {
				kit.Must(t, api.Freeze(t.Context(), kit.NewBucket()))
				kit.DeleteBucket(t, api, "b")
				want.Deleting = restored.Deleting // Ready follows with the next reason.
			}
			want.Ready.LastTransitionTime.Reset()
			var seen []kit.Status
			ext.BeforeCall = func(string, resource.Managed) error {
				now := deletionStatusOf(kit.GetBucket(t, api))
				now.Ready.ObservedGeneration = want.Ready.ObservedGeneration
				now.Deleting.ObservedGeneration = want.Deleting.ObservedGeneration
				seen = append(seen, now)
				return nil
			}
			r := kit.NewBucketReconciler(api, kit.WithClient(ext.Client()))
			kit.MustReconcile(t, r, "b")
			kit.ExpectEqual(
				t,
				"The Deleting condition of a restored backup should be withdrawn before the provider is called, unless the managed resource is being deleted.",
				"status", want, seen[0],
			)
			if !deleted {
				kit.MustReconcileTimes(t, r, 2, "b")
				kit.ExpectEqual(
					t, "A withdrawal should need one write, beside upstream's own.", "status writes", 2,
					api.Count(testkit.StatusUpdate, testkit.StatusPatch),
				)
			}
		})
	}
}

func TestDeletionStatus_RestoredRepeatedly(t *testing.T) {
	restore := kit.WithConditions(reconciler.Deleting(time.Time{}, "Theirs", "as they see it")[1])
	b := kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), kit.WithExternalName("b"), restore)
	api := testkit.NewAPI(b)
	clock := kit.NewClock()
	r := kit.NewBucketReconciler(
		api, kit.WithClient(kit.NewExternalClient(managed.ExternalClientFns{})), clock.Option(),
	)
	withdrawn := func(reconciles int) int {
		times := 0
		for range reconciles {
			kit.MustReconcile(t, r, "b")
			if b := kit.GetBucket(t, api); deletion.ConditionOf(b).Status != corev1.ConditionTrue {
				times++
				restore(b)
				kit.Must(t, api.Server().Status().Update(t.Context(), b))
			}
		}
		return times
	}
	kit.ExpectEqual(
		t,
		"A Deleting condition that another controller restores should be withdrawn three times, because each withdrawal causes a reconcile.",
		"withdrawn in 20 reconciles", 3, withdrawn(20),
	)
	clock.Now = clock.Now.Add(managed.RestoreInterval)
	kit.ExpectEqual(
		t, "The condition should be withdrawn once in each interval.", "withdrawn in an interval", 1, withdrawn(5),
	)
}

func TestDeletionStatus_DeletedDuringReconcile(t *testing.T) {
	requested := kit.DeletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	cases := map[string]struct {
		reason            string
		exists            bool
		updateErr         error
		foreignFinalizers []string
		want              kit.Status
	}{
		"Updated": {
			reason: "A deletion that began during an update should be reported as requested.",
			exists: true,
			want:   requested,
		},
		"UpdatedAndHeld": {
			reason:            "A deletion that began during an update should be reported with its foreign finalizers.",
			exists:            true,
			foreignFinalizers: []string{"example.org/a"},
			want: kit.DeletionStatus(
				reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+"example.org/a",
			),
		},
		"UpdateFailed": {
			reason:    "A failed update should be reported, and not that the external resource does not exist.",
			exists:    true,
			updateErr: kit.ErrProvider,
			want:      kit.DeletionStatus(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
		},
		"Created": {
			reason: "A deletion that began during a create should be reported as requested, and not that the external resource does not exist.",
			want:   requested,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(
				kit.NewBucket(kit.WithFinalizers(append(tc.foreignFinalizers, managed.FinalizerName)...)),
			)
			ext := &kit.ExternalResource{Exists: tc.exists, Outdated: true}
			ext.BeforeCall = func(what string, mg resource.Managed) error {
				if what == "observe" {
					return nil
				}
				kit.DeleteBucket(t, api, "b")
				kit.Must(t, api.Server().Get(t.Context(), kit.Request().NamespacedName, mg))
				return tc.updateErr
			}
			kit.MustReconcile(t, kit.NewBucketReconciler(api, kit.WithClient(ext.Client())), "b")
			got := deletionStatusOf(kit.GetBucket(t, api))
			got.Ready.ObservedGeneration, got.Deleting.ObservedGeneration = 3, 3
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}

func TestDeletionStatus_ProviderWritesReady(t *testing.T) {
	cases := map[string]struct {
		reason            string
		foreignFinalizers []string
		deleteErr         error
		ready             xpv2.Condition
	}{
		"Deletes": {
			reason: "Ready should be left to the provider while the external resource is being deleted.",
			ready:  xpv2.Available(),
		},
		"SaysDeleting": {
			reason: "Ready should be left to a provider that sets its own message.",
			ready:  xpv2.Deleting(),
		},
		"DeleteFails": {
			reason:    "Ready should be left to the provider while Delete fails.",
			deleteErr: errors.New("boom"),
			ready:     xpv2.Available(),
		},
		"OtherHolders": {
			reason:            "Ready should be left to the provider while foreign finalizers hold the managed resource.",
			foreignFinalizers: []string{"example.org/other"},
			ready:             xpv2.Available(),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(
				kit.WithExternalName("id-1"), kit.WithDeletionTimestamp,
				kit.WithFinalizers(append(tc.foreignFinalizers, managed.FinalizerName)...),
			))
			r := kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
					mg.SetConditions(tc.ready)
					// The manager's own client is not Graft's.
					return managed.ExternalObservation{
						ResourceExists:   true,
						ResourceUpToDate: true,
					}, api.Server().Status().Update(ctx, mg)
				},
				DeleteFn: kit.Returns(managed.ExternalDelete{}, tc.deleteErr),
			}))
			kit.MustReconcileTimes(t, r, 3)
			rests := kit.GetBucket(t, api).GetResourceVersion()
			kit.MustReconcileTimes(t, r, 5)
			got := kit.GetBucket(t, api)
			kit.ExpectEqual(
				t, "An unchanged situation should be written once.", "resource version", rests,
				got.GetResourceVersion(),
			)
			kit.ExpectEqual(t, tc.reason, "Ready", tc.ready.Reason, got.GetCondition(xpv2.TypeReady).Reason)
			kit.ExpectEqual(
				t, tc.reason, "Deleting", corev1.ConditionTrue, got.GetCondition(reconciler.TypeDeleting).Status,
			)
		})
	}
}

func TestDeletionStatus_CustomFinalizer(t *testing.T) {
	customFinalizer := func(api *testkit.API) resource.Finalizer {
		return resource.NewAPIFinalizer(api.Client(), "example.org/own")
	}
	cases := map[string]struct {
		reason      string
		finalizer   func(api *testkit.API) resource.Finalizer
		finalizers  []string
		wantMessage string
	}{
		"Others": {
			reason:      "The message should name foreign finalizers, and not the provider's own.",
			finalizer:   customFinalizer,
			finalizers:  []string{"example.org/own", "example.org/other"},
			wantMessage: deletion.MessageWaitingForFinalizers + "example.org/other",
		},
		"Upstream": {
			reason:      "The message should name upstream's finalizer if the provider has another one.",
			finalizer:   customFinalizer,
			finalizers:  []string{"example.org/own", managed.FinalizerName},
			wantMessage: deletion.MessageWaitingForFinalizers + managed.FinalizerName,
		},
		"Unknown": {
			reason: "The message should name all finalizers if the name of the provider's own is unknown.",
			finalizer: func(api *testkit.API) resource.Finalizer {
				f := customFinalizer(api)
				return resource.FinalizerFns{AddFinalizerFn: f.AddFinalizer, RemoveFinalizerFn: f.RemoveFinalizer}
			},
			finalizers:  []string{"example.org/own", "example.org/other"},
			wantMessage: deletion.MessageSomeFinalizer + "example.org/other, example.org/own",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(
				kit.WithExternalName("id-1"), kit.WithDeletionTimestamp, kit.WithFinalizers(tc.finalizers...),
			))
			r := kit.NewBucketReconciler(
				api, managed.WithFinalizer(tc.finalizer(api)), kit.WithClient(managed.ExternalClientFns{}),
			)
			kit.MustReconcile(t, r, "b")
			c := kit.GetBucket(t, api).GetCondition(reconciler.TypeDeleting)
			kit.ExpectEqual(t, tc.reason, "Deleting", []any{
				reconciler.ReasonWaitingForFinalizers, tc.wantMessage,
			}, []any{c.Reason, c.Message})
		})
	}
}

func TestDeletionStatus_Hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewDeletedBucket(withRecentCreate))
		api.Before = func(ctx context.Context, r testkit.Request) error {
			if !strings.Contains(r.Body, string(reconciler.ReasonConfirmingAbsence)) {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		r := kit.NewBucketReconciler(
			api, kit.WithClient(managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent}),
			managed.WithCreationGracePeriod(time.Minute),
		)
		began := time.Now()
		_, err := r.Reconcile(t.Context(), kit.Request())
		kit.ExpectEqual(
			t, "A report that the API server doesn't answer should end after half a minute, also when upstream has returned.",
			"deadline exceeded, time", []any{true, 30 * time.Second},
			[]any{errors.Is(err, context.DeadlineExceeded), time.Since(began)},
		)
	})
}
