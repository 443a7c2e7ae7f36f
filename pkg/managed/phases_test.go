package managed

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"strings"
	"testing"
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
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// secret is a part of errProvider, which must not reach conditions other than Synced.
const secret = "p4ssw0rd" //nolint:gosec // Not a credential.

func withRecentCreate(mg *v1alpha1.Bucket) { meta.SetExternalCreateSucceeded(mg, time.Now()) }

// A condition is compared field by field, because Equal of an xpv2.Condition ignores some.
type condition xpv2.Condition

func deletionStatusOf(mg resource.Managed) status {
	s := status{
		Ready:    condition(mg.GetCondition(xpv2.TypeReady)),
		Deleting: condition(mg.GetCondition(reconciler.TypeDeleting)),
	}
	s.Ready.LastTransitionTime.Reset()
	s.Deleting.LastTransitionTime.Reset()
	return s
}

func TestDeletionStatus(t *testing.T) {
	requested := deletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	always := func(r xpv2.ConditionReason, message string) []status { return []status{deletionStatus(r, message)} }
	absentProvider := fakeProvider{client: ExternalClientFns{ObserveFn: observeAbsent}}
	failingProvider := fakeProvider{client: ExternalClientFns{ObserveFn: observeFails}}
	waitingForFinalizers := func(fs string) status {
		return deletionStatus(reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+fs)
	}
	cases := map[string]struct {
		reason        string
		bucket        []bucketModifier
		provider      fakeProvider
		opts          []ReconcilerOption
		beforeRequest func(ctx context.Context, r testkit.Request) error

		// wantWhileConnecting is the status on the API server at the first Connect. By default it
		// is DeletionRequested.
		wantWhileConnecting status
		neverConnects       bool
		wantAfterReconcile  []status // after each reconcile; the last one is also wanted later
		wantWrites          int      // of status; by default 2
		wantSyncedError     bool
	}{
		"InitializeFails": {
			reason: "An initializer that fails should be reported.",
			opts: []ReconcilerOption{
				WithInitializers(InitializerFn(func(context.Context, resource.Managed) error { return errProvider })),
			},
			wantAfterReconcile: always(reconciler.ReasonInitializeFailed, deletion.MessageInitializeFailed),
			neverConnects:      true,
			wantSyncedError:    true,
		},
		"ConnectFails": {
			reason:             "A connector that fails should be reported.",
			provider:           fakeProvider{connectErr: errProvider},
			wantAfterReconcile: always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
			wantSyncedError:    true,
		},
		"NamespaceTerminates": {
			reason:             "A namespace that is terminating should not be reported as a failure to connect.",
			provider:           fakeProvider{connectErr: namespaceTerminating()},
			wantAfterReconcile: always(reconciler.ReasonNamespaceTerminating, deletion.MessageTerminating),
		},
		"NilClient": {
			reason:             "A connector that returns neither a client nor an error should be reported.",
			provider:           fakeProvider{nilClient: true},
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
			bucket:              []bucketModifier{withFinalizers(FinalizerName, "example.org/a")},
			provider:            failingProvider,
			wantWhileConnecting: waitingForFinalizers("example.org/a"),
			wantAfterReconcile:  always(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantSyncedError:     true,
		},
		"CreateIncomplete": {
			reason: "A create with an unknown outcome should be reported, with instructions.",
			bucket: []bucketModifier{
				withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			wantAfterReconcile: always(reconciler.ReasonCreateResultUnknown, deletion.MessageCreateUnknown),
			neverConnects:      true,
		},
		"ManyOtherFinalizers": {
			reason: "Foreign finalizers should be sorted and named, the first five of them. The rest should be counted.",
			bucket: []bucketModifier{
				withFinalizers("f/7", "f/6", "f/5", FinalizerName, "f/4", "f/3", "f/2", "f/1"),
			},
			wantWhileConnecting: waitingForFinalizers("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			wantAfterReconcile:  []status{waitingForFinalizers("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			wantWrites:          1,
		},
		"FinalizersLeft": {
			reason:             "A deletion should wait for a foreign finalizer when our own is not there.",
			bucket:             []bucketModifier{withFinalizers("example.org/a")},
			provider:           absentProvider,
			wantAfterReconcile: []status{waitingForFinalizers("example.org/a")},
		},
		"PausedByAnnotation": {
			reason:             "A pause by annotation should be reported.",
			bucket:             []bucketModifier{withAnnotation(meta.AnnotationKeyReconciliationPaused, "true")},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			neverConnects:      true,
		},
		"PausedBefore": {
			reason: "A pause that began before the deletion should be reported in one write.",
			bucket: []bucketModifier{
				withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
				withConditions(xpv2.ReconcilePaused().WithObservedGeneration(3)),
			},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			wantWrites:         1,
			neverConnects:      true,
		},
		"PausedByPolicy": {
			reason:             "A pause by management policies should be reported.",
			bucket:             []bucketModifier{withPolicies()},
			wantAfterReconcile: always(reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused),
			neverConnects:      true,
		},
		"PauseEnded": {
			reason: "A pause that has ended should not be reported any more.",
			bucket: []bucketModifier{
				withConditions(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, deletion.MessageManagedPaused)...),
				withConditions(xpv2.ReconcilePaused()),
			},
			provider:           failingProvider,
			wantAfterReconcile: always(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantSyncedError:    true,
		},
		"InvalidPolicies": {
			reason:             "Unsupported management policies should be reported.",
			bucket:             []bucketModifier{withPolicies(xpv2.ManagementActionDelete)},
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
			neverConnects:      true,
		},
		"CreationGracePeriod": {
			reason:             "The creation grace period should be reported.",
			bucket:             []bucketModifier{withRecentCreate},
			provider:           absentProvider,
			opts:               []ReconcilerOption{WithCreationGracePeriod(time.Hour)},
			wantAfterReconcile: always(reconciler.ReasonConfirmingAbsence, deletion.MessageGracePeriod),
		},
		"InterruptedCreate": {
			reason: "A create without a result should be reported, with the time when it has certainly ended.",
			bucket: []bucketModifier{
				withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-02-03T04:00:00Z"),
			},
			provider: absentProvider,
			opts: []ReconcilerOption{
				WithDeterministicExternalName(true), WithTimeout(24 * time.Hour),
				WithCreationGracePeriod(24 * time.Hour),
			},
			wantAfterReconcile: always(
				reconciler.ReasonConfirmingAbsence, fmt.Sprintf(deletion.MessageMayBeCreated, "2026-02-05T04:01:00Z"),
			),
		},
		"RepeatedCreate": {
			reason: "A create that was repeated should be reported, with the time when its other request has certainly ended.",
			bucket: []bucketModifier{
				withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-02-03T04:00:00Z"),
				withAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-02-03T04:00:00Z"),
				withAnnotation(creation.AnnotationKeyOpenUntil, "2026-02-03T04:01:00Z"),
			},
			provider: absentProvider,
			opts: []ReconcilerOption{
				WithDeterministicExternalName(true), WithCreationGracePeriod(24 * time.Hour),
			},
			wantAfterReconcile: always(
				reconciler.ReasonConfirmingAbsence, fmt.Sprintf(deletion.MessageMayBeCreated, "2026-02-04T04:01:00Z"),
			),
		},
		"DeleteFails": {
			reason:             "A Delete that fails should be reported.",
			provider:           fakeProvider{client: ExternalClientFns{DeleteFn: deleteFails}},
			wantAfterReconcile: always(reconciler.ReasonExternalDeleteFailed, deletion.MessageDeleteFailed),
			wantWrites:         3,
			wantSyncedError:    true,
		},
		"DeleteAccepted": {
			reason: "A Delete that succeeds should be reported, and then that the external resource still exists.",
			wantAfterReconcile: []status{
				deletionStatus(reconciler.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested),
				deletionStatus(reconciler.ReasonWaitingForExternalResource, deletion.MessageStillExists),
			},
			wantWrites: 3,
		},
		"RemoveFinalizerFails": {
			reason:   "A finalizer that can't be removed should be reported.",
			provider: absentProvider,
			beforeRequest: failRequests(
				func(r testkit.Request) bool { return r.Verb == testkit.Update }, forbiddenError(),
			),
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageCleanupFailed),
			wantSyncedError:    true,
		},
		"InvalidPoliciesAndCreateIncomplete": {
			reason: "Unsupported management policies should be reported before a create with an unknown outcome.",
			bucket: []bucketModifier{
				withPolicies(xpv2.ManagementActionDelete),
				withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			wantAfterReconcile: always(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
			neverConnects:      true,
		},
		"ReportedBefore": {
			reason:             "A condition that is on the API server should not be written again before Connect.",
			bucket:             []bucketModifier{withDeletionStatus(requested)},
			provider:           fakeProvider{connectErr: errProvider},
			wantAfterReconcile: always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
			wantWrites:         1,
			wantSyncedError:    true,
		},
		"ReadyAgainThoughReportedBefore": {
			reason: "Ready should be set to False before Connect, with the reported reason, if another writer has set it to True.",
			bucket: []bucketModifier{
				withDeletionStatus(deletionStatus(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed)),
				withConditions(xpv2.Available()),
			},
			provider:            fakeProvider{connectErr: errProvider},
			wantWhileConnecting: deletionStatus(reconciler.ReasonObserveFailed, deletion.MessageObserveFailed),
			wantAfterReconcile:  always(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
			wantSyncedError:     true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := &testkit.Said{}
			api := testkit.NewAPI(newDeletedBucket(append([]bucketModifier{
				withConditions(xpv2.Available(), xpv2.ReconcileSuccess()),
			}, tc.bucket...)...))
			api.Before = tc.beforeRequest
			var connecting []status
			r := newReconcilerWithProvider(
				api, tc.provider, func() { connecting = append(connecting, deletionStatusOf(getBucket(t, api))) },
				append(tc.opts, WithRecorder(recorder))...,
			)
			writes := func() int { return api.Count(testkit.StatusUpdate, testkit.StatusPatch) }
			before := getBucket(t, api)
			for i := range 2 + len(tc.wantAfterReconcile) {
				mustReconcile(t, r, "b")
				now := getBucket(t, api)
				expectEqual(
					t, tc.reason, fmt.Sprintf("after reconcile %d", i+1),
					tc.wantAfterReconcile[min(i, len(tc.wantAfterReconcile)-1)], deletionStatusOf(now),
				)
				for _, c := range []xpv2.ConditionType{xpv2.TypeReady, reconciler.TypeDeleting} {
					was, is := before.GetCondition(c), now.GetCondition(c)
					expectEqual(
						t, "The transition time should change with the condition.", "same time of "+string(c),
						was.Equal(is), was.LastTransitionTime.Equal(&is.LastTransitionTime),
					)
				}
				before = now
			}
			var want []status
			if !tc.neverConnects {
				want = []status{stdcmp.Or(tc.wantWhileConnecting, requested)}
				want[0].Ready.LastTransitionTime.Reset()
			}
			expectEqual(t, tc.reason, "while connecting", want, connecting[:min(1, len(connecting))])
			expectEqual(t, tc.reason, "status writes", stdcmp.Or(tc.wantWrites, 2), writes())
			api.Forget()
			mustReconcileTimes(t, r, 10)
			expectEqual(t, "An unchanged situation should be written once.", "status writes", 0, writes())
			expectEqual(
				t, "An unchanged situation should be written once.", "Bucket after 10 reconciles", before,
				getBucket(t, api),
			)
			expectEqual(
				t, "Synced should have upstream's error.", "has the error", tc.wantSyncedError,
				strings.Contains(before.GetCondition(xpv2.TypeSynced).Message, secret),
			)
			for _, reason := range []event.Reason{
				"CannotReportDeletion", "CannotStoreAnnotations", "OverwroteAnnotation",
			} {
				expectEqual(t, tc.reason, string(reason)+" events", 0, len(recorder.Events(reason)))
			}
		})
	}
}

func TestDeletionStatus_Faults(t *testing.T) {
	type faultTest struct {
		*testing.T
		api             *testkit.API
		r               *Reconciler
		deletes         int
		whileConnecting []status
	}

	// expectErrors reconciles n times. fail of the reconciles should return an error.
	expectErrors := func(x *faultTest, n, fail int) {
		x.Helper()
		failed := 0
		for range n {
			if _, err := x.r.Reconcile(x.Context(), request()); err != nil {
				failed++
			}
		}
		expectEqual(
			x.T, "The reconcile should return an error only if status can't be written.", "reconciles that failed",
			fail, failed,
		)
	}

	// writeBeforePatch calls write for another writer before the n-th patch of status.
	writeBeforePatch := func(x *faultTest, n int, write func(mg resource.Managed) error) {
		x.api.Before = onNthRequest(
			n, isVerb(testkit.StatusPatch), func(testkit.Request) error { return write(getBucket(x.T, x.api)) },
		)
	}
	removeFinalizers := func(x *faultTest) func(mg resource.Managed) error {
		return func(mg resource.Managed) error {
			mg.SetFinalizers(nil)
			return x.api.Server().Update(x.Context(), mg)
		}
	}
	noStatus := status{
		Ready:    condition{Type: "Ready", Status: "Unknown"},
		Deleting: condition{Type: "Deleting", Status: "Unknown"},
	}
	requested := deletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	deleteRequested := deletionStatus(reconciler.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested)
	stillExists := deletionStatus(reconciler.ReasonWaitingForExternalResource, deletion.MessageStillExists)
	waiting := deletionStatus(reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+"example.org/a")
	withForeignFinalizer := []bucketModifier{withFinalizers(FinalizerName, "example.org/a")}
	cases := map[string]struct {
		reason              string
		bucket              []bucketModifier
		statusWriteErr      error
		onlyPatches         bool               // statusWriteErr is returned to patches only
		steps               func(x *faultTest) // by default one reconcile
		wantDeletes         int
		wantWhileConnecting []status
		wantWarnings        int    // CannotReportDeletion events
		wantStatus          status // not checked by default
	}{
		"Conflict": {
			reason: "After a conflict right before Delete we should read the managed resource again. The condition of another writer should be kept.",
			steps: func(x *faultTest) {
				writeBeforePatch(x, 2, func(mg resource.Managed) error {
					mg.SetConditions(foreignCondition())
					return x.api.Server().Status().Update(x.Context(), mg)
				})
				expectErrors(x, 2, 0)
				expectEqual(
					x.T, "The condition of another writer should be kept.", "condition", foreignCondition(),
					getBucket(x.T, x.api).GetCondition("Foreign"),
				)
			},
			wantDeletes:         1,
			wantWhileConnecting: []status{requested, deleteRequested},
			wantStatus:          stillExists,
		},
		"StaleCache": {
			reason: "A stale cache should not cause an error, or undo a report.",
			steps: func(x *faultTest) {
				must(x.T, x.api.Freeze(x.Context(), newDeletedBucket()))
				expectErrors(x, 1, 0)
				x.api.After = func(_ context.Context, r testkit.Request) error {
					if isStatusWrite(r) {
						expectEqual(
							x.T, "A stale read should not undo a report.", "reason",
							reconciler.ReasonWaitingForExternalResource,
							deletionStatusOf(getBucket(x.T, x.api)).Deleting.Reason,
						)
					}
					return nil
				}
				expectErrors(x, 1, 0)
				version := getBucket(x.T, x.api).GetResourceVersion()
				expectErrors(x, 3, 0)
				expectEqual(
					x.T, "An unchanged situation should be written once.", "resource version", version,
					getBucket(x.T, x.api).GetResourceVersion(),
				)
			},
			wantDeletes:         5,
			wantWhileConnecting: []status{requested, deleteRequested, stillExists, stillExists, stillExists},
		},
		"CacheStaleByOneReport": {
			reason: "We should not delete when the cache is known to be older than our last report.",
			steps: func(x *faultTest) {
				x.api.After = onNthRequest(
					1, isVerb(testkit.StatusPatch),
					func(testkit.Request) error { return x.api.Freeze(x.Context(), newDeletedBucket()) },
				)
				expectErrors(x, 3, 0)
			},
			wantDeletes:         1,
			wantWhileConnecting: []status{requested, deleteRequested, deleteRequested},
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
			wantWhileConnecting: []status{requested},
		},
		"ServerErrors": {
			reason:         "A report that fails should not block a deletion for ever.",
			statusWriteErr: serverError(),
			steps: func(x *faultTest) {
				expectErrors(x, 5, 5)
				expectEqual(x.T, "Delete should wait for the report.", "calls of Delete", 0, x.deletes)
				// Upstream's update of status fails.
				expectErrors(x, 1, 1)
			},
			wantDeletes:         1,
			wantWhileConnecting: []status{noStatus},
			wantWarnings:        2,
		},
		"ServerErrorAtTheEnd": {
			reason:              "A report that fails after upstream's reconcile should be retried.",
			bucket:              append(withForeignFinalizer, withDeletionStatus(requested)),
			statusWriteErr:      serverError(),
			steps:               func(x *faultTest) { expectErrors(x, 1, 1) },
			wantWhileConnecting: []status{requested},
		},
		"Invalid": {
			reason:         "We should emit a warning when the API server refuses all status, and go on with the deletion.",
			statusWriteErr: kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
			steps:          func(x *faultTest) { expectErrors(x, 1, 1) },
			wantDeletes:    1, wantWhileConnecting: []status{noStatus}, wantWarnings: 2,
		},
		"UpstreamsStatusIsInvalid": {
			reason: "A deletion should be reported although the API server refuses the status that the provider has set.",
			steps: func(x *faultTest) {
				x.api.Before = failRequests(
					isVerb(testkit.StatusUpdate), kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
				)
				expectErrors(x, 3, 3)
				x.r = newReconcilerWithProvider(x.api, fakeProvider{connectErr: errProvider}, func() {})
				expectErrors(x, 1, 1)
			},
			wantDeletes:         3,
			wantWhileConnecting: []status{requested, deleteRequested, stillExists},
			wantStatus:          deletionStatus(reconciler.ReasonConnectFailed, deletion.MessageConnectFailed),
		},
		"Forbidden": {
			reason:         "A report that is forbidden should not block a deletion.",
			statusWriteErr: forbiddenError(),
			steps:          func(x *faultTest) { expectErrors(x, 1, 1) },
			wantDeletes:    1, wantWhileConnecting: []status{noStatus}, wantWarnings: 2,
		},
		"CannotPatch": {
			reason:              "A deletion should be reported without permission to patch status, which upstream doesn't need.",
			statusWriteErr:      forbiddenError(),
			onlyPatches:         true,
			wantDeletes:         1,
			wantWhileConnecting: []status{requested},
			wantStatus:          deleteRequested,
		},
		"CannotPatchConflict": {
			reason:         "A report without permission to patch status should be retried after a conflict.",
			bucket:         withForeignFinalizer,
			statusWriteErr: forbiddenError(),
			onlyPatches:    true,
			steps: func(x *faultTest) {
				forbid, patches := x.api.Before, 0
				x.api.Before = func(ctx context.Context, r testkit.Request) error {
					if r.Verb == testkit.StatusPatch {
						if patches++; patches == 1 {
							updateBucket(x.T, x.api, "b", withAnnotation("a", "theirs"))
						}
					}
					return forbid(ctx, r)
				}
				expectErrors(x, 1, 0)
			},
			wantWhileConnecting: []status{waiting},
			wantStatus:          waiting,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := &testkit.Said{}
			x := &faultTest{T: t, api: testkit.NewAPI(newDeletedBucket(tc.bucket...))}
			x.api.Before = failRequests(func(r testkit.Request) bool {
				return isStatusWrite(r) && (!tc.onlyPatches || r.Verb == testkit.StatusPatch)
			}, tc.statusWriteErr)
			x.r = newReconcilerWithProvider(x.api, fakeProvider{
				client: ExternalClientFns{DeleteFn: countCalls[ExternalDelete](&x.deletes)},
			},
				func() {
					x.whileConnecting = append(x.whileConnecting, deletionStatusOf(getBucket(t, x.api)))
				}, WithRecorder(recorder))
			if tc.steps == nil {
				expectErrors(x, 1, 0)
			} else {
				tc.steps(x)
			}
			if tc.wantStatus != (status{}) {
				expectEqual(t, tc.reason, "status", tc.wantStatus, deletionStatusOf(getBucket(t, x.api)))
			}
			expectEqual(t, tc.reason, "external deletes", tc.wantDeletes, x.deletes)
			expectEqual(t, tc.reason, "warnings", tc.wantWarnings, len(recorder.Events("CannotReportDeletion")))
			expectEqual(t, tc.reason, "while connecting", tc.wantWhileConnecting, x.whileConnecting)
		})
	}
}

func TestDeletionStatus_Restored(t *testing.T) {
	for name, deleted := range map[string]bool{"Live": false, "DeletedMeanwhile": true} {
		t.Run(name, func(t *testing.T) {
			restored := deletionStatus(reconciler.ReasonDeadlineExceeded, "old")
			api := testkit.NewAPI(newBucket(
				withFinalizers(FinalizerName),
				func(b *v1alpha1.Bucket) { withDeletionStatus(restored)(b); withConditions(xpv2.Available())(b) },
			))
			ext := &externalResource{exists: true}
			want := status{Ready: condition(xpv2.Available()), Deleting: condition(reconciler.NotDeleting(time.Time{}))}
			if deleted {
				must(t, api.Freeze(t.Context(), newBucket()))
				deleteBucket(t, api, "b")
				want = restored
			}
			want.Ready.LastTransitionTime.Reset()
			var seen []status
			ext.beforeCall = func(string, resource.Managed) error {
				now := deletionStatusOf(getBucket(t, api))
				now.Ready.ObservedGeneration = want.Ready.ObservedGeneration
				now.Deleting.ObservedGeneration = want.Deleting.ObservedGeneration
				seen = append(seen, now)
				return nil
			}
			r := newBucketReconciler(api, withClient(ext.client()))
			mustReconcile(t, r, "b")
			expectEqual(
				t,
				"The Deleting condition of a restored backup should be withdrawn before the provider is called, unless the managed resource is being deleted.",
				"status", want, seen[0],
			)
			if !deleted {
				mustReconcileTimes(t, r, 2, "b")
				expectEqual(
					t, "A withdrawal should need one write, beside upstream's own.", "status writes", 2,
					api.Count(testkit.StatusUpdate, testkit.StatusPatch),
				)
			}
		})
	}
}

func TestDeletionStatus_RestoredRepeatedly(t *testing.T) {
	restore := withConditions(reconciler.Deleting(time.Time{}, "Theirs", "as they see it")[1])
	b := newBucket(withFinalizers(FinalizerName), withExternalName("b"), restore)
	api := testkit.NewAPI(b)
	clock := newClock()
	r := newBucketReconciler(api, withClient(newExternalClient(ExternalClientFns{})), clock.option())
	withdrawn := func(reconciles int) int {
		times := 0
		for range reconciles {
			mustReconcile(t, r, "b")
			if b := getBucket(t, api); deletion.ConditionOf(b).Status != corev1.ConditionTrue {
				times++
				restore(b)
				must(t, api.Server().Status().Update(t.Context(), b))
			}
		}
		return times
	}
	expectEqual(
		t,
		"A Deleting condition that another controller restores should be withdrawn three times, because each withdrawal causes a reconcile.",
		"withdrawn in 20 reconciles", 3, withdrawn(20),
	)
	clock.now = clock.now.Add(restoreInterval)
	expectEqual(
		t, "The condition should be withdrawn once in each interval.", "withdrawn in an interval", 1, withdrawn(5),
	)
}

func TestDeletionStatus_DeletedDuringReconcile(t *testing.T) {
	requested := deletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)
	cases := map[string]struct {
		reason            string
		exists            bool
		updateErr         error
		foreignFinalizers []string
		want              status
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
			want: deletionStatus(
				reconciler.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+"example.org/a",
			),
		},
		"UpdateFailed": {
			reason:    "A failed update should be reported, and not that the external resource does not exist.",
			exists:    true,
			updateErr: errProvider,
			want:      deletionStatus(reconciler.ReasonReconcileFailed, deletion.MessageReconcileFailed),
		},
		"Created": {
			reason: "A deletion that began during a create should be reported as requested, and not that the external resource does not exist.",
			want:   requested,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newBucket(withFinalizers(append(tc.foreignFinalizers, FinalizerName)...)))
			ext := &externalResource{exists: tc.exists, outdated: true}
			ext.beforeCall = func(what string, mg resource.Managed) error {
				if what == "observe" {
					return nil
				}
				deleteBucket(t, api, "b")
				must(t, api.Server().Get(t.Context(), request().NamespacedName, mg))
				return tc.updateErr
			}
			mustReconcile(t, newBucketReconciler(api, withClient(ext.client())), "b")
			got := deletionStatusOf(getBucket(t, api))
			got.Ready.ObservedGeneration, got.Deleting.ObservedGeneration = 3, 3
			expectEqual(t, tc.reason, "result", tc.want, got)
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
			api := testkit.NewAPI(newBucket(
				withExternalName("id-1"), withDeletionTimestamp,
				withFinalizers(append(tc.foreignFinalizers, FinalizerName)...),
			))
			recorder := &testkit.Said{}
			r := newBucketReconciler(api, WithRecorder(recorder), withClient(ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					mg.SetConditions(tc.ready)
					// The manager's own client is not Graft's.
					return ExternalObservation{
						ResourceExists:   true,
						ResourceUpToDate: true,
					}, api.Server().Status().Update(ctx, mg)
				},
				DeleteFn: returns(ExternalDelete{}, tc.deleteErr),
			}))
			mustReconcileTimes(t, r, maxOverwritten)
			rests := getBucket(t, api).GetResourceVersion()
			mustReconcileTimes(t, r, 5)
			got := getBucket(t, api)
			expectEqual(
				t, "An unchanged situation should be written once.", "resource version", rests,
				got.GetResourceVersion(),
			)
			expectEqual(t, tc.reason, "Ready", tc.ready.Reason, got.GetCondition(xpv2.TypeReady).Reason)
			expectEqual(
				t, tc.reason, "Deleting", corev1.ConditionTrue, got.GetCondition(reconciler.TypeDeleting).Status,
			)
			expectEqual(t, tc.reason, "events", 1, len(recorder.Events("StatusWrittenByProvider")))
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
			finalizers:  []string{"example.org/own", FinalizerName},
			wantMessage: deletion.MessageWaitingForFinalizers + FinalizerName,
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
			api := testkit.NewAPI(newBucket(
				withExternalName("id-1"), withDeletionTimestamp, withFinalizers(tc.finalizers...),
			))
			r := newBucketReconciler(api, WithFinalizer(tc.finalizer(api)), withClient(ExternalClientFns{}))
			mustReconcile(t, r, "b")
			c := getBucket(t, api).GetCondition(reconciler.TypeDeleting)
			expectEqual(t, tc.reason, "Deleting", []any{
				reconciler.ReasonWaitingForFinalizers, tc.wantMessage,
			}, []any{c.Reason, c.Message})
		})
	}
}

