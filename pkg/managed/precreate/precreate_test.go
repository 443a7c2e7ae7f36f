package precreate

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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

func resourceAppears(ext *kit.ExternalResource, _ resource.Managed) error {
	ext.Exists = true
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
		onSecondObserve func(ext *kit.ExternalResource, mg resource.Managed) error
		emptied         bool // by each Observe
		adoption        bool
		async           bool
		opts            []managed.ReconcilerOption
		bucket          *v1alpha1.Bucket
		want            want
	}{
		"Absent": {
			reason:          "An external resource that still does not exist should be created.",
			onSecondObserve: func(*kit.ExternalResource, resource.Managed) error { return nil },
			want:            want{Observes: 2, Creates: 1, Name: "mine", Succeeded: true},
		},
		"Refuse": {
			reason: "An external resource that appeared should be left alone, and Synced should tell the operator how to adopt it.",
			want: want{
				Observes: 2,
				Name:     "mine",
				Refused:  "mine",
				Failed:   true,
				Synced:   "remove the annotation " + AnnotationKeyRefused,
			},
		},
		"EarlierCreateArrives": {
			reason: "An external resource that the managed resource's own interrupted create may have created should not be refused.",
			bucket: kit.NewBucket(kit.WithExternalName("mine"), kit.WithInterruptedCreate(0)),
			opts:   []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			want:   want{Observes: 2, Name: "mine", Failed: true, Synced: "an earlier create may have created it"},
		},
		"RefuseUnnamed": {
			reason: "An external resource that appeared should be left alone if the managed resource has no external name.",
			bucket: kit.NewBucket(),
			want:   want{Observes: 2, Refused: "uid-1", Failed: true, Synced: "was not created"},
		},
		"RefuseWithoutPersistence": {
			reason: "The refusal should be stored with WithoutExternalNamePersistence, too.",
			opts:   []managed.ReconcilerOption{managed.WithoutExternalNamePersistence()},
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseAsync": {
			reason: "An asynchronous create that was refused should fail although the external resource exists.",
			onSecondObserve: func(ext *kit.ExternalResource, mg resource.Managed) error {
				ext.Outdated = false
				return resourceAppears(ext, mg)
			},
			async: true,
			want:  want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseEmptied": {
			reason: "An external resource should be refused by the name that stays stored, which the Observe that finds it has emptied.",
			onSecondObserve: func(ext *kit.ExternalResource, mg resource.Managed) error {
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
			onSecondObserve: func(ext *kit.ExternalResource, mg resource.Managed) error {
				meta.SetExternalName(mg, "")
				return resourceAppears(ext, mg)
			},
			adoption: true,
			want:     want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1},
		},
		"Adopt": {
			reason:   "With Adopt the external resource that appeared should be managed.",
			adoption: true,
			want:     want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1},
		},
		"AdoptWithName": {
			reason: "The external name that the second Observe learns should be stored.",
			onSecondObserve: func(ext *kit.ExternalResource, mg resource.Managed) error {
				meta.SetExternalName(mg, "id-1")
				return resourceAppears(ext, mg)
			},
			adoption: true,
			bucket:   kit.NewBucket(),
			want:     want{Observes: 2, Name: "id-1", Succeeded: true, Adopted: 1},
		},
		"ObserveFails": {
			reason:          "The create should fail if the second Observe fails.",
			onSecondObserve: func(*kit.ExternalResource, resource.Managed) error { return errors.New("boom") },
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
					tc.bucket = kit.NewBucket(kit.WithExternalName("mine"))
				}
				if tc.onSecondObserve == nil {
					tc.onSecondObserve = resourceAppears
				}
				api := testkit.NewAPI(tc.bucket)
				recorder := &testkit.Said{}
				ext := kit.ChangedBeforeSecondObserve(tc.onSecondObserve)
				ext.Exists = tc.exists
				if changes := ext.BeforeCall; tc.emptied {
					ext.BeforeCall = func(what string, mg resource.Managed) error {
						meta.SetExternalName(mg, "")
						return changes(what, mg)
					}
				}
				preCreate := Refuse()
				if tc.adoption {
					preCreate = Adopt()
				}
				if tc.async {
					tc.opts = append(tc.opts, asyncstate.With(asyncstate.NewTracker()))
				}
				kit.MustReconcile(
					t,
					kit.NewBucketReconciler(
						api, append(
							tc.opts, managed.WithRecorder(recorder), preCreate, kit.WithClient(ext.Client()),
						)...,
					),
					"b",
				)
				synctest.Wait()
				b := kit.GetBucket(t, api)
				got := want{
					Observes: ext.Observes, Creates: ext.Count("create"), Updates: ext.Count("update"),
					Name:    meta.GetExternalName(b),
					Refused: b.GetAnnotations()[AnnotationKeyRefused], Region: b.Spec.ForProvider.Region,
					Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(),
					Failed:    !meta.GetExternalCreateFailed(b).IsZero(),
					Adopted: len(
						recorder.Events("AdoptedExternalResource"),
					), Synced: b.GetCondition(xpv2.TypeSynced).Message,
				}
				if tc.want.Synced != "" && strings.Contains(got.Synced, tc.want.Synced) {
					got.Synced = tc.want.Synced
				}
				kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
			})
		})
	}
}

