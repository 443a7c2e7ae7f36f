package escape

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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestWithDeletionDeadline(t *testing.T) {
	const foreign = "example.org/foreign"
	passed, future := time.Minute, 100*365*24*time.Hour
	cases := map[string]struct {
		reason   string
		deadline time.Duration
		bucket   []kit.BucketModifier
		client   managed.ExternalClientFns

		wantReason   xpv2.ConditionReason
		wantMessage  string
		wantExceeded int
	}{
		"Passed": {
			reason:     "The Deleting condition should say that the deadline has passed, and why the managed resource exists.",
			deadline:   passed,
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageDeleteRequested,
			wantExceeded: 1,
		},
		"NotPassed": {
			reason: "A deadline that has not passed should change nothing.", deadline: future,
			wantReason: reconciler.ReasonWaitingForExternalResource, wantMessage: deletion.MessageStillExists,
		},
		"ObserveFails": {
			reason:   "The message should say what failed.",
			deadline: passed, client: managed.ExternalClientFns{ObserveFn: kit.ObserveFails},
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageObserveFailed, wantExceeded: 1,
		},
		"WaitsForFinalizers": {
			reason:   "The message should name the finalizers.",
			deadline: passed, bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, foreign)},
			wantReason:  reconciler.ReasonDeadlineExceeded,
			wantMessage: deletion.MessageWaitingForFinalizers + foreign, wantExceeded: 1,
		},
		"Paused": {
			reason:   "The message should say that the managed resource is paused.",
			deadline: passed, bucket: []kit.BucketModifier{kit.WithPausedAnnotation},
			wantReason: reconciler.ReasonDeadlineExceeded, wantMessage: deletion.MessageManagedPaused, wantExceeded: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := kit.NewBucket(append([]kit.BucketModifier{
				kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp, kit.WithExternalName("id-1"),
			}, tc.bucket...)...)
			api := testkit.NewAPI(b)
			recorder := &testkit.Said{}
			exceeded := 0
			r := kit.NewBucketReconciler(api, kit.WithClient(tc.client), managed.WithRecorder(recorder),
				WithDeadline(tc.deadline, func(context.Context, client.Object) { exceeded++ }))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), kit.Request())
			}
			got := deletion.ConditionOf(kit.GetBucket(t, api))
			kit.ExpectEqual(t, tc.reason, "reason", tc.wantReason, got.Reason)
			kit.ExpectEqual(t, tc.reason, "has the message", true, strings.HasSuffix(got.Message, tc.wantMessage))
			kit.ExpectEqual(t, tc.reason, "events", tc.wantExceeded, len(recorder.Events("DeletionDeadlineExceeded")))
			kit.ExpectEqual(t, tc.reason, "calls", tc.wantExceeded, exceeded)
			kit.ExpectEqual(
				t, tc.reason, "Ready", corev1.ConditionFalse, kit.GetBucket(t, api).GetCondition(xpv2.TypeReady).Status,
			)

			api.Forget()
			_, _ = r.Reconcile(t.Context(), kit.Request())
			kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

			// Another process reads from the condition that the event was emitted.
			r = kit.NewBucketReconciler(
				api, kit.WithClient(tc.client), managed.WithRecorder(recorder), WithDeadline(tc.deadline, nil),
			)
			_, _ = r.Reconcile(t.Context(), kit.Request())
			kit.ExpectEqual(
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
			err:    ratelimit.Throttled(errors.New("slow down"), time.Hour),
			poll:   time.Minute,
		},
		"Terminal": {
			reason: "The deadline should be reported while a terminal error waits for the next poll.",
			err:    ratelimit.Terminal(errors.New("no")),
			poll:   time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), kit.WithExternalName("id-1")),
				)
				kit.DeleteBucket(t, api, "b")
				deadline := kit.GetBucket(t, api).GetDeletionTimestamp().Add(5 * time.Minute)
				ext := &kit.CountingClient{Errs: map[string]error{"delete": tc.err}}
				r := kit.NewBucketReconciler(
					api, ext.Connect(), managed.WithPollInterval(tc.poll), WithDeadline(5*time.Minute, nil),
					ratelimit.With(ratelimit.New(1000, 1000)),
				)
				_, _ = r.Reconcile(t.Context(), kit.Request())
				// At half of the time, another event causes a reconcile.
				time.Sleep(kit.ReconcileOnce(t, r, "b").RequeueAfter / 2)
				time.Sleep(kit.ReconcileOnce(t, r, "b").RequeueAfter)
				kit.ReconcileOnce(t, r, "b")
				if late := time.Since(deadline); late > time.Second {
					t.Errorf("%s\nIt was reported %s late.", tc.reason, late)
				}
				kit.ExpectEqual(
					t, tc.reason, "reason", reconciler.ReasonDeadlineExceeded,
					deletion.ConditionOf(kit.GetBucket(t, api)).Reason,
				)
			})
		})
	}
}

