package managed

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Creates that follow each other within a second are told apart, however each of
// them ends.
func TestAnnouncements(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      func(a *testkit.API) ReconcilerOption
	}{
		"Default": {reason: "Annotations are stored by Graft.", o: func(*testkit.API) ReconcilerOption { return WithInitializers() }},
		"CustomUpdater": {
			reason: "Annotations are stored by an updater of the provider's.",
			o: func(a *testkit.API) ReconcilerOption {
				return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
			},
		},
		"WithoutPersistence": {reason: "Annotations are stored by upstream.", o: func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, x := testkit.NewAPI(bucket()), &outside{}
				x.on("create", func(*v1alpha1.Bucket) error {
					if x.did("create") == 3 {
						panic("the process died")
					}
					return errors.New("boom")
				})
				r := newBucketReconciler(a, tc.o(a), connects(x.client()))
				for range 5 {
					try(r, 1)
					time.Sleep(time.Millisecond)
				}
				wants(t, tc.reason, "the third create was cut off: creates, incomplete", []any{3, true}, []any{x.did("create"), meta.ExternalCreateIncomplete(get(t, a))})
			})
		})
	}
}

// A create that ends in the second in which it was announced has ended.
func TestAnnouncementOfShortCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, x := testkit.NewAPI(bucket()), &outside{}
		x.on("create", func(*v1alpha1.Bucket) error {
			if x.did("create") < 3 {
				return errors.New("boom")
			}
			return nil
		})
		r := newBucketReconciler(a, connects(x.client()))
		for range 4 {
			run(t, r, "b")
			wants(t, "", "incomplete", false, meta.ExternalCreateIncomplete(get(t, a)))
		}
		wants(t, "", "creates, Synced", []any{3, xpv2.ReasonReconcileSuccess}, []any{x.did("create"), reasonOf(get(t, a), xpv2.TypeSynced)})
	})
}

// A reconcile that announces no create leaves alone what is said of the last one.
func TestNoAnnouncementWithoutCreate(t *testing.T) {
	for reason, actions := range map[string][]xpv2.ManagementAction{
		"The policies allow an update, and no create.": {xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize},
		"The policies allow neither.":                  {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	} {
		t.Run(reason, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), policies(actions...),
				annotated(meta.AnnotationKeyExternalCreatePending, created), annotated(meta.AnnotationKeyExternalCreateSucceeded, created)))
			x := (&outside{late: true}).on("observe", func(b *v1alpha1.Bucket) error { b.Spec.ForProvider.Region = "eu"; return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, reason, "external-create-succeeded, incomplete", []any{created, false},
				[]any{b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded], meta.ExternalCreateIncomplete(b)})
		})
	}
}

// What is in memory when a create returns survives that its annotations are
// stored, however they are.
func TestCriticalAnnotationsKeepMemory(t *testing.T) {
	merged := 0
	merge := func(a *testkit.API) CriticalAnnotationUpdater {
		return upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
			merged++
			data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": o.GetAnnotations()}})
			must(t, err)
			return a.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
		})
	}
	updaters := map[string]func(a *testkit.API) ReconcilerOption{
		"Default":            func(*testkit.API) ReconcilerOption { return WithInitializers() },
		"WithoutPersistence": func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() },
		"Upstream": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
		},
		"Custom": func(a *testkit.API) ReconcilerOption { return WithCriticalAnnotationUpdater(merge(a)) },
	}
	for updaterName, updater := range updaters {
		for outcome, err := range map[string]error{"Succeeds": nil, "Fails": errors.New("boom")} {
			t.Run(updaterName+"/"+outcome, func(t *testing.T) {
				const reason = "Status that Create set should be stored in the same reconcile."
				a := testkit.NewAPI(bucket(annotated(keptKey, "kept")))
				x := (&outside{}).on("create", func(b *v1alpha1.Bucket) error {
					named("id-1")(b)
					b.Status.AtProvider.ID = "id-1"
					return err
				})
				run(t, newBucketReconciler(a, updater(a), connects(x.client())), "b")
				b := get(t, a)
				want := []any{"id-1", "id-1", "kept", false, xpv2.ReasonCreating, false}
				got := []any{
					meta.GetExternalName(b), b.Status.AtProvider.ID, b.GetAnnotations()[keptKey], meta.ExternalCreateIncomplete(b),
					b.GetCondition(xpv2.TypeReady).Reason, (meta.GetExternalCreateSucceeded(b).IsZero()) != (err != nil),
				}
				wants(t, reason, "name, status, others' annotation, incomplete, ready, result", want, got)
			})
		}
	}
	wants(t, "", "calls of the provider's own updater", 2, merged)
}

// The default stores nothing but annotations, in patches; unless Create changed
// more than that.
func TestDefaultCriticalAnnotations(t *testing.T) {
	cases := map[string]struct {
		reason  string
		create  func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket)
		patches int
		updates int
		region  string
	}{
		"Nothing": {reason: "A result is stored by a patch.", create: func(*testing.T, *testkit.API, *v1alpha1.Bucket) {}, patches: 1, updates: 2},
		"Name":    {reason: "So is a name.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { named("id-1")(b) }, patches: 2, updates: 2},
		"SpecToo": {reason: "As with upstream, other changes are stored too.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }, patches: 1, updates: 3, region: "eu"},
		"LostARace": {
			reason: "As with upstream, a conflict drops other changes.",
			create: func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "eu"
				edit(t, a, "b", annotated("a", "b"))
			},
			patches: 2,
			updates: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket())
			x := (&outside{}).on("create", func(b *v1alpha1.Bucket) error { tc.create(t, a, b); return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, tc.reason, "patches, updates, region, incomplete", []any{tc.patches, tc.updates, tc.region, false}, []any{a.Count(testkit.Patch), a.Count(testkit.Update), b.Spec.ForProvider.Region, meta.ExternalCreateIncomplete(b)})
		})
	}
}

// An object that no reconcile is about goes to the updater that writes all of it.
func TestCriticalAnnotationsOfUntracked(t *testing.T) {
	boom := errors.New("boom")
	u := &criticalAnnotations{whole: upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error { return boom })}
	if err := u.UpdateCriticalAnnotations(t.Context(), bucket()); !errors.Is(err, boom) {
		t.Errorf("UpdateCriticalAnnotations(...): want %v, got %v", boom, err)
	}
}

// A create that failed says nothing of the one that another process has announced since.
func TestFailedCreateSaysNothingOfAnother(t *testing.T) {
	a, there := testkit.NewAPI(bucket()), time.Now().Add(-time.Second).Format(time.RFC3339)
	x := (&outside{}).on("create", func(*v1alpha1.Bucket) error {
		edit(t, a, "b", annotated(meta.AnnotationKeyExternalCreatePending, there))
		return errors.New("boom")
	})
	run(t, newBucketReconciler(a, connects(x.client())), "b")
	b := get(t, a)
	wants(t, "", "incomplete, announced", []any{true, there}, []any{meta.ExternalCreateIncomplete(b), b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]})
}

// A create without a result may have set the external name.
func TestNameOfCreateWithoutResult(t *testing.T) {
	a := testkit.NewAPI(bucket())
	x := (&outside{}).on("create", func(b *v1alpha1.Bucket) error {
		named("id-1")(b)
		return errors.Wrap(asyncstate.ErrOutcomeUnknown, "no answer")
	})
	run(t, newBucketReconciler(a, WithoutExternalNamePersistence(), connects(x.client())), "b")
	b := get(t, a)
	wants(t, "", "name, incomplete", []any{"id-1", true}, []any{meta.GetExternalName(b), meta.ExternalCreateIncomplete(b)})
}