// TestCreateRefused reconciles a Bucket whose create was refused, with and without the option
// that refuses creates.
func TestCreateRefused(t *testing.T) {
	withRefusal := kit.WithAnnotation(AnnotationKeyRefused, "id-1")
	cases := map[string]struct {
		reason        string
		bucket        []kit.BucketModifier
		opts          []managed.ReconcilerOption
		absentAtFirst bool  // the external resource exists only from the second reconcile on
		callErr       error // returned by Create if absentAtFirst is set, and by Observe otherwise
		wantCalls     []string
		wantDeleted   bool
		wantSynced    corev1.ConditionStatus
		wantRefused   string // the annotation
	}{
		"Interrupted": {
			reason: "The refusal should stay when the process ended between the refusal and the result of a repeated create.",
			bucket: []kit.BucketModifier{
				withRefusal, kit.WithAnnotation(
					meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z",
				), kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-03T03:04:05Z"),
			},
			opts:        []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"Deleting": {
			reason:      "The managed resource should be deleted without the external resource.",
			bucket:      []kit.BucketModifier{withRefusal, kit.WithDeletionTimestamp},
			wantDeleted: true,
			wantSynced:  corev1.ConditionUnknown,
		},
		"Observed": {
			reason:      "The external resource should be observed by a managed resource that may not change it.",
			bucket:      []kit.BucketModifier{withRefusal, kit.WithPolicies(xpv2.ManagementActionObserve)},
			wantSynced:  corev1.ConditionTrue,
			wantRefused: "id-1",
		},
		"ObservedAndDeleting": {
			reason: "A managed resource that may not change the external resource should be deleted without it.",
			bucket: []kit.BucketModifier{
				withRefusal, kit.WithPolicies(xpv2.ManagementActionObserve), kit.WithDeletionTimestamp,
			},
			wantDeleted: true,
			wantSynced:  corev1.ConditionUnknown,
		},
		"Managed": {
			reason:      "The external resource should not be updated.",
			bucket:      []kit.BucketModifier{withRefusal},
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
			bucket:     []kit.BucketModifier{kit.WithDeletionTimestamp},
			wantCalls:  []string{"delete b"},
			wantSynced: corev1.ConditionTrue,
		},
		"OfAnotherName": {
			reason:      "The refusal of another external name should be ignored.",
			bucket:      []kit.BucketModifier{kit.WithAnnotation(AnnotationKeyRefused, "id-2")},
			wantCalls:   []string{"update b"},
			wantSynced:  corev1.ConditionTrue,
			wantRefused: "id-2",
		},
		"WentAway": {
			reason:        "The external resource should be created when the refused one no longer exists.",
			bucket:        []kit.BucketModifier{withRefusal},
			absentAtFirst: true,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"Unanswered": {
			reason:        "The external resource should be managed that appears after a create without an answer, because that create may have created it.",
			bucket:        []kit.BucketModifier{withRefusal},
			absentAtFirst: true,
			callErr:       context.DeadlineExceeded,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"UnansweredWithDeterministicName": {
			reason:        "The external resource should be managed that appears after a create without an answer under a deterministic name.",
			bucket:        []kit.BucketModifier{withRefusal},
			opts:          []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			absentAtFirst: true,
			callErr:       context.DeadlineExceeded,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"UnknownWithDeterministicName": {
			reason:        "The external resource should be managed that appears after a create with an unknown outcome.",
			bucket:        []kit.BucketModifier{withRefusal},
			opts:          []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			absentAtFirst: true,
			callErr:       asyncstate.ErrOutcomeUnknown,
			wantCalls:     []string{"create b", "update b"},
			wantSynced:    corev1.ConditionTrue,
		},
		"InterruptedAndDeleted": {
			reason: "The managed resource should be kept when an interrupted create may have created the external resource that was refused before.",
			bucket: []kit.BucketModifier{
				withRefusal, kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-03T03:04:05Z"),
				kit.WithDeletionTimestamp,
			},
			opts:        []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"ObserveFails": {
			reason:      "The managed resource should be kept when Observe returns an error.",
			bucket:      []kit.BucketModifier{withRefusal, kit.WithDeletionTimestamp},
			callErr:     errors.New("boom"),
			wantSynced:  corev1.ConditionFalse,
			wantRefused: "id-1",
		},
		"Flaky": {
			reason:        "The refusal should stay after one Observe that does not find the external resource.",
			bucket:        []kit.BucketModifier{withRefusal},
			absentAtFirst: true,
			callErr:       errors.New("already exists"),
			wantCalls:     []string{"create b"},
			wantSynced:    corev1.ConditionFalse,
			wantRefused:   "id-1",
		},
		"FlakyAfterEarlierCreate": {
			reason: "The refusal should stay after one Observe that does not find the external resource, although an earlier create with that name succeeded.",
			bucket: []kit.BucketModifier{
				withRefusal, kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, "2026-01-03T03:04:05Z"),
			},
			absentAtFirst: true,
			callErr:       errors.New("already exists"),
			wantCalls:     []string{"create b"},
			wantSynced:    corev1.ConditionFalse,
			wantRefused:   "id-1",
		},
	}
	for name, tc := range cases {
		for option, opts := range map[string][]managed.ReconcilerOption{
			"PreCreateObserve": {Refuse()},
			"Confirmation":     {Refuse(), confirm.With(3, kit.Interval)},
		} {
			t.Run(name+"/"+option, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(append(
					tc.bucket, kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
				)...))
				ext := &kit.ExternalResource{Exists: !tc.absentAtFirst, Outdated: true}
				ext.OnCall(map[bool]string{
					true:  "create",
					false: "observe",
				}[tc.absentAtFirst], func(*v1alpha1.Bucket) error { return tc.callErr })
				r := kit.NewBucketReconciler(api, append(append(tc.opts, kit.WithClient(ext.Client())), opts...)...)
				kit.MustReconcile(t, r, "b")
				if tc.absentAtFirst {
					ext.Exists = true
					kit.MustReconcile(t, r, "b")
				}
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, ext.Calls)
				kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, b.GetName() == "")
				kit.ExpectEqual(t, tc.reason, "Synced", tc.wantSynced, b.GetCondition(xpv2.TypeSynced).Status)
				kit.ExpectEqual(t, tc.reason, "refused", tc.wantRefused, b.GetAnnotations()[AnnotationKeyRefused])
			})
		}
	}
}