// observeInOrder returns an ObserveFn that returns these results, one word each: found, absent or
// fails. Later calls return absent.
func observeInOrder(words string) func(context.Context, resource.Managed) (ExternalObservation, error) {
	answers := strings.Fields(words)
	return func(context.Context, resource.Managed) (ExternalObservation, error) {
		answer := "absent"
		if len(answers) > 0 {
			answer, answers = answers[0], answers[1:]
		}
		if answer == "fails" {
			return ExternalObservation{}, errors.New("boom")
		}
		return ExternalObservation{ResourceExists: answer == "found", ResourceUpToDate: true}, nil
	}
}

func TestDeletionConfirmation(t *testing.T) {
	cases := map[string]struct {
		reason        string
		bucket        []bucketModifier
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
			every:          interval,
			wantReconciles: 3,
		},
		"Once": {
			reason:         "With n=1 the finalizer should be removed when the external resource was not found once, as upstream does.",
			n:              1,
			every:          interval,
			wantReconciles: 1,
		},
		"OneWrongNotFound": {
			reason:         "The external resource should be deleted when it is found again after it was not found.",
			n:              3,
			observations:   "absent found absent",
			every:          interval,
			wantReconciles: 3,
			wantDeletes:    1,
			wantFoundAgain: 1,
		},
		"FailedBetween": {
			reason:         "An Observe that fails should restart the confirmation.",
			n:              3,
			observations:   "absent absent fails absent absent absent",
			every:          interval,
			wantReconciles: 6,
		},
		"SawDelete": {
			reason:         "After a Delete that succeeded the external resource should have to be absent only once.",
			n:              3,
			observations:   "found absent",
			every:          interval,
			wantReconciles: 2,
			wantDeletes:    1,
		},
		"StillThere": {
			reason:         "An external resource that still exists after Delete should not restart the confirmation.",
			n:              3,
			observations:   "found found absent",
			every:          interval,
			wantReconciles: 3,
			wantDeletes:    2,
		},
		"Refused": {
			reason:         "After a Delete that failed the absence should have to be confirmed.",
			n:              3,
			observations:   "found found",
			failedDeletes:  "2",
			every:          interval,
			wantReconciles: 5,
			wantDeletes:    2,
		},
		"RefusedFirst": {
			reason:         "The last Delete should decide whether the absence has to be confirmed.",
			n:              3,
			observations:   "found found",
			failedDeletes:  "1",
			every:          interval,
			wantReconciles: 3,
			wantDeletes:    2,
		},
		"FailedAfter": {
			reason:         "An Observe that fails after a Delete that succeeded should not require a confirmation.",
			n:              3,
			observations:   "found fails",
			every:          interval,
			wantReconciles: 3,
			wantDeletes:    1,
		},
		"Renamed": {
			reason:       "A Delete under another external name should not count.",
			n:            3,
			observations: "found",
			changeAfter:  1,
			change: func(t *testing.T, api *testkit.API) {
				updateBucket(t, api, "b", withExternalName("another"))
			},
			every:          interval,
			wantReconciles: 4,
			wantDeletes:    1,
		},
		"RenamedAbsent": {
			reason:      "Observations under another external name should not count.",
			n:           3,
			changeAfter: 2,
			change: func(t *testing.T, api *testkit.API) {
				updateBucket(t, api, "b", withExternalName("another"))
			},
			every:          interval,
			wantReconciles: 5,
		},
		"Restart": {
			reason:         "Another process should restart the confirmation.",
			n:              3,
			changeAfter:    2,
			every:          interval,
			wantReconciles: 5,
		},
		"GoneOtherwise": {
			reason:         "Nothing should be kept in memory for a managed resource that no longer exists.",
			n:              3,
			changeAfter:    2,
			change:         func(t *testing.T, api *testkit.API) { removeBucket(t, api, "b") },
			every:          interval,
			wantReconciles: 2,
		},
		"AnotherOfTheName": {
			reason:      "Another managed resource of the same name should have its own confirmation.",
			changeAfter: 2, change: func(t *testing.T, api *testkit.API) {
				removeBucket(t, api, "b")
				must(t, api.Server().Create(t.Context(), newBucket(withFinalizers(FinalizerName))))
				deleteBucket(t, api, "b")
			},
			n: 3, every: interval, wantReconciles: 5,
		},
		"TooSoon": {
			reason:         "Observations within the interval should count once.",
			n:              2,
			every:          interval / 4,
			wantReconciles: 5,
		},
		"Orphan": {
			reason: "A managed resource that orphans its external resource should not be observed.",
			bucket: []bucketModifier{withPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate)},
			n:      3, every: interval, wantReconciles: 1,
		},
	}
	for name, tc := range cases {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/WithoutDeletionStatus=%t", name, without), func(t *testing.T) {
				api := testkit.NewAPI(newBucket(append(
					tc.bucket, withDeletionTimestamp, withFinalizers(FinalizerName),
				)...))
				c := newClock()
				recorder := &testkit.Said{}
				deletes := 0
				var kept *store.Store
				opts := []ReconcilerOption{
					withStore(&kept), c.option(), WithRecorder(recorder), WithDeletionConfirmation(tc.n, interval),
					withClient(ExternalClientFns{
						ObserveFn: observeInOrder(tc.observations),
						DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
							if deletes++; tc.failedDeletes == fmt.Sprint(deletes) {
								return ExternalDelete{}, errors.New("protection is on")
							}
							return ExternalDelete{}, nil
						},
					}),
				}
				if without {
					opts = append(opts, WithoutDeletionStatus())
				}
				r, n := newBucketReconciler(api, opts...), 0
				for getBucket(t, api).GetName() != "" && n < 20 {
					mustReconcile(t, r, "b")
					c.now = c.now.Add(tc.every)
					switch n++; {
					case n == tc.changeAfter && tc.change == nil:
						r = newBucketReconciler(api, opts...)
					case n == tc.changeAfter:
						tc.change(t, api)
					}
				}
				mustReconcile(t, r, "b")
				expectEqual(t, tc.reason, "reconciles", tc.wantReconciles, n)
				expectEqual(t, tc.reason, "deletes", tc.wantDeletes, deletes)
				expectEqual(
					t, tc.reason, "found after all", tc.wantFoundAgain, len(recorder.Events("FoundAfterAll")),
				)
				expectEqual(t, tc.reason, "objects in memory", 0, kept.Len())
			})
		}
	}
}

