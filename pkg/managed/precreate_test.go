package managed

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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// changedBeforeSecondObserve returns an external resource that calls then at the start of the
// second Observe, which is the one right before Create.
func changedBeforeSecondObserve(then func(ext *externalResource, mg resource.Managed) error) *externalResource {
	ext := &externalResource{outdated: true}
	ext.beforeCall = func(what string, mg resource.Managed) error {
		var err error
		if what == "observe" && ext.observes == 2 {
			err = then(ext, mg)
		}
		if ext.exists {
			asBucket(mg).Spec.ForProvider.Region = "eu"
		}
		return err
	}
	return ext
}

func resourceAppears(ext *externalResource, _ resource.Managed) error {
	ext.exists = true
	return nil
}

func TestPreCreateObserve(t *testing.T) {
	type want struct {
		Observes, Creates, Updates int
		Name, Refused, Region      string
		Succeeded, Failed          bool
		Synced                     string
		Adopted                    int
	}
	cases := map[string]struct {
		reason string
		exists bool
		// onSecondObserve: by default the external resource appears.
		onSecondObserve func(ext *externalResource, mg resource.Managed) error
		emptied         bool // by each Observe
		adoption        bool
		async           bool
		opts            []ReconcilerOption
		bucket          *v1alpha1.Bucket
		want            want
	}{
		"Absent": {
			reason:          "An external resource that still does not exist should be created.",
			onSecondObserve: func(*externalResource, resource.Managed) error { return nil },
			want:            want{Observes: 2, Creates: 1, Name: "mine", Succeeded: true},
		},
		"Refuse": {
			reason: "An external resource that appeared should be left alone, and Synced should tell the operator how to adopt it.",
			want: want{
				Observes: 2,
				Name:     "mine",
				Refused:  "mine",
				Failed:   true,
				Synced:   "remove the annotation " + AnnotationKeyCreateRefused,
			},
		},
		"EarlierCreateArrives": {
			reason: "An external resource that the managed resource's own interrupted create may have created should not be refused.",
			bucket: newBucket(withExternalName("mine"), withInterruptedCreate(0)),
			opts:   []ReconcilerOption{WithDeterministicExternalName(true)},
			want:   want{Observes: 2, Name: "mine", Failed: true, Synced: "an earlier create may have created it"},
		},
		"RefuseUnnamed": {
			reason: "An external resource that appeared should be left alone if the managed resource has no external name.",
			bucket: newBucket(),
			want:   want{Observes: 2, Refused: "uid-1", Failed: true, Synced: "was not created"},
		},
		"RefuseWithoutPersistence": {
			reason: "The refusal should be stored with WithoutExternalNamePersistence, too.",
			opts:   []ReconcilerOption{WithoutExternalNamePersistence()},
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseAsync": {
			reason: "An asynchronous create that was refused should fail although the external resource exists.",
			onSecondObserve: func(ext *externalResource, mg resource.Managed) error {
				ext.outdated = false
				return resourceAppears(ext, mg)
			},
			async: true,
			want:  want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseEmptied": {
			reason: "An external resource should be refused by the name that stays stored, which the Observe that finds it has emptied.",
			onSecondObserve: func(ext *externalResource, mg resource.Managed) error {
				meta.SetExternalName(mg, "")
				return resourceAppears(ext, mg)
			},
			want: want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseEmptiedTwice": {
			reason:  "The same if both Observes empty the name.",
			emptied: true,
			want:    want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"AdoptEmptiedTwice": {
			reason:   "An external resource that is found without a name should not be managed by a name that leads to none.",
			emptied:  true,
			adoption: true,
			want:     want{Observes: 2, Succeeded: true, Adopted: 1},
		},
		"AdoptEmptied": {
			reason: "The Observe that finds the external resource to adopt should not empty the stored name.",
			onSecondObserve: func(ext *externalResource, mg resource.Managed) error {
				meta.SetExternalName(mg, "")
				return resourceAppears(ext, mg)
			},
			adoption: true,
			want:     want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1},
		},
		"Adopt": {
			reason:   "With WithPreCreateAdoption the external resource that appeared should be managed.",
			adoption: true,
			want:     want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1},
		},
		"AdoptWithName": {
			reason: "The external name that the second Observe learns should be stored.",
			onSecondObserve: func(ext *externalResource, mg resource.Managed) error {
				meta.SetExternalName(mg, "id-1")
				return resourceAppears(ext, mg)
			},
			adoption: true,
			bucket:   newBucket(),
			want:     want{Observes: 2, Name: "id-1", Succeeded: true, Adopted: 1},
		},
		"ObserveFails": {
			reason:          "The create should fail if the second Observe fails.",
			onSecondObserve: func(*externalResource, resource.Managed) error { return errors.New("boom") },
			want: want{
				Observes: 2,
				Name:     "mine",
				Failed:   true,
				Synced:   "once more before it is created: boom",
			},
		},
		"Exists": {
			reason: "An external resource that exists should be observed once. As with upstream, the write of the finalizer stores what Observe changed.",
			exists: true,
			want:   want{Observes: 1, Updates: 1, Name: "mine", Region: "eu"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.bucket == nil {
					tc.bucket = newBucket(withExternalName("mine"))
				}
				if tc.onSecondObserve == nil {
					tc.onSecondObserve = resourceAppears
				}
				api := testkit.NewAPI(tc.bucket)
				recorder := &testkit.Said{}
				ext := changedBeforeSecondObserve(tc.onSecondObserve)
				ext.exists = tc.exists
				if changes := ext.beforeCall; tc.emptied {
					ext.beforeCall = func(what string, mg resource.Managed) error {
						meta.SetExternalName(mg, "")
						return changes(what, mg)
					}
				}
				preCreate := WithPreCreateObserve()
				if tc.adoption {
					preCreate = WithPreCreateAdoption()
				}
				if tc.async {
					tc.opts = append(tc.opts, WithAsync(newTracker(api)))
				}
				mustReconcile(
					t,
					newBucketReconciler(
						api, append(tc.opts, WithRecorder(recorder), preCreate, withClient(ext.client()))...,
					),
					"b",
				)
				synctest.Wait()
				b := getBucket(t, api)
				got := want{
					Observes: ext.observes, Creates: ext.count("create"), Updates: ext.count("update"),
					Name:    meta.GetExternalName(b),
					Refused: b.GetAnnotations()[AnnotationKeyCreateRefused], Region: b.Spec.ForProvider.Region,
					Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(),
					Failed:    !meta.GetExternalCreateFailed(b).IsZero(),
					Adopted:   len(recorder.Events("AdoptedExternalResource")), Synced: b.GetCondition(xpv2.TypeSynced).Message,
				}
				if tc.want.Synced != "" && strings.Contains(got.Synced, tc.want.Synced) {
					got.Synced = tc.want.Synced
				}
				expectEqual(t, tc.reason, "result", tc.want, got)
			})
		})
	}
}