func TestWithDeletionDeadline_DeleteFails(t *testing.T) {
	api := testkit.NewAPI(
		kit.NewBucket(
			kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp, kit.WithExternalName("id-1"),
		),
	)
	recorder := &testkit.Said{}
	boom := func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
		return managed.ExternalDelete{}, errors.New("boom")
	}
	r := kit.NewBucketReconciler(
		api, kit.WithClient(managed.ExternalClientFns{DeleteFn: boom}), managed.WithRecorder(recorder),
		WithDeadline(time.Minute, nil),
	)
	for range 3 {
		_, _ = r.Reconcile(t.Context(), kit.Request())
	}
	c := deletion.ConditionOf(kit.GetBucket(t, api))
	kit.ExpectEqual(
		t, "The deadline should be the reason of the condition.", "reason", reconciler.ReasonDeadlineExceeded,
		c.Reason,
	)
	kit.ExpectEqual(
		t, "The message should still say that Delete failed.", "has the message", true,
		strings.HasSuffix(c.Message, deletion.MessageDeleteFailed),
	)
	kit.ExpectEqual(
		t, "Each failed Delete should have an event.", "events", 3,
		len(recorder.Events("CannotDeleteExternalResource")),
	)
	kit.ExpectEqual(
		t, "Synced should have the error.", "Synced", true,
		strings.Contains(kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message, "boom"),
	)
}

func TestWithDeletionDeadline_Requeue(t *testing.T) {
	b := kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp, kit.WithPausedAnnotation)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	b.DeletionTimestamp.Time = at
	api := testkit.NewAPI(b)
	r := kit.NewBucketReconciler(api, WithDeadline(2*time.Hour, nil))
	result, err := r.Reconcile(t.Context(), kit.Request())
	kit.Must(t, err)
	kit.ExpectEqual(
		t, "The managed resource should be reconciled at the deadline.", "within an hour", true,
		result.RequeueAfter > 0 && result.RequeueAfter <= time.Hour,
	)
}

func TestWithDeletionDeadline_LeftAndReturned(t *testing.T) {
	reason := "A managed resource that a label gave to another shard and back should have its deadline reported."
	api, c := testkit.NewAPI(kit.NewDeletedBucket()), kit.NewClock()
	recorder := &testkit.Said{}
	exceeded := 0
	r := kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{}), c.Option(),
		managed.WithRecorder(recorder),
		WithDeadline(time.Minute, func(context.Context, client.Object) { exceeded++ }))
	kit.MustReconcile(t, r, "b")
	api.Before = kit.FailRequests(kit.IsVerb(testkit.Get), kerrors.NewNotFound(schema.GroupResource{}, "b"))
	kit.MustReconcile(t, r, "b")
	c.Now = c.Now.Add(time.Hour)
	api.Before = nil
	kit.MustReconcile(t, r, "b")
	kit.MustReconcile(t, r, "b")
	kit.ExpectEqual(
		t, reason, "events, calls", []int{1, 1}, []int{len(recorder.Events("DeletionDeadlineExceeded")), exceeded},
	)
}

