package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestDeletedDuringCall(t *testing.T) {
	const reason = "Nothing should be stored when the managed resource was deleted, or replaced, during a call. That is not an error."
	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": newBucket(), "Finalized": newBucket(
		withFinalizers(FinalizerName),
	)} {
		for _, replaced := range []bool{false, true} {
			for _, during := range []string{"observe", "create", "update"} {
				t.Run(fmt.Sprintf("%s/replaced=%t/%s", objectName, replaced, during), func(t *testing.T) {
					api := testkit.NewAPI(object.DeepCopy())
					recorder := &testkit.Said{}
					version, updates := "", 0
					ext := &externalResource{exists: during != "create", outdated: during == "update"}
					ext.onCall(during, func(b *v1alpha1.Bucket) error {
						b.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						b.Spec.ForProvider.Region = "eu"
						removeBucket(t, api, "b")
						if replaced {
							must(t, api.Server().Create(t.Context(), newBucket(withAnnotation("is", "new"))))
						}
						version, updates = getBucket(t, api).GetResourceVersion(), api.Count(testkit.Update)
						return nil
					})
					r := newBucketReconciler(api, WithRecorder(recorder), withClient(ext.client()))
					if _, err := r.Reconcile(t.Context(), request()); err != nil &&
						!kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("\n%s\nReconcile(...): %v", reason, err)
					}
					b := getBucket(t, api)
					expectEqual(t, reason, "resource version", version, b.GetResourceVersion())
					expectEqual(t, reason, "external name", "", meta.GetExternalName(b))
					expectEqual(t, reason, "events", 0, len(recorder.Events("CannotStoreAnnotations")))
					created := 0
					if during == "create" {
						created = 1
					}
					expectEqual(
						t, "An event should name the external resource that was created, and only that one.", "events",
						created, len(recorder.Events("ManagedResourceGone")),
					)
					expectEqual(t, reason, "patched again", false, api.Count(testkit.Patch) > 1)
					expectEqual(t, reason, "other calls", 0, len(ext.calls)-ext.count(during))
					if during == "create" {
						expectEqual(t, reason, "updates after Create", updates, api.Count(testkit.Update))
					}
				})
			}
		}
	}
}

func patchLabel(ctx context.Context, api *testkit.API, o client.Object) error {
	return api.Server().Patch(
		ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)),
	)
}

// patchAndDecode patches a label and decodes the answer into mg, over the fields that mg has.
func patchAndDecode(ctx context.Context, api *testkit.API, mg resource.Managed) error {
	o, _ := mg.DeepCopyObject().(client.Object)
	if err := patchLabel(ctx, api, o); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, mg)
}

