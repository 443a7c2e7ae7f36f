package managed

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestWithDeletionDeadline(t *testing.T) {
	const foreign = "example.org/foreign"
	passed, future := time.Minute, 100*365*24*time.Hour
	cases := map[string]struct {
		reason   string
		deadline time.Duration
		bucket   []bucketModifier
		client   ExternalClientFns

		wantReason   xpv2.ConditionReason
		wantMessage  string
		wantExceeded int
	}{
		"Passed": {
			reason:     "The Deleting condition should say that the deadline has passed, and why the managed resource exists.",
			deadline:   passed,
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageDeleteRequested, wantExceeded: 1,
		},
		"NotPassed": {
			reason: "A deadline that has not passed should change nothing.", deadline: future,
			wantReason: reconciler.ReasonWaitingForExternalResource, wantMessage: deletion.MessageStillExists,
		},
		"ObserveFails": {
			reason:   "The message should say what failed.",
			deadline: passed, client: ExternalClientFns{ObserveFn: observeFails},
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageObserveFailed, wantExceeded: 1,
		},
		"WaitsForFinalizers": {
			reason:   "The message should name the finalizers.",
			deadline: passed, bucket: []bucketModifier{withFinalizers(FinalizerName, foreign)},
			wantReason:  reconciler.ReasonDeadlineExceeded,
			wantMessage: deletion.MessageWaitingForFinalizers + foreign, wantExceeded: 1,
		},
		"Paused": {
			reason:   "The message should say that the managed resource is paused.",
			deadline: passed, bucket: []bucketModifier{withPausedAnnotation},
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageManagedPaused, wantExceeded: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBucket(append([]bucketModifier{
				withFinalizers(FinalizerName), withDeletionTimestamp, withExternalName("id-1"),
			}, tc.bucket...)...)
			api := testkit.NewAPI(b)
			recorder := &testkit.Said{}
			exceeded := 0
			r := newBucketReconciler(api, withClient(tc.client), WithRecorder(recorder),
				WithDeletionDeadline(tc.deadline, func(context.Context, client.Object) { exceeded++ }))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), request())
			}
			got := deletion.ConditionOf(getBucket(t, api))
			expectEqual(t, tc.reason, "reason", tc.wantReason, got.Reason)
			expectEqual(t, tc.reason, "has the message", true, strings.HasSuffix(got.Message, tc.wantMessage))
			expectEqual(t, tc.reason, "events", tc.wantExceeded, len(recorder.Events("DeletionDeadlineExceeded")))
			expectEqual(t, tc.reason, "calls", tc.wantExceeded, exceeded)
			expectEqual(
				t, tc.reason, "Ready", corev1.ConditionFalse, getBucket(t, api).GetCondition(xpv2.TypeReady).Status,
			)

			api.Forget()
			_, _ = r.Reconcile(t.Context(), request())
			expectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

			// Another process reads from the condition that the event was emitted.
			r = newBucketReconciler(
				api, withClient(tc.client), WithRecorder(recorder), WithDeletionDeadline(tc.deadline, nil),
			)
			_, _ = r.Reconcile(t.Context(), request())
			expectEqual(
				t, "There should be one event after a restart, too.", "events", tc.wantExceeded,
				len(recorder.Events("DeletionDeadlineExceeded")),
			)
		})
	}
}

func TestWithDeletionDeadline_ClosedAccount(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		poll   time.Duration
	}{
		"Throttled": {
			reason: "The deadline should be reported while the external system throttles calls.",
			err:    Throttled(errors.New("slow down"), time.Hour),
			poll:   time.Minute,
		},
		"Terminal": {
			reason: "The deadline should be reported while a terminal error waits for the next poll.",
			err:    Terminal(errors.New("no")),
			poll:   time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withFinalizers(FinalizerName), withExternalName("id-1")))
				deleteBucket(t, api, "b")
				deadline := getBucket(t, api).GetDeletionTimestamp().Add(5 * time.Minute)
				ext := &countingClient{errs: map[string]error{"delete": tc.err}}
				r := newBucketReconciler(
					api, ext.connect(), WithPollInterval(tc.poll), WithDeletionDeadline(5*time.Minute, nil),
					WithRateLimits(NewRateLimits(1000, 1000)),
				)
				_, _ = r.Reconcile(t.Context(), request())
				// At half of the time, another event causes a reconcile.
				time.Sleep(reconcileOnce(t, r, "b").RequeueAfter / 2)
				time.Sleep(reconcileOnce(t, r, "b").RequeueAfter)
				reconcileOnce(t, r, "b")
				if late := time.Since(deadline); late > time.Second {
					t.Errorf("%s\nIt was reported %s late.", tc.reason, late)
				}
				expectEqual(
					t, tc.reason, "reason", reconciler.ReasonDeadlineExceeded,
					deletion.ConditionOf(getBucket(t, api)).Reason,
				)
			})
		})
	}
}

