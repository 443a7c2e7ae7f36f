package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// drive reconciles until nothing was left to do, twice in a row.
func drive(t *testing.T, r reconcile.Reconciler, a *testkit.API) {
	t.Helper()
	const enough = 40
	quiet := 0
	var last error
	for range enough {
		before := a.Writes()
		result, err := r.Reconcile(context.Background(), request())
		last = err

		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err == nil && !result.Requeue && a.Writes() == before {
			quiet++
		} else {
			quiet = 0
		}
		if quiet == 2 {
			return
		}
	}
	t.Fatalf("no rest after %d reconciles: last error %v, status %+v", enough, last, get(t, a).Status)
}

// on returns a hook that calls fn for the k-th request that matches, from 1.
func on(k int, match func(testkit.Request) bool, fn func(r testkit.Request) error) func(context.Context, testkit.Request) error {
	var mu sync.Mutex
	return func(_ context.Context, r testkit.Request) error {
		if !match(r) {
			return nil
		}
		mu.Lock()
		k--
		is := k == 0
		mu.Unlock()
		if !is {
			return nil
		}
		return fn(r)
	}
}

func lostRace(testkit.Request) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("another writer was first"))
}

func serverError() error { return kerrors.NewInternalError(errors.New("etcd has no leader")) }

func broken(testkit.Request) error { return serverError() }

// A patchingFinalizer writes past the seam, whatever the resource version.
type patchingFinalizer struct{ c client.Client }

func (f patchingFinalizer) set(ctx context.Context, o client.Object, finalizers string) error {
	return client.IgnoreNotFound(f.c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))))
}

func (f patchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if meta.FinalizerExists(o, FinalizerName) {
		return nil
	}
	return f.set(ctx, o, `["`+FinalizerName+`"]`)
}

func (f patchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.set(ctx, o, "null")
}

// settledAs fails the test unless all is at rest with one external resource.
func settledAs(t *testing.T, reason string, a *testkit.API, w *cloud.Cloud) {
	t.Helper()
	b := get(t, a)
	wants(t, reason, "at rest: external resources, creates, name, ID, Ready, Synced, finalizers, incomplete",
		[]any{[]string{"id-0001"}, 1, "id-0001", "id-0001", corev1.ConditionTrue, corev1.ConditionTrue, []string{FinalizerName}, false},
		[]any{
			slices.Collect(maps.Keys(resources(w))), w.Counts()[cloud.OpCreate], meta.GetExternalName(b), b.Status.AtProvider.ID,
			b.GetCondition(xpv2.TypeReady).Status, b.GetCondition(xpv2.TypeSynced).Status, b.GetFinalizers(), meta.ExternalCreateIncomplete(b),
		})
}

// faults disturb the k-th request or write, before it takes effect or after.
func faults() map[string]func(t *testing.T, a *testkit.API, k int) {
	foreign := func(t *testing.T, a *testkit.API) func(testkit.Request) error {
		t.Helper()
		return func(testkit.Request) error {
			b := get(t, a)
			if b.GetName() == "" {
				return nil
			}
			b.SetConditions(foreignCondition())
			return a.Server().Status().Update(context.Background(), b)
		}
	}
	all := func(testkit.Request) bool { return true }

	// outage fails n requests that match, from the k-th write on.
	outage := func(k, n int, match func(testkit.Request) bool) func(context.Context, testkit.Request) error {
		return func(_ context.Context, r testkit.Request) error {
			if isWrite(r) {
				k--
			}
			if k > 0 || n == 0 || !match(r) {
				return nil
			}
			n--
			return serverError()
		}
	}
	return map[string]func(t *testing.T, a *testkit.API, k int){
		"Conflict":            func(_ *testing.T, a *testkit.API, k int) { a.Before = on(k, isWrite, lostRace) },
		"Error":               func(_ *testing.T, a *testkit.API, k int) { a.Before = on(k, isWrite, broken) },
		"LostAnswer":          func(_ *testing.T, a *testkit.API, k int) { a.After = on(k, isWrite, broken) },
		"AnotherWriterBefore": func(t *testing.T, a *testkit.API, k int) { a.Before = on(k, all, foreign(t, a)) },
		"AnotherWriterAfter":  func(t *testing.T, a *testkit.API, k int) { a.After = on(k, all, foreign(t, a)) },

		// Both last for longer than a writer is patient.
		"Outage":         func(_ *testing.T, a *testkit.API, k int) { a.Before = outage(k, 25, all) },
		"OutageOfWrites": func(_ *testing.T, a *testkit.API, k int) { a.Before = outage(k, 13, isWrite) },
		"StaleCache": func(_ *testing.T, a *testkit.API, k int) {
			// The cache shows what was there before this write, for four reads.
			reads := 0
			freeze := on(k, isWrite, func(testkit.Request) error {
				reads = 4
				return client.IgnoreNotFound(a.Freeze(context.Background(), bucket()))
			})
			a.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.Get && reads > 0 {
					if reads--; reads == 0 {
						a.Thaw()
					}
				}
				return freeze(ctx, r)
			}
		},
	}
}