func TestWithForceOrphan(t *testing.T) {
	const own, foreign = "example.org/own", "example.org/foreign"
	withForceOrphan := func(uid string) func(b *v1alpha1.Bucket) {
		return kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, uid)
	}
	cases := map[string]struct {
		reason  string
		bucket  []kit.BucketModifier
		options []managed.ReconcilerOption

		// later changes the managed resource after four reconciles. A new process then reconciles
		// it four times.
		later kit.BucketModifier

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
			bucket:      []kit.BucketModifier{withForceOrphan("uid-1")},
			wantDeleted: true,
		},
		"NotAsked": {
			reason:           "The condition should describe the annotation that orphans the external resource.",
			wantFinalizers:   []string{managed.FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonWaitingForExternalResource,
			wantMessage:      "To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-1",
		},
		"OtherUID": {
			reason:           "A request for another object should be ignored.",
			bucket:           []kit.BucketModifier{withForceOrphan("uid-2")},
			wantFinalizers:   []string{managed.FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonWaitingForExternalResource,
			wantMessage:      "To orphan it",
		},
		"NotDelete": {
			reason: "A managed resource that is not being deleted should be left alone.",
			bucket: []kit.BucketModifier{
				withForceOrphan("uid-1"), func(b *v1alpha1.Bucket) { b.SetDeletionTimestamp(nil) },
			},
			wantFinalizers: []string{managed.FinalizerName},
		},
		"Foreign": {
			reason: "Other controllers' finalizers should stay, and the external resource, too.",
			bucket: []kit.BucketModifier{
				withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign),
			},
			wantFinalizers: []string{foreign},
			wantReason:     reconciler.ReasonForceOrphaned,
		},
		"Named": {
			reason: "Exactly the supplied finalizers should be removed.",
			bucket: []kit.BucketModifier{
				withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign),
			},
			options:     []managed.ReconcilerOption{WithForceOrphan(managed.FinalizerName, foreign)},
			wantDeleted: true,
		},
		"Paused": {
			reason: "The condition of a paused managed resource should describe the annotation, too.",
			bucket: []kit.BucketModifier{kit.WithPausedAnnotation}, wantFinalizers: []string{managed.FinalizerName},
			wantReason:  reconciler.ReasonBlockedByPause,
			wantMessage: "To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-1",
		},
		"UnknownOwnFinalizer": {
			reason: "With the provider's own finalizers, the external resource should stay, too.",
			bucket: []kit.BucketModifier{withForceOrphan("uid-1"), kit.WithFinalizers(own, foreign)},
			options: []managed.ReconcilerOption{
				WithForceOrphan(own), managed.WithFinalizer(resource.FinalizerFns{}),
			},
			wantFinalizers: []string{foreign},
			wantReason:     reconciler.ReasonForceOrphaned,
		},
		"WithReservation": {
			reason: "A reservation should not keep the managed resource.",
			bucket: []kit.BucketModifier{withForceOrphan("uid-1")}, wantDeleted: true,
			options: []managed.ReconcilerOption{WithForceOrphan(), reservation.With("provider")},
		},
		"OwnFinalizerStays": {
			reason: "A deletion that continues, because our finalizer is not listed, should not seem to be orphaned.",
			bucket: []kit.BucketModifier{
				withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign),
			},
			options:          []managed.ReconcilerOption{WithForceOrphan(foreign), WithDeadline(time.Minute, nil)},
			wantFinalizers:   []string{managed.FinalizerName},
			wantDeleteCalled: true,
			wantReason:       reconciler.ReasonDeadlineExceeded,
		},
		"OwnFinalizerWouldStay": {
			reason:         "The condition should not promise that nothing is deleted.",
			bucket:         []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, foreign)},
			options:        []managed.ReconcilerOption{WithForceOrphan(foreign)},
			wantFinalizers: []string{managed.FinalizerName, foreign},
			wantReason:     reconciler.ReasonWaitingForFinalizers,
			wantMessage:    "that removes example.org/foreign, and the deletion continues.",
		},
		"PastDeadline": {
			reason: "A deadline that has passed should not hide the request.",
			bucket: []kit.BucketModifier{
				withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign),
			},
			wantFinalizers: []string{foreign}, wantReason: reconciler.ReasonForceOrphaned,
			options: []managed.ReconcilerOption{WithForceOrphan(), WithDeadline(time.Minute, nil)},
		},
		"Withdrawn": {
			reason: "The external resource should stay if the annotation is removed after the finalizer.",
			bucket: []kit.BucketModifier{withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign)},
			later:  kit.WithoutAnnotation(reconciler.AnnotationKeyForceOrphan), wantFinalizers: []string{foreign},
			wantReason: reconciler.ReasonForceOrphaned,
		},
		"WithdrawnPastDeadline": {
			reason: "A deadline that has passed should not undo the request.",
			bucket: []kit.BucketModifier{withForceOrphan("uid-1"), kit.WithFinalizers(managed.FinalizerName, foreign)},
			later:  kit.WithoutAnnotation(reconciler.AnnotationKeyForceOrphan), wantFinalizers: []string{foreign},
			wantReason: reconciler.ReasonForceOrphaned,
			options:    []managed.ReconcilerOption{WithForceOrphan(), WithDeadline(time.Minute, nil)},
		},
		"WithdrawnNoCollector": {
			reason: "The external resource should stay while the garbage collector holds the managed resource.",
			bucket: []kit.BucketModifier{withForceOrphan("uid-1")}, noCollector: true,
			later:          kit.WithoutAnnotation(reconciler.AnnotationKeyForceOrphan),
			wantFinalizers: []string{metav1.FinalizerOrphanDependents}, wantReason: reconciler.ReasonForceOrphaned,
		},
		"WithdrawnBeforeRemoved": {
			reason: "The deletion should continue if the annotation is removed before the finalizer.",
			bucket: []kit.BucketModifier{func(b *v1alpha1.Bucket) {
				b.SetConditions(reconciler.Deleting(time.Now(), reconciler.ReasonForceOrphaned, "Announced.")...)
			}},
			wantFinalizers: []string{managed.FinalizerName}, wantDeleteCalled: true,
			wantReason: reconciler.ReasonWaitingForExternalResource,
		},
		"WithdrawnBeforeOthersRemoved": {
			reason: "The deletion should continue without our finalizer if the annotation is removed before the listed ones.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(foreign), func(b *v1alpha1.Bucket) {
				b.SetConditions(reconciler.Deleting(time.Now(), reconciler.ReasonForceOrphaned, "Announced.")...)
			}},
			options: []managed.ReconcilerOption{WithForceOrphan(foreign)}, wantFinalizers: []string{foreign},
			wantDeleteCalled: true, wantReason: reconciler.ReasonWaitingForExternalResource,
		},
		"NoOwnFinalizer": {
			reason: "A managed resource that never had our finalizer should be deleted as upstream does.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(foreign)}, wantFinalizers: []string{foreign},
			wantDeleteCalled: true, wantReason: reconciler.ReasonWaitingForExternalResource,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := kit.NewBucket(append([]kit.BucketModifier{
				kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp, kit.WithExternalName("id-1"),
			}, tc.bucket...)...)
			api := testkit.NewAPI(b)
			recorder := &testkit.Said{}
			deletes := 0
			if tc.options == nil {
				tc.options = []managed.ReconcilerOption{WithForceOrphan()}
			}
			options := append([]managed.ReconcilerOption{kit.WithClient(managed.ExternalClientFns{
				DeleteFn: kit.CountCalls[managed.ExternalDelete](&deletes),
			}), managed.WithRecorder(recorder)}, tc.options...)
			r := kit.NewBucketReconciler(api, options...)
			for range 4 {
				_, _ = r.Reconcile(t.Context(), kit.Request())
				if !tc.noCollector {
					kit.CollectGarbage(t, api)
				}
			}
			if tc.later != nil {
				kit.UpdateBucket(t, api, "b", tc.later)
				r = kit.NewBucketReconciler(api, options...)
				kit.TryReconcile(r, 4)
			}
			kit.ExpectEqual(t, tc.reason, "Delete is called", tc.wantDeleteCalled, deletes > 0)

			got := &v1alpha1.Bucket{}
			err := api.Server().Get(t.Context(), kit.Request().NamespacedName, got)
			kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, kerrors.IsNotFound(err))
			if tc.wantDeleted || tc.wantReason == reconciler.ReasonForceOrphaned {
				kit.ExpectEqual(t, tc.reason, "events", 1, len(recorder.Events("ForceOrphaned")))
			}
			if tc.wantDeleted {
				return
			}
			kit.ExpectEqual(t, tc.reason, "finalizers", tc.wantFinalizers, got.GetFinalizers(), cmpopts.EquateEmpty())
			kit.ExpectEqual(t, tc.reason, "reason", tc.wantReason, deletion.ConditionOf(got).Reason)
			kit.ExpectEqual(
				t, tc.reason, "has the message", true,
				strings.Contains(deletion.ConditionOf(got).Message, tc.wantMessage),
			)

			api.Forget()
			_, _ = r.Reconcile(t.Context(), kit.Request())
			kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())
		})
	}
}