func TestWithDeletionDeadline_DeleteFails(t *testing.T) {
	api := testkit.NewAPI(newBucket(withFinalizers(FinalizerName), withDeletionTimestamp, withExternalName("id-1")))
	recorder := &testkit.Said{}
	boom := func(context.Context, resource.Managed) (ExternalDelete, error) {
		return ExternalDelete{}, errors.New("boom")
	}
	r := newBucketReconciler(
		api, withClient(ExternalClientFns{DeleteFn: boom}), WithRecorder(recorder),
		WithDeletionDeadline(time.Minute, nil),
	)
	for range 3 {
		_, _ = r.Reconcile(t.Context(), request())
	}
	c := deletion.ConditionOf(getBucket(t, api))
	expectEqual(
		t, "The deadline should be the reason of the condition.", "reason", reconciler.ReasonDeadlineExceeded,
		c.Reason,
	)
	expectEqual(
		t, "The message should still say that Delete failed.", "has the message", true,
		strings.HasSuffix(c.Message, deletion.MessageDeleteFailed),
	)
	expectEqual(t, "Each failed Delete should have an event.", "events", 3, len(recorder.Events("CannotDeleteExternalResource")))
	expectEqual(
		t, "Synced should have the error.", "Synced", true,
		strings.Contains(getBucket(t, api).GetCondition(xpv2.TypeSynced).Message, "boom"),
	)
}

func TestWithDeletionDeadline_Requeue(t *testing.T) {
	b := newBucket(withFinalizers(FinalizerName), withDeletionTimestamp, withPausedAnnotation)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	b.DeletionTimestamp.Time = at
	api := testkit.NewAPI(b)
	r := newBucketReconciler(api, WithDeletionDeadline(2*time.Hour, nil))
	result, err := r.Reconcile(t.Context(), request())
	must(t, err)
	expectEqual(
		t, "The managed resource should be reconciled at the deadline.", "within an hour", true,
		result.RequeueAfter > 0 && result.RequeueAfter <= time.Hour,
	)
}

func TestWithDeletionDeadline_LeftAndReturned(t *testing.T) {
	cases := map[string]struct {
		reason string

		// err is the error of the first read after the return.
		err error

		wantFailed bool
		wantEvents int
	}{
		"Read": {
			reason:     "A managed resource that a label gave to another shard and back should have its deadline reported.",
			wantEvents: 1,
		},
		"Throttled": {
			reason: "The same if the API server throttles the read that finds out whether the managed resource exists.",
			err:    kerrors.NewTooManyRequests("slow down", 1), wantFailed: true, wantEvents: 1,
		},
		"Forbidden": {
			reason: "The deletion should not wait for permission to read the managed resource; only the event is lost.",
			err:    kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no")),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api, c := testkit.NewAPI(newDeletedBucket()), newClock()
			recorder := &testkit.Said{}
			exceeded := 0
			r := newBucketReconciler(api, withClient(ExternalClientFns{}), c.option(), WithRecorder(recorder),
				WithDeletionDeadline(time.Minute, func(context.Context, client.Object) { exceeded++ }))
			mustReconcile(t, r, "b")
			api.Before = failRequests(isVerb(testkit.Get), kerrors.NewNotFound(schema.GroupResource{}, "b"))
			mustReconcile(t, r, "b")
			c.now = c.now.Add(time.Hour)
			api.Before = failRequests(isVerb(testkit.LiveGet), tc.err)
			_, err := r.Reconcile(t.Context(), request())
			expectEqual(t, tc.reason, "failed", tc.wantFailed, err != nil)
			api.Before = nil
			mustReconcile(t, r, "b")
			mustReconcile(t, r, "b")
			expectEqual(
				t, tc.reason, "events, calls", []int{tc.wantEvents, tc.wantEvents},
				[]int{len(recorder.Events("DeletionDeadlineExceeded")), exceeded},
			)
		})
	}
}