func TestPreCreateObserve_SecondObserveDoesNotReturn(t *testing.T) {
	cases := map[string]struct {
		reason          string
		onSecondObserve func(*externalResource, resource.Managed) error
		finding         asyncstate.Finding
		wantHolder      string
	}{
		"TimesOut": {
			reason:          "The create should not be pending, or reserved, after the second Observe has timed out.",
			onSecondObserve: func(*externalResource, resource.Managed) error { return context.DeadlineExceeded },
		},
		"Panics": {
			reason:          "The create should not be pending after a panic in the second Observe.",
			onSecondObserve: func(*externalResource, resource.Managed) error { panic("oh") },
			finding:         asyncstate.Absent(),
			wantHolder:      "b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(bucketWithSharedName("b"))
				ext := changedBeforeSecondObserve(tc.onSecondObserve)
				r := newReservingReconciler(
					api, ext, WithPreCreateObserve(), WithCreateResolver(&fakeFinder{finding: tc.finding}),
				)
				tryReconcile(r, 1)
				b := getBucket(t, api)
				expectEqual(t, tc.reason, "creates", 0, ext.count("create"))
				expectEqual(t, tc.reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
				expectHolder(t, tc.reason, api, tc.wantHolder)
				time.Sleep(time.Second)
				mustReconcile(t, r, "b")
				expectEqual(t, "The next reconcile should create.", "creates", 1, ext.count("create"))
			})
		})
	}
}