func TestCreateRefused_AnnotationCannotBeStored(t *testing.T) {
	// The annotation is empty after an earlier refused external resource was deleted.
	api := testkit.NewAPI(kit.NewBucket(
		kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(
			AnnotationKeyRefused, "",
		),
	))
	ext := &kit.ExternalResource{Outdated: true}
	ext.OnCall("observe", func(*v1alpha1.Bucket) error {
		ext.Exists = ext.Observes > 1
		return nil
	})
	api.Before = kit.FailRequests(func(r testkit.Request) bool {
		return strings.Contains(r.Body, AnnotationKeyRefused+`":"id`) ||
			kit.IsWrite(r) && r.Object.GetAnnotations()[AnnotationKeyRefused] != ""
	}, kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no such annotation")))
	r := kit.NewBucketReconciler(
		api, kit.WithClient(ext.Client()), Refuse(), managed.WithDeterministicExternalName(true),
	)
	kit.TryReconcile(r, 3)
	kit.ExpectEqual(t, "The refusal should stay although a webhook refuses its annotation.", "calls", 0, len(ext.Calls))
	kit.UpdateBucket(t, api, "b", kit.WithExternalName("id-2"))
	kit.TryReconcile(r, 1)
	kit.ExpectEqual(
		t, "The refusal of another external name should be ignored.", "calls", []string{"update b"}, ext.Calls,
	)
	kit.UpdateBucket(t, api, "b", kit.WithExternalName("id-1"))
	kit.DeleteBucket(t, api, "b")
	kit.TryReconcile(r, 1)
	kit.ExpectEqual(
		t, "The managed resource should be deleted without the external resource.", "calls", 1, len(ext.Calls),
	)
	kit.ExpectEqual(
		t, "The managed resource should be deleted without the external resource.", "name", "",
		kit.GetBucket(t, api).GetName(),
	)
}

func TestCreateRefused_AnnotationCannotBeStoredAndUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName)))
		ext := &kit.ExternalResource{}
		ext.BeforeCall = func(call string, _ resource.Managed) error {
			switch call {
			case "observe":
				ext.Exists = ext.Observes == 2 || ext.Count("create") > ext.Count("delete")
			case "create":
				return context.DeadlineExceeded
			}
			return nil
		}
		api.Before = kit.FailRequests(func(r testkit.Request) bool {
			return strings.Contains(r.Body, AnnotationKeyRefused+`":"id`) ||
				kit.IsWrite(r) && r.Object.GetAnnotations()[AnnotationKeyRefused] != ""
		}, kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no such annotation")))
		r := kit.NewBucketReconciler(
			api, kit.WithClient(ext.Client()), Refuse(), managed.WithDeterministicExternalName(true),
		)
		for range 4 {
			kit.TryReconcile(r, 1)
			time.Sleep(time.Second)
		}
		kit.DeleteBucket(t, api, "b")
		kit.TryReconcile(r, 1)
		kit.ExpectEqual(
			t, "The external resource should be deleted that a create without an answer may have created.", "deletes",
			1, ext.Count("delete"),
		)
	})
}