func TestWithForceOrphan(t *testing.T) {
	const own, foreign = "example.org/own", "example.org/foreign"
	withForceOrphan := func(uid string) func(b *v1alpha1.Bucket) {
		return withAnnotation(reconciler.AnnotationKeyForceOrphan, uid)
	}
	cases := map[string]struct {
		reason  string
		bucket  []bucketModifier
		options []ReconcilerOption

		// later changes the managed resource after four reconciles. A new process then reconciles
		// it four times.
		later bucketModifier

		// noCollector stops the garbage collector.
		noCollector bool

		wantDeleted      bool
		wantFinalizers   []string
		wantDeleteCalled bool
		wantReason       xpv2.ConditionReason
		wantMessage      string
	}{
		"Asked": {
			reason:      "The managed resource should go, and the external resource stay.",
			bucket:      []bucketModifier{withForceOrphan("uid-1")},
			wantDeleted: true,
		},
		"NotAsked": {
			reason:           "The condition should describe the annotation that orphans the external resource.",
			wantFinalizers:   []string{FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonWaitingForExternalResource,
			wantMessage:      "To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-1",
		},
		"OtherUID": {
			reason:           "A request for another object should be ignored.",
			bucket:           []bucketModifier{withForceOrphan("uid-2")},
			wantFinalizers:   []string{FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonWaitingForExternalResource,
			wantMessage:      "To orphan it",
		},
		"NotDelete": {
			reason: "A managed resource that is not being deleted should be left alone.",
			bucket: []bucketModifier{
				withForceOrphan("uid-1"), func(b *v1alpha1.Bucket) { b.SetDeletionTimestamp(nil) },
			},
			wantFinalizers: []string{FinalizerName},
		},
		"Foreign": {
			reason:         "Other controllers' finalizers should stay, and the external resource, too.",
			bucket:         []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			wantFinalizers: []string{foreign},
			wantReason:     reconciler.ReasonForceOrphaned,
		},
		"Named": {
			reason:      "Exactly the supplied finalizers should be removed.",
			bucket:      []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			options:     []ReconcilerOption{WithForceOrphan(FinalizerName, foreign)},
			wantDeleted: true,
		},
		"Paused": {
			reason: "The condition of a paused managed resource should describe the annotation, too.",
			bucket: []bucketModifier{withPausedAnnotation}, wantFinalizers: []string{FinalizerName},
			wantReason:  reconciler.ReasonBlockedByPause,
			wantMessage: "To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-1",
		},
		"UnknownOwnFinalizer": {
			reason:         "With the provider's own finalizers, the external resource should stay, too.",
			bucket:         []bucketModifier{withForceOrphan("uid-1"), withFinalizers(own, foreign)},
			options:        []ReconcilerOption{WithForceOrphan(own), WithFinalizer(resource.FinalizerFns{})},
			wantFinalizers: []string{foreign},
			wantReason:     reconciler.ReasonForceOrphaned,
		},
		"WithReservation": {
			reason: "A reservation should not keep the managed resource.",
			bucket: []bucketModifier{withForceOrphan("uid-1")}, wantDeleted: true,
			options: []ReconcilerOption{WithForceOrphan(), WithExternalNameReservation(leaseNamespace)},
		},
		"OwnFinalizerStays": {
			reason:           "A deletion that continues, because our finalizer is not listed, should not seem to be orphaned.",
			bucket:           []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			options:          []ReconcilerOption{WithForceOrphan(foreign), WithDeletionDeadline(time.Minute, nil)},
			wantFinalizers:   []string{FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonDeadlineExceeded,
		},
		"OwnFinalizerWouldStay": {
			reason:         "The condition should not promise that nothing is deleted.",
			bucket:         []bucketModifier{withFinalizers(FinalizerName, foreign)},
			options:        []ReconcilerOption{WithForceOrphan(foreign)},
			wantFinalizers: []string{FinalizerName, foreign},
			wantReason:     reconciler.ReasonWaitingForFinalizers,
			wantMessage:    "that removes example.org/foreign, and the deletion continues.",
		},
		"PastDeadline": {
			reason:         "A deadline that has passed should not hide the request.",
			bucket:         []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			wantFinalizers: []string{foreign}, wantReason: reconciler.ReasonForceOrphaned,
			options: []ReconcilerOption{WithForceOrphan(), WithDeletionDeadline(time.Minute, nil)},
		},
		"Withdrawn": {
			reason: "The external resource should stay if the annotation is removed after the finalizer.",
			bucket: []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			later:  withoutAnnotation(reconciler.AnnotationKeyForceOrphan), wantFinalizers: []string{foreign},
			wantReason: reconciler.ReasonForceOrphaned,
		},
		"WithdrawnPastDeadline": {
			reason: "A deadline that has passed should not undo the request.",
			bucket: []bucketModifier{withForceOrphan("uid-1"), withFinalizers(FinalizerName, foreign)},
			later:  withoutAnnotation(reconciler.AnnotationKeyForceOrphan), wantFinalizers: []string{foreign},
			wantReason: reconciler.ReasonForceOrphaned,
			options:    []ReconcilerOption{WithForceOrphan(), WithDeletionDeadline(time.Minute, nil)},
		},
		"WithdrawnNoCollector": {
			reason: "The external resource should stay while the garbage collector holds the managed resource.",
			bucket: []bucketModifier{withForceOrphan("uid-1")}, noCollector: true,
			later:          withoutAnnotation(reconciler.AnnotationKeyForceOrphan),
			wantFinalizers: []string{metav1.FinalizerOrphanDependents}, wantReason: reconciler.ReasonForceOrphaned,
		},
		"WithdrawnBeforeRemoved": {
			reason: "The deletion should continue if the annotation is removed before the finalizer.",
			bucket: []bucketModifier{func(b *v1alpha1.Bucket) {
				b.SetConditions(reconciler.Deleting(time.Now(), reconciler.ReasonForceOrphaned, "Announced.")...)
			}},
			wantFinalizers: []string{FinalizerName}, wantDeleteCalled: true,
			wantReason: reconciler.ReasonWaitingForExternalResource,
		},
		"WithdrawnBeforeOthersRemoved": {
			reason: "The deletion should continue without our finalizer if the annotation is removed before the listed ones.",
			bucket: []bucketModifier{withFinalizers(foreign), func(b *v1alpha1.Bucket) {
				b.SetConditions(reconciler.Deleting(time.Now(), reconciler.ReasonForceOrphaned, "Announced.")...)
			}},
			options: []ReconcilerOption{WithForceOrphan(foreign)}, wantFinalizers: []string{foreign},
			wantDeleteCalled: true, wantReason: reconciler.ReasonWaitingForExternalResource,
		},
		"NoOwnFinalizer": {
			reason: "A managed resource that never had our finalizer should be deleted as upstream does.",
			bucket: []bucketModifier{withFinalizers(foreign)}, wantFinalizers: []string{foreign},
			wantDeleteCalled: true, wantReason: reconciler.ReasonWaitingForExternalResource,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBucket(append([]bucketModifier{
				withFinalizers(FinalizerName), withDeletionTimestamp, withExternalName("id-1"),
			}, tc.bucket...)...)
			api := testkit.NewAPI(b)
			recorder := &testkit.Said{}
			deletes := 0
			if tc.options == nil {
				tc.options = []ReconcilerOption{WithForceOrphan()}
			}
			options := append([]ReconcilerOption{withClient(ExternalClientFns{
				DeleteFn: countCalls[ExternalDelete](&deletes),
			}), WithRecorder(recorder)}, tc.options...)
			r := newBucketReconciler(api, options...)
			for range 4 {
				_, _ = r.Reconcile(t.Context(), request())
				if !tc.noCollector {
					collectGarbage(t, api)
				}
			}
			if tc.later != nil {
				updateBucket(t, api, "b", tc.later)
				r = newBucketReconciler(api, options...)
				tryReconcile(r, 4)
			}
			expectEqual(t, tc.reason, "Delete is called", tc.wantDeleteCalled, deletes > 0)

			got := &v1alpha1.Bucket{}
			err := api.Server().Get(t.Context(), request().NamespacedName, got)
			expectEqual(t, tc.reason, "deleted", tc.wantDeleted, kerrors.IsNotFound(err))
			if tc.wantDeleted || tc.wantReason == reconciler.ReasonForceOrphaned {
				expectEqual(t, tc.reason, "events", 1, len(recorder.Events("ForceOrphaned")))
			}
			if tc.wantDeleted {
				return
			}
			expectEqual(t, tc.reason, "finalizers", tc.wantFinalizers, got.GetFinalizers(), cmpopts.EquateEmpty())
			expectEqual(t, tc.reason, "reason", tc.wantReason, deletion.ConditionOf(got).Reason)
			expectEqual(
				t, tc.reason, "has the message", true,
				strings.Contains(deletion.ConditionOf(got).Message, tc.wantMessage),
			)

			api.Forget()
			_, _ = r.Reconcile(t.Context(), request())
			expectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())
		})
	}
}

func TestWithForceOrphan_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withFinalizers(FinalizerName), withExternalName("id-1")))
		deleteBucket(t, api, "b")
		forbidden := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no"))
		api.Before = failRequests(isVerb(testkit.Delete), forbidden)
		recorder := &testkit.Said{}
		deletes := 0
		r := newBucketReconciler(
			api, WithRecorder(recorder), WithForceOrphan(), WithDeletionDeadline(time.Minute, nil),
			withClient(ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
				DeleteFn:  countCalls[ExternalDelete](&deletes),
			}),
		)
		mustReconcileTimes(t, r, 2)
		time.Sleep(time.Hour)
		mustReconcileTimes(t, r, 2)
		updateBucket(t, api, "b", withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))

		reason := "A refused request should keep the external resource, and be retried with backoff."
		deletes = 0
		_, err := r.Reconcile(t.Context(), request())
		expectEqual(t, reason, "deletes, refused", []any{0, true}, []any{deletes, err != nil})
		got := deletion.ConditionOf(getBucket(t, api))
		expectEqual(t, reason, "reason", reconciler.ReasonForceOrphaned, got.Reason)
		expectEqual(
			t, reason, "message", true,
			strings.HasPrefix(got.Message, "An operator asked to orphan it, but the API server refused to delete it"),
		)
		api.Forget()
		tryReconcile(r, 3)
		expectEqual(t, reason, "deletes, status writes", []int{0, 0}, []int{deletes, api.CountIf(isStatusWrite)})

		updateBucket(t, api, "b", withoutAnnotation(reconciler.AnnotationKeyForceOrphan))
		mustReconcileTimes(t, r, 2)
		expectEqual(t, "The deletion should continue without the request.", "deletes", 2, deletes)
		reason = "Graft's own reports should not count as the provider's."
		expectEqual(t, reason, "events", 0, len(recorder.Events("StatusWrittenByProvider")))
		b := getBucket(t, api)
		expectEqual(t, reason, "reason", reconciler.ReasonDeadlineExceeded, deletion.ConditionOf(b).Reason)
		expectEqual(
			t, reason, "message of Ready", deletion.ConditionOf(b).Message, b.GetCondition(xpv2.TypeReady).Message,
		)

		updateBucket(t, api, "b", withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		tryReconcile(r, 1)
		api.Before = nil
		tryReconcile(r, 1)
		collectGarbage(t, api)
		expectEqual(
			t, "A request that is permitted later should be granted.", "deletes, events, finalizers",
			[]any{2, 1, 0},
			[]any{deletes, len(recorder.Events("ForceOrphaned")), len(getBucket(t, api).GetFinalizers())},
		)
	})
}

