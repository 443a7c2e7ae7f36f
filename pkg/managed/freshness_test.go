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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func patchLabel(ctx context.Context, a *testkit.API, o client.Object) error {
	return a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)))
}

// answer patches a managed resource, and decodes the answer as a client of an API server
// does: into the memory of the object that it was given.
func answer(ctx context.Context, a *testkit.API, mg resource.Managed) error {
	o, _ := mg.DeepCopyObject().(client.Object)
	if err := patchLabel(ctx, a, o); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, mg)
}

// What a conflict, or the answer to a write of the provider's, has shown stops what upstream
// has decided from an older state: no external call follows, and finalizers stay as they are.
func TestChangedMeanwhile(t *testing.T) {
	type bucketFn = func(b *v1alpha1.Bucket)
	const observe, create, update, remove = xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete
	each := []bucketFn{paused, policies(observe), named("another"), policies()}
	announced := annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	nothing := []bucketFn{func(*v1alpha1.Bucket) {}}
	inMemory := func(fn bucketFn) func(context.Context, *testkit.API, resource.Managed) error {
		return func(_ context.Context, _ *testkit.API, mg resource.Managed) error { fn(bucketOf(mg)); return nil }
	}
	updates := func(ctx context.Context, a *testkit.API, mg resource.Managed) error {
		meta.AddAnnotations(mg, map[string]string{"k": "v"})
		return a.Server().Update(ctx, mg)
	}
	silent := func(context.Context, *testkit.API, resource.Managed) error { return nil }
	learns := func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
		meta.AddAnnotations(mg, map[string]string{"learned": "now"})
		return nil
	}
	patches := func(ctx context.Context, a *testkit.API, mg resource.Managed) error { return patchLabel(ctx, a, mg) }
	patchesStatus := func(ctx context.Context, a *testkit.API, mg resource.Managed) error {
		return a.Server().Status().Patch(ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"seen"}}}`)))
	}
	cases := map[string]struct {
		reason string
		mods   []bucketFn // Of an object with a name and a finalizer.
		exists bool

		// at is the call in which each of the changes is made, and shows is what the
		// provider does then.
		at              string
		changes         []bucketFn
		deletes         bool
		shows           func(ctx context.Context, a *testkit.API, mg resource.Managed) error
		creates, others int
		want            []string // Finalizers, if they change.
	}{
		"Unnoticed":            {reason: "The reconciler can't know of a change that it has not read.", exists: true, at: "observe", changes: each, shows: silent, others: 1},
		"InMemory":             {reason: "What the provider changes in memory alone is no matter.", exists: true, at: "observe", changes: nothing, shows: inMemory(policies(observe)), others: 1},
		"PausedInMemory":       {reason: "A pause is one wherever it is.", exists: true, at: "observe", changes: nothing, shows: inMemory(paused)},
		"WrittenByTheProvider": {reason: "A provider that writes the managed resource itself has the newest one in memory.", exists: true, at: "observe", changes: nothing, shows: updates, others: 1},
		"Delete":               {reason: "The report that precedes Delete meets the conflict.", mods: []bucketFn{deleting}, exists: true, at: "observe", changes: each, shows: silent},
		"Update":               {reason: "Storing what Observe learned meets the conflict.", exists: true, at: "observe", changes: each, shows: learns},
		"CreateAfterWrite":     {reason: "The answer to the provider's write shows it.", at: "observe", changes: each, shows: patches},
		"UpdateAfterWrite":     {reason: "The answer to the provider's write shows it.", exists: true, at: "observe", changes: each, shows: patches},
		// Unlike an API server, Go's JSON leaves out what is empty, such as no policies.
		"UpdateDecodedInPlace":  {reason: "The answer is decoded over what was read.", exists: true, at: "observe", changes: each[:3], shows: answer},
		"DeleteAfterWrite":      {reason: "The answer to the provider's write shows it.", mods: []bucketFn{deleting}, exists: true, at: "observe", changes: each, shows: patches},
		"AddFinalizer":          {reason: "None is added to what its policies pause.", mods: []bucketFn{finalizers()}, exists: true, at: "observe", changes: []bucketFn{policies()}, shows: patches},
		"RemoveFinalizer":       {reason: "Another external resource was not found.", mods: []bucketFn{deleting}, at: "observe", changes: []bucketFn{named("another")}, shows: patches},
		"RemoveOfPaused":        {reason: "What is paused keeps its finalizer.", mods: []bucketFn{deleting}, at: "observe", changes: []bucketFn{paused}, shows: answer},
		"Announced":             {reason: "Another process creates the external resource.", at: "observe", changes: []bucketFn{announced}, shows: answer},
		"AddCustomFinalizer":    {reason: "One that is written whatever the resource version is not added either.", mods: []bucketFn{finalizers()}, exists: true, at: "observe, custom finalizer", changes: []bucketFn{paused}, shows: learns},
		"RemoveCustomFinalizer": {reason: "Nor removed.", mods: []bucketFn{deleting}, at: "observe, custom finalizer", changes: []bucketFn{paused}, shows: learns},
		"CustomFinalizer":       {reason: "The answer to adding the finalizer says that it is paused.", mods: []bucketFn{finalizers()}, at: "custom finalizer", changes: []bucketFn{paused}, shows: silent, want: []string{FinalizerName}},
		"Initializer":           {reason: "An initializer's write shows other policies than those that upstream works with.", exists: true, at: "initialize", changes: []bucketFn{policies()}, shows: patches},
		"ResolverObserves":      {reason: "What resolves references writes them without a resource version. It may only be observed.", at: "resolve", changes: []bucketFn{policies(observe)}, shows: answer},
		"ResolverDeletes":       {reason: "It may be created and deleted only.", exists: true, at: "resolve", changes: []bucketFn{policies(observe, create, remove)}, shows: answer},
		"ResolverDeleting":      {reason: "It is deleted without its external resource.", exists: true, at: "resolve", changes: []bucketFn{policies(observe, update)}, deletes: true, shows: answer},
		"ResolverAnnounced":     {reason: "Another process creates its external resource.", at: "resolve", changes: []bucketFn{announced}, shows: answer},
		"PreCreate": {
			reason: "A provider's own write in the extra Observe shows that the create is no longer wanted.",
			at:     "observe again",
			changes: []bucketFn{paused, named("id-2"), annotated(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"), func(b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "elsewhere"
			}},
			shows: patchesStatus,
		},
		"PreCreateLabeled": {reason: "A label is no matter.", at: "observe again", changes: []bucketFn{func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"example.org/team": "blue"}) }}, shows: patchesStatus, creates: 1},
	}
	for name, tc := range cases {
		for i, change := range tc.changes {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				a, h, created, others := testkit.NewAPI(bucket(append([]bucketFn{named("id-1"), finalizers(FinalizerName)}, tc.mods...)...)), &testkit.Said{}, 0, 0
				want := tc.want
				if want == nil {
					want = get(t, a).GetFinalizers()
				}
				in := func(ctx context.Context, call string, mg resource.Managed) error {
					if at, _, _ := strings.Cut(tc.at, ","); at != call {
						return nil
					}
					edit(t, a, "b", change)
					if tc.deletes {
						must(t, a.Server().Delete(ctx, bucket()))
					}
					return tc.shows(ctx, a, mg)
				}
				observes := []string{"observe", "observe again", ""}
				opts := []ReconcilerOption{
					WithRecorder(h),
					WithInitializers(InitializerFn(func(ctx context.Context, mg resource.Managed) error { return in(ctx, "initialize", mg) })),
					WithReferenceResolver(ReferenceResolverFn(func(ctx context.Context, mg resource.Managed) error { return in(ctx, "resolve", mg) })),
					connects(ExternalClientFns{
						ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
							call := observes[0]
							observes = observes[1:]
							return ExternalObservation{ResourceExists: tc.exists}, in(ctx, call, mg)
						},
						CreateFn: counts[ExternalCreation](&created),
						UpdateFn: counts[ExternalUpdate](&others),
						DeleteFn: counts[ExternalDelete](&others),
					}),
				}
				if strings.HasSuffix(tc.at, "again") {
					opts = append(opts, WithPreCreateObserve())
				}
				if f := (patchingFinalizer{c: a.Server()}); strings.HasSuffix(tc.at, "custom finalizer") {
					opts = append(opts, WithFinalizer(resource.FinalizerFns{
						AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
							mg, _ := o.(resource.Managed)
							must(t, in(ctx, "custom finalizer", mg))
							return f.AddFinalizer(ctx, o)
						},
						RemoveFinalizerFn: f.RemoveFinalizer,
					}))
				}
				run(t, newBucketReconciler(a, opts...), "b")

				// It is no failure either.
				wants(t, tc.reason, "finalizers, creates, other calls, warnings", []any{want, tc.creates, tc.others, 0}, []any{get(t, a).GetFinalizers(), created, others, len(h.Events("CannotDeleteExternalResource"))})
			})
		}
	}
}

// The session knows that what it read is older than its own last write, which met
// the pause. A provider that writes the managed resource itself is not stopped by that.
func TestKnownStaleRead(t *testing.T) {
	for call, mods := range map[string][]func(*v1alpha1.Bucket){"update": nil, "delete": {deleting}} {
		t.Run(call, func(t *testing.T) {
			a, x, n := testkit.NewAPI(bucket(append(mods, named("id-1"), finalizers(FinalizerName))...)), &outside{there: true, outdated: true, slow: 1000}, 0
			x.on("observe", func(b *v1alpha1.Bucket) error {
				if n == 10 {
					annotated("learned", "now")(b)
					edit(t, a, "b", paused)
				}
				return nil
			})
			fns := clientOf(x.client())
			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				if n++; n > 9 {
					return &fns, nil
				}
				bucketOf(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(n)}
				return &fns, a.Server().Status().Update(ctx, mg)
			})))
			try(r, 9)
			acted := x.did(call)
			if acted == 0 {
				t.Errorf("%ss in 9 reconciles: none; Synced: %s", call, get(t, a).GetCondition(xpv2.TypeSynced).Message)
			}
			must(t, a.Freeze(t.Context(), get(t, a)))

			// The first meets the pause, and writes. Then the cache still has the state before.
			repeat(t, r, 2)
			wants(t, "", "calls for what is paused", acted, x.did(call))
		})
	}
}

// A legacy managed resource says in two fields whether it deletes.
func TestAnswerShowsDeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	d.SetFinalizers([]string{FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: newClock().now})
	a, deleted := testkit.NewAPI(d), 0
	run(t, NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()), WithManagementPolicies(), WithInitializers(), connects(ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: true}, a.Server().Patch(ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)))
		},
		DeleteFn: counts[ExternalDelete](&deleted),
	})), "/d")
	wants(t, "It orphans its external resource by now.", "deletes", 0, deleted)
}

// A pause that comes up while the external resource is observed must not be
// followed by a finalizer, nor by a create that no finalizer protects.
func TestFinalizerGuard(t *testing.T) {
	cases := map[string]struct {
		reason  string
		pauses  bool
		opts    []ReconcilerOption
		want    []string
		creates int
	}{
		"Usual":                  {reason: "A finalizer is added before the external resource is created.", want: []string{FinalizerName}, creates: 1},
		"PausedMeanwhile":        {reason: "No finalizer is added to what is paused, and nothing created.", pauses: true},
		"PausedMeanwhileWithout": {reason: "Without the guard it is added, but nothing is created for what is known to be paused.", pauses: true, opts: []ReconcilerOption{WithoutFinalizerGuard()}, want: []string{FinalizerName}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket()), &outside{}
			if tc.pauses {
				x.on("observe", func(b *v1alpha1.Bucket) error { paused(b); return nil })
			}
			run(t, newBucketReconciler(a, append(tc.opts, connects(x.client()))...), "b")
			wants(t, tc.reason, "finalizers, creates", []any{tc.want, tc.creates}, []any{get(t, a).GetFinalizers(), x.did("create")})
		})
	}
}