// TestChangedDuringReconcile changes the managed resource during a reconcile. Once a conflict or an
// answer of the API server has shown the change, the reconcile should not go on with the old state.
func TestChangedDuringReconcile(t *testing.T) {
	const (
		observe = xpv2.ManagementActionObserve
		create  = xpv2.ManagementActionCreate
		update  = xpv2.ManagementActionUpdate
		remove  = xpv2.ManagementActionDelete
	)
	changesThatStop := []bucketModifier{
		withPausedAnnotation, withPolicies(observe), withExternalName("another"), withPolicies(),
	}
	withCreatePending := withAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	noChange := []bucketModifier{func(*v1alpha1.Bucket) {}}
	setsInMemory := func(fn bucketModifier) func(context.Context, *testkit.API, resource.Managed) error {
		return func(_ context.Context, _ *testkit.API, mg resource.Managed) error { fn(asBucket(mg)); return nil }
	}
	updatesObject := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		meta.AddAnnotations(mg, map[string]string{"k": "v"})
		return api.Server().Update(ctx, mg)
	}
	doesNothing := func(context.Context, *testkit.API, resource.Managed) error { return nil }
	setsAnnotation := func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
		meta.AddAnnotations(mg, map[string]string{"learned": "now"})
		return nil
	}
	patchesLabel := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		return patchLabel(ctx, api, mg)
	}
	readsReplacement := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		removeBucket(t, api, "b")
		if err := api.Server().Create(
			ctx, newBucket(withExternalName("id-1"), withFinalizers(FinalizerName)),
		); err != nil {
			return err
		}
		return api.Server().Get(ctx, request().NamespacedName, mg)
	}
	patchesStatus := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		return api.Server().Status().Patch(
			ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"seen"}}}`)),
		)
	}
	cases := map[string]struct {
		reason string
		bucket []bucketModifier // by default it has an external name and a finalizer
		exists bool

		// during is the call in which each change is made. provider is called after the change.
		during                      string
		unguarded                   bool // WithoutFinalizerGuard is set
		changes                     []bucketModifier
		deletes                     bool
		provider                    func(ctx context.Context, api *testkit.API, mg resource.Managed) error
		wantCreates, wantOtherCalls int
		wantDeleteRequested         bool
		wantFinalizers              []string // by default as before
	}{
		"Unnoticed": {
			reason:         "A change that the reconciler has not read should change nothing.",
			exists:         true,
			during:         "observe",
			changes:        changesThatStop,
			provider:       doesNothing,
			wantOtherCalls: 1,
		},
		"InMemory": {
			reason:         "A change that the provider makes only in memory should change nothing.",
			exists:         true,
			during:         "observe",
			changes:        noChange,
			provider:       setsInMemory(withPolicies(observe)),
			wantOtherCalls: 1,
		},
		"PausedInMemory": {
			reason:   "A pause that the provider sets only in memory should stop the reconcile.",
			exists:   true,
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(withPausedAnnotation),
		},
		"WrittenByTheProvider": {
			reason:         "The external resource should be updated after the provider has updated its managed resource.",
			exists:         true,
			during:         "observe",
			changes:        noChange,
			provider:       updatesObject,
			wantOtherCalls: 1,
		},
		"Delete": {
			reason:              "Delete should not be called when the report before it meets a conflict.",
			wantDeleteRequested: true,
			bucket:              []bucketModifier{withDeletionTimestamp},
			exists:              true,
			during:              "observe",
			changes:             changesThatStop,
			provider:            doesNothing,
		},
		"DeleteLearned": {
			reason:   "Delete should not be called, or reported, when the patch of an annotation meets a conflict.",
			bucket:   []bucketModifier{withDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  []bucketModifier{withPausedAnnotation},
			provider: setsAnnotation,
		},
		"Update": {
			reason:   "Update should not be called when the patch of an annotation meets a conflict.",
			exists:   true,
			during:   "observe",
			changes:  changesThatStop,
			provider: setsAnnotation,
		},
		"CreateAfterWrite": {
			reason:   "Create should not be called when the answer to the provider's patch shows the change.",
			during:   "observe",
			changes:  changesThatStop,
			provider: patchesLabel,
		},
		"UpdateAfterWrite": {
			reason:   "Update should not be called when the answer to the provider's patch shows the change.",
			exists:   true,
			during:   "observe",
			changes:  changesThatStop,
			provider: patchesLabel,
		},
		// Empty policies are left out because Go's JSON omits them, unlike an API server.
		"UpdateDecodedInPlace": {
			reason:   "Update should not be called when the provider decodes an answer that shows the change into its managed resource.",
			exists:   true,
			during:   "observe",
			changes:  changesThatStop[:3],
			provider: patchAndDecode,
		},
		"Replaced": {
			reason:   "Update should not be called when the provider reads another managed resource of the same name.",
			exists:   true,
			during:   "observe",
			changes:  noChange,
			provider: readsReplacement,
		},
		"DeleteAfterWrite": {
			reason:   "Delete should not be called when the answer to the provider's patch shows the change.",
			bucket:   []bucketModifier{withDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  changesThatStop,
			provider: patchesLabel,
		},
		"Fresh": {
			reason:         "The finalizer should be added before the external resource is created.",
			bucket:         []bucketModifier{withFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       doesNothing,
			wantCreates:    1,
			wantFinalizers: []string{FinalizerName},
		},
		"FreshPaused": {
			reason:   "No finalizer should be added to a managed resource that is paused.",
			bucket:   []bucketModifier{withFinalizers()},
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(withPausedAnnotation),
		},
		"FreshPausedUnguarded": {
			reason:         "Create should not be called for a managed resource that is paused, although WithoutFinalizerGuard adds the finalizer.",
			unguarded:      true,
			bucket:         []bucketModifier{withFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       setsInMemory(withPausedAnnotation),
			wantFinalizers: []string{FinalizerName},
		},
		"AddFinalizer": {
			reason:   "No finalizer should be added to a managed resource that its policies pause.",
			bucket:   []bucketModifier{withFinalizers()},
			exists:   true,
			during:   "observe",
			changes:  []bucketModifier{withPolicies()},
			provider: patchesLabel,
		},
		"RemoveFinalizer": {
			reason:   "The finalizer should be kept when the external name has changed, because Observe was called with the old one.",
			bucket:   []bucketModifier{withDeletionTimestamp},
			during:   "observe",
			changes:  []bucketModifier{withExternalName("another")},
			provider: patchesLabel,
		},
		"RemoveOfPaused": {
			reason:   "The finalizer of a managed resource that is paused should be kept.",
			bucket:   []bucketModifier{withDeletionTimestamp},
			during:   "observe",
			changes:  []bucketModifier{withPausedAnnotation},
			provider: patchAndDecode,
		},
		"Announced": {
			reason:   "Create should not be called when another process has announced a create.",
			during:   "observe",
			changes:  []bucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"AddCustomFinalizer": {
			reason:   "No custom finalizer should be added to a managed resource that is paused.",
			bucket:   []bucketModifier{withFinalizers()},
			exists:   true,
			during:   "observe, custom finalizer",
			changes:  []bucketModifier{withPausedAnnotation},
			provider: setsAnnotation,
		},
		"RemoveCustomFinalizer": {
			reason:   "The custom finalizer of a managed resource that is paused should be kept.",
			bucket:   []bucketModifier{withDeletionTimestamp},
			during:   "observe, custom finalizer",
			changes:  []bucketModifier{withPausedAnnotation},
			provider: setsAnnotation,
		},
		"CustomFinalizer": {
			reason:         "Create should not be called when the answer to the custom finalizer's patch shows a pause.",
			bucket:         []bucketModifier{withFinalizers()},
			during:         "custom finalizer",
			changes:        []bucketModifier{withPausedAnnotation},
			provider:       doesNothing,
			wantFinalizers: []string{FinalizerName},
		},
		"Initializer": {
			reason:   "Update should not be called when an initializer's patch shows other policies.",
			exists:   true,
			during:   "initialize",
			changes:  []bucketModifier{withPolicies()},
			provider: patchesLabel,
		},
		"ResolverObserves": {
			reason:   "Create should not be called when the patch of a reference resolver shows that the policies only allow Observe.",
			during:   "resolve",
			changes:  []bucketModifier{withPolicies(observe)},
			provider: patchAndDecode,
		},
		"ResolverDeletes": {
			reason:   "Update should not be called when the patch of a reference resolver shows that the policies forbid it.",
			exists:   true,
			during:   "resolve",
			changes:  []bucketModifier{withPolicies(observe, create, remove)},
			provider: patchAndDecode,
		},
		"ResolverDeleting": {
			reason:   "Delete should not be called when the patch of a reference resolver shows a deletion that orphans.",
			exists:   true,
			during:   "resolve",
			changes:  []bucketModifier{withPolicies(observe, update)},
			deletes:  true,
			provider: patchAndDecode,
		},
		"ResolverAnnounced": {
			reason:   "Create should not be called when the patch of a reference resolver shows that another process has announced a create.",
			during:   "resolve",
			changes:  []bucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"PreCreate": {
			reason: "Create should not be called when the provider's patch in the second Observe shows the change.",
			during: "observe again",
			changes: []bucketModifier{
				withPausedAnnotation, withExternalName("id-2"),
				withAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"),
				func(b *v1alpha1.Bucket) {
					b.Spec.ForProvider.Region = "elsewhere"
				},
			},
			provider: patchesStatus,
		},
		"PreCreateLabeled": {
			reason:      "Create should be called when the provider's patch in the second Observe shows only a new label.",
			wantCreates: 1,
			during:      "observe again",
			changes: []bucketModifier{func(b *v1alpha1.Bucket) {
				meta.AddLabels(b, map[string]string{
					"example.org/team": "blue",
				})
			}},
			provider: patchesStatus,
		},
	}
	for name, tc := range cases {
		for i, change := range tc.changes {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				api := testkit.NewAPI(newBucket(append([]bucketModifier{
					withExternalName("id-1"), withFinalizers(FinalizerName),
				}, tc.bucket...)...))
				recorder := &testkit.Said{}
				created := 0
				others := 0
				want := tc.wantFinalizers
				if want == nil {
					want = getBucket(t, api).GetFinalizers()
				}
				duringCall := func(ctx context.Context, call string, mg resource.Managed) error {
					if at, _, _ := strings.Cut(tc.during, ","); at != call {
						return nil
					}
					updateBucket(t, api, "b", change)
					if tc.deletes {
						must(t, api.Server().Delete(ctx, newBucket()))
					}
					return tc.provider(ctx, api, mg)
				}
				observes := []string{"observe", "observe again", ""}
				opts := []ReconcilerOption{
					WithRecorder(recorder),
					WithInitializers(InitializerFn(func(ctx context.Context, mg resource.Managed) error {
						return duringCall(ctx, "initialize", mg)
					})),
					WithReferenceResolver(ReferenceResolverFn(func(ctx context.Context, mg resource.Managed) error {
						return duringCall(ctx, "resolve", mg)
					})),
					withClient(ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
							call := observes[0]
							observes = observes[1:]
							return ExternalObservation{ResourceExists: tc.exists}, duringCall(ctx, call, mg)
						},
						CreateFn: countCalls[ExternalCreation](&created),
						UpdateFn: countCalls[ExternalUpdate](&others),
						DeleteFn: countCalls[ExternalDelete](&others),
					}),
				}
				if tc.unguarded {
					opts = append(opts, WithoutFinalizerGuard())
				}
				if strings.HasSuffix(tc.during, "again") {
					opts = append(opts, WithPreCreateObserve())
				}
				if f := (patchingFinalizer{c: api.Server()}); strings.HasSuffix(tc.during, "custom finalizer") {
					opts = append(opts, WithFinalizer(resource.FinalizerFns{
						AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
							mg, _ := o.(resource.Managed)
							must(t, duringCall(ctx, "custom finalizer", mg))
							return f.AddFinalizer(ctx, o)
						},
						RemoveFinalizerFn: f.RemoveFinalizer,
					}))
				}
				mustReconcile(t, newBucketReconciler(api, opts...), "b")

				b := getBucket(t, api)
				expectEqual(t, tc.reason, "finalizers", want, b.GetFinalizers())
				expectEqual(t, tc.reason, "creates", tc.wantCreates, created)
				expectEqual(t, tc.reason, "other calls", tc.wantOtherCalls, others)
				expectEqual(
					t, tc.reason, "reports that the deletion was requested", tc.wantDeleteRequested,
					deletion.ConditionOf(b).Reason == reconciler.ReasonExternalDeleteRequested,
				)
			})
		}
	}
}

func TestStaleCache_NoCallsForPausedObject(t *testing.T) {
	for call, mods := range map[string][]bucketModifier{"update": nil, "delete": {withDeletionTimestamp}} {
		t.Run(call, func(t *testing.T) {
			api := testkit.NewAPI(newBucket(append(mods, withExternalName("id-1"), withFinalizers(FinalizerName))...))
			ext := &externalResource{exists: true, outdated: true, deletesIgnored: 1000}
			n := 0
			ext.onCall("observe", func(b *v1alpha1.Bucket) error {
				if n == 10 {
					withAnnotation("learned", "now")(b)
					updateBucket(t, api, "b", withPausedAnnotation)
				}
				return nil
			})
			fns := newExternalClient(ext.client())
			r := newBucketReconciler(
				api,
				WithExternalConnector(
					ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
						if n++; n > 9 {
							return &fns, nil
						}
						asBucket(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(n)}
						return &fns, api.Server().Status().Update(ctx, mg)
					}),
				),
			)
			tryReconcile(r, 9)
			acted := ext.count(call)
			if acted == 0 {
				t.Errorf(
					"%ss in 9 reconciles: none; Synced: %s", call,
					getBucket(t, api).GetCondition(xpv2.TypeSynced).Message,
				)
			}
			must(t, api.Freeze(t.Context(), getBucket(t, api)))

			// The patch of the first reconcile shows the pause. The second reads from the stale cache.
			mustReconcileTimes(t, r, 2)
			expectEqual(
				t, "No call should be made from a cache that is older than our own last write.", "calls", acted,
				ext.count(call),
			)
		})
	}
}

func TestChangedDuringReconcile_DeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	d.SetFinalizers([]string{FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: newClock().now})
	api := testkit.NewAPI(d)
	deleted := 0
	mustReconcile(t, NewReconciler(api.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		WithManagementPolicies(), WithInitializers(), withClient(ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				return ExternalObservation{
						ResourceExists: true,
					}, api.Server().Patch(
						ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)),
					)
			},
			DeleteFn: countCalls[ExternalDelete](&deleted),
		})), "/d")
	expectEqual(
		t, "Delete should not be called when the provider's patch shows that the deletion orphans.", "deletes", 0,
		deleted,
	)
	must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(d), d))
	expectEqual(
		t, "The deletion should be reported as requested.", "reason", reconciler.ReasonDeletionRequested,
		deletion.ConditionOf(d).Reason,
	)
}