// TestPreCreateObserve_ProviderWrites has a provider that writes or reads its managed resource with
// a client of its own in Observe.
func TestPreCreateObserve_ProviderWrites(t *testing.T) {
	changeOfOtherWriter := []kit.BucketModifier{
		kit.WithAnnotation("example.org/added", "v"), kit.WithFinalizers(managed.FinalizerName, "other/f"),
	}
	var stale *v1alpha1.Bucket
	cases := map[string]struct {
		reason              string
		async               bool
		onObserve           func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error
		wantAnnotation      string
		wantFinalizers      []string
		wantOtherWriterKept bool // the label and the annotation of another writer
	}{
		"WritesStatus": {
			reason: "The create should not be prevented by a provider that updates the status in each Observe.",
			onObserve: func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.Observes)}
				return api.Server().Status().Update(t.Context(), b)
			},
			wantAnnotation: "", wantFinalizers: []string{managed.FinalizerName},
		},
		"WritesStatusAsync": {
			reason: "An asynchronous create should not be prevented by a provider that updates the status in each Observe.",
			async:  true,
			onObserve: func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.Observes)}
				return api.Server().Status().Update(t.Context(), b)
			},
			wantAnnotation: "", wantFinalizers: []string{managed.FinalizerName},
		},
		"ReadsStaleAsync": {
			reason: "An asynchronous create should not be prevented by a provider that reads the managed resource from a cache without the announcement.",
			async:  true,
			onObserve: func(_ *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				if ext.Observes == 1 {
					stale = b.DeepCopy()
				}
				stale.DeepCopyInto(b)
				return nil
			},
			wantAnnotation: "", wantFinalizers: []string{managed.FinalizerName},
		},
		"WritesAnnotation": {
			reason: "The create should not be prevented by a provider that updates an annotation in each Observe.",
			onObserve: func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				kit.WithAnnotation("example.org/added", fmt.Sprint(ext.Observes))(b)
				return api.Server().Update(t.Context(), b)
			},
			wantAnnotation: "5", wantFinalizers: []string{managed.FinalizerName},
		},
		"WritesAnnotationInPatch": {
			reason: "The create should not be prevented by a provider that patches an annotation in each Observe, and the changes of another writer should be kept.",
			onObserve: func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				if ext.Observes == 2 {
					kit.UpdateBucket(
						t, api, "b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"team": "blue"}) },
						kit.WithAnnotation("theirs", "v"),
					)
				}
				return api.Server().Patch(
					t.Context(), b,
					client.RawPatch(
						types.MergePatchType,
						fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, "example.org/added", ext.Observes),
					),
				)
			},
			wantAnnotation: "5", wantFinalizers: []string{managed.FinalizerName}, wantOtherWriterKept: true,
		},
		"ReadsAgain": {
			reason: "The changes of another writer should be kept when the provider reads the managed resource again.",
			onObserve: func(api *testkit.API, ext *kit.ExternalResource, b *v1alpha1.Bucket) error {
				if ext.Observes == 2 {
					kit.UpdateBucket(t, api, "b", changeOfOtherWriter...)
				}
				return api.Server().Get(t.Context(), kit.Request().NamespacedName, b)
			},
			wantAnnotation: "v", wantFinalizers: []string{managed.FinalizerName, "other/f"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1")))
				ext := &kit.ExternalResource{}
				ext.OnCall("observe", func(b *v1alpha1.Bucket) error { return tc.onObserve(api, ext, b) })
				opts := []managed.ReconcilerOption{Refuse(), kit.WithClient(ext.Client())}
				if tc.async {
					opts = append(opts, asyncstate.With(asyncstate.NewTracker()))
				}
				r := kit.NewBucketReconciler(api, opts...)
				kit.TryReconcile(r, 2)
				synctest.Wait() // for an asynchronous create
				if ext.Count("create") == 0 {
					time.Sleep(time.Second) // creates start at least a second apart
				}
				kit.TryReconcile(r, 2)
				synctest.Wait()
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(
					t, tc.reason, "has another writer's label", tc.wantOtherWriterKept, b.GetLabels()["team"] != "",
				)
				kit.ExpectEqual(
					t, tc.reason, "has another writer's annotation", tc.wantOtherWriterKept,
					b.GetAnnotations()["theirs"] != "",
				)
				kit.ExpectEqual(t, tc.reason, "creates", 1, ext.Count("create"))
				kit.ExpectEqual(t, tc.reason, "annotation", tc.wantAnnotation, b.GetAnnotations()["example.org/added"])
				kit.ExpectEqual(t, tc.reason, "finalizers", tc.wantFinalizers, b.GetFinalizers())
			})
		})
	}
}

