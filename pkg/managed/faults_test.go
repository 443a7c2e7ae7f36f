package managed_test

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
	"github.com/crossplane-graft/graft/pkg/internal/fake/managedtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestDeletedDuringCall(t *testing.T) {
	const reason = "Nothing should be stored when the managed resource was deleted, or replaced, during a call. That is not an error."
	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": managedtest.NewBucket(), "Finalized": managedtest.NewBucket(
		managedtest.WithFinalizers(managed.FinalizerName),
	)} {
		for _, replaced := range []bool{false, true} {
			for _, during := range []string{"observe", "create", "update"} {
				t.Run(fmt.Sprintf("%s/replaced=%t/%s", objectName, replaced, during), func(t *testing.T) {
					api := testkit.NewAPI(object.DeepCopy())
					recorder := &testkit.Said{}
					version, updates := "", 0
					ext := &managedtest.ExternalResource{Exists: during != "create", Outdated: during == "update"}
					ext.OnCall(during, func(b *v1alpha1.Bucket) error {
						b.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						b.Spec.ForProvider.Region = "eu"
						managedtest.RemoveBucket(t, api, "b")
						if replaced {
							managedtest.Must(t, api.Server().Create(t.Context(), managedtest.NewBucket(managedtest.WithAnnotation("is", "new"))))
						}
						version, updates = managedtest.GetBucket(t, api).GetResourceVersion(), api.Count(testkit.Update)
						return nil
					})
					r := managedtest.NewBucketReconciler(api, managed.WithRecorder(recorder), managedtest.WithClient(ext.Client()))
					if _, err := r.Reconcile(t.Context(), managedtest.Request()); err != nil &&
						!kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("\n%s\nReconcile(...): %v", reason, err)
					}
					b := managedtest.GetBucket(t, api)
					managedtest.ExpectEqual(t, reason, "resource version", version, b.GetResourceVersion())
					managedtest.ExpectEqual(t, reason, "external name", "", meta.GetExternalName(b))
					managedtest.ExpectEqual(t, reason, "events", 0, len(recorder.Events("CannotStoreAnnotations")))
					created := 0
					if during == "create" {
						created = 1
					}
					managedtest.ExpectEqual(
						t, "An event should name the external resource that was created, and only that one.", "events",
						created, len(recorder.Events("ManagedResourceGone")),
					)
					managedtest.ExpectEqual(t, reason, "patched again", false, api.Count(testkit.Patch) > 1)
					managedtest.ExpectEqual(t, reason, "other calls", 0, len(ext.Calls)-ext.Count(during))
					if during == "create" {
						managedtest.ExpectEqual(t, reason, "updates after Create", updates, api.Count(testkit.Update))
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
	changesThatStop := []managedtest.BucketModifier{
		managedtest.WithPausedAnnotation, managedtest.WithPolicies(observe), managedtest.WithExternalName("another"), managedtest.WithPolicies(),
	}
	withCreatePending := managedtest.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	noChange := []managedtest.BucketModifier{func(*v1alpha1.Bucket) {}}
	setsInMemory := func(fn managedtest.BucketModifier) func(context.Context, *testkit.API, resource.Managed) error {
		return func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
			fn(managedtest.AsBucket(mg))
			return nil
		}
	}
	updatesObject := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		meta.AddAnnotations(mg, map[string]string{"k": "v"})
		return api.Server().Update(ctx, mg)
	}
	doesNothing := func(context.Context, *testkit.API, resource.Managed) error { return nil }
	setsAnnotation := func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
		meta.SetExternalName(mg, "learned")
		return nil
	}
	patchesLabel := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		return patchLabel(ctx, api, mg)
	}
	readsReplacement := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		managedtest.RemoveBucket(t, api, "b")
		if err := api.Server().Create(
			ctx, managedtest.NewBucket(managedtest.WithExternalName("id-1"), managedtest.WithFinalizers(managed.FinalizerName)),
		); err != nil {
			return err
		}
		return api.Server().Get(ctx, managedtest.Request().NamespacedName, mg)
	}
	patchesStatus := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		return api.Server().Status().Patch(
			ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"seen"}}}`)),
		)
	}
	cases := map[string]struct {
		reason string
		bucket []managedtest.BucketModifier // by default it has an external name and a finalizer
		exists bool

		// during is the call in which each change is made. provider is called after the change.
		during                      string
		unguarded                   bool // WithoutFinalizerGuard is set
		changes                     []managedtest.BucketModifier
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
			provider:       setsInMemory(managedtest.WithPolicies(observe)),
			wantOtherCalls: 1,
		},
		"PausedInMemory": {
			reason:   "A pause that the provider sets only in memory should stop the reconcile.",
			exists:   true,
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(managedtest.WithPausedAnnotation),
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
			bucket:              []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			exists:              true,
			during:              "observe",
			changes:             changesThatStop,
			provider:            doesNothing,
		},
		"DeleteLearned": {
			reason:   "Delete should not be called, or reported, when the patch of an annotation meets a conflict.",
			bucket:   []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  []managedtest.BucketModifier{managedtest.WithPausedAnnotation},
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
			bucket:   []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  changesThatStop,
			provider: patchesLabel,
		},
		"Fresh": {
			reason:         "The finalizer should be added before the external resource is created.",
			bucket:         []managedtest.BucketModifier{managedtest.WithFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       doesNothing,
			wantCreates:    1,
			wantFinalizers: []string{managed.FinalizerName},
		},
		"FreshPaused": {
			reason:   "No finalizer should be added to a managed resource that is paused.",
			bucket:   []managedtest.BucketModifier{managedtest.WithFinalizers()},
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(managedtest.WithPausedAnnotation),
		},
		"FreshPausedUnguarded": {
			reason:         "Create should not be called for a managed resource that is paused, although WithoutFinalizerGuard adds the finalizer.",
			unguarded:      true,
			bucket:         []managedtest.BucketModifier{managedtest.WithFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       setsInMemory(managedtest.WithPausedAnnotation),
			wantFinalizers: []string{managed.FinalizerName},
		},
		"AddFinalizer": {
			reason:   "No finalizer should be added to a managed resource that its policies pause.",
			bucket:   []managedtest.BucketModifier{managedtest.WithFinalizers()},
			exists:   true,
			during:   "observe",
			changes:  []managedtest.BucketModifier{managedtest.WithPolicies()},
			provider: patchesLabel,
		},
		"RemoveFinalizer": {
			reason:   "The finalizer should be kept when the external name has changed, because Observe was called with the old one.",
			bucket:   []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			during:   "observe",
			changes:  []managedtest.BucketModifier{managedtest.WithExternalName("another")},
			provider: patchesLabel,
		},
		"RemoveOfPaused": {
			reason:   "The finalizer of a managed resource that is paused should be kept.",
			bucket:   []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			during:   "observe",
			changes:  []managedtest.BucketModifier{managedtest.WithPausedAnnotation},
			provider: patchAndDecode,
		},
		"Announced": {
			reason:   "Create should not be called when another process has announced a create.",
			during:   "observe",
			changes:  []managedtest.BucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"AddCustomFinalizer": {
			reason:   "No custom finalizer should be added to a managed resource that is paused.",
			bucket:   []managedtest.BucketModifier{managedtest.WithFinalizers()},
			exists:   true,
			during:   "observe, custom finalizer",
			changes:  []managedtest.BucketModifier{managedtest.WithPausedAnnotation},
			provider: setsAnnotation,
		},
		"RemoveCustomFinalizer": {
			reason:   "The custom finalizer of a managed resource that is paused should be kept.",
			bucket:   []managedtest.BucketModifier{managedtest.WithDeletionTimestamp},
			during:   "observe, custom finalizer",
			changes:  []managedtest.BucketModifier{managedtest.WithPausedAnnotation},
			provider: setsAnnotation,
		},
		"CustomFinalizer": {
			reason:         "Create should not be called when the answer to the custom finalizer's patch shows a pause.",
			bucket:         []managedtest.BucketModifier{managedtest.WithFinalizers()},
			during:         "custom finalizer",
			changes:        []managedtest.BucketModifier{managedtest.WithPausedAnnotation},
			provider:       doesNothing,
			wantFinalizers: []string{managed.FinalizerName},
		},
		"Initializer": {
			reason:   "Update should not be called when an initializer's patch shows other policies.",
			exists:   true,
			during:   "initialize",
			changes:  []managedtest.BucketModifier{managedtest.WithPolicies()},
			provider: patchesLabel,
		},
		"ResolverObserves": {
			reason:   "Create should not be called when the patch of a reference resolver shows that the policies only allow Observe.",
			during:   "resolve",
			changes:  []managedtest.BucketModifier{managedtest.WithPolicies(observe)},
			provider: patchAndDecode,
		},
		"ResolverDeletes": {
			reason:   "Update should not be called when the patch of a reference resolver shows that the policies forbid it.",
			exists:   true,
			during:   "resolve",
			changes:  []managedtest.BucketModifier{managedtest.WithPolicies(observe, create, remove)},
			provider: patchAndDecode,
		},
		"ResolverDeleting": {
			reason:   "Delete should not be called when the patch of a reference resolver shows a deletion that orphans.",
			exists:   true,
			during:   "resolve",
			changes:  []managedtest.BucketModifier{managedtest.WithPolicies(observe, update)},
			deletes:  true,
			provider: patchAndDecode,
		},
		"ResolverAnnounced": {
			reason:   "Create should not be called when the patch of a reference resolver shows that another process has announced a create.",
			during:   "resolve",
			changes:  []managedtest.BucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"PreCreate": {
			reason: "Create should not be called when the provider's patch in the second Observe shows the change.",
			during: "observe again",
			changes: []managedtest.BucketModifier{
				managedtest.WithPausedAnnotation, managedtest.WithExternalName("id-2"),
				managedtest.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"),
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
			changes: []managedtest.BucketModifier{func(b *v1alpha1.Bucket) {
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
				api := testkit.NewAPI(managedtest.NewBucket(append([]managedtest.BucketModifier{
					managedtest.WithExternalName("id-1"), managedtest.WithFinalizers(managed.FinalizerName),
				}, tc.bucket...)...))
				recorder := &testkit.Said{}
				created := 0
				others := 0
				want := tc.wantFinalizers
				if want == nil {
					want = managedtest.GetBucket(t, api).GetFinalizers()
				}
				duringCall := func(ctx context.Context, call string, mg resource.Managed) error {
					if at, _, _ := strings.Cut(tc.during, ","); at != call {
						return nil
					}
					managedtest.UpdateBucket(t, api, "b", change)
					if tc.deletes {
						managedtest.Must(t, api.Server().Delete(ctx, managedtest.NewBucket()))
					}
					return tc.provider(ctx, api, mg)
				}
				observes := []string{"observe", "observe again", ""}
				opts := []managed.ReconcilerOption{
					managed.WithRecorder(recorder),
					managed.WithInitializers(managed.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
						return duringCall(ctx, "initialize", mg)
					})),
					managed.WithReferenceResolver(managed.ReferenceResolverFn(func(ctx context.Context, mg resource.Managed) error {
						return duringCall(ctx, "resolve", mg)
					})),
					managedtest.WithClient(managed.ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							call := observes[0]
							observes = observes[1:]
							return managed.ExternalObservation{ResourceExists: tc.exists}, duringCall(ctx, call, mg)
						},
						CreateFn: managedtest.CountCalls[managed.ExternalCreation](&created),
						UpdateFn: managedtest.CountCalls[managed.ExternalUpdate](&others),
						DeleteFn: managedtest.CountCalls[managed.ExternalDelete](&others),
					}),
				}
				if tc.unguarded {
					opts = append(opts, managed.WithoutFinalizerGuard())
				}
				if strings.HasSuffix(tc.during, "again") {
					opts = append(opts, precreate.Refuse())
				}
				if f := (managedtest.PatchingFinalizer{C: api.Server()}); strings.HasSuffix(tc.during, "custom finalizer") {
					opts = append(opts, managed.WithFinalizer(resource.FinalizerFns{
						AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
							mg, _ := o.(resource.Managed)
							managedtest.Must(t, duringCall(ctx, "custom finalizer", mg))
							return f.AddFinalizer(ctx, o)
						},
						RemoveFinalizerFn: f.RemoveFinalizer,
					}))
				}
				managedtest.MustReconcile(t, managedtest.NewBucketReconciler(api, opts...), "b")

				b := managedtest.GetBucket(t, api)
				managedtest.ExpectEqual(t, tc.reason, "finalizers", want, b.GetFinalizers())
				managedtest.ExpectEqual(t, tc.reason, "creates", tc.wantCreates, created)
				managedtest.ExpectEqual(t, tc.reason, "other calls", tc.wantOtherCalls, others)
				managedtest.ExpectEqual(
					t, tc.reason, "reports that the deletion was requested", tc.wantDeleteRequested,
					deletion.ConditionOf(b).Reason == reconciler.ReasonExternalDeleteRequested,
				)
			})
		}
	}
}

func TestStaleCache_NoCallsForPausedObject(t *testing.T) {
	for call, mods := range map[string][]managedtest.BucketModifier{"update": nil, "delete": {managedtest.WithDeletionTimestamp}} {
		t.Run(call, func(t *testing.T) {
			api := testkit.NewAPI(managedtest.NewBucket(append(mods, managedtest.WithExternalName("id-1"), managedtest.WithFinalizers(managed.FinalizerName))...))
			ext := &managedtest.ExternalResource{Exists: true, Outdated: true, DeletesIgnored: 1000}
			n := 0
			ext.OnCall("observe", func(b *v1alpha1.Bucket) error {
				if n == 10 {
					managedtest.WithExternalName("learned")(b)
					managedtest.UpdateBucket(t, api, "b", managedtest.WithPausedAnnotation)
				}
				return nil
			})
			fns := managedtest.NewExternalClient(ext.Client())
			r := managedtest.NewBucketReconciler(
				api,
				managed.WithExternalConnector(
					managed.ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (managed.ExternalClient, error) {
						if n++; n > 9 {
							return &fns, nil
						}
						managedtest.AsBucket(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(n)}
						return &fns, api.Server().Status().Update(ctx, mg)
					}),
				),
			)
			managedtest.TryReconcile(r, 9)
			acted := ext.Count(call)
			if acted == 0 {
				t.Errorf(
					"%ss in 9 reconciles: none; Synced: %s", call,
					managedtest.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message,
				)
			}
			managedtest.Must(t, api.Freeze(t.Context(), managedtest.GetBucket(t, api)))

			// The patch of the first reconcile shows the pause. The second reads from the stale cache.
			managedtest.MustReconcileTimes(t, r, 2)
			managedtest.ExpectEqual(
				t, "No call should be made from a cache that is older than our own last write.", "calls", acted,
				ext.Count(call),
			)
		})
	}
}

func TestChangedDuringReconcile_DeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	d.SetFinalizers([]string{managed.FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: managedtest.NewClock().Now})
	api := testkit.NewAPI(d)
	deleted := 0
	managedtest.MustReconcile(t, managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		managed.WithManagementPolicies(), managed.WithInitializers(), managedtest.WithClient(managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				return managed.ExternalObservation{
						ResourceExists: true,
					}, api.Server().Patch(
						ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)),
					)
			},
			DeleteFn: managedtest.CountCalls[managed.ExternalDelete](&deleted),
		})), "/d")
	managedtest.ExpectEqual(
		t, "Delete should not be called when the provider's patch shows that the deletion orphans.", "deletes", 0,
		deleted,
	)
	managedtest.Must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(d), d))
	managedtest.ExpectEqual(
		t, "The deletion should be reported as requested.", "reason", reconciler.ReasonDeletionRequested,
		deletion.ConditionOf(d).Reason,
	)
}