func TestWithForceOrphan_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), kit.WithExternalName("id-1")))
		kit.DeleteBucket(t, api, "b")
		forbidden := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no"))
		api.Before = kit.FailRequests(kit.IsVerb(testkit.Delete), forbidden)
		recorder := &testkit.Said{}
		deletes := 0
		r := kit.NewBucketReconciler(
			api, managed.WithRecorder(recorder), WithForceOrphan(), WithDeadline(time.Minute, nil),
			kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.Returns(managed.ExternalObservation{ResourceExists: true}, nil),
				DeleteFn:  kit.CountCalls[managed.ExternalDelete](&deletes),
			}),
		)
		kit.MustReconcileTimes(t, r, 2)
		time.Sleep(time.Hour)
		kit.MustReconcileTimes(t, r, 2)
		kit.UpdateBucket(t, api, "b", kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))

		reason := "A refused request should keep the external resource, and be retried with backoff."
		deletes = 0
		_, err := r.Reconcile(t.Context(), kit.Request())
		kit.ExpectEqual(t, reason, "deletes, refused", []any{0, true}, []any{deletes, err != nil})
		got := deletion.ConditionOf(kit.GetBucket(t, api))
		kit.ExpectEqual(t, reason, "reason", reconciler.ReasonForceOrphaned, got.Reason)
		kit.ExpectEqual(
			t, reason, "message", true,
			strings.HasPrefix(got.Message, "An operator asked to orphan it, but the API server refused to delete it"),
		)
		api.Forget()
		kit.TryReconcile(r, 3)
		kit.ExpectEqual(
			t, reason, "deletes, status writes", []int{0, 0}, []int{deletes, api.CountIf(kit.IsStatusWrite)},
		)

		kit.UpdateBucket(t, api, "b", kit.WithoutAnnotation(reconciler.AnnotationKeyForceOrphan))
		kit.MustReconcileTimes(t, r, 2)
		kit.ExpectEqual(t, "The deletion should continue without the request.", "deletes", 2, deletes)
		reason = "Graft's own reports should not count as the provider's."
		kit.ExpectEqual(t, reason, "events", 0, len(recorder.Events("StatusWrittenByProvider")))
		b := kit.GetBucket(t, api)
		kit.ExpectEqual(t, reason, "reason", reconciler.ReasonDeadlineExceeded, deletion.ConditionOf(b).Reason)
		kit.ExpectEqual(
			t, reason, "message of Ready", deletion.ConditionOf(b).Message, b.GetCondition(xpv2.TypeReady).Message,
		)

		kit.UpdateBucket(t, api, "b", kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		kit.TryReconcile(r, 1)
		api.Before = nil
		kit.TryReconcile(r, 1)
		kit.CollectGarbage(t, api)
		kit.ExpectEqual(
			t, "A request that is permitted later should be granted.", "deletes, events, finalizers",
			[]any{2, 1, 0},
			[]any{deletes, len(recorder.Events("ForceOrphaned")), len(kit.GetBucket(t, api).GetFinalizers())},
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
			api := testkit.NewAPI(kit.NewDeletedBucket(
				kit.WithFinalizers(managed.FinalizerName, "example.org/foreign"),
				kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"),
			))
			r := kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{}), WithForceOrphan())
			forbidden := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no"))
			api.Before = kit.FailRequests(kit.IsVerb(tc.verb), forbidden)
			kit.TryReconcile(r, 2)
			kit.CollectGarbage(t, api)

			api.Before = nil
			if tc.lost {
				api.After = kit.FailRequests(kit.IsVerb(testkit.Update), kerrors.NewTimeoutError("lost", 1))
			}
			kit.TryReconcile(r, 2)
			kit.CollectGarbage(t, api)
			got := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "finalizers", []string{"example.org/foreign"}, got.GetFinalizers())
			kit.ExpectEqual(
				t, tc.reason, "message", "An operator asked to orphan it, and finalizers were removed.",
				deletion.ConditionOf(got).Message,
			)

			api.Forget()
			kit.TryReconcile(r, 2)
			kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())
		})
	}
}