// TestCreateRefused reconciles a Bucket whose create was refused, with and without the option
// that refuses creates.
func TestCreateRefused(t *testing.T) {
	withRefusal := withAnnotation(AnnotationKeyCreateRefused, "id-1")
	cases := map[string]struct {
		reason        string
		bucket        []bucketModifier
		opts          []ReconcilerOption
		absentAtFirst bool  // the external resource exists only from the second reconcile on
		callErr       error // returned by Create if absentAtFirst is set, and by Observe otherwise
		wantCalls     []string
		wantDeleted   bool
		wantSynced    corev1.ConditionStatus
		wantRefused   string // the annotation
	}{
		"Interrupted": {
			reason: "The refusal should stay when the process ended between the refusal and the result of a repeated create.",
			bucket: []bucketModifier{
				withRefusal, withAnnotation(
					meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z",
				), withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-03T03:04:05Z"),
			},
			opts:        []ReconcilerOption{WithDeterministicExternalName(true)},
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"Deleting": {
			reason:      "The managed resource should be deleted without the external resource.",
			bucket:      []bucketModifier{withRefusal, withDeletionTimestamp},
			wantDeleted: true,
			wantSynced:  corev1.ConditionUnknown,
		},
		"Observed": {
			reason:      "The external resource should be observed by a managed resource that may not change it.",
			bucket:      []bucketModifier{withRefusal, withPolicies(xpv2.ManagementActionObserve)},
			wantSynced:  corev1.ConditionTrue,
			wantRefused: "id-1",
		},
		"ObservedAndDeleting": {
			reason: "A managed resource that may not change the external resource should be deleted without it.",
			bucket: []bucketModifier{
				withRefusal, withPolicies(xpv2.ManagementActionObserve), withDeletionTimestamp,
			},
			wantDeleted: true,
			wantSynced:  corev1.ConditionUnknown,
		},
		"Managed": {
			reason:      "The external resource should not be updated.",
			bucket:      []bucketModifier{withRefusal},
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"Adopted": {
			reason:     "The external resource should be adopted when the annotation is removed.",
			wantCalls:  []string{"update b"},
			wantSynced: corev1.ConditionTrue,
		},
		"AdoptedAndDeleted": {
			reason:     "The external resource should be deleted when the annotation is removed.",
			bucket:     []bucketModifier{withDeletionTimestamp},
			wantCalls:  []string{"delete b"},
			wantSynced: corev1.ConditionTrue,
		},
		"OfAnotherName": {
			reason:      "The refusal of another external name should be ignored.",
			bucket:      []bucketModifier{withAnnotation(AnnotationKeyCreateRefused, "id-2")},
			wantCalls:   []string{"update b"},
			wantSynced:  corev1.ConditionTrue,
			wantRefused: "id-2",
		},
		"WentAway": {
			reason:        "The external resource should be created when the refused one no longer exists.",
			bucket:        []bucketModifier{withRefusal},
			absentAtFirst: true,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"Unanswered": {
			reason:        "The external resource should be managed that appears after a create without an answer, because that create may have created it.",
			bucket:        []bucketModifier{withRefusal},
			absentAtFirst: true,
			callErr:       context.DeadlineExceeded,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"UnansweredWithDeterministicName": {
			reason:        "The external resource should be managed that appears after a create without an answer under a deterministic name.",
			bucket:        []bucketModifier{withRefusal},
			opts:          []ReconcilerOption{WithDeterministicExternalName(true)},
			absentAtFirst: true,
			callErr:       context.DeadlineExceeded,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"UnknownWithDeterministicName": {
			reason:        "The external resource should be managed that appears after a create with an unknown outcome.",
			bucket:        []bucketModifier{withRefusal},
			opts:          []ReconcilerOption{WithDeterministicExternalName(true)},
			absentAtFirst: true,
			callErr:       asyncstate.ErrOutcomeUnknown,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"InterruptedAndDeleted": {
			reason: "The managed resource should be kept when an interrupted create may have created the external resource that was refused before.",
			bucket: []bucketModifier{
				withRefusal, withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-03T03:04:05Z"),
				withDeletionTimestamp,
			},
			opts:        []ReconcilerOption{WithDeterministicExternalName(true)},
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"ObserveFails": {
			reason:      "The managed resource should be kept when Observe returns an error.",
			bucket:      []bucketModifier{withRefusal, withDeletionTimestamp},
			callErr:     errors.New("boom"),
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"Flaky": {
			reason:        "The refusal should stay after one Observe that does not find the external resource.",
			bucket:        []bucketModifier{withRefusal},
			absentAtFirst: true,
			callErr:       errors.New("already exists"),
			wantCalls:     []string{"create b"},
			wantSynced:    corev1.ConditionFalse,
			wantRefused:   "id-1",
		},
		"FlakyAfterEarlierCreate": {
			reason: "The refusal should stay after one Observe that does not find the external resource, although an earlier create with that name succeeded.",
			bucket: []bucketModifier{
				withRefusal, withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
				withAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"),
				withAnnotation(meta.AnnotationKeyExternalCreateFailed, "2026-01-03T03:04:05Z"),
			},
			absentAtFirst: true,
			callErr:       errors.New("already exists"),
			wantCalls:     []string{"create b"},
			wantSynced:    corev1.ConditionFalse,
			wantRefused:   "id-1",
		},
	}
	for name, tc := range cases {
		for option, opts := range map[string][]ReconcilerOption{
			"PreCreateObserve": {WithPreCreateObserve()},
			"Confirmation":     {WithPreCreateObserve(), WithDeletionConfirmation(3, interval)},
		} {
			t.Run(name+"/"+option, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(append(
					tc.bucket, withExternalName("id-1"), withFinalizers(FinalizerName),
				)...))
				ext := &externalResource{exists: !tc.absentAtFirst, outdated: true}
				ext.onCall(map[bool]string{
					true:  "create",
					false: "observe",
				}[tc.absentAtFirst], func(*v1alpha1.Bucket) error { return tc.callErr })
				r := newBucketReconciler(api, append(append(tc.opts, withClient(ext.client())), opts...)...)
				mustReconcile(t, r, "b")
				if tc.absentAtFirst {
					ext.exists = true
					mustReconcile(t, r, "b")
				}
				b := getBucket(t, api)
				expectEqual(t, tc.reason, "calls", tc.wantCalls, ext.calls)
				expectEqual(t, tc.reason, "deleted", tc.wantDeleted, b.GetName() == "")
				expectEqual(t, tc.reason, "Synced", tc.wantSynced, b.GetCondition(xpv2.TypeSynced).Status)
				expectEqual(t, tc.reason, "refused", tc.wantRefused, b.GetAnnotations()[AnnotationKeyCreateRefused])
			})
		}
	}
}

func TestCreateRefused_AnnotationCannotBeStored(t *testing.T) {
	// The annotation is empty after an earlier refused external resource was deleted.
	api := testkit.NewAPI(newBucket(
		withExternalName("id-1"), withFinalizers(FinalizerName), withAnnotation(AnnotationKeyCreateRefused, ""),
	))
	ext := &externalResource{outdated: true}
	ext.onCall("observe", func(*v1alpha1.Bucket) error {
		ext.exists = ext.observes > 1
		return nil
	})
	api.Before = failRequests(func(r testkit.Request) bool {
		return strings.Contains(r.Body, AnnotationKeyCreateRefused+`":"id`) ||
			isWrite(r) && r.Object.GetAnnotations()[AnnotationKeyCreateRefused] != ""
	}, kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no such annotation")))
	r := newBucketReconciler(api, withClient(ext.client()), WithPreCreateObserve(), WithDeterministicExternalName(true))
	tryReconcile(r, 3)
	expectEqual(t, "The refusal should stay although a webhook refuses its annotation.", "calls", 0, len(ext.calls))
	updateBucket(t, api, "b", withExternalName("id-2"))
	tryReconcile(r, 1)
	expectEqual(t, "The refusal of another external name should be ignored.", "calls", []string{"update b"}, ext.calls)
	updateBucket(t, api, "b", withExternalName("id-1"))
	deleteBucket(t, api, "b")
	tryReconcile(r, 1)
	expectEqual(t, "The managed resource should be deleted without the external resource.", "calls", 1, len(ext.calls))
	expectEqual(
		t, "The managed resource should be deleted without the external resource.", "name", "",
		getBucket(t, api).GetName(),
	)
}

func TestCreateRefused_AnnotationCannotBeStoredAndUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("id-1"), withFinalizers(FinalizerName)))
		ext := &externalResource{}
		ext.beforeCall = func(call string, _ resource.Managed) error {
			switch call {
			case "observe":
				ext.exists = ext.observes == 2 || ext.count("create") > ext.count("delete")
			case "create":
				return context.DeadlineExceeded
			}
			return nil
		}
		api.Before = failRequests(func(r testkit.Request) bool {
			return strings.Contains(r.Body, AnnotationKeyCreateRefused+`":"id`) ||
				isWrite(r) && r.Object.GetAnnotations()[AnnotationKeyCreateRefused] != ""
		}, kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no such annotation")))
		r := newBucketReconciler(
			api, withClient(ext.client()), WithPreCreateObserve(), WithDeterministicExternalName(true),
		)
		for range 4 {
			tryReconcile(r, 1)
			time.Sleep(time.Second)
		}
		deleteBucket(t, api, "b")
		tryReconcile(r, 1)
		expectEqual(
			t, "The external resource should be deleted that a create without an answer may have created.", "deletes",
			1, ext.count("delete"),
		)
	})
}

// TestPreCreateObserve_ProviderWrites has a provider that writes or reads its managed resource with
// a client of its own in Observe.
func TestPreCreateObserve_ProviderWrites(t *testing.T) {
	changeOfOtherWriter := []bucketModifier{withAnnotation(addedKey, "v"), withFinalizers(FinalizerName, "other/f")}
	var stale *v1alpha1.Bucket
	cases := map[string]struct {
		reason              string
		async               bool
		onObserve           func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error
		wantAnnotation      string
		wantFinalizers      []string
		wantOtherWriterKept bool // the label and the annotation of another writer
	}{
		"WritesStatus": {
			reason: "The create should not be prevented by a provider that updates the status in each Observe.",
			onObserve: func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.observes)}
				return api.Server().Status().Update(t.Context(), b)
			},
			wantAnnotation: "", wantFinalizers: []string{FinalizerName},
		},
		"WritesStatusAsync": {
			reason: "An asynchronous create should not be prevented by a provider that updates the status in each Observe.",
			async:  true,
			onObserve: func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.observes)}
				return api.Server().Status().Update(t.Context(), b)
			},
			wantAnnotation: "", wantFinalizers: []string{FinalizerName},
		},
		"ReadsStaleAsync": {
			reason: "An asynchronous create should not be prevented by a provider that reads the managed resource from a cache without the announcement.",
			async:  true,
			onObserve: func(_ *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				if ext.observes == 1 {
					stale = b.DeepCopy()
				}
				stale.DeepCopyInto(b)
				return nil
			},
			wantAnnotation: "", wantFinalizers: []string{FinalizerName},
		},
		"WritesAnnotation": {
			reason: "The create should not be prevented by a provider that updates an annotation in each Observe.",
			onObserve: func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				withAnnotation(addedKey, fmt.Sprint(ext.observes))(b)
				return api.Server().Update(t.Context(), b)
			},
			wantAnnotation: "5", wantFinalizers: []string{FinalizerName},
		},
		"WritesAnnotationInPatch": {
			reason: "The create should not be prevented by a provider that patches an annotation in each Observe, and the changes of another writer should be kept.",
			onObserve: func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				if ext.observes == 2 {
					updateBucket(
						t, api, "b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"team": "blue"}) },
						withAnnotation("theirs", "v"),
					)
				}
				return api.Server().Patch(
					t.Context(), b,
					client.RawPatch(
						types.MergePatchType,
						fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, addedKey, ext.observes),
					),
				)
			},
			wantAnnotation: "5", wantFinalizers: []string{FinalizerName}, wantOtherWriterKept: true,
		},
		"ReadsAgain": {
			reason: "The changes of another writer should be kept when the provider reads the managed resource again.",
			onObserve: func(api *testkit.API, ext *externalResource, b *v1alpha1.Bucket) error {
				if ext.observes == 2 {
					updateBucket(t, api, "b", changeOfOtherWriter...)
				}
				return api.Server().Get(t.Context(), request().NamespacedName, b)
			},
			wantAnnotation: "v", wantFinalizers: []string{FinalizerName, "other/f"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket(withExternalName("id-1")))
				ext := &externalResource{}
				ext.onCall("observe", func(b *v1alpha1.Bucket) error { return tc.onObserve(api, ext, b) })
				opts := []ReconcilerOption{WithPreCreateObserve(), withClient(ext.client())}
				if tc.async {
					opts = append(opts, WithAsync(newTracker(api)))
				}
				r := newBucketReconciler(api, opts...)
				tryReconcile(r, 2)
				synctest.Wait() // for an asynchronous create
				if ext.count("create") == 0 {
					time.Sleep(time.Second) // creates start at least a second apart
				}
				tryReconcile(r, 2)
				synctest.Wait()
				b := getBucket(t, api)
				expectEqual(
					t, tc.reason, "has another writer's label", tc.wantOtherWriterKept, b.GetLabels()["team"] != "",
				)
				expectEqual(
					t, tc.reason, "has another writer's annotation", tc.wantOtherWriterKept,
					b.GetAnnotations()["theirs"] != "",
				)
				expectEqual(t, tc.reason, "creates", 1, ext.count("create"))
				expectEqual(t, tc.reason, "annotation", tc.wantAnnotation, b.GetAnnotations()[addedKey])
				expectEqual(t, tc.reason, "finalizers", tc.wantFinalizers, b.GetFinalizers())
			})
		})
	}
}