func TestWithForceOrphan_RefusedAndGranted(t *testing.T) {
	cases := map[string]struct {
		reason string
		verb   string

		// lost reports whether the answer to the first removal that is permitted is lost.
		lost bool
	}{
		"Delete": {
			reason: "The condition should not say that finalizers are kept after they were removed.",
			verb:   testkit.Delete,
		},
		"Update": {
			reason: "The same if the API server refused to remove them at first.", verb: testkit.Update,
		},
		"AnswerLost": {
			reason: "The same if it is unknown at first whether they were removed.", verb: testkit.Delete, lost: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newDeletedBucket(
				withFinalizers(FinalizerName, "example.org/foreign"),
				withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"),
			))
			r := newBucketReconciler(api, withClient(ExternalClientFns{}), WithForceOrphan())
			forbidden := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no"))
			api.Before = failRequests(isVerb(tc.verb), forbidden)
			tryReconcile(r, 2)
			collectGarbage(t, api)

			api.Before = nil
			if tc.lost {
				api.After = failRequests(isVerb(testkit.Update), kerrors.NewTimeoutError("lost", 1))
			}
			tryReconcile(r, 2)
			collectGarbage(t, api)
			got := getBucket(t, api)
			expectEqual(t, tc.reason, "finalizers", []string{"example.org/foreign"}, got.GetFinalizers())
			expectEqual(
				t, tc.reason, "message", "An operator asked to orphan it, and finalizers were removed.",
				deletion.ConditionOf(got).Message,
			)

			api.Forget()
			tryReconcile(r, 2)
			expectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())
		})
	}
}