func TestEscape_CannotReport(t *testing.T) {
	cases := map[string]struct {
		reason string
		bucket []kit.BucketModifier
		option managed.ReconcilerOption

		wantDeletes int
		wantEvent   event.Reason
		wantGone    bool
	}{
		"Deadline": {
			reason:      "A deadline that can't be reported should not block the deletion for ever.",
			option:      WithDeadline(time.Minute, nil),
			wantDeletes: 1,
			wantEvent:   "DeletionDeadlineExceeded",
		},
		"ForceOrphan": {
			reason:    "A request to orphan that can't be reported should be granted after a while: a delete can't be undone.",
			bucket:    []kit.BucketModifier{kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1")},
			option:    WithForceOrphan(),
			wantEvent: "ForceOrphaned",
			wantGone:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewDeletedBucket(append([]kit.BucketModifier{
				kit.WithDeletionStatus(
					kit.DeletionStatus(reconciler.ReasonDeletionRequested, deletion.MessageRequested),
				),
			}, tc.bucket...)...))
			api.Before = kit.FailRequests(kit.IsStatusWrite, kit.ServerError())
			recorder := &testkit.Said{}
			deletes := 0
			r := kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				DeleteFn: kit.CountCalls[managed.ExternalDelete](&deletes),
			}), managed.WithRecorder(recorder), tc.option)
			kit.TryReconcile(r, 5)
			kit.ExpectEqual(t, "The report should be tried first.", "deletes", 0, deletes)
			kit.TryReconcile(r, 1)
			kit.CollectGarbage(t, api)
			err := api.Server().Get(t.Context(), kit.Request().NamespacedName, &v1alpha1.Bucket{})
			kit.ExpectEqual(t, tc.reason, "deletes", tc.wantDeletes, deletes)
			kit.ExpectEqual(t, tc.reason, "events", 1, len(recorder.Events(tc.wantEvent)))
			kit.ExpectEqual(t, tc.reason, "gone", tc.wantGone, kerrors.IsNotFound(err))
		})
	}
}

func TestEscape_WithoutDeletionStatus(t *testing.T) {
	for option, o := range map[string]managed.ReconcilerOption{"WithDeadline": WithDeadline(
		time.Hour, nil,
	), "WithForceOrphan": WithForceOrphan()} {
		err := func() (p any) {
			defer func() { p = recover() }()
			managed.NewReconciler(
				testkit.NewAPI().Manager(), resource.ManagedKind(
					testkit.BucketKind(),
				), o, managed.WithoutDeletionStatus(),
			)
			return nil
		}()
		e, ok := err.(error)
		kit.ExpectEqual(
			t, "We should refuse options that exclude each other.", option, true,
			ok && strings.Contains(e.Error(), "leave one of them out"),
		)
	}
}

func TestWithForceOrphan_NoName(t *testing.T) {
	defer func() {
		const reason = "A finalizer without a name, such as a missing setting, should be refused: it removes nothing."
		kit.ExpectEqual(t, reason, "panics", true, recover() != nil)
	}()
	WithForceOrphan("")
}