func TestDeletionConfirmation_Requeues(t *testing.T) {
	api := testkit.NewAPI(newBucket(withDeletionTimestamp, withFinalizers(FinalizerName, "other")))
	c := newClock()
	recorder := &testkit.Said{}
	r := newBucketReconciler(api, c.option(), WithRecorder(recorder), WithDeletionConfirmation(3, interval),
		withClient(ExternalClientFns{
			ObserveFn: observeAbsent,
		}))
	var after []time.Duration
	for _, step := range []time.Duration{0, time.Second, time.Second, interval - 2*time.Second, 3 * time.Second} {
		c.now = c.now.Add(step)
		result, err := r.Reconcile(context.Background(), request())
		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err != nil || result.Requeue {
			t.Fatalf("Reconcile: want no error and no backoff, got %v, %v", result, err)
		}
		after = append(after, result.RequeueAfter)
	}
	want := []time.Duration{
		interval, interval - time.Second, interval - 2*time.Second, interval, interval - 3*time.Second,
	}
	expectEqual(t, "The reconcile should run again when the interval has passed.", "RequeueAfter", want, after)
	const reason = "The absence should be confirmed before the finalizer is removed."
	b := getBucket(t, api)
	expectEqual(
		t, reason, "Deleting", reconciler.ReasonConfirmingAbsence, b.GetCondition(reconciler.TypeDeleting).Reason,
	)
	expectEqual(t, reason, "Ready", xpv2.ReasonDeleting, b.GetCondition(xpv2.TypeReady).Reason)
	expectEqual(t, reason, "message of Ready", messageAbsent, b.GetCondition(xpv2.TypeReady).Message)
	expectEqual(t, reason, "finalizers", []string{FinalizerName, "other"}, b.GetFinalizers())
	expectEqual(t, "DeletionRequested and ConfirmingAbsence should be written once each.", "writes", 2, api.Writes())
	expectEqual(
		t, "One event should say that the absence is being confirmed.", "events", 1,
		len(recorder.Events("ConfirmingAbsence")),
	)
	c.now = c.now.Add(interval)
	mustReconcile(t, r, "b")
	expectEqual(
		t, "Our finalizer should be removed when the absence is confirmed.", "Deleting",
		reconciler.ReasonWaitingForFinalizers, getBucket(t, api).GetCondition(reconciler.TypeDeleting).Reason,
	)
}