func TestEscape_CannotReport(t *testing.T) {
	cases := map[string]struct {
		reason string
		bucket []bucketModifier
		option ReconcilerOption

		wantDeletes int
		wantEvent   event.Reason
		wantGone    bool
	}{
		"Deadline": {
			reason:      "A deadline that can't be reported should not block the deletion for ever.",
			option:      WithDeletionDeadline(time.Minute, nil),
			wantDeletes: 1,
			wantEvent:   "DeletionDeadlineExceeded",
		},
		"ForceOrphan": {
			reason:    "A request to orphan that can't be reported should be granted after a while: a delete can't be undone.",
			bucket:    []bucketModifier{withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1")},
			option:    WithForceOrphan(),
			wantEvent: "ForceOrphaned",
			wantGone:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newDeletedBucket(append([]bucketModifier{
				withDeletionStatus(deletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested)),
			}, tc.bucket...)...))
			api.Before = failRequests(isStatusWrite, serverError())
			recorder := &testkit.Said{}
			deletes := 0
			r := newBucketReconciler(api, withClient(ExternalClientFns{
				DeleteFn: countCalls[ExternalDelete](&deletes),
			}), WithRecorder(recorder), tc.option)
			tryReconcile(r, 5)
			expectEqual(
				t, "The report should be tried first.", "deletes, events", []int{0, 0},
				[]int{deletes, len(recorder.Events(tc.wantEvent))},
			)
			tryReconcile(r, 1)
			collectGarbage(t, api)
			err := api.Server().Get(t.Context(), request().NamespacedName, &v1alpha1.Bucket{})
			expectEqual(t, tc.reason, "deletes", tc.wantDeletes, deletes)
			expectEqual(t, tc.reason, "events", 1, len(recorder.Events(tc.wantEvent)))
			expectEqual(t, tc.reason, "gone", tc.wantGone, kerrors.IsNotFound(err))
		})
	}
}

func TestEscape_WithoutDeletionStatus(t *testing.T) {
	for option, o := range map[string]ReconcilerOption{"WithDeletionDeadline": WithDeletionDeadline(
		time.Hour, nil,
	), "WithForceOrphan": WithForceOrphan()} {
		err := func() (p any) {
			defer func() { p = recover() }()
			NewReconciler(
				testkit.NewAPI().Manager(), resource.ManagedKind(testkit.BucketKind()), o, WithoutDeletionStatus(),
			)
			return nil
		}()
		e, ok := err.(error)
		expectEqual(
			t, "We should refuse options that exclude each other.", option, true,
			ok && strings.Contains(e.Error(), "leave one of them out"),
		)
	}
}