func foreignCondition() xpv2.Condition {
	return xpv2.Condition{Type: "Foreign", Status: corev1.ConditionTrue, Reason: "Because", Message: "of another writer"}
}

// Whichever request is disturbed, there is one external resource, and others' conditions stay.
func TestFaultOrOutageAtAnyRequest(t *testing.T) {
	const most = 12
	ways := map[string]func(a *testkit.API) ReconcilerOption{
		"Default": func(*testkit.API) ReconcilerOption { return WithInitializers() },
		// Both finalizers write past the seam, one of them whatever the resource version.
		"CustomFinalizer": func(a *testkit.API) ReconcilerOption {
			return WithFinalizer(resource.NewAPIFinalizer(a.Client(), FinalizerName))
		},
		"UnguardedFinalizer": func(a *testkit.API) ReconcilerOption { return WithFinalizer(patchingFinalizer{c: a.Client()}) },
		"UpstreamCriticalAnnotations": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
		},
	}
	for wayName, way := range ways {
		for faultName, inject := range faults() {
			for k := 1; k <= most; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", wayName, faultName, k), func(t *testing.T) {
					a := testkit.NewAPI(bucket())
					world, connects := newWorld()
					r := newBucketReconciler(a, way(a), connects)
					disturbed := func() {
						a.Before, a.After = nil, nil
						inject(t, a, k)
						drive(t, r, a)
						if c := get(t, a).GetCondition("Foreign"); c.Reason != "" {
							wants(t, "", "condition of another writer", foreignCondition(), c)
						}
					}
					disturbed()
					if (world.Counts()[cloud.OpCreate] == 0 || wayName == "UpstreamCriticalAnnotations") && meta.ExternalCreateIncomplete(get(t, a)) {
						// The outcome is unknown: the announcement's answer was lost, or upstream's way stored no result.
						edit(t, a, "b", unannotated(meta.AnnotationKeyExternalCreatePending))
						drive(t, r, a)
					}
					settledAs(t, "A managed resource should come to have one external resource.", a, world)
					wants(t, "", "objects in memory", 1, r.seam.Store().Len())
					edit(t, a, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" })
					disturbed()
					settledAs(t, "An update should be made.", a, world)
					wants(t, "", "regions after an update", map[string]string{"id-0001": "eu"}, resources(world))
					remove(t, a, "b")
					disturbed()
					wants(t, "", "name, external resources, objects in memory after a deletion",
						[]any{"", map[string]string{}, 0}, []any{get(t, a).GetName(), resources(world), r.seam.Store().Len()})
				})
			}
		}
	}
}

// Nothing is stored for what went, or was replaced, while its external client was called.
func TestGoneMeanwhile(t *testing.T) {
	const reason = "What is gone needs nothing stored, which is no failure. What has its name now is left alone."
	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": bucket(), "Finalized": bucket(finalizers(FinalizerName))} {
		for _, replaced := range []bool{false, true} {
			for _, during := range []string{"observe", "create", "update"} {
				t.Run(fmt.Sprintf("%s/replaced=%t/%s", objectName, replaced, during), func(t *testing.T) {
					a, h := testkit.NewAPI(object.DeepCopy()), &testkit.Said{}
					version, updates := "", 0
					x := &outside{there: during != "create", outdated: during == "update"}
					x.on(during, func(b *v1alpha1.Bucket) error {
						b.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						b.Spec.ForProvider.Region = "eu"
						kill(t, a, "b")
						if replaced {
							must(t, a.Server().Create(t.Context(), bucket(annotated("is", "new"))))
						}
						version, updates = get(t, a).GetResourceVersion(), a.Count(testkit.Update)
						return nil
					})
					r := newBucketReconciler(a, WithRecorder(h), connects(x.client()))
					if _, err := r.Reconcile(t.Context(), request()); err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("Reconcile of what is gone: %v", err)
					}
					b := get(t, a)
					got := []any{b.GetResourceVersion(), meta.GetExternalName(b), len(h.Events(reasonCannotStoreAnnotations)), a.Count(testkit.Patch) > 1}
					wants(t, reason, "version, name, events, patched again", []any{version, "", 0, false}, got)
					wants(t, reason, "calls but for that one", 0, len(x.acts)-x.did(during))
					if during == "create" {
						wants(t, reason, "updates after Create", updates, a.Count(testkit.Update))
					}
				})
			}
		}
	}
}