func TestCreateRefused_AsyncCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(
			withExternalName("id-1"), withFinalizers(FinalizerName),
			withAnnotation(AnnotationKeyCreateRefused, "id-1"),
		))
		ext := &externalResource{}
		ext.onCall("create", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
		r := newBucketReconciler(api, WithAsync(newTracker(api)), withClient(ext.client()))
		mustReconcile(t, r, "b")
		expectEqual(
			t, "The refusal should stay while the create may still fail.", "refused", "id-1",
			getBucket(t, api).GetAnnotations()[AnnotationKeyCreateRefused],
		)
		deleteBucket(t, api, "b")
		for range 5 {
			mustReconcile(t, r, "b")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		expectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.", "name", "",
			getBucket(t, api).GetName(),
		)
		expectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.", "calls",
			[]string{"create b", "delete b"}, ext.calls,
		)
		expectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.",
			"external resource exists", false, ext.exists,
		)
	})
}

// TestCreateRefused_EarlierCreateSucceeded has an external resource that was deleted by another
// writer, and whose name another owner takes right before it is created again.
func TestCreateRefused_EarlierCreateSucceeded(t *testing.T) {
	const earlier = "2026-01-02T03:04:05Z"
	cases := map[string]struct {
		reason      string
		opts        func(api *testkit.API) []ReconcilerOption
		deletes     bool
		wantDeleted bool
	}{
		"Nothing": {
			reason: "The external resource of another owner should not be updated.",
			opts:   func(*testkit.API) []ReconcilerOption { return nil },
		},
		"Resolver": {
			reason: "The external resource of another owner should not be updated with a create resolver, either.",
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithCreateResolver(&fakeFinder{finding: asyncstate.Absent()})}
			},
		},
		"ResolverDeletes": {
			reason: "The external resource of another owner should not be deleted with a create resolver, either.",
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithCreateResolver(&fakeFinder{finding: asyncstate.Absent()})}
			},
			deletes:     true,
			wantDeleted: true,
		},
		"AsyncResolver": {
			reason: "The external resource of another owner should not be updated asynchronously.",
			opts: func(api *testkit.API) []ReconcilerOption {
				return []ReconcilerOption{
					WithCreateResolver(&fakeFinder{finding: asyncstate.Absent()}), WithAsync(newTracker(api)),
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(48 * 365 * 24 * time.Hour) // after the earlier create
				api := testkit.NewAPI(newBucket(
					withExternalName("mine"), withFinalizers(FinalizerName),
					withAnnotation(meta.AnnotationKeyExternalCreatePending, earlier),
					withAnnotation(meta.AnnotationKeyExternalCreateSucceeded, earlier),
				))
				ext := changedBeforeSecondObserve(resourceAppears)
				r := newBucketReconciler(
					api, append(tc.opts(api), WithPreCreateObserve(), withClient(ext.client()))...,
				)
				tryReconcile(r, 1)
				if tc.deletes {
					deleteBucket(t, api, "b")
				}
				for range 5 {
					tryReconcile(r, 1)
					time.Sleep(time.Second)
					synctest.Wait()
				}
				expectEqual(t, tc.reason, "calls", 0, len(ext.calls))
				expectEqual(t, tc.reason, "deleted", tc.wantDeleted, getBucket(t, api).GetName() == "")
			})
		})
	}
}

func TestPreCreateObserve_ShutdownBegins(t *testing.T) {
	const reason = "An external resource that does not exist should be neither refused nor adopted when the process stops right before its create."
	for name, preCreate := range map[string]ReconcilerOption{
		"Observe": WithPreCreateObserve(), "Adoption": WithPreCreateAdoption(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, recorder := testkit.NewAPI(newBucket(withExternalName("mine"))), &testkit.Said{}
				tracker := newTracker(api)
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = tracker.Start(ctx) }()
				ext := changedBeforeSecondObserve(func(*externalResource, resource.Managed) error {
					stop()
					synctest.Wait()
					return nil
				})
				mustReconcile(t, newBucketReconciler(
					api, preCreate, WithRecorder(recorder), WithAsync(tracker), withClient(ext.client()),
				), "b")
				b := getBucket(t, api)
				expectEqual(t, reason, "calls", 0, len(ext.calls))
				expectEqual(t, reason, "refused", "", b.GetAnnotations()[AnnotationKeyCreateRefused])
				expectEqual(t, reason, "succeeded", true, meta.GetExternalCreateSucceeded(b).IsZero())
				expectEqual(t, reason, "events", 0, len(recorder.Events("AdoptedExternalResource")))
			})
		})
	}
}
