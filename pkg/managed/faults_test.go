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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestDeletedDuringCall(t *testing.T) {
	const reason = "Nothing should be stored when the managed resource was deleted, or replaced, during a call. That is not an error."
	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": kit.NewBucket(), "Finalized": kit.NewBucket(
		kit.WithFinalizers(managed.FinalizerName),
	)} {
		for _, replaced := range []bool{false, true} {
			for _, during := range []string{"observe", "create", "update"} {
				t.Run(fmt.Sprintf("%s/replaced=%t/%s", objectName, replaced, during), func(t *testing.T) {
					api := testkit.NewAPI(object.DeepCopy())
					recorder := &testkit.Said{}
					version, updates := "", 0
					ext := &kit.ExternalResource{Exists: during != "create", Outdated: during == "update"}
					ext.OnCall(during, func(b *v1alpha1.Bucket) error {
						b.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						b.Spec.ForProvider.Region = "eu"
						kit.RemoveBucket(t, api, "b")
						if replaced {
							kit.Must(
								t, api.Server().Create(t.Context(), kit.NewBucket(kit.WithAnnotation("is", "new"))),
							)
						}
						version, updates = kit.GetBucket(t, api).GetResourceVersion(), api.Count(testkit.Update)
						return nil
					})
					r := kit.NewBucketReconciler(api, managed.WithRecorder(recorder), kit.WithClient(ext.Client()))
					if _, err := r.Reconcile(t.Context(), kit.Request()); err != nil &&
						!kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("\n%s\nReconcile(...): %v", reason, err)
					}
					b := kit.GetBucket(t, api)
					kit.ExpectEqual(t, reason, "resource version", version, b.GetResourceVersion())
					kit.ExpectEqual(t, reason, "external name", "", meta.GetExternalName(b))
					kit.ExpectEqual(t, reason, "events", 0, len(recorder.Events("CannotStoreAnnotations")))
					created := 0
					if during == "create" {
						created = 1
					}
					kit.ExpectEqual(
						t, "An event should name the external resource that was created, and only that one.", "events",
						created, len(recorder.Events("ManagedResourceGone")),
					)
					kit.ExpectEqual(t, reason, "patched again", false, api.Count(testkit.Patch) > 1)
					kit.ExpectEqual(t, reason, "other calls", 0, len(ext.Calls)-ext.Count(during))
					if during == "create" {
						kit.ExpectEqual(t, reason, "updates after Create", updates, api.Count(testkit.Update))
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
	changesThatStop := []kit.BucketModifier{
		kit.WithPausedAnnotation, kit.WithPolicies(observe), kit.WithExternalName("another"), kit.WithPolicies(),
	}
	withCreatePending := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	noChange := []kit.BucketModifier{func(*v1alpha1.Bucket) {}}
	setsInMemory := func(fn kit.BucketModifier) func(context.Context, *testkit.API, resource.Managed) error {
		return func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
			fn(kit.AsBucket(mg))
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
		kit.RemoveBucket(t, api, "b")
		if err := api.Server().Create(
			ctx, kit.NewBucket(kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName)),
		); err != nil {
			return err
		}
		return api.Server().Get(ctx, kit.Request().NamespacedName, mg)
	}
	patchesStatus := func(ctx context.Context, api *testkit.API, mg resource.Managed) error {
		return api.Server().Status().Patch(
			ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"seen"}}}`)),
		)
	}
	cases := map[string]struct {
		reason string
		bucket []kit.BucketModifier // by default it has an external name and a finalizer
		exists bool

		// during is the call in which each change is made. provider is called after the change.
		during                      string
		unguarded                   bool // WithoutFinalizerGuard is set
		changes                     []kit.BucketModifier
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
			provider:       setsInMemory(kit.WithPolicies(observe)),
			wantOtherCalls: 1,
		},
		"PausedInMemory": {
			reason:   "A pause that the provider sets only in memory should stop the reconcile.",
			exists:   true,
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(kit.WithPausedAnnotation),
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
			bucket:              []kit.BucketModifier{kit.WithDeletionTimestamp},
			exists:              true,
			during:              "observe",
			changes:             changesThatStop,
			provider:            doesNothing,
		},
		"DeleteLearned": {
			reason:   "Delete should not be called, or reported, when the patch of an annotation meets a conflict.",
			bucket:   []kit.BucketModifier{kit.WithDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  []kit.BucketModifier{kit.WithPausedAnnotation},
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
			bucket:   []kit.BucketModifier{kit.WithDeletionTimestamp},
			exists:   true,
			during:   "observe",
			changes:  changesThatStop,
			provider: patchesLabel,
		},
		"Fresh": {
			reason:         "The finalizer should be added before the external resource is created.",
			bucket:         []kit.BucketModifier{kit.WithFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       doesNothing,
			wantCreates:    1,
			wantFinalizers: []string{managed.FinalizerName},
		},
		"FreshPaused": {
			reason:   "No finalizer should be added to a managed resource that is paused.",
			bucket:   []kit.BucketModifier{kit.WithFinalizers()},
			during:   "observe",
			changes:  noChange,
			provider: setsInMemory(kit.WithPausedAnnotation),
		},
		"FreshPausedUnguarded": {
			reason:         "Create should not be called for a managed resource that is paused, although WithoutFinalizerGuard adds the finalizer.",
			unguarded:      true,
			bucket:         []kit.BucketModifier{kit.WithFinalizers()},
			during:         "observe",
			changes:        noChange,
			provider:       setsInMemory(kit.WithPausedAnnotation),
			wantFinalizers: []string{managed.FinalizerName},
		},
		"AddFinalizer": {
			reason:   "No finalizer should be added to a managed resource that its policies pause.",
			bucket:   []kit.BucketModifier{kit.WithFinalizers()},
			exists:   true,
			during:   "observe",
			changes:  []kit.BucketModifier{kit.WithPolicies()},
			provider: patchesLabel,
		},
		"RemoveFinalizer": {
			reason:   "The finalizer should be kept when the external name has changed, because Observe was called with the old one.",
			bucket:   []kit.BucketModifier{kit.WithDeletionTimestamp},
			during:   "observe",
			changes:  []kit.BucketModifier{kit.WithExternalName("another")},
			provider: patchesLabel,
		},
		"RemoveOfPaused": {
			reason:   "The finalizer of a managed resource that is paused should be kept.",
			bucket:   []kit.BucketModifier{kit.WithDeletionTimestamp},
			during:   "observe",
			changes:  []kit.BucketModifier{kit.WithPausedAnnotation},
			provider: patchAndDecode,
		},
		"Announced": {
			reason:   "Create should not be called when another process has announced a create.",
			during:   "observe",
			changes:  []kit.BucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"AddCustomFinalizer": {
			reason:   "No custom finalizer should be added to a managed resource that is paused.",
			bucket:   []kit.BucketModifier{kit.WithFinalizers()},
			exists:   true,
			during:   "observe, custom finalizer",
			changes:  []kit.BucketModifier{kit.WithPausedAnnotation},
			provider: setsAnnotation,
		},
		"RemoveCustomFinalizer": {
			reason:   "The custom finalizer of a managed resource that is paused should be kept.",
			bucket:   []kit.BucketModifier{kit.WithDeletionTimestamp},
			during:   "observe, custom finalizer",
			changes:  []kit.BucketModifier{kit.WithPausedAnnotation},
			provider: setsAnnotation,
		},
		"CustomFinalizer": {
			reason:         "Create should not be called when the answer to the custom finalizer's patch shows a pause.",
			bucket:         []kit.BucketModifier{kit.WithFinalizers()},
			during:         "custom finalizer",
			changes:        []kit.BucketModifier{kit.WithPausedAnnotation},
			provider:       doesNothing,
			wantFinalizers: []string{managed.FinalizerName},
		},
		"Initializer": {
			reason:   "Update should not be called when an initializer's patch shows other policies.",
			exists:   true,
			during:   "initialize",
			changes:  []kit.BucketModifier{kit.WithPolicies()},
			provider: patchesLabel,
		},
		"ResolverObserves": {
			reason:   "Create should not be called when the patch of a reference resolver shows that the policies only allow Observe.",
			during:   "resolve",
			changes:  []kit.BucketModifier{kit.WithPolicies(observe)},
			provider: patchAndDecode,
		},
		"ResolverDeletes": {
			reason:   "Update should not be called when the patch of a reference resolver shows that the policies forbid it.",
			exists:   true,
			during:   "resolve",
			changes:  []kit.BucketModifier{kit.WithPolicies(observe, create, remove)},
			provider: patchAndDecode,
		},
		"ResolverDeleting": {
			reason:   "Delete should not be called when the patch of a reference resolver shows a deletion that orphans.",
			exists:   true,
			during:   "resolve",
			changes:  []kit.BucketModifier{kit.WithPolicies(observe, update)},
			deletes:  true,
			provider: patchAndDecode,
		},
		"ResolverAnnounced": {
			reason:   "Create should not be called when the patch of a reference resolver shows that another process has announced a create.",
			during:   "resolve",
			changes:  []kit.BucketModifier{withCreatePending},
			provider: patchAndDecode,
		},
		"PreCreate": {
			reason: "Create should not be called when the provider's patch in the second Observe shows the change.",
			during: "observe again",
			changes: []kit.BucketModifier{
				kit.WithPausedAnnotation, kit.WithExternalName("id-2"),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"),
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
			changes: []kit.BucketModifier{func(b *v1alpha1.Bucket) {
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
				api := testkit.NewAPI(kit.NewBucket(append([]kit.BucketModifier{
					kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
				}, tc.bucket...)...))
				recorder := &testkit.Said{}
				created := 0
				others := 0
				want := tc.wantFinalizers
				if want == nil {
					want = kit.GetBucket(t, api).GetFinalizers()
				}
				duringCall := func(ctx context.Context, call string, mg resource.Managed) error {
					if at, _, _ := strings.Cut(tc.during, ","); at != call {
						return nil
					}
					kit.UpdateBucket(t, api, "b", change)
					if tc.deletes {
						kit.Must(t, api.Server().Delete(ctx, kit.NewBucket()))
					}
					return tc.provider(ctx, api, mg)
				}
				observes := []string{"observe", "observe again", ""}
				opts := []managed.ReconcilerOption{
					managed.WithRecorder(recorder),
					managed.WithInitializers(managed.InitializerFn(func(
						ctx context.Context, mg resource.Managed,
					) error {
						return duringCall(ctx, "initialize", mg)
					})),
					managed.WithReferenceResolver(managed.ReferenceResolverFn(func(
						ctx context.Context, mg resource.Managed,
					) error {
						return duringCall(ctx, "resolve", mg)
					})),
					kit.WithClient(managed.ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
							call := observes[0]
							observes = observes[1:]
							return managed.ExternalObservation{ResourceExists: tc.exists}, duringCall(ctx, call, mg)
						},
						CreateFn: kit.CountCalls[managed.ExternalCreation](&created),
						UpdateFn: kit.CountCalls[managed.ExternalUpdate](&others),
						DeleteFn: kit.CountCalls[managed.ExternalDelete](&others),
					}),
				}
				if tc.unguarded {
					opts = append(opts, managed.WithoutFinalizerGuard())
				}
				if strings.HasSuffix(tc.during, "again") {
					opts = append(opts, precreate.Refuse())
				}
				if f := (kit.PatchingFinalizer{C: api.Server()}); strings.HasSuffix(tc.during, "custom finalizer") {
					opts = append(opts, managed.WithFinalizer(resource.FinalizerFns{
						AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
							mg, _ := o.(resource.Managed)
							kit.Must(t, duringCall(ctx, "custom finalizer", mg))
							return f.AddFinalizer(ctx, o)
						},
						RemoveFinalizerFn: f.RemoveFinalizer,
					}))
				}
				kit.MustReconcile(t, kit.NewBucketReconciler(api, opts...), "b")

				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "finalizers", want, b.GetFinalizers())
				kit.ExpectEqual(t, tc.reason, "creates", tc.wantCreates, created)
				kit.ExpectEqual(t, tc.reason, "other calls", tc.wantOtherCalls, others)
				kit.ExpectEqual(
					t, tc.reason, "reports that the deletion was requested", tc.wantDeleteRequested,
					deletion.ConditionOf(b).Reason == reconciler.ReasonExternalDeleteRequested,
				)
			})
		}
	}
}

func TestStaleCache_NoCallsForPausedObject(t *testing.T) {
	for call, mods := range map[string][]kit.BucketModifier{"update": nil, "delete": {kit.WithDeletionTimestamp}} {
		t.Run(call, func(t *testing.T) {
			api := testkit.NewAPI(
				kit.NewBucket(append(mods, kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName))...),
			)
			ext := &kit.ExternalResource{Exists: true, Outdated: true, DeletesIgnored: 1000}
			n := 0
			ext.OnCall("observe", func(b *v1alpha1.Bucket) error {
				if n == 10 {
					kit.WithExternalName("learned")(b)
					kit.UpdateBucket(t, api, "b", kit.WithPausedAnnotation)
				}
				return nil
			})
			fns := kit.NewExternalClient(ext.Client())
			r := kit.NewBucketReconciler(
				api,
				managed.WithExternalConnector(
					managed.ExternalConnectorFn(func(
						ctx context.Context, mg resource.Managed,
					) (managed.ExternalClient, error) {
						if n++; n > 9 {
							return &fns, nil
						}
						kit.AsBucket(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(n)}
						return &fns, api.Server().Status().Update(ctx, mg)
					}),
				),
			)
			kit.TryReconcile(r, 9)
			acted := ext.Count(call)
			if acted == 0 {
				t.Errorf(
					"%ss in 9 reconciles: none; Synced: %s", call,
					kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message,
				)
			}
			kit.Must(t, api.Freeze(t.Context(), kit.GetBucket(t, api)))

			// The patch of the first reconcile shows the pause. The second reads from the stale cache.
			kit.MustReconcileTimes(t, r, 2)
			kit.ExpectEqual(
				t, "No call should be made from a cache that is older than our own last write.", "calls", acted,
				ext.Count(call),
			)
		})
	}
}

func TestChangedDuringReconcile_DeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	d.SetFinalizers([]string{managed.FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: kit.NewClock().Now})
	api := testkit.NewAPI(d)
	deleted := 0
	kit.MustReconcile(t, managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		managed.WithManagementPolicies(), managed.WithInitializers(), kit.WithClient(managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				return managed.ExternalObservation{
						ResourceExists: true,
					}, api.Server().Patch(
						ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)),
					)
			},
			DeleteFn: kit.CountCalls[managed.ExternalDelete](&deleted),
		})), "/d")
	kit.ExpectEqual(
		t, "Delete should not be called when the provider's patch shows that the deletion orphans.", "deletes", 0,
		deleted,
	)
	kit.Must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(d), d))
	kit.ExpectEqual(
		t, "The deletion should be reported as requested.", "reason", reconciler.ReasonDeletionRequested,
		deletion.ConditionOf(d).Reason,
	)
}