func patchLabel(ctx context.Context, a *testkit.API, o client.Object) error {
	return a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)))
}

// answer patches, and decodes the answer into the memory of the object that it was given.
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

// What a conflict or an answer has shown stops what was decided from an older state.
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

		// at is the call in which each change is made, and shows what the provider does then.
		at              string
		unguarded       bool // Finalizers are.
		changes         []bucketFn
		deletes         bool
		shows           func(ctx context.Context, a *testkit.API, mg resource.Managed) error
		creates, others int
		requests        bool     // The Delete that is not made is reported.
		want            []string // Finalizers, if they change.
	}{
		"Unnoticed":            {reason: "The reconciler can't know of a change that it has not read.", exists: true, at: "observe", changes: each, shows: silent, others: 1},
		"InMemory":             {reason: "What the provider changes in memory alone is no matter.", exists: true, at: "observe", changes: nothing, shows: inMemory(policies(observe)), others: 1},
		"PausedInMemory":       {reason: "A pause is one wherever it is.", exists: true, at: "observe", changes: nothing, shows: inMemory(paused)},
		"WrittenByTheProvider": {reason: "A provider that writes the managed resource itself has the newest one in memory.", exists: true, at: "observe", changes: nothing, shows: updates, others: 1},
		"Delete":               {reason: "The report that precedes Delete meets the conflict.", requests: true, mods: []bucketFn{deleting}, exists: true, at: "observe", changes: each, shows: silent},
		"DeleteLearned":        {reason: "Storing what Observe learned meets the conflict. Then it is not reported either.", mods: []bucketFn{deleting}, exists: true, at: "observe", changes: []bucketFn{paused}, shows: learns},
		"Update":               {reason: "Storing what Observe learned meets the conflict.", exists: true, at: "observe", changes: each, shows: learns},
		"CreateAfterWrite":     {reason: "The answer to the provider's write shows it.", at: "observe", changes: each, shows: patches},
		"UpdateAfterWrite":     {reason: "The answer to the provider's write shows it.", exists: true, at: "observe", changes: each, shows: patches},
		// Unlike an API server, Go's JSON leaves out what is empty, such as no policies.
		"UpdateDecodedInPlace":  {reason: "The answer is decoded over what was read.", exists: true, at: "observe", changes: each[:3], shows: answer},
		"DeleteAfterWrite":      {reason: "The answer to the provider's write shows it.", mods: []bucketFn{deleting}, exists: true, at: "observe", changes: each, shows: patches},
		"Fresh":                 {reason: "A finalizer is added before the external resource is created.", mods: []bucketFn{finalizers()}, at: "observe", changes: nothing, shows: silent, creates: 1, want: []string{FinalizerName}},
		"FreshPaused":           {reason: "None is added to what is paused, and nothing created.", mods: []bucketFn{finalizers()}, at: "observe", changes: nothing, shows: inMemory(paused)},
		"FreshPausedUnguarded":  {reason: "Without the guard it is added, but nothing is created for what is known to be paused.", unguarded: true, mods: []bucketFn{finalizers()}, at: "observe", changes: nothing, shows: inMemory(paused), want: []string{FinalizerName}},
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
		"PreCreateLabeled": {reason: "A label of another writer is no reason not to create.", creates: 1, at: "observe again", changes: []bucketFn{func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"example.org/team": "blue"}) }}, shows: patchesStatus},
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
				if tc.unguarded {
					opts = append(opts, WithoutFinalizerGuard())
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
				b := get(t, a)
				wants(t, tc.reason, "finalizers, creates, other calls, warnings", []any{want, tc.creates, tc.others, 0}, []any{b.GetFinalizers(), created, others, len(h.Events("CannotDeleteExternalResource"))})
				wants(t, tc.reason, "said to be deleted", tc.requests, deletingCondition(b).Reason == reconciler.ReasonExternalDeleteRequested)
			})
		}
	}
}

// What is known to be older than our own last write, which met a pause, is not acted on.
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
	must(t, a.Server().Get(t.Context(), client.ObjectKeyFromObject(d), d))
	wants(t, "It says that it is being deleted, too.", "reason", reconciler.ReasonDeletionRequested, deletingCondition(d).Reason)
}