func TestCreateRefused_AsyncCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket(
			kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
			kit.WithAnnotation(AnnotationKeyRefused, "id-1"),
		))
		ext := &kit.ExternalResource{}
		ext.OnCall("create", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
		r := kit.NewBucketReconciler(api, asyncstate.With(asyncstate.NewTracker()), kit.WithClient(ext.Client()))
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(
			t, "The refusal should stay while the create may still fail.", "refused", "id-1",
			kit.GetBucket(t, api).GetAnnotations()[AnnotationKeyRefused],
		)
		kit.DeleteBucket(t, api, "b")
		for range 5 {
			kit.MustReconcile(t, r, "b")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		kit.ExpectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.", "name", "",
			kit.GetBucket(t, api).GetName(),
		)
		kit.ExpectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.", "calls",
			[]string{"create b", "delete b"}, ext.Calls,
		)
		kit.ExpectEqual(
			t, "The managed resource should be deleted with the external resource that its create made.",
			"external resource exists", false, ext.Exists,
		)
	})
}

// TestCreateRefused_EarlierCreateSucceeded has an external resource that was deleted by another
// writer, and whose name another owner takes right before it is created again.
func TestCreateRefused_EarlierCreateSucceeded(t *testing.T) {
	const earlier = "2026-01-02T03:04:05Z"
	cases := map[string]struct {
		reason      string
		opts        func(api *testkit.API) []managed.ReconcilerOption
		deletes     bool
		wantDeleted bool
	}{
		"Nothing": {
			reason: "The external resource of another owner should not be updated.",
			opts:   func(*testkit.API) []managed.ReconcilerOption { return nil },
		},
		"Resolver": {
			reason: "The external resource of another owner should not be updated with a create resolver, either.",
			opts: func(*testkit.API) []managed.ReconcilerOption {
				return []managed.ReconcilerOption{resolve.With(&kit.FakeFinder{Finding: asyncstate.Absent()})}
			},
		},
		"ResolverDeletes": {
			reason: "The external resource of another owner should not be deleted with a create resolver, either.",
			opts: func(*testkit.API) []managed.ReconcilerOption {
				return []managed.ReconcilerOption{resolve.With(&kit.FakeFinder{Finding: asyncstate.Absent()})}
			},
			deletes:     true,
			wantDeleted: true,
		},
		"AsyncResolver": {
			reason: "The external resource of another owner should not be updated asynchronously.",
			opts: func(api *testkit.API) []managed.ReconcilerOption {
				return []managed.ReconcilerOption{
					resolve.With(&kit.FakeFinder{Finding: asyncstate.Absent()}),
					asyncstate.With(asyncstate.NewTracker()),
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(48 * 365 * 24 * time.Hour) // after the earlier create
				api := testkit.NewAPI(kit.NewBucket(
					kit.WithExternalName("mine"), kit.WithFinalizers(managed.FinalizerName),
					kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, earlier),
					kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, earlier),
				))
				ext := kit.ChangedBeforeSecondObserve(resourceAppears)
				r := kit.NewBucketReconciler(
					api, append(tc.opts(api), Refuse(), kit.WithClient(ext.Client()))...,
				)
				kit.TryReconcile(r, 1)
				if tc.deletes {
					kit.DeleteBucket(t, api, "b")
				}
				for range 5 {
					kit.TryReconcile(r, 1)
					time.Sleep(time.Second)
					synctest.Wait()
				}
				kit.ExpectEqual(t, tc.reason, "calls", 0, len(ext.Calls))
				kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, kit.GetBucket(t, api).GetName() == "")
			})
		})
	}
}

func TestPreCreateObserve_ShutdownBegins(t *testing.T) {
	const reason = "An external resource that does not exist should be neither refused nor adopted when the process stops right before its create."
	for name, preCreate := range map[string]managed.ReconcilerOption{
		"Observe": Refuse(), "Adoption": Adopt(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, recorder := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("mine"))), &testkit.Said{}
				tracker := asyncstate.NewTracker()
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = tracker.Start(ctx) }()
				ext := kit.ChangedBeforeSecondObserve(func(*kit.ExternalResource, resource.Managed) error {
					stop()
					synctest.Wait()
					return nil
				})
				kit.MustReconcile(t, kit.NewBucketReconciler(
					api, preCreate, managed.WithRecorder(recorder), asyncstate.With(tracker),
					kit.WithClient(ext.Client()),
				), "b")
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, reason, "calls", 0, len(ext.Calls))
				kit.ExpectEqual(t, reason, "refused", "", b.GetAnnotations()[AnnotationKeyRefused])
				kit.ExpectEqual(t, reason, "succeeded", true, meta.GetExternalCreateSucceeded(b).IsZero())
				kit.ExpectEqual(t, reason, "events", 0, len(recorder.Events("AdoptedExternalResource")))
			})
		})
	}
}
